"""A transaction held open by a raw connection, and the store's own routines called inside it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.store.postgres.conftest import Connection

from holdfast.store.effects import Commit
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.columns import signal_columns
from holdfast.store.postgres.flush import build_call
from holdfast.store.postgres.front import THE_FIRST
from holdfast.store.values import NewSignal
from holdfast.testing.hand import HANDLER

T = TypeVar("T")


async def until_it_waits(observer: Connection, task: asyncio.Task[T], blocker: Connection) -> None:
    """Until some session waits for a lock of `blocker`; the task must not have got through."""
    pid = blocker.get_server_pid()
    query = "select count(*) from pg_stat_activity where $1 = any (pg_blocking_pids(pid))"
    while not await observer.fetchval(query, pid):
        assert not task.done(), f"it did not wait: {task.result()!r}"


async def while_held(observer: Connection, blocker: Connection, call: Coroutine[Any, Any, T]) -> T:
    """Start `call`, see it wait for `blocker`, commit `blocker`, and return the answer."""
    task = asyncio.create_task(call)
    await until_it_waits(observer, task, blocker)
    await blocker.execute("commit")
    return await task


async def flush_in(connection: Connection, store: PostgresStore, worker: str, *commits: Commit) -> None:
    """The flush of `commits`, inside the transaction of `connection`."""
    call = build_call(commits)
    await connection.fetchrow(store._sql[call.block], worker, *call.arguments)


async def deliver_in(connection: Connection, store: PostgresStore, *signals: NewSignal) -> None:
    await connection.fetchrow(store._sql["deliver"], *signal_columns(signals))


async def pick_in(connection: Connection, store: PostgresStore, worker: str, limit: int) -> list[bytes]:
    rows = await connection.fetch(store._sql["pick"], worker, ["default"], [limit], [HANDLER], limit, *THE_FIRST)
    return [row["promise"] for row in rows if row["id"] is not None]
