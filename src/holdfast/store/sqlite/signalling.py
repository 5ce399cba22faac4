"""Delivering signals: into the inbox first, then the target is woken if it awaits the name (rulings E2, E5, E12)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.core.status import PARKED, TERMINAL, Status
from holdfast.store.sqlite.rows import STATUS
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
    row, status, awaits = target
    if STATUS[status] in TERMINAL:
        return Delivery.ENDED, None
    key = signal.dedup_key
    if key is not None and tx.db.execute(SQL["signal_key_seen"], (row, key)).fetchone() is not None:
        return Delivery.DUPLICATE, None
    inserted = tx.db.execute(SQL["signal_insert"], (row, signal.name, signal.payload, key, tx.now))
    if not inserted.rowcount:
        return Delivery.DUPLICATE, None
    if awaits is not None and signal.name in json.loads(awaits):
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
