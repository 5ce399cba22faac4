"""Workflows under running workers, on the machine's own clock: hints arrive, nobody calls the loops by hand."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from holdfast import App, Cancelled, Context, Status
from holdfast.core.errors import ExecutionCancelledError
from holdfast.store.postgres import PostgresStore
from tests.models.workflow.kit import Gate, Rig


@pytest_asyncio.fixture
async def app(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[App]:
    """An app on a ledger with a real clock."""
    if backend == "sqlite":
        made = App("live", store=str(tmp_path / "live.db"))
        yield made
        await made.close()
        return
    url, schema = request.getfixturevalue("postgres_url"), f"holdfast_live_{os.getpid()}"
    made = App("live", store=PostgresStore(url, schema=schema))
    try:
        yield made
    finally:
        await made.close()
        connection = await asyncpg.connect(url)
        await connection.execute(f"drop schema if exists {schema} cascade")
        await connection.close()


async def test_run_starts_works_and_gives_the_result(app: App) -> None:
    @app.task(queue="elsewhere")
    async def add(first: int, second: int) -> int:
        return first + second

    @app.workflow
    async def child(ctx: Context, number: int) -> int:
        return await add(number, 1)

    @app.workflow
    async def work(ctx: Context) -> list[int]:
        return await ctx.all(*[ctx.invoke(child, number) for number in range(20)])

    async with asyncio.timeout(60):
        assert await app.run(work) == list(range(1, 21))


async def test_signals_and_cancels_reach_a_workflow_whose_call_is_in_flight(app: App) -> None:
    gate = Gate()
    seen: list[str] = []

    @app.task
    async def slow() -> None:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            seen.append("interrupted")
            raise

    @app.workflow
    async def work(ctx: Context) -> None:
        call = ctx.invoke(slow)
        first = await ctx.any(call, ctx.signal("news", str))
        seen.append(str(first.result()))
        try:
            await call
        except Cancelled:
            seen.append("cancelled")
            raise

    async with asyncio.timeout(60), app.worker(poll_seconds=0.05):
        handle = await work.start()
        await gate.reached.wait()
        await handle.signal("news", "hello")
        while not seen:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await handle.cancel()
        with pytest.raises(ExecutionCancelledError):
            await handle.result()
    assert sorted(seen) == ["cancelled", "hello", "interrupted"]


async def test_a_worker_that_lost_its_lease_in_a_call_changes_nothing(rig: Rig) -> None:
    """E1: another worker goes on; what the first still commits is fenced, and its body is dropped."""
    gates = [Gate(), Gate()]
    ran: list[int] = []

    @rig.app.task
    async def slow() -> str:
        ran.append(1)
        gate = gates[min(len(ran), 2) - 1]
        await gate.wait()
        return f"by attempt {len(ran)}"

    @rig.app.workflow
    async def work(ctx: Context) -> list[Any]:
        return [await slow(), await ctx.signal("go", int)]

    handle = await work.start()
    first = await rig.worker()
    second = await rig.make_worker()
    stale = rig.working(first)
    await gates[0].reached.wait()
    await rig.stores.advance(31)
    await second.beat_once()
    await second.reap_once()
    fresh = rig.working(second)
    await gates[1].reached.wait()
    gates[0].opened.set()
    await stale
    assert await rig.status(handle) is Status.EXECUTING
    gates[1].opened.set()
    await fresh
    await handle.signal("go", 5)
    await second.run_until_idle()
    assert await handle.result() == ["by attempt 2", 5]
    assert [line for line in await rig.lines(handle) if line.startswith("InvokeCompleted")] == [
        'InvokeCompleted root.0 Ok("by attempt 2") attempt=1'
    ]


@pytest.mark.parametrize("count", [200])
async def test_many_workflows_at_once_end_whole(app: App, count: int) -> None:
    @app.task
    async def double(number: int) -> int:
        return number * 2

    @app.workflow
    async def work(ctx: Context, number: int) -> int:
        first = await double(number)
        await ctx.sleep(0.01)
        return await double(first)

    async with asyncio.timeout(60), app.worker():
        handles: list[Any] = await work.start_many(list(range(count)))
        assert [await handle.result() for handle in handles] == [number * 4 for number in range(count)]
