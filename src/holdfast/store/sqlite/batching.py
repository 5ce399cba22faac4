"""Batches: taking items in, marking them, committing them in order, and reading all of it.

The writes of `apply` ride on a flush: it is called for the commits whose fence held, in the same transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from holdfast.core.clock import to_datetime
from holdfast.core.errors import LedgerError
from holdfast.core.sequence.states import DISPATCHED
from holdfast.store.batches import (
    INTAKE,
    BatchEffect,
    BatchView,
    ChunkView,
    CommitItems,
    Counters,
    DispatchChunks,
    Fed,
    MarkItems,
    TakeIn,
    Which,
)
from holdfast.store.sqlite import inserting, signalling
from holdfast.store.sqlite.rows import Row
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import ExecutionClaim, Inserted, NewExecution, NewSignal

_BLOCKS: Final = {
    "": "batch_chunks",
    "whole": "batch_chunks_whole",
    "undispatched": "batch_chunks_undispatched",
    "failed": "batch_chunks_failed",
}


def apply(tx: Tx, effects: Sequence[tuple[ExecutionClaim, BatchEffect]]) -> None:
    """The batch effects of commits whose fence held."""
    for claim, effect in effects:
        if isinstance(effect, MarkItems):
            run = claim.row if effect.own_run else claim.parent_row
            assert run is not None, "items are marked by a chunk of a run, or by the run"
            _mark(tx, run, effect)
        elif isinstance(effect, TakeIn):
            take(tx, claim.row, effect)
        elif isinstance(effect, DispatchChunks):
            _dispatch(tx, claim.row, effect)
        else:
            _commit(tx, claim.row, effect)


def take(tx: Tx, run: int, taken: TakeIn) -> None:
    tx.db.execute(SQL["batch_create"], (run, tx.now))
    count = sum(chunk.count for chunk in taken.chunks)
    size = sum(chunk.size for chunk in taken.chunks)
    tx.db.execute(
        SQL["batch_take"],
        (count, size, taken.progress, taken.closes, taken.latches, taken.digest, taken.expected, tx.now, run),
    )
    tx.db.executemany(
        SQL["batch_chunk_insert"],
        [(run, chunk.first, chunk.count, chunk.size, chunk.inputs) for chunk in taken.chunks],
    )


def _dispatch(tx: Tx, run: int, dispatch: DispatchChunks) -> None:
    total = 0
    for first in dispatch.firsts:
        found = tx.db.execute(SQL["batch_chunk_count"], (run, first)).fetchone()
        if found is not None:
            tx.db.execute(SQL["batch_dispatch"], (bytes((DISPATCHED,)) * found[0], run, first))
            total += found[0]
    _count(tx, run, Counters(dispatched=total), 0)


def _mark(tx: Tx, run: int, mark: MarkItems) -> None:
    changed = mark.changed
    parameters = (mark.states, mark.attempts, mark.prefix, changed.ended, changed.failed, mark.notes, mark.results)
    place = (run, mark.first)
    tx.db.execute(SQL["batch_mark"], (*parameters, mark.ready_ms, mark.is_final, mark.inputs, *place))
    size = tx.db.execute(SQL["batch_chunk_size"], place).fetchone()[0] if mark.is_final else 0
    _count(tx, run, changed, size)


def _count(tx: Tx, run: int, changed: Counters, freed: int) -> None:
    parameters = (changed.dispatched, changed.in_flight, changed.succeeded, changed.skipped, changed.failed)
    tx.db.execute(SQL["batch_count"], (*parameters, changed.cancelled, changed.retries, freed, tx.now, run))


def _commit(tx: Tx, run: int, commit: CommitItems) -> None:
    if tx.db.execute(SQL["batch_commit"], (commit.stop, tx.now, run, commit.start)).rowcount != 1:
        raise LedgerError(f"the lane of a batch is not at seq {commit.start}: nothing was committed")
    tx.db.executemany(SQL["batch_clear"], [(run, first) for first in commit.clear])


# ---------------------------------------------------------------------- from outside


def start(tx: Tx, row: NewExecution, taken: TakeIn) -> Inserted:
    (inserted,) = inserting.insert(tx, [row])
    if inserted.created:
        take(tx, tx.db.execute(SQL["batch_run"], (row.promise,)).fetchone()[0], taken)
    return inserted


def feed(tx: Tx, promise: bytes, first: int, taken: TakeIn) -> Fed:
    found = tx.db.execute(SQL["batch_run"], (promise,)).fetchone()
    if found is None:
        return Fed(False, None)
    run, has_ended = found
    tx.db.execute(SQL["batch_create"], (run, tx.now))
    before = view(tx.db, promise)
    assert before is not None, "the row was just made"
    if has_ended or before.closed or before.latched or before.taken != first:
        return Fed(False, before)
    take(tx, run, taken)
    signalling.deliver_one(tx, NewSignal(promise, INTAKE, "null"))
    return Fed(True, view(tx.db, promise))


# ---------------------------------------------------------------------- reading


def view(db: sqlite3.Connection, promise: bytes) -> BatchView | None:
    row = db.execute(SQL["batch_view"], (promise,)).fetchone()
    if row is None:
        return None
    return BatchView(
        taken=row[0],
        closed=bool(row[1]),
        latched=bool(row[2]),
        expected=row[3],
        progress=row[4],
        digest=row[5],
        open_bytes=row[6],
        head=row[7],
        counters=Counters(*row[8:15]),
        updated_at=to_datetime(row[15]),
        has_ended=bool(row[16]),
    )


def chunks(db: sqlite3.Connection, promise: bytes, start: int, limit: int, which: Which) -> list[ChunkView]:
    return [_chunk(row) for row in db.execute(SQL[_BLOCKS[which]], (promise, start, limit))]


def _chunk(row: Row) -> ChunkView:
    first, count, size, is_dispatched, ended, failed, prefix, *long = row
    states, attempts, inputs, results, notes, ready_ms = long or (None,) * 6
    return ChunkView(
        first=first,
        count=count,
        size=size,
        is_dispatched=bool(is_dispatched),
        ended=ended,
        failed=failed,
        prefix=prefix,
        states=states,
        attempts=attempts,
        inputs=inputs,
        results=results,
        notes=notes,
        ready_ms=ready_ms,
    )
