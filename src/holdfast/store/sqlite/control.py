"""What people do to executions from outside: cancel, pause, resume, purge."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence

from holdfast.core.status import TERMINAL, Status
from holdfast.store.sqlite import barriers, keys
from holdfast.store.sqlite.flushing import clear_inboxes
from holdfast.store.sqlite.rows import STATUS, Row, after
from holdfast.store.sqlite.statements import SQL, json_ids
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import Retention

# These are ended by whoever works on them: the holder of the lease, or the last message or chunk (ruling A11).
_ASKED = frozenset({Status.EXECUTING, Status.DELEGATED})


def cancel(tx: Tx, promises: Sequence[bytes], cascade: bool) -> list[Status | None]:
    found = [tx.db.execute(SQL["control_find"], (promise,)).fetchone() for promise in promises]
    rows = {row[0]: row for row in found if row is not None}
    if cascade:
        rows = {row[0]: row for row in tx.db.execute(SQL["cancel_tree"], (json_ids(rows),)).fetchall()}
    live = {row: values for row, values in rows.items() if STATUS[values[1]] not in TERMINAL}
    asked = [row for row, values in live.items() if STATUS[values[1]] in _ASKED]
    ended = [values for values in live.values() if STATUS[values[1]] not in _ASKED]
    tx.db.executemany(SQL["cancel_ask"], [(tx.now, row) for row in asked])
    _end(tx, ended)
    now_cancelled = {row[0] for row in ended}
    return [None if row is None else Status.CANCELLED if row[0] in now_cancelled else STATUS[row[1]] for row in found]


def _end(tx: Tx, rows: Sequence[Row]) -> None:
    """Write the end of rows that nobody holds, with all that rides on an end."""
    if not rows:
        return
    tx.db.executemany(SQL["cancel_end"], [(tx.now, tx.now, row[0]) for row in rows])
    clear_inboxes(tx, [row[0] for row in rows])
    barriers.count_down(tx, Counter((parent, turn) for *_, parent, turn in rows if parent is not None))
    for key in {key for _, status, key, *_ in rows if key is not None and status == "runnable"}:
        keys.settle(tx, key)
    tx.ended = True


def pause(tx: Tx, promise: bytes, paused: bool) -> bool:
    row = tx.db.execute(SQL["control_find"], (promise,)).fetchone()
    if row is None or STATUS[row[1]] in TERMINAL:
        return False
    tx.db.execute(SQL["pause_set"], (1 if paused else 0, tx.now, row[0]))
    if row[1] == "runnable":
        if row[2] is not None:
            keys.settle(tx, row[2])
        tx.work |= not paused
    return True


def resume(tx: Tx, promise: bytes) -> bool:
    row = tx.db.execute(SQL["control_find"], (promise,)).fetchone()
    if row is None or not tx.db.execute(SQL["resume_set"], (tx.now, tx.now, row[0])).rowcount:
        return False
    tx.work = True
    return True


def purgeable(db: sqlite3.Connection, now: int, rule: Retention, limit: int) -> list[int]:
    """What a rule may delete, oldest first; read beside the writer, because it may pass over a great many rows.

    Nothing here can become unfit meanwhile: what ended stays so, and a parent never goes back to an earlier round.
    """
    found = db.execute(SQL["purge_find"], (after(now, -rule.age_seconds), rule.queue, rule.name, limit))
    return [row for (row,) in found]


def purge(tx: Tx, rows: Sequence[int]) -> int:
    """Delete ended executions with all that belongs to them; how many were still there."""
    clear_inboxes(tx, rows)
    ids = json_ids(rows)
    tx.db.execute(SQL["purge_transitions"], (ids,))
    return tx.db.execute(SQL["purge_executions"], (ids,)).rowcount
