"""Absurd's Python SDK on PostgreSQL; the database named by `--url` has its schema already. Queues are made anew."""
# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg
from absurd_sdk import Absurd, AsyncAbsurd

from benchmarks.peers.drivers.rounds import (
    LEASE_OVER_SECONDS,
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

MODULE = "benchmarks.peers.drivers.absurd_driver"
QUEUE, PARENTS = "bench", "bench_parents"
WORKERS_UP_SECONDS = 0.5
heard: dict[tuple[str, int], float] = {}


async def a_value() -> int:
    return 1


def register(app: Any) -> None:
    @app.register_task("steps")
    async def steps(params: dict[str, Any], ctx: Any) -> int:
        for _ in range(params["count"]):
            await ctx.step("step", a_value)
        return 1

    @app.register_task("sleeper")
    async def sleeper(params: dict[str, Any], ctx: Any) -> int:
        await ctx.sleep_for("nap", 1)
        return 1

    @app.register_task("waiter")
    async def waiter(params: dict[str, Any], ctx: Any) -> int:
        for number in range(params["count"]):
            await ctx.await_event(f"{params['tag']}:{number}")
            heard.setdefault((params["tag"], number), now())
        return 1


def register_parent(parents: Any, given: Arguments) -> None:
    @parents.register_task("parent")
    async def parent(params: dict[str, Any], ctx: Any) -> int:
        async def start_all() -> list[str]:
            return await asyncio.to_thread(spawn_all, given, "steps", {"count": 1}, params["count"], wants_ids=True)

        ids = await ctx.step("start", start_all)
        for task_id in ids:
            await ctx.await_task_result(task_id, queue_name=QUEUE)
        return len(ids)


def fresh(given: Arguments) -> Any:
    app = Absurd(given.url, queue_name=QUEUE)
    for queue in (QUEUE, PARENTS):
        if queue in app.list_queues():
            app.drop_queue(queue)
        app.create_queue(queue)
    return app


class Ended:
    """How many tasks of a queue have ended."""

    def __init__(self, url: str, queue: str = QUEUE) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._statement = f"select count(*) from absurd.t_{queue} where state = 'completed'"

    def __call__(self) -> int:
        return int(self._connection.execute(self._statement).fetchone()[0])

    def wait(self, target: int, every: float = 0.02) -> float:
        while self() < target:
            time.sleep(every)
        return now()


def spawn_all(given: Arguments, task: str, params: dict[str, int], n: int, *, wants_ids: bool = False) -> list[str]:
    """The statement of its SDK, pipelined in one transaction: the fastest way found, for it has no call for many."""
    with psycopg.connect(given.url) as connection, connection.pipeline():
        statement = "select task_id::text from absurd.spawn_task(%s, %s, %s, %s)"
        cursor = connection.cursor()
        cursor.executemany(statement, [(QUEUE, task, json.dumps(params), "{}")] * n, returning=wants_ids)
        ids = [cursor.fetchone()[0]] if wants_ids else []
        while wants_ids and cursor.nextset():
            ids.append(cursor.fetchone()[0])
        return ids


def role_worker(given: Arguments) -> None:
    async def go() -> None:
        app = AsyncAbsurd(given.url, queue_name=QUEUE)
        register(app)
        print("working", flush=True)
        await app.start_worker(concurrency=given.in_flight, poll_interval=given.poll_seconds)

    asyncio.run(go())


def many(given: Arguments, task: str, params: dict[str, int], units: int, *, count: int = 1) -> None:
    """From before the first spawn to the last end, by `count` worker processes."""
    fresh(given)
    ended = Ended(given.url)

    def once(n: int) -> Once:
        before, began = ended(), now()
        spawn_all(given, task, params, n)
        return Once(n * units, ended.wait(before + n) - began)

    with workers(MODULE, given.for_role("role_worker"), count):
        measure(given, once)


def w1(given: Arguments) -> None:
    many(given, "steps", {"count": 1}, 1)


def w1_each(given: Arguments) -> None:
    app, ended = fresh(given), Ended(given.url)

    def once(n: int) -> Once:
        before, began = ended(), now()
        for _ in range(n):
            app.spawn("steps", {"count": 1}, queue=QUEUE)
        return Once(n, ended.wait(before + n) - began)

    with workers(MODULE, given.for_role("role_worker"), 1):
        measure(given, once)


def w2(given: Arguments) -> None:
    many(given, "steps", {"count": 10}, 10)


def w3(given: Arguments) -> None:
    app, ended = fresh(given), Ended(given.url)

    def once(n: int) -> Once:
        before, began = ended(), now()
        app.spawn("steps", {"count": n}, queue=QUEUE)
        return Once(n, ended.wait(before + 1, 0.002) - began)

    with workers(MODULE, given.for_role("role_worker"), 1):
        measure(given, once)


def w4(given: Arguments) -> None:
    fresh(given)
    ended = Ended(given.url, PARENTS)

    async def go(n: int) -> float:
        app, parents = AsyncAbsurd(given.url, queue_name=QUEUE), AsyncAbsurd(given.url, queue_name=PARENTS)
        register(app)
        register_parent(parents, given)
        settings = {"concurrency": given.in_flight, "poll_interval": given.poll_seconds}
        jobs = [asyncio.create_task(each.start_worker(**settings)) for each in (app, parents)]
        await asyncio.sleep(WORKERS_UP_SECONDS)
        before, began = ended(), now()
        await parents.spawn("parent", {"count": n})
        while ended() < before + 1:
            await asyncio.sleep(0.01)
        seconds = now() - began
        for each in (app, parents):
            each.stop_worker()
        await asyncio.gather(*jobs)
        await app.close()
        await parents.close()
        return seconds

    measure(given, lambda n: Once(n, asyncio.run(go(n))))


def w5(given: Arguments) -> None:
    fresh(given)

    async def go(n: int) -> list[float]:
        app, client = AsyncAbsurd(given.url, queue_name=QUEUE), AsyncAbsurd(given.url, queue_name=QUEUE)
        register(app)
        tag, sent = f"tag{now()}", []
        await client.spawn("waiter", {"count": n, "tag": tag}, queue=QUEUE)
        job = asyncio.create_task(app.start_worker(concurrency=1, poll_interval=given.poll_seconds))
        for number in range(n):
            await asyncio.sleep(0.02)
            sent.append(now())
            await client.emit_event(f"{tag}:{number}", {"number": number})
            while (tag, number) not in heard:
                await asyncio.sleep(0.0005)
        app.stop_worker()
        await job
        await app.close()
        await client.close()
        return [heard[tag, number] - sent[number] for number in range(n)]

    def once(n: int) -> Once:
        took = asyncio.run(go(n))
        return Once(n, sum(took), took)

    measure(given, once)


def w6(given: Arguments) -> None:
    fresh(given)

    def once(n: int) -> Once:
        began = now()
        spawn_all(given, "steps", {"count": 1}, n)
        return Once(n, now() - began)

    measure(given, once)


def w7(given: Arguments) -> None:
    def once(n: int) -> Once:
        app = fresh(given)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "marks"
            app.spawn("resumable", {"count": n}, queue=QUEUE)
            first = spawn(MODULE, given.for_role("role_resume"), BENCH_MARKS=str(file), BENCH_HANG="1")
            await_marks(file, 1)
            end(first)
            time.sleep(given.lease_seconds + LEASE_OVER_SECONDS)  # alone this wait is not counted
            second = spawn(MODULE, given.for_role("role_resume"), BENCH_MARKS=str(file))
            began = float(first_line(second))
            passed = await_marks(file, 2)
            end(second)
        return Once(n, passed - began)

    measure(given, once, warm_up=False)


def role_resume(given: Arguments) -> None:
    print(now(), flush=True)  # before it connects, as the other drivers do
    app = Absurd(given.url, queue_name=QUEUE)

    @app.register_task("resumable")
    def resumable(params: dict[str, Any], ctx: Any) -> int:
        for _ in range(params["count"]):
            ctx.step("step", lambda: 1)
        mark(os.environ["BENCH_MARKS"])
        if os.environ.get("BENCH_HANG"):
            time.sleep(600)
        return 1

    app.start_worker(concurrency=1, poll_interval=given.poll_seconds, claim_timeout=int(given.lease_seconds))


def w8(given: Arguments) -> None:
    many(given, "sleeper", {}, 1)


def w9(given: Arguments) -> None:
    fresh(given)
    ended = Ended(given.url)

    def once(n: int) -> Once:
        before = ended()
        spawn_all(given, "steps", {"count": 1}, n)
        began = now()  # all become visible at this commit
        return Once(n, ended.wait(before + n) - began)

    with workers(MODULE, given.for_role("role_worker"), given.workers):
        measure(given, once)


if __name__ == "__main__":
    asked = Arguments.read()
    globals()[asked.workload](asked)
    leave()
