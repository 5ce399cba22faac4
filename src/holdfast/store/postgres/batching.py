"""Batches from outside: starting, feeding, reading. What workers commit is in `batch_effects.py`."""

from __future__ import annotations

from typing import Final

from holdfast.core.crashpoints import reach
from holdfast.store.batches import INTAKE, BatchView, ChunkView, Counters, Fed, TakeIn, Which
from holdfast.store.postgres.batch_effects import take
from holdfast.store.postgres.columns import signal_columns
from holdfast.store.postgres.connections import Connection
from holdfast.store.postgres.rows import Row
from holdfast.store.postgres.work import Work
from holdfast.store.values import Inserted, NewExecution, NewSignal, Topic

_BLOCKS: Final = {
    "": "batch_chunks",
    "whole": "batch_chunks_whole",
    "undispatched": "batch_chunks_undispatched",
    "failed": "batch_chunks_failed",
}


class Batching(Work):
    async def start_batch(self, row: NewExecution, taken: TakeIn) -> Inserted:
        reach("insert.before")
        async with self._connections.any("start a batch") as connection, connection.transaction():
            (inserted,) = await self._insert_chunk(connection, [row])
            if inserted.created:
                found = await connection.fetchrow(self._sql["batch_run"], row.promise)
                assert found is not None, "the row was just inserted"
                await take(connection, self._sql, found["id"], taken)
        reach("insert.after")
        self._tell(Topic.WORK)
        return inserted

    async def feed_batch(self, promise: bytes, first: int, taken: TakeIn) -> Fed:
        reach("insert.before")
        async with self._connections.any("feed a batch") as connection, connection.transaction():
            fed = await self._feed_batch(connection, promise, first, taken)
        reach("insert.after")
        if fed.accepted:
            self._tell(Topic.WORK)
        return fed

    async def _feed_batch(self, connection: Connection, promise: bytes, first: int, taken: TakeIn) -> Fed:
        # The execution's row is locked first, as by every commit that touches both.
        found = await connection.fetchrow(self._sql["batch_run"], promise)
        if found is None:
            return Fed(False, None)
        await connection.execute(self._sql["batch_create"], found["id"])
        before = await self._view(connection, promise)
        assert before is not None, "the row was just made"
        if found["has_ended"] or before.closed or before.latched or before.taken != first:
            return Fed(False, before)
        await take(connection, self._sql, found["id"], taken)
        await connection.fetchrow(self._sql["deliver"], *signal_columns([NewSignal(promise, INTAKE, "null")]))
        return Fed(True, await self._view(connection, promise))

    async def batch_status(self, promise: bytes) -> BatchView | None:
        async with self._connections.any("look at a batch") as connection:
            return await self._view(connection, promise)

    async def _view(self, connection: Connection, promise: bytes) -> BatchView | None:
        row = await connection.fetchrow(self._sql["batch_view"], promise)
        if row is None:
            return None
        return BatchView(
            taken=row["taken"],
            closed=row["closed"],
            latched=row["latched"],
            expected=row["expected"],
            progress=row["progress"],
            digest=row["digest"],
            open_bytes=row["open_bytes"],
            head=row["head"],
            counters=Counters(
                row["dispatched"],
                row["in_flight"],
                row["succeeded"],
                row["skipped"],
                row["failed"],
                row["cancelled"],
                row["retries"],
            ),
            updated_at=row["updated_at"],
            has_ended=row["has_ended"],
        )

    async def batch_chunks(self, promise: bytes, start: int, limit: int, which: Which = "") -> list[ChunkView]:
        async with self._connections.any("read chunks of a batch") as connection:
            rows = await connection.fetch(self._sql[_BLOCKS[which]], promise, start, limit)
        return [_chunk(row) for row in rows]


def _chunk(row: Row) -> ChunkView:
    first, count, size, is_dispatched, ended, failed, prefix, *long = row
    states, attempts, inputs, results, notes, ready_ms = long or (None,) * 6
    return ChunkView(
        first=first,
        count=count,
        size=size,
        is_dispatched=is_dispatched,
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
