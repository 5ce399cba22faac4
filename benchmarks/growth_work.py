"""What growth is measured by: costs in seconds a unit, of work on ledgers, histories, payloads and processes of a size.

Every function gets the URL of a ledger and says what one unit cost there: a workflow, a step, a signal.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import asyncpg

from benchmarks import workloads
from benchmarks.environment import worker_processes
from benchmarks.peers.drivers.holdfast_driver import asked_for_live
from holdfast import App, Context

EVENTS_A_STEP = 5  # scheduled, started, awaited, completed, resumed
PINGS = 20
STEPS_AFTER = 50
PARKED = "parked"
BATCH = 5_000
_ENTRIES_OF_NOTHING = """delete from holdfast.crowds c where not exists (
  select from holdfast.executions e where e.id between c.block << 8 and (c.block << 8) + 255 and not e.listed)"""
began_at: dict[int, float] = {}  # when each step of the last workflow began
turns: dict[int, asyncio.Event] = {}  # lets a member of a join set end
app = App("growth", os.environ.get("HOLDFAST_DATABASE") or "holdfast.db")
Cost = Callable[[str, int], Coroutine[Any, Any, float]]


@app.task
async def work(number: int) -> int:
    began_at[number] = time.perf_counter()
    return number


@app.task
async def size(payload: str) -> int:
    return len(payload)


@app.workflow
async def steps(ctx: Context, count: int) -> int:
    for number in range(count):
        await work(number)
    return count


@app.workflow
async def steps_then_pings(ctx: Context, count: int, pings: int) -> list[float]:
    """A history of so many steps, then signals; how long each took to arrive."""
    for number in range(count):
        await work(number)
    return [await elapsed(await ctx.signal("ping", float)) for _ in range(pings)]


@app.task
async def in_turn(number: int) -> int:
    await turns[number].wait()
    return number


@app.workflow
async def take_in_turn(ctx: Context, width: int) -> int:
    """Each member ends once the result of the one before it was taken."""
    async with ctx.join_set() as calls:
        for number in range(width):
            calls.submit(in_turn, number)
        async for done in calls:
            turns[done.result() + 1].set()
    return width


@app.task
async def elapsed(since: float) -> float:
    return time.monotonic() - since


@app.workflow
async def carry(ctx: Context, payload: str) -> int:
    """A payload as the input, as the argument of a task, and not as the result."""
    return await size(payload)


@app.workflow
async def steps_beside(ctx: Context, payload: str, count: int) -> int:
    """Steps that have nothing to do with the payload."""
    for number in range(count):
        await work(number)
    return count


async def _on(url: str, cost: Callable[[], Awaitable[float]]) -> float:
    app.use_store(url)
    async with app:
        return await cost()


# ---------------------------------------------------------------------- the same workloads, on a ledger of any size


def workload(name: str) -> Cost:
    """The cost of one unit of a workload of `python -m benchmarks`."""
    from benchmarks.definitions import app as theirs

    async def cost(url: str, n: int) -> float:
        theirs.use_store(url)
        async with theirs:
            found = await workloads.WORKLOADS[name].measure(url, n)
        if name == "w8":  # the nap itself is the same in all ledgers, and would hide what grows
            return (found.seconds - workloads.NAP_SECONDS) / found.count
        if found.latencies_ms:
            return statistics.median(found.latencies_ms) / 1e3
        return found.seconds / found.count

    return cost


async def enqueue(url: str, n: int) -> float:
    """w6, on a queue that nobody works on; what it left is taken out again."""

    async def cost() -> float:
        began = time.perf_counter()
        for first in range(0, n, BATCH):
            await steps.options(queue=PARKED).start_many([1] * min(BATCH, n - first))
        return (time.perf_counter() - began) / n

    took = await _on(url, cost)
    statement = "delete from {}executions where queue = '" + PARKED + "' and status = 'runnable'"
    if url.startswith("postgres"):
        connection = await asyncpg.connect(url)
        await connection.execute(statement.format("holdfast."))
        await connection.execute(_ENTRIES_OF_NOTHING)
        await connection.close()
    else:
        file = sqlite3.connect(url, timeout=60)
        file.execute(statement.format(""))
        file.commit()
        file.close()
    return took


async def one_finished(url: str) -> None:
    """A workflow that really ran: what copies are made of."""

    async def cost() -> float:
        await app.run(steps, 1)
        return 0.0

    await _on(url, cost)


# ---------------------------------------------------------------------- processes


async def drain(url: str, n: int, processes: int) -> float:
    """A full queue, by so many worker processes."""
    from benchmarks.definitions import app as theirs
    from benchmarks.definitions import sequence

    theirs.use_store(url)
    async with theirs, asked_for_live(url) as is_any_live, worker_processes(url, processes):
        await sequence.start_many([1] * n)
        began = time.perf_counter()
        while await is_any_live():
            await asyncio.sleep(0.01)
        return (time.perf_counter() - began) / n


# ---------------------------------------------------------------------- histories


async def step_in_history(url: str, events: int) -> float:
    """One step, averaged over the fifty that come after so long a history."""
    before = max(1, events // EVENTS_A_STEP)

    async def cost() -> float:
        began_at.clear()
        async with app.worker():
            await (await steps.start(before + STEPS_AFTER)).result()
        return (began_at[before + STEPS_AFTER - 1] - began_at[before]) / (STEPS_AFTER - 1)

    return await _on(url, cost)


async def _parked(events: int) -> Any:
    """A workflow that has so long a history and waits for its first signal."""
    handle = await steps_then_pings.start(max(1, events // EVENTS_A_STEP), PINGS)
    while (await handle.describe()).status != "awaiting_promise":
        await asyncio.sleep(0.002)
    return handle


async def signal_to_history(url: str, events: int) -> float:
    """A signal to a workflow with so long a history that its worker has in memory."""

    async def cost() -> float:
        async with app.worker():
            handle = await _parked(events)
            for _ in range(PINGS):
                await handle.signal("ping", time.monotonic())
                await asyncio.sleep(0.02)
            return float(statistics.median(await handle.result()))

    return await _on(url, cost)


async def result_of_set(url: str, width: int) -> float:
    """A result of a join set of so many calls, none of which ends beside another."""

    async def cost() -> float:
        turns.clear()
        turns.update((number, asyncio.Event()) for number in range(width + 1))
        turns[0].set()
        began = time.perf_counter()
        await app.run(take_in_turn, width)
        return (time.perf_counter() - began) / width

    return await _on(url, cost)


async def replay_of_history(url: str, events: int) -> float:
    """A signal to a workflow with so long a history that another worker has to replay."""

    async def cost() -> float:
        async with app.worker():
            handle = await _parked(events)
        async with app.worker():
            began = time.monotonic()
            await handle.signal("ping", began)
            for _ in range(PINGS - 1):
                await handle.signal("ping", time.monotonic())
            return float((await handle.result())[0])

    return await _on(url, cost)


# ---------------------------------------------------------------------- payloads


async def carry_payload(url: str, n: int, payload_bytes: int) -> float:
    """A workflow that hands the payload to a task, from its start to its result."""

    async def cost() -> float:
        async with app.worker():
            began = time.perf_counter()
            handles = [await carry.start("x" * payload_bytes) for _ in range(n)]
            await asyncio.gather(*(handle.result() for handle in handles))
            return (time.perf_counter() - began) / n

    return await _on(url, cost)


async def step_beside_payload(url: str, n: int, payload_bytes: int) -> float:
    """A step between the second and the last of a workflow that was started with the payload and does not touch it."""

    async def cost() -> float:
        took = []
        async with app.worker():
            for _ in range(n):
                await (await steps_beside.start("x" * payload_bytes, STEPS_AFTER)).result()
                took.append((began_at[STEPS_AFTER - 1] - began_at[1]) / (STEPS_AFTER - 2))
        return statistics.median(took)

    return await _on(url, cost)
