"""DBOS on PostgreSQL or SQLite. The system database named by `--url` is dropped and made again.

Asynchronous workflows at many in flight, synchronous ones at few: each is the faster of the two there.
"""
# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSClient

from benchmarks.peers.drivers.rounds import (
    Arguments,
    Once,
    await_marks,
    end,
    first_line,
    leave,
    mark,
    measure,
    now,
    spawn,
    workers,
)

MODULE = "benchmarks.peers.drivers.dbos_driver"
QUEUE = "bench"
FEW = 8  # from here down, threads beat the event loop
LOOP = asyncio.new_event_loop()  # kept: asyncio.run() would shut the executor that DBOS shares with it
received: list[float] = []


@DBOS.step()
async def async_step(number: int) -> int:
    return number


@DBOS.step()
def sync_step(number: int) -> int:
    return number


@DBOS.workflow(name="async_steps")
async def async_steps(count: int) -> int:
    for number in range(count):
        await async_step(number)
    return count


@DBOS.workflow(name="sync_steps")
def sync_steps(count: int) -> int:
    for number in range(count):
        sync_step(number)
    return count


@DBOS.workflow(name="parent")
async def parent(count: int) -> int:
    handles = [await DBOS.start_workflow_async(async_steps, 1) for _ in range(count)]
    for handle in handles:
        await handle.get_result()
    return count


@DBOS.workflow(name="sleeper")
async def sleeper() -> None:
    await DBOS.sleep_async(1)


@DBOS.workflow(name="receiver")
async def receiver(count: int) -> int:
    for _ in range(count):
        await DBOS.recv_async("ping", timeout_seconds=30)
        received.append(now())
    return count


@DBOS.workflow(name="resumable")
def resumable(count: int) -> int:
    for number in range(count):
        sync_step(number)
    mark(os.environ["BENCH_MARKS"])
    if os.environ.get("BENCH_HANG"):
        time.sleep(600)
    return count


def launch(given: Arguments, *, fresh: bool = True, executor: str = "local") -> None:
    os.environ["DBOS__VMID"] = executor
    config: dict[str, Any] = {
        "name": "bench",
        "system_database_url": given.url,
        "application_version": "v1",
        "log_level": "ERROR",
        "enable_otlp": False,
    }
    if given.url.startswith("sqlite") and given.poll_seconds:
        config["notification_listener_polling_interval_sec"] = given.poll_seconds
    DBOS(config=config)
    if fresh:
        DBOS.reset_system_database()
    DBOS.launch()
    logging.getLogger("dbos").setLevel(logging.ERROR)


def beside_each_other(n: int, in_flight: int, start: Callable[[], Awaitable[Any]]) -> tuple[float, list[float]]:
    async def go() -> tuple[float, list[float]]:
        gate = asyncio.Semaphore(in_flight)
        took: list[float] = []

        async def one() -> None:
            async with gate:
                began = now()
                await (await start()).get_result()
                took.append(now() - began)

        began = now()
        await asyncio.gather(*(one() for _ in range(n)))
        return now() - began, took

    return LOOP.run_until_complete(go())


def in_threads(n: int, in_flight: int, steps: int) -> tuple[float, list[float]]:
    took: list[float] = []

    def one(_: int) -> None:
        began = now()
        DBOS.start_workflow(sync_steps, steps).get_result()
        took.append(now() - began)

    with ThreadPoolExecutor(in_flight) as pool:
        began = now()
        list(pool.map(one, range(n)))
        return now() - began, took


def many(given: Arguments, steps: int) -> None:
    launch(given)

    def once(n: int) -> Once:
        if given.in_flight <= FEW:
            seconds, took = in_threads(n, given.in_flight, steps)
        else:
            seconds, took = beside_each_other(n, given.in_flight, lambda: DBOS.start_workflow_async(async_steps, steps))
        return Once(n * steps, seconds, took)

    measure(given, once)


def w1(given: Arguments) -> None:
    many(given, 1)


def w1_each(given: Arguments) -> None:
    many(given, 1)  # every start is a call of its own: there is no other way


def w2(given: Arguments) -> None:
    many(given, 10)


def w3(given: Arguments) -> None:
    launch(given)

    def once(n: int) -> Once:
        began = now()
        sync_steps(n)
        return Once(n, now() - began)

    measure(given, once)


def w4(given: Arguments) -> None:
    launch(given)

    def once(n: int) -> Once:
        seconds, _ = beside_each_other(1, 1, lambda: DBOS.start_workflow_async(parent, n))
        return Once(n, seconds)

    measure(given, once)


def w5(given: Arguments) -> None:
    launch(given)
    client = DBOSClient(system_database_url=given.url)

    def once(n: int) -> Once:
        received.clear()
        sent: list[float] = []

        def drive(workflow_id: str) -> None:
            for number in range(n):
                time.sleep(0.02)
                sent.append(now())
                client.send(workflow_id, number, "ping")
                while len(received) <= number:
                    time.sleep(0.0002)

        async def go() -> None:
            handle = await DBOS.start_workflow_async(receiver, n)
            thread = threading.Thread(target=drive, args=(handle.get_workflow_id(),))
            thread.start()
            await handle.get_result()
            thread.join()

        LOOP.run_until_complete(go())
        took = [end - began for end, began in zip(received, sent, strict=True)]
        return Once(n, sum(took), took)

    measure(given, once)


def enqueue(given: Arguments, client: Any, engine: Any, queue: str, n: int) -> None:
    """The best batch call there is: enqueued one by one, in one transaction."""
    options = {"workflow_name": "async_steps", "queue_name": queue, "app_version": "v1"}
    with engine.begin() as connection:
        for _ in range(n):
            client.enqueue_in_transaction(connection, options, 1)


def w6(given: Arguments) -> None:
    launch(given)
    client, engine = DBOSClient(system_database_url=given.url), sqlalchemy.create_engine(given.url)
    client.register_queue("nobody_listens")

    def once(n: int) -> Once:
        began = now()
        enqueue(given, client, engine, "nobody_listens", n)
        return Once(n, now() - began)

    measure(given, once)


def w7(given: Arguments) -> None:
    def once(n: int) -> Once:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "marks"
            first = spawn(MODULE, given.for_role("role_resume"), BENCH_MARKS=str(file), BENCH_HANG="1")
            await_marks(file, 1)
            end(first)
            second = spawn(MODULE, given.for_role("role_resume"), BENCH_MARKS=str(file))
            began = float(first_line(second))
            passed = await_marks(file, 2)
            end(second)
        return Once(n, passed - began)

    measure(given, once, warm_up=False)


def role_resume(given: Arguments) -> None:
    fresh = bool(os.environ.get("BENCH_HANG"))
    began = now()
    print(began, flush=True)
    launch(given, fresh=fresh)
    if fresh:
        DBOS.start_workflow(resumable, given.n).get_result()
    time.sleep(600)


def w8(given: Arguments) -> None:
    launch(given)

    def once(n: int) -> Once:
        seconds, took = beside_each_other(n, n, lambda: DBOS.start_workflow_async(sleeper))
        return Once(n, seconds, took)

    measure(given, once)


def w9(given: Arguments) -> None:
    launch(given)  # makes the schema and the queue; does not listen
    DBOS.register_queue(QUEUE, polling_interval_sec=given.poll_seconds or 0.1)
    DBOS.destroy()
    client, engine = DBOSClient(system_database_url=given.url), sqlalchemy.create_engine(given.url)
    table = "workflow_status" if given.url.startswith("sqlite") else "dbos.workflow_status"
    count = sqlalchemy.text(f"select count(*) from {table} where status = 'SUCCESS'")

    def ended() -> int:
        with engine.connect() as connection:
            return int(connection.execute(count).scalar())

    def once(n: int) -> Once:
        before = ended()
        enqueue(given, client, engine, QUEUE, n)
        began = now()  # all become visible at this commit
        while ended() < before + n:
            time.sleep(0.02)
        return Once(n, now() - began)

    with workers(MODULE, given.for_role("role_worker"), given.workers, settle_seconds=1.5):
        measure(given, once)


def role_worker(given: Arguments) -> None:
    launch(given, fresh=False, executor=f"worker-{os.getpid()}")
    print("working", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    asked = Arguments.read()
    globals()[asked.workload](asked)
    leave()
