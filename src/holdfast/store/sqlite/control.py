"""What people do to executions from outside: cancel, pause, resume, purge."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence

from holdfast.core.status import PARKED, TERMINAL, Status
from holdfast.store.base import DEADLINE_EXCEEDED, trees_of
from holdfast.store.sqlite import barriers, flowing, inboxes, keys, reports
from holdfast.store.sqlite.rows import STATUS, Row, after, names_json, names_of
from holdfast.store.sqlite.statements import SQL, json_ids
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import Retention

# These are ended by whoever works on them: the holder of the lease, or the last message or chunk (ruling A11).
_ASKED = frozenset({Status.EXECUTING, Status.DELEGATED})
# Of what cleans up, these go on at once, to hear of the cancel.
_WOKEN = PARKED | {Status.RUNNABLE}


def cancel(
    tx: Tx, promises: Sequence[bytes], cascade: bool, reason: str | None, force: bool = False
) -> list[Status | None]:
    ids = [row[0] for promise in promises for row in tx.db.execute(SQL["control_find"], (promise,))]
    if cascade:
        ids += [id_ for tree in trees_of(promises) for (id_,) in tx.db.execute(SQL["cancel_tree"], tree)]
    if force:
        tx.db.execute(SQL["cancel_force"], (json_ids(ids),))
    messages = flowing.messages_of(tx, ids)  # first: a job whose dead letters are dropped is stranded no more
    rows = {row[0]: row for row in tx.db.execute(SQL["cancel_rows"], (json_ids(ids),))}
    _request(tx, sorted((rows | messages).values()), reason)
    now = [tx.db.execute(SQL["control_find"], (promise,)).fetchone() for promise in promises]
    return [None if row is None else STATUS[row[1]] for row in now]


def expire(tx: Tx, limit: int) -> int:
    """Request the cancel of the executions whose own deadline has come; how many."""
    due = tx.db.execute(SQL["deadlines_due"], (tx.now, limit)).fetchall()
    rows = {row[0]: row for row in due}
    _request(tx, sorted((rows | flowing.messages_of(tx, rows)).values()), DEADLINE_EXCEEDED)
    return len(due)


def _request(tx: Tx, rows: Sequence[Row], reason: str | None) -> None:
    """End what nobody holds, ask the holders of the rest."""
    asked: list[int] = []
    ended: list[Row] = []
    for values in rows:
        row, status, cleans_up, was_requested = values[0], STATUS[values[1]], values[6], values[7]
        if status in TERMINAL:
            continue
        if status not in _ASKED and not cleans_up:
            ended.append(values)
            continue
        asked.append(row)
        if status is Status.EXECUTING:
            tx.work = tx.stirred = True
        elif status in _WOKEN and not was_requested:
            tx.db.execute(SQL["cancel_wake"], (tx.now, row))
            tx.work = True
    tx.db.executemany(SQL["cancel_ask"], [(reason, tx.now, row) for row in asked])
    _end(tx, ended, reason)


def _end(tx: Tx, rows: Sequence[Row], reason: str | None) -> None:
    """Write the end of rows that nobody holds, with all that rides on an end."""
    if not rows:
        return
    tx.db.executemany(SQL["cancel_end"], [(reason, tx.now, tx.now, row[0]) for row in rows])
    inboxes.clear(tx, [row[0] for row in rows])
    barriers.count_down(tx, Counter((row[3], row[4]) for row in rows if row[4] is not None))
    reports.report(tx, [(row[0], row[3]) for row in rows if row[5] and row[3] is not None])
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
    elif flowing.pause(tx, row[0], paused and not row[7]):  # what a cancelled job published since is not asked itself
        tx.work |= not paused
    return True


def resume(tx: Tx, promise: bytes) -> bool:
    resumed = flowing.resume(tx, promise)
    if resumed is not None:
        return resumed
    row = tx.db.execute(SQL["control_find"], (promise,)).fetchone()
    if row is None or not tx.db.execute(SQL["resume_set"], (tx.now, tx.now, row[0])).rowcount:
        return False
    tx.work = True
    return True


def stranded(
    db: sqlite3.Connection, queue: str, digests: Mapping[int, str], limit: int, after: int
) -> tuple[list[Row], int | None]:
    """A page of a queue's stranded runs: those to try again as (id, digest, tried, job of a dead letter), and where the
    next page begins."""
    page = db.execute(SQL["stranded_page"], (queue, after, limit)).fetchall()
    found = []
    for row, handler, digest, tried, is_of_code, job in page:
        ours = digests.get(handler)
        # What lost its workers is not meant: its digest says nothing of what was tried.
        if is_of_code and ours is not None and ours != digest and ours not in (before := names_of(tried) or ()):
            found.append((row, digest, names_json(dict.fromkeys([*before, digest])), job))
    return found, page[-1][0] if len(page) >= limit else None


def retry_stranded(tx: Tx, rows: Sequence[Row]) -> int:
    values = [(tx.now, tried, tx.now, row, digest) for row, digest, tried, _ in rows]
    retried = tx.db.executemany(SQL["stranded_retry"], values).rowcount
    flowing.unstrand(tx, {job for *_, job in rows if job is not None})
    tx.work |= retried > 0
    return retried


def purgeable(db: sqlite3.Connection, now: int, rule: Retention, limit: int) -> list[int]:
    """What a rule may delete, oldest first; read beside the writer, because it may pass over a great many rows.

    What ended stays so, and a parent never goes back to an earlier round; `purge` looks for what was retried meanwhile.
    """
    found = db.execute(SQL["purge_find"], (after(now, -rule.age_seconds), rule.queue, rule.name, limit))
    return [row for (row,) in found]


def purge(tx: Tx, rows: Sequence[int], now: int, rule: Retention) -> int:
    """Delete ended executions with all that belongs to them; how many were still there."""
    still = tx.db.execute(SQL["purge_still"], (json_ids(rows), after(now, -rule.age_seconds)))
    rows = [row for (row,) in still]
    inboxes.clear(tx, rows)
    ids = json_ids(rows)
    tx.db.execute(SQL["purge_transitions"], (ids,))
    tx.db.execute(SQL["purge_journal"], (ids,))
    flowing.purge(tx, rows)
    return tx.db.execute(SQL["purge_executions"], (ids,)).rowcount
