"""Procrastinate, a job queue without steps, on PostgreSQL. Its schema in the database of `--url` is made anew."""
# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import procrastinate
import psycopg

from benchmarks.peers.drivers.rounds import Arguments, Once, leave, measure, now, two_at_a_time, workers

MODULE = "benchmarks.peers.drivers.procrastinate_driver"
SCHEMA = "procrastinate_bench"
POOL = 10
LOOP = asyncio.new_event_loop()
seen: dict[int, float] = {}


def make_app(given: Arguments) -> Any:
    connector = procrastinate.PsycopgConnector(
        conninfo=given.url, kwargs={"options": f"-c search_path={SCHEMA}"}, min_size=POOL, max_size=POOL
    )
    app = procrastinate.App(connector=connector)

    @app.task(name="one", queue="bench")
    async def one(number: int) -> None:
        seen[number] = now()

    app.one = one
    return app


def worker_of(app: Any, given: Arguments) -> Any:
    """Delayed jobs are found by polling alone, so it polls often."""
    return app.run_worker_async(
        queues=["bench"],
        concurrency=given.in_flight,
        fetch_job_polling_interval=given.poll_seconds,
        install_signal_handlers=False,
    )


def fresh(given: Arguments) -> Any:
    """An open app on an empty schema."""

    async def go() -> Any:
        with psycopg.connect(given.url, autocommit=True) as connection:
            connection.execute(f"drop schema if exists {SCHEMA} cascade; create schema {SCHEMA}")
        app = make_app(given)
        await app.open_async()
        await app.schema_manager.apply_schema_async()
        return app

    return LOOP.run_until_complete(go())


class Ended:
    """How many jobs have ended."""

    def __init__(self, given: Arguments) -> None:
        options = f"-c search_path={SCHEMA}"
        self._connection = psycopg.connect(given.url, autocommit=True, options=options)

    def __call__(self) -> int:
        statement = "select count(*) from procrastinate_jobs where status = 'succeeded'"
        return int(self._connection.execute(statement).fetchone()[0])

    def wait(self, target: int) -> float:
        while self() < target:
            time.sleep(0.02)
        return now()


def role_worker(given: Arguments) -> None:
    async def go() -> None:
        app = make_app(given)
        async with app.open_async():
            print("working", flush=True)
            await worker_of(app, given)

    asyncio.run(go())


def defer(task: Any, n: int, *, in_one: bool = False) -> None:
    async def some(first: int, count: int) -> None:
        await task.batch_defer_async(*({"number": number} for number in range(first, first + count)))

    LOOP.run_until_complete(some(0, n) if in_one else two_at_a_time(n, some))


def many(given: Arguments, *, count: int, in_count: bool, delay_seconds: int = 0) -> None:
    """Deferred in bulk and worked off by `count` processes; with the deferring itself if `in_count`."""
    app = fresh(given)
    ended = Ended(given)

    def once(n: int) -> Once:
        before, began = ended(), now()
        task = app.one.configure(schedule_in={"seconds": delay_seconds}) if delay_seconds else app.one
        defer(task, n, in_one=not in_count)  # in one commit: no worker finds a part of them before the clock runs
        deferred = now()
        return Once(n, ended.wait(before + n) - (began if in_count else deferred))

    with workers(MODULE, given.for_role("role_worker"), count):
        measure(given, once)


def w1_jobs(given: Arguments) -> None:
    many(given, count=1, in_count=True)


def w1_each(given: Arguments) -> None:
    app = fresh(given)
    ended = Ended(given)

    async def each(n: int) -> None:
        gate = asyncio.Semaphore(POOL)

        async def one(number: int) -> None:
            async with gate:
                await app.one.defer_async(number=number)

        await asyncio.gather(*(one(number) for number in range(n)))

    def once(n: int) -> Once:
        before, began = ended(), now()
        LOOP.run_until_complete(each(n))
        return Once(n, ended.wait(before + n) - began)

    with workers(MODULE, given.for_role("role_worker"), 1):
        measure(given, once)


def w5(given: Arguments) -> None:
    """From before the defer to the first line of the job, on an idle worker."""
    app = fresh(given)

    async def go(n: int) -> list[float]:
        job, took = asyncio.create_task(worker_of(app, given)), []
        await asyncio.sleep(0.5)
        for number in range(n):
            await asyncio.sleep(0.02)
            seen.clear()
            began = now()
            await app.one.defer_async(number=number)
            while number not in seen:
                await asyncio.sleep(0.0005)
            took.append(seen[number] - began)
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)
        return took

    def once(n: int) -> Once:
        took = LOOP.run_until_complete(go(n))
        return Once(n, sum(took), took)

    measure(given, once)


def w6(given: Arguments) -> None:
    app = fresh(given)

    def once(n: int) -> Once:
        began = now()
        defer(app.one, n)
        return Once(n, now() - began)

    measure(given, once)


def w8_jobs(given: Arguments) -> None:
    many(given, count=1, in_count=True, delay_seconds=1)


def w9_jobs(given: Arguments) -> None:
    many(given, count=given.workers, in_count=False)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    asked = Arguments.read()
    globals()[asked.workload](asked)
    leave()
