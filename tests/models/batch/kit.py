"""What the tests of batches share."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast import RetryPolicy
from holdfast.models.batch.items import BatchItem
from holdfast.models.batch.run import BatchRun
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.stores import Stores

AT_ONCE = RetryPolicy(max_attempts=3, initial_delay=0)
NO_RETRY = RetryPolicy(max_attempts=1)


async def committed(run: BatchRun[Any], start: int = 0) -> list[BatchItem[Any]]:
    return [item async for item in run.committed(start)]


async def outcomes(run: BatchRun[Any]) -> list[str]:
    return [item.outcome for item in await committed(run)]


async def until(condition: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    """Let the loop run until something holds; `no_hang` bounds it."""
    while True:
        held = condition()
        if (await held) if isinstance(held, Awaitable) else held:
            return
        await asyncio.sleep(0.001)


def make_transactional(stores: Stores, before: list[int]) -> Any:
    """A sink that writes seqs into a table of its own; `before` hears of each call, and may hold it up."""

    def write(db: sqlite3.Connection, items: list[BatchItem[int]]) -> None:
        before.append(items[0].seq)
        db.executemany("insert into landed values (?, ?)", [(item.seq, item.value) for item in items])

    async def write_async(connection: Any, items: list[BatchItem[int]]) -> None:
        before.append(items[0].seq)
        rows = [(item.seq, item.value) for item in items]
        await connection.executemany("insert into pg_temp_landed values ($1, $2)", rows)

    return write if stores.backend == "sqlite" else write_async


async def prepare(stores: Stores) -> None:
    if isinstance(stores.store, SqliteStore):
        with sqlite3.connect(stores.store._path) as db:
            db.execute("create table landed (seq integer, value integer)")
        db.close()
    else:
        async with stores.store._connections.any("prepare") as connection:  # type: ignore[attr-defined]
            await connection.execute("drop table if exists pg_temp_landed")
            await connection.execute("create table pg_temp_landed (seq int, value int)")


async def landed(stores: Stores) -> list[tuple[int, int]]:
    if isinstance(stores.store, SqliteStore):
        db = sqlite3.connect(stores.store._path)
        found = db.execute("select seq, value from landed order by rowid").fetchall()
        db.close()
        return found
    async with stores.store._connections.any("look") as connection:  # type: ignore[attr-defined]
        return [tuple(row) for row in await connection.fetch("select seq, value from pg_temp_landed order by ctid")]
