"""PgQueuer, a job queue without steps, on PostgreSQL. Its tables in the database of `--url` are made anew.

As its guide advises: one connection for the worker, a pool for producers, a large batch for short jobs. Bulk goes in
two batches at a time, as it does elsewhere.
"""
# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from benchmarks.peers.drivers.rounds import Arguments, Once, leave, measure, now, two_at_a_time, workers

MODULE = "benchmarks.peers.drivers.pgqueuer_driver"
PRODUCERS = 8
LOOP = uvloop.new_event_loop()
seen: dict[bytes, float] = {}


async def fresh(given: Arguments) -> Any:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(given.url)))
    with contextlib.suppress(asyncpg.PostgresError):
        await queries.uninstall()
    await queries.install()
    await queries.optimize_autovacuum()
    return queries


async def make_worker(given: Arguments) -> Any:
    worker = PgQueuer(AsyncpgDriver(await asyncpg.connect(given.url)))

    @worker.entrypoint("one")
    async def one(job: Any) -> None:
        seen[job.payload] = now()

    return worker


def role_worker(given: Arguments) -> None:
    async def go() -> None:
        worker = await make_worker(given)
        print("working", flush=True)
        await worker.run(batch_size=given.batch)

    uvloop.run(go())


async def until_empty(connection: Any) -> float:
    while await connection.fetchval("select exists(select 1 from pgqueuer)"):
        await asyncio.sleep(0.01)
    return now()


async def producer(given: Arguments) -> Any:
    """On an empty queue, with a pool."""
    await fresh(given)
    return Queries(AsyncpgPoolDriver(await asyncpg.create_pool(given.url, min_size=PRODUCERS, max_size=PRODUCERS)))


def many(given: Arguments, *, count: int, in_count: bool, delay_seconds: int = 0) -> None:
    """Enqueued in bulk and worked off by `count` processes; with the enqueueing itself if `in_count`."""
    queries = LOOP.run_until_complete(producer(given))
    connection = LOOP.run_until_complete(asyncpg.connect(given.url))

    async def enqueue(_: int, n: int) -> None:
        await queries.enqueue(["one"] * n, [b"x"] * n, [0] * n, [timedelta(seconds=delay_seconds)] * n)

    async def go(n: int) -> float:
        began = now()
        if in_count:
            await two_at_a_time(n, enqueue)
        else:  # in one commit: no worker finds a part of them before the clock runs
            await enqueue(0, n)
            began = now()
        return await until_empty(connection) - began

    with workers(MODULE, given.for_role("role_worker"), count, settle_seconds=1.0):
        measure(given, lambda n: Once(n, LOOP.run_until_complete(go(n))))


def w1_jobs(given: Arguments) -> None:
    many(given, count=1, in_count=True)


def w1_each(given: Arguments) -> None:
    queries = LOOP.run_until_complete(producer(given))
    connection = LOOP.run_until_complete(asyncpg.connect(given.url))

    async def go(n: int) -> float:
        gate = asyncio.Semaphore(PRODUCERS)

        async def one(number: int) -> None:
            async with gate:
                await queries.enqueue("one", str(number).encode())

        began = now()
        await asyncio.gather(*(one(number) for number in range(n)))
        return await until_empty(connection) - began

    with workers(MODULE, given.for_role("role_worker"), 1, settle_seconds=1.0):
        measure(given, lambda n: Once(n, LOOP.run_until_complete(go(n))))


def w5(given: Arguments) -> None:
    """From before the enqueue to the first line of the job, on an idle worker."""
    queries = LOOP.run_until_complete(fresh(given))

    async def go(n: int) -> list[float]:
        worker, took = await make_worker(given), []
        job = asyncio.create_task(worker.run(batch_size=given.batch))
        await asyncio.sleep(1)
        for number in range(n):
            await asyncio.sleep(0.02)
            seen.clear()
            key, began = str(number).encode(), now()
            await queries.enqueue("one", key)
            while key not in seen:
                await asyncio.sleep(0.0005)
            took.append(seen[key] - began)
        worker.shutdown.set()
        await job
        return took

    def once(n: int) -> Once:
        took = LOOP.run_until_complete(go(n))
        return Once(n, sum(took), took)

    measure(given, once)


def w6(given: Arguments) -> None:
    queries = LOOP.run_until_complete(producer(given))

    async def enqueue(_: int, n: int) -> None:
        await queries.enqueue(["one"] * n, [b"x"] * n, [0] * n)

    async def go(n: int) -> float:
        began = now()
        await two_at_a_time(n, enqueue)
        return now() - began

    measure(given, lambda n: Once(n, LOOP.run_until_complete(go(n))))


def w8_jobs(given: Arguments) -> None:
    many(given, count=1, in_count=True, delay_seconds=1)


def w9_jobs(given: Arguments) -> None:
    many(given, count=given.workers, in_count=False)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    asyncio.set_event_loop(LOOP)
    asked = Arguments.read()
    globals()[asked.workload](asked)
    leave()
