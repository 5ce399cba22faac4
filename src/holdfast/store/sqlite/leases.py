"""Leases end: given back, taken back from the dead, or asked for anew; and the deadlines of parked rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from msgspec.json import encode

from holdfast.core.clock import MICROSECONDS
from holdfast.core.error_record import ErrorRecord, type_name
from holdfast.core.errors import ExecutionStrandedError
from holdfast.store.sqlite import control, keys, picking
from holdfast.store.sqlite.statements import SQL, json_ids
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import ExecutionClaim, Fired, Reaped


def reclaim(tx: Tx, worker: str, claims: Sequence[ExecutionClaim]) -> list[ExecutionClaim | None]:
    """Lease again, one epoch later, what this worker still holds."""
    ids = json_ids(claim.row for claim in claims)
    tx.db.execute(SQL["lease_catch_up"], (ids, worker))
    tx.db.execute(SQL["lease_anew"], (tx.now, ids, worker))
    held = {claim.row: claim for claim in picking.claims_of(tx, worker, ids)}
    return [held.get(claim.row) for claim in claims]


def release(tx: Tx, worker: str, claims: Sequence[ExecutionClaim]) -> int:
    """Put back the claims whose fence holds."""
    epochs = {claim.row: claim.epoch for claim in claims}
    held = tx.db.execute(SQL["flush_fences"], (json_ids(epochs), worker)).fetchall()
    return _put_back(tx, worker, [(row[0], row[5]) for row in held if row[1] == epochs[row[0]]])


def disown(tx: Tx, worker: str, keep: Sequence[int]) -> int:
    """Put back all that this worker holds but `keep`."""
    kept = set(keep)
    held = tx.db.execute(SQL["lease_held"], (worker,)).fetchall()
    return _put_back(tx, worker, [row for row in held if row[0] not in kept])


def stirred(db: sqlite3.Connection, worker: str, rows: Sequence[int]) -> list[int]:
    return [row for (row,) in db.execute(SQL["lease_stirred"], (json_ids(rows), worker))]


def retire(tx: Tx, worker: str) -> int:
    returned = disown(tx, worker, ())
    tx.db.execute(SQL["worker_remove"], (worker,))
    return returned


def _put_back(tx: Tx, worker: str, rows: Sequence[tuple[int, str | None]]) -> int:
    tx.db.execute(SQL["lease_catch_up"], (json_ids(row for row, _ in rows), worker))
    tx.db.executemany(SQL["lease_release"], [(tx.now, row) for row, _ in rows])
    _drop_keys(tx, rows)
    tx.work |= bool(rows)
    return len(rows)


def _drop_keys(tx: Tx, rows: Iterable[tuple[int, str | None]]) -> None:
    keys.drop(tx, [(key, row) for row, key in rows if key is not None])


def reap(tx: Tx, limit: int, max_crashes: int) -> Reaped:
    """Take back what the dead held (seed section 4.3); a worker's row goes after the last row it held."""
    gone: list[str] = []
    stranded: list[bytes] = []
    released, left = 0, limit
    for (worker,) in tx.db.execute(SQL["reap_workers"], (tx.now,)).fetchall():
        held = tx.db.execute(SQL["reap_held"], (worker, left)).fetchall() if left > 0 else []
        poison = [row for row in held if row[3] + 1 >= max_crashes]
        again = [(tx.now, row[0]) for row in held if row[3] + 1 < max_crashes]
        tx.db.execute(SQL["lease_catch_up"], (json_ids(row[0] for row in held), worker))
        tx.db.executemany(SQL["reap_release"], again)
        tx.db.executemany(SQL["reap_strand"], [(_poison(row[3] + 1, row[4], worker), tx.now, row[0]) for row in poison])
        _drop_keys(tx, [(row[0], row[2]) for row in held])
        stranded += [row[1] for row in poison]
        released += len(again)
        left -= len(held)
        if left <= 0:
            break
        tx.db.execute(SQL["worker_remove"], (worker,))
        gone.append(worker)
    tx.work |= released > 0
    tx.ended |= bool(stranded)
    return Reaped(tuple(gone), released, tuple(stranded), left <= 0)


def _poison(crashes: int, step: str, worker: str) -> str:
    """The error of a row that took its workers down with it."""
    return encode(
        ErrorRecord(
            type=type_name(ExecutionStrandedError),
            message=(
                f"its worker was lost {crashes} times in a row in step {step!r} without progress, "
                f"the last was {worker}: find what kills the worker there, then resume the execution"
            ),
            kind="internal",
        )
    ).decode()


def fire_timers(tx: Tx, limit: int) -> Fired:
    """Wake the parked rows whose deadline has come, and request the cancel of executions whose own has."""
    due = tx.db.execute(SQL["timers_due"], (tx.now, limit)).fetchall()
    if due:
        tx.db.execute(SQL["timers_fire"], (tx.now, tx.now, json_ids([row for (row,) in due])))
        tx.work = True
    fired = len(due)
    if fired < limit:
        fired += control.expire(tx, limit - fired)
    if fired >= limit:
        return Fired(fired, 0.0, True)
    following = [
        found[0]
        for statement in ("timers_next", "deadlines_next")
        if (found := tx.db.execute(SQL[statement], (tx.now,)).fetchone()) is not None
    ]
    return Fired(fired, (min(following) - tx.now) / MICROSECONDS if following else None, False)
