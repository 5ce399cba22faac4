"""Holdfast on PostgreSQL or SQLite, put to the same workloads in the same way as its peers. The ledger is a new one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.loops import run
from benchmarks.peers.drivers.rounds import (
    LEASE_OVER_SECONDS,
    Arguments,
    Once,
    await_marks,
    end,
    first_line,
    mark,
    marks,
    measure,
    now,
    spawn,
    two_at_a_time,
    workers,
)
from holdfast import App, Context
from holdfast.cli.worker import collect_seldom

MODULE = "benchmarks.peers.drivers.holdfast_driver"
NAP_SECONDS = 1.0
app = App("bench")


@app.task
async def work(number: int) -> int:
    return number


def elapsed(since: float) -> float:
    # In the body, where a workflow has no business with the clock: so it is taken of the peers, and none is replayed.
    return now() - since


def past() -> None:
    # In the body too, where the peers take it: a task would be begun only after one more commit.
    mark(os.environ["BENCH_MARKS"])


@app.task
async def held() -> None:
    """What the first worker is killed in; the second goes on."""
    mark(os.environ["BENCH_MARKS"])
    if os.environ.get("BENCH_HANG"):
        await asyncio.sleep(600)


@app.workflow
async def steps(ctx: Context, count: int) -> int:
    for number in range(count):
        await work(number)
    return count


@app.workflow
async def parent(ctx: Context, count: int) -> int:
    return len(await ctx.all(*(ctx.invoke(steps, 1) for _ in range(count))))


@app.workflow
async def sleeper(ctx: Context, seconds: float) -> None:
    await ctx.sleep(seconds)


@app.workflow
async def receiver(ctx: Context, count: int) -> list[float]:
    return [elapsed(await ctx.signal("ping", float)) for _ in range(count)]


@app.workflow
async def resumable(ctx: Context, count: int) -> None:
    for number in range(count):
        await work(number)
    past()
    await held()


Measure = Callable[[int], Awaitable[Once]]


def measured(given: Arguments, once: Measure, *, warm_up: bool = True) -> None:
    """Each round with an app of its own on the same ledger."""

    async def go(n: int) -> Once:
        app.use_store(given.url)
        async with app:
            return await once(n)

    measure(given, lambda n: run(go(n)), warm_up=warm_up)


async def start(definition: Any, inputs: list[Any]) -> list[Any]:
    handles: list[Any] = []

    async def start_some(first: int, count: int) -> None:
        handles.extend(await definition.start_many(inputs[first : first + count]))

    await two_at_a_time(len(inputs), start_some)
    return handles


def to_results(given: Arguments, definition: Any, inputs: Callable[[int], list[Any]], units: int) -> None:
    """From before the first start to the last result, with the worker in this process."""

    async def once(n: int) -> Once:
        async with app.worker(concurrency=given.in_flight):
            began = now()
            handles = await start(definition, inputs(n))
            await app.results(handles)
            return Once(n * units, now() - began)

    measured(given, once)


def w1(given: Arguments) -> None:
    to_results(given, steps, lambda n: [1] * n, 1)


def w1_each(given: Arguments) -> None:
    """Every workflow by a start of its own, `in_flight` of them at a time."""

    async def once(n: int) -> Once:
        gate = asyncio.Semaphore(given.in_flight)
        took: list[float] = []

        async def one() -> None:
            async with gate:
                began = now()
                await (await steps.start(1)).result()
                took.append(now() - began)

        async with app.worker(concurrency=given.in_flight):
            began = now()
            await asyncio.gather(*(one() for _ in range(n)))
            return Once(n, now() - began, took)

    measured(given, once)


def w2(given: Arguments) -> None:
    to_results(given, steps, lambda n: [10] * n, 10)


async def _one(given: Arguments, definition: Any, n: int) -> Once:
    async with app.worker(concurrency=given.in_flight):
        began = now()
        await (await definition.start(n)).result()
        return Once(n, now() - began)


def w3(given: Arguments) -> None:
    measured(given, lambda n: _one(given, steps, n))


def w4(given: Arguments) -> None:
    measured(given, lambda n: _one(given, parent, n))


def w5(given: Arguments) -> None:
    """The worker is a process of its own."""

    async def once(n: int) -> Once:
        handle = await receiver.start(n)
        for _ in range(n):
            await asyncio.sleep(0.02)
            await handle.signal("ping", now())
        took = await handle.result()
        return Once(n, sum(took), took)

    with workers(MODULE, given.for_role("role_worker"), 1):
        measured(given, once)


def w6(given: Arguments) -> None:
    async def once(n: int) -> Once:
        began = now()
        await start(steps, [1] * n)
        return Once(n, now() - began)

    measured(given, once)


def w7(given: Arguments) -> None:
    """Killed at work, past its last step; then, the lease over, from before another worker opens to past that step."""

    async def once(n: int) -> Once:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "marks"
            handle = await resumable.start(n)
            first = spawn(MODULE, given.for_role("role_resume"), BENCH_MARKS=str(file), BENCH_HANG="1")
            await asyncio.to_thread(await_marks, file, 2)  # past the steps, and in the call: which was committed before
            end(first)
            before = len(marks(file))  # two; more, if it lost its lease on the way and did all of it again
            await asyncio.sleep(given.lease_seconds + LEASE_OVER_SECONDS)  # alone this wait is not counted
            status = (await handle.describe()).status
            assert status == "executing", f"the dead worker should hold the run, which is {status}"
            second = spawn(MODULE, given.for_role("role_resume"), BENCH_MARKS=str(file))
            began = float(first_line(second))
            over = await asyncio.to_thread(await_marks, file, before + 1)
            await handle.result()
            end(second)
        return Once(n, over - began)

    measured(given, once, warm_up=False)


def w8(given: Arguments) -> None:
    to_results(given, sleeper, lambda n: [NAP_SECONDS] * n, 1)


def w1_jobs(given: Arguments) -> None:
    drained(given, work, count=1, in_count=True)


def w8_jobs(given: Arguments) -> None:
    drained(given, work.options(delay=NAP_SECONDS), count=1, in_count=True)


def w9(given: Arguments) -> None:
    drained(given, steps, count=given.workers, in_count=False)


def w9_jobs(given: Arguments) -> None:
    drained(given, work, count=given.workers, in_count=False)


def drained(given: Arguments, definition: Any, *, count: int, in_count: bool) -> None:
    """Started in bulk and worked off by `count` processes; with the starting itself if `in_count`."""

    async def once(n: int) -> Once:
        async with asked_for_live(given.url) as is_any_live:
            began = now()
            if in_count:
                await start(definition, [1] * n)
            else:  # in one commit: no worker finds a part of them before the clock runs
                await definition.start_many([1] * n)
                began = now()
            while await is_any_live():
                await asyncio.sleep(0.01)
            return Once(n, now() - began)

    with workers(MODULE, given.for_role("role_worker"), count):
        measured(given, once)


@contextlib.asynccontextmanager
async def asked_for_live(url: str) -> Any:
    """Whether an execution has not ended yet, asked of the database as for the peers."""
    statement = "select exists (select 1 from {}executions where status in ('runnable', 'executing'))"
    if url.startswith("postgres"):
        import asyncpg

        connection = await asyncpg.connect(url)
        yield lambda: connection.fetchval(statement.format("holdfast."))
        await connection.close()
        return
    file = sqlite3.connect(url)

    async def is_any_live() -> bool:
        return bool(file.execute(statement.format("")).fetchone()[0])

    yield is_any_live
    file.close()


def role_worker(given: Arguments) -> None:
    be_worker(given)


def role_resume(given: Arguments) -> None:
    be_worker(given, lease_seconds=given.lease_seconds)


def be_worker(given: Arguments, *, lease_seconds: float = 30.0) -> None:
    async def go() -> None:
        print(now(), flush=True)
        async with app, app.worker(concurrency=given.in_flight, lease_seconds=lease_seconds):
            await asyncio.Event().wait()

    app.use_store(given.url)  # which opens nothing, but loads the store's driver: a program does so as it is loaded
    collect_seldom()  # as `holdfast worker` does
    run(go())


if __name__ == "__main__":
    asked = Arguments.read()
    globals()[asked.workload](asked)
