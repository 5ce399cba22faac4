"""Delivering signals: into the inbox first, then the target is woken if it awaits the name (rulings E2, E5, E12)."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.status import PARKED, TERMINAL, Status
from holdfast.store.flows import FLOW
from holdfast.store.sqlite.rows import STATUS, names_of
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import Delivery, NewSignal


def deliver(tx: Tx, signals: Sequence[NewSignal]) -> list[Delivery]:
    return [deliver_one(tx, signal)[0] for signal in signals]


def deliver_one(tx: Tx, signal: NewSignal) -> tuple[Delivery, int | None]:
    """The answer, and the row that was woken."""
    target = tx.db.execute(SQL["signal_target"], (signal.target,)).fetchone()
    if target is None:
        return Delivery.UNKNOWN, None
    row, status, awaits, kind = target
    if STATUS[status] in TERMINAL:
        return Delivery.ENDED, None
    key = signal.dedup_key
    if key is not None and tx.db.execute(SQL["signal_key_seen"], (row, key)).fetchone() is not None:
        return Delivery.DUPLICATE, None
    inserted = tx.db.execute(SQL["signal_insert"], (row, signal.name, signal.payload, key, tx.now))
    if not inserted.rowcount:
        return Delivery.DUPLICATE, None
    if kind == FLOW:
        return Delivery.DELIVERED, route_from(tx, row, signal.name)
    if signal.name in (names_of(awaits) or ()):
        if STATUS[status] in PARKED:
            wake(tx, row)
            return Delivery.DELIVERED, row
        tx.db.execute(SQL["signal_in_time"], (row,))
    if STATUS[status] is Status.EXECUTING:
        tx.work = tx.stirred = True  # a hint for whoever holds it
    return Delivery.DELIVERED, None


def wake(tx: Tx, row: int) -> None:
    """A parked row becomes runnable now."""
    tx.db.execute(SQL["signal_wake"], (tx.now, tx.now, row))
    tx.work = True


def route_to(tx: Tx, job: int, row: int, name: str) -> bool:
    """A hook has parked: what it waits for may be in the job's inbox already (ruling E2); whether it goes on."""
    found = tx.db.execute(SQL["flow_signal"], (job, name)).fetchone()
    if found is not None:
        _move(tx, found[0], row)
    elif not tx.db.execute(SQL["flow_job"], (job,)).fetchone()[4]:
        return False
    wake(tx, row)
    return True


def route_from(tx: Tx, job: int, name: str) -> int | None:
    """A signal has come to a job: the hook that it was given to, the one that has waited longest."""
    hook = tx.db.execute(SQL["flow_hook"], (job, name)).fetchone()
    if hook is None:
        return None
    _move(tx, tx.db.execute(SQL["flow_signal"], (job, name)).fetchone()[0], hook[0])
    wake(tx, hook[0])
    row: int = hook[0]
    return row


def _move(tx: Tx, signal: int, row: int) -> None:
    tx.db.execute(SQL["flow_signal_key"], (signal,))
    tx.db.execute(SQL["flow_signal_move"], (row, signal))
