"""The proof of batches (issue 5): a death at every commit, random schedules, processes killed with SIGKILL.

Whatever happens, every seq is in the transactional sink once and in order, and counters equal a recount.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import App, RetryPolicy, Skip
from holdfast.engine.settings import WorkerSettings
from holdfast.models.batch.audit import audit_batches
from holdfast.models.batch.items import BatchItem
from holdfast.testing.crash import Simulation, crash_everywhere
from holdfast.testing.processes import Process, until
from holdfast.testing.stores import SqliteStores, Stores
from tests.cli.databases import postgres_database

PROGRAM = Path(__file__).parent / "program.py"
ITEMS = 100_000
LEASE_PASSED = 31

# ---------------------------------------------------------------------- a death at every commit

app = App("proof", store="unused.db")
ran: Counter[int] = Counter()
sunk: list[list[int]] = []


def keep(items: list[BatchItem[int]]) -> None:
    sunk.append([item.seq for item in items])


@app.batch(retry=RetryPolicy(max_attempts=20, initial_delay=0), results=True, chunk=8, window=16, sink=keep)
async def double(number: int) -> int:
    ran[number] += 1
    if number == 5:
        raise Skip("five")
    return number * 2


async def test_a_death_at_any_commit_loses_nothing_and_commits_nothing_twice(stores: Stores) -> None:
    async def scenario(sim: Simulation) -> None:
        ran.clear()
        sunk.clear()
        run = await sim.call(lambda: double.options(key="k").start(range(20)))
        for _ in range(4):
            await sim.work()
            run = await sim.call(lambda: double.options(key="k").start(range(20)))
        await sim.work()
        items = [item async for item in sim.app.batch_run(run.id).committed()]
        assert [item.seq for item in items] == list(range(20))
        assert [item.value for item in items if item.outcome == "success"] == [
            number * 2 for number in range(20) if number != 5
        ]
        assert not await audit_batches(sim.stores.store)
        # At least once each, in order, known by the first seq.
        landed: list[int] = []
        for seqs in sunk:
            assert seqs[0] <= len(landed)
            landed = [*landed[: seqs[0]], *seqs]
        assert landed == list(range(20))

    report = await crash_everywhere(
        app,
        scenario,
        stores=stores,
        settings=WorkerSettings(queues=["default"]),
        points=("insert.before", "insert.after", "pick.after", "flush.before", "flush.after"),
        ignore={"revision", "result"},  # a crash commits more often, and costs attempts
    )
    assert report.runs > 20


# ---------------------------------------------------------------------- random schedules

FATES = st.lists(st.sampled_from(["ok", "skip", "fail", "flaky", "hang"]), min_size=1, max_size=40)


@settings(max_examples=12, deadline=None)
@given(fates=FATES, kills=st.lists(st.integers(1, 12), max_size=3), chunk=st.integers(1, 12))
def test_any_schedule_of_failures_and_lost_workers_ends_every_item_once(
    tmp_path_factory: pytest.TempPathFactory, fates: list[str], kills: list[int], chunk: int
) -> None:
    """Random outcomes, expiries and crashes: the same policy gives the same ends, and counters equal a recount."""
    ends = [asyncio.run(_play(tmp_path_factory.mktemp("play"), fates, kills, chunk)) for _ in range(2)]
    assert ends[0] == ends[1]


async def _play(folder: Path, fates: list[str], kills: list[int], chunk: int) -> list[str]:
    stores = SqliteStores(folder)
    await stores.open()
    tried: Counter[int] = Counter()
    app = App("play", store=stores.unopened())

    @app.batch(
        name="play", retry=RetryPolicy(max_attempts=9, initial_delay=0), chunk=chunk, concurrency=3, timeout=0.01
    )
    async def play(number: int) -> None:
        tried[number] += 1
        fate = fates[number]
        if fate == "skip":
            raise Skip
        if fate == "fail":
            raise ValueError
        if fate == "flaky" and tried[number] < 3:
            raise OSError
        if fate == "hang" and tried[number] < 2:
            await asyncio.Event().wait()  # for ever

    try:
        run = await play.start(range(len(fates)))
        for kill in kills:
            worker = await app.make_worker()
            await worker.open()
            working = asyncio.create_task(worker.run_until_idle())
            for _ in range(kill):
                await asyncio.sleep(0.001)
            await worker.abandon()
            await asyncio.gather(working, return_exceptions=True)
            await stores.advance(LEASE_PASSED)
            assert not await audit_batches(stores.store)
        worker = await app.make_worker()
        await worker.open()
        await worker.reap_once()
        await worker.run_until_idle()
        await worker.stop()
        assert not await audit_batches(stores.store)
        return [item.outcome async for item in run.committed()]
    finally:
        await app.close()
        await stores.close()


# ---------------------------------------------------------------------- real processes


async def _landed(url: str) -> tuple[int, int, int, bool]:
    """How many rows the sink has, how many different seqs, the highest, and whether they came in order."""
    query = (
        "select count(*), count(distinct seq), coalesce(max(seq), -1), "
        "coalesce(min(case when seq = n then 1 else 0 end), 1) from landed"
    )
    if not url.startswith("postgres"):
        with closing(sqlite3.connect(url)) as db:
            db.execute("create table if not exists landed (n integer primary key, seq integer)")
            count, distinct, highest, ordered = db.execute(query).fetchone()
            return count, distinct, highest, bool(ordered)
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("create table if not exists landed (n bigint primary key, seq bigint)")
        row = await connection.fetchrow(query)
        assert row is not None
        return row[0], row[1], row[2], bool(row[3])
    finally:
        await connection.close()


async def test_workers_killed_with_sigkill_commit_every_item_once_and_in_order(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """100,000 items, two workers, killed over and over; the transactional sink has every seq once, in order."""
    if backend == "sqlite":
        await _kill_and_check(str(tmp_path / "ledger.db"), tmp_path)
        return
    with _database(request) as url:
        await _kill_and_check(url, tmp_path)


def _database(request: pytest.FixtureRequest) -> Any:
    return _InThread(request.getfixturevalue("postgres_url"))


class _InThread:
    """`postgres_database` runs a loop of its own."""

    def __init__(self, url: str) -> None:
        self._made = postgres_database(url)

    def __enter__(self) -> str:
        self._threads = concurrent.futures.ThreadPoolExecutor(1)
        return self._threads.submit(self._made.__enter__).result()

    def __exit__(self, *details: Any) -> None:
        self._threads.submit(self._made.__exit__, None, None, None).result()
        self._threads.shutdown()


async def _kill_and_check(url: str, folder: Path) -> None:
    await _landed(url)
    app = App("killed", store=url)

    @app.batch(name="killed")
    async def killed(number: int) -> int:
        return number

    def start(number: int) -> Process:
        return Process(str(PROGRAM), url, log=folder / f"worker{number}.log", environment={"PYTHONPATH": _paths()})

    async with app:
        run = await killed.options(key="proof").start(range(ITEMS))
        workers = [start(0), start(1)]
        try:
            for kill in range(4):
                goal = (kill + 1) * ITEMS // 8

                async def is_there(goal: int = goal) -> bool:
                    return (await run.status()).committed >= goal

                await until(is_there, f"{goal} items, worker says: {workers[kill % 2].output(5)}")
                workers[kill % 2].kill()
                workers[kill % 2] = start(2 + kill)

            async def is_over() -> bool:
                return (await run.status()).status.is_terminal

            await until(is_over, "the end of the run")
        finally:
            for worker in workers:
                worker.kill()
        result = await run.result()
        assert (result.total, result.succeeded) == (ITEMS, ITEMS)
        assert not await audit_batches(await app.store())
    assert await _landed(url) == (ITEMS, ITEMS, ITEMS - 1, True)


def _paths() -> str:
    return ":".join(path for path in sys.path if path)
