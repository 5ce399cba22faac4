"""Real processes, really killed: whatever dies, everything ends and every transition is committed exactly once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store import open_store
from holdfast.store.base import Store
from holdfast.testing.faults import on_store
from holdfast.testing.postgres import PostgresServer
from holdfast.testing.processes import until
from holdfast.testing.proxy import Cut, PostgresProxy
from holdfast.testing.snapshot import snapshot
from tests.simulation.fleet import Fleet, check_exact, done_count, signal_all, start_all, until_done
from tests.simulation.program import app


@pytest.fixture(scope="module")
def mortal_server() -> Iterator[PostgresServer]:
    """A server that tests may kill, so no other test uses it."""
    with PostgresServer() as server:
        yield server


async def open_database(server: PostgresServer, name: str) -> tuple[str, Store]:
    url = server.create_database(name)
    return url, await open_store(url)


async def test_killed_workers_and_a_killed_server_lose_and_repeat_nothing(
    mortal_server: PostgresServer, tmp_path: Path
) -> None:
    """SIGKILL to workers at random all along; to PostgreSQL itself in the middle, and once more during recovery."""
    chance = random.Random(2)
    url, store = await open_database(mortal_server, "killed")
    async with on_store(app, store):
        waiters = await start_all(chains=2_000, trees=200, waiters=400)
        total = 2_000 + 200 * 4 + 400
        with Fleet(url, tmp_path) as fleet:
            fleet.start()
            fleet.start()
            for share in (0.05, 0.1, 0.15, 0.2, 0.25):
                await until_done(store, int(total * share))
                fleet.kill_one(chance)
            mortal_server.kill()
            mortal_server.start()
            await signal_all(store, waiters)
            for share in (0.4, 0.5):
                await until_done(store, int(total * share))
                fleet.kill_one(chance)

            # Recovery itself is interrupted: both workers die, and the server dies while their successor takes over.
            for worker in fleet.running:
                worker.kill()
            dead = {worker.id for worker in await store.workers()}
            fleet.start()

            async def reaping() -> bool:
                return not dead <= {worker.id for worker in await store.workers()}

            await until(reaping, "the dead to be reaped")
            mortal_server.kill()
            mortal_server.start()
            fleet.start()
            await until_done(store, total)
            await fleet.leave(store)
            assert await store.workers() == []
        await check_exact(store, total)
    await store.close()


async def test_a_frozen_worker_changes_nothing_when_it_wakes(mortal_server: PostgresServer, tmp_path: Path) -> None:
    """SIGSTOP in the middle of its steps, for longer than its lease; SIGCONT when others have done its work.

    It hears that its lease is lost only after it has tried to commit: until then no beat and no pick gets through.
    """
    url, store = await open_database(mortal_server, "frozen")
    gate = tmp_path / "gate"
    late: list[str] = []

    def judge(statement: str) -> Cut | None:
        if not gate.exists():
            return None
        if "flush" in statement:
            late.append(statement)
        return Cut.REQUEST if not late and ("set expires_at" in statement or "pick_3" in statement) else None

    async with on_store(app, store), PostgresProxy(url, judge) as proxy:
        await start_all(chains=60, trees=0, waiters=0)
        with Fleet(url, tmp_path) as fleet:
            frozen = fleet.start(gate=gate, url=proxy.url)

            async def holds_work() -> bool:
                return any(worker.pid == frozen.pid and worker.executing >= 30 for worker in await store.workers())

            await until(holds_work, "a worker to hold work")
            frozen.freeze()
            (its_name,) = [worker.id for worker in await store.workers()]
            other = fleet.start()
            await until_done(store, 60)
            before = await snapshot(store)
            assert await other.terminate() == 0

            gate.touch()  # every step that it holds ends as it wakes, and wants to commit
            frozen.thaw()

            async def under_a_new_name() -> bool:
                return [worker.pid for worker in await store.workers() if worker.id != its_name] == [frozen.pid]

            await until(under_a_new_name, "the worker to find that it lost its lease")
            await fleet.leave(store)
            assert late
            assert await snapshot(store) == before
        await check_exact(store, 60)
    await store.close()


async def test_connections_cut_around_commits_lose_and_repeat_nothing(
    mortal_server: PostgresServer, tmp_path: Path
) -> None:
    """The connection dies after a flush, a pick or a beat was carried out and before its reply, or just before it."""
    chance = random.Random(7)
    url, store = await open_database(mortal_server, "cut")

    def judge(statement: str) -> Cut | None:
        if "flush" in statement:
            return chance.choice([Cut.REPLY, Cut.REPLY, Cut.REQUEST]) if chance.random() < 0.1 else None
        if any(word in statement for word in ("pick_3", "reclaim_1", "disown_1", "reap_1", "set expires_at")):
            return chance.choice([Cut.REPLY, Cut.REQUEST]) if chance.random() < 0.05 else None
        return None

    async with on_store(app, store), PostgresProxy(url, judge) as proxy:
        waiters = await start_all(chains=500, trees=50, waiters=100)
        total = 500 + 50 * 4 + 100
        with Fleet(proxy.url, tmp_path) as fleet:
            fleet.start()
            fleet.start()
            await until_done(store, 100)
            await signal_all(store, waiters)
            await until_done(store, total)
            proxy.judge = lambda statement: None
            await fleet.leave(store)
        lost_replies = [statement for cut, statement in proxy.cuts if cut is Cut.REPLY and "flush" in statement]
        assert lost_replies
        await check_exact(store, total)
    await store.close()


async def test_killed_processes_on_one_sqlite_file_lose_and_repeat_nothing(tmp_path: Path) -> None:
    chance = random.Random(5)
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    store = await open_store(url)
    async with on_store(app, store):
        waiters = await start_all(chains=800, trees=80, waiters=120)
        total = 800 + 80 * 4 + 120
        with Fleet(url, tmp_path) as fleet:
            fleet.start()
            fleet.start()
            for share in (0.1, 0.2, 0.3, 0.4, 0.5):
                await until_done(store, int(total * share))
                fleet.kill_one(chance)
            await signal_all(store, waiters)
            await until_done(store, int(total * 0.7))
            for worker in fleet.running:
                worker.kill()
            assert await done_count(store) < total
            fleet.start()
            fleet.start()
            await until_done(store, total)
            await fleet.leave(store)
        await check_exact(store, total)
    await store.close()
