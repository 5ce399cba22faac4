"""A reply that is lost: nobody knows whether the commit was applied, and the engine finds out (DESIGN section 6).

Each test loses what it names, on both stores, and counts what was run and what was recorded.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import App, Await, Done, Machine, Next, Status, step
from holdfast.core.errors import StoreUnavailableError
from holdfast.engine.settings import WorkerSettings
from holdfast.engine.worker import Worker
from holdfast.testing.crash import CrashPoints
from holdfast.testing.faults import FaultyStore, Held, Late, lose_reply, lose_request, meanwhile, on_store
from holdfast.testing.snapshot import snapshot
from holdfast.testing.stores import Stores

app = App("unknown", store="unused.db")
runs: Counter[str] = Counter()


@dataclass(frozen=True)
class Trip:
    n: int = 0


class Walks(Machine[Trip]):
    """Counts how often each of its steps really ran."""

    @step(initial=True)
    async def one(self, ctx: Any) -> Any:
        runs["one"] += 1
        return Next(self.two, Trip(ctx.state.n + 1))

    @step
    async def two(self, ctx: Any) -> Any:
        runs["two"] += 1
        return Next(self.three, Trip(ctx.state.n + 1))

    @step
    async def three(self, ctx: Any) -> Any:
        runs["three"] += 1
        return Done(ctx.state.n)


@app.machine(history=True)
class Walk(Walks):
    """Its commits carry a line of history."""


@app.machine
class Stroll(Walks):
    """Its commits write nothing but their own row: stores have shorter ways for these."""


@app.machine(history=True)
class Park(Machine[Trip]):
    @step(initial=True)
    async def begin(self, ctx: Any) -> Any:
        runs["begin"] += 1
        return Await("go", self.woken, ctx.state)

    @step
    async def woken(self, ctx: Any) -> Any:
        runs["woken"] += 1
        return Done([signal.payload for signal in ctx.awaited])


@pytest.fixture(autouse=True)
def _count_anew() -> None:
    runs.clear()


async def open_worker(store: Any, **settings: Any) -> Worker:
    worker = Worker(store, app.runners(), WorkerSettings(**settings))
    await worker.open()
    return worker


async def outcomes(stores: Stores, promise: bytes) -> list[tuple[int, str, str]]:
    return [(line.revision, line.step, line.outcome) for line in await stores.store.history(promise)]


WALKED = [(1, "one", "Next"), (2, "two", "Next"), (3, "three", "Done")]


@pytest.mark.parametrize("inline", [False, True], ids=["in-turn", "inline"])
@pytest.mark.parametrize("fault", [lose_request, lose_reply], ids=["not-applied", "applied"])
@pytest.mark.parametrize("lost_flush", [1, 2, 3])
async def test_a_lost_commit_is_applied_once_and_its_step_not_run_again(
    stores: Stores, fault: Any, lost_flush: int, inline: bool
) -> None:
    store = FaultyStore(stores.store, inline=inline)
    async with on_store(app, store.as_store):
        handle = await Walk.start(Trip())
        worker = await open_worker(store)
        for _ in range(1, lost_flush):
            store.plan("flush", lambda call: call())
        store.plan("flush", fault)
        await worker.run_until_idle()
        await worker.stop()
        assert await handle.result() == 2
        assert runs == {"one": 1, "two": 1, "three": 1}
        assert await outcomes(stores, handle.id.to_bytes()) == WALKED


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("machine", [Walk, Stroll])
async def test_a_commit_that_arrives_after_the_question_is_fenced(
    stores: Stores, machine: type[Walks], count: int
) -> None:
    """Reading alone would say "not there" just before the old connection commits; leasing anew shuts it out."""
    store = FaultyStore(stores.store)
    async with on_store(app, store.as_store):
        handles = [await machine.options(key=str(n)).start(Trip()) for n in range(count)]
        worker = await open_worker(store)
        late = Late()
        arrived: list[bool] = []

        async def arrive() -> None:
            before = await snapshot(stores.store)
            arrived.extend(receipt.applied for receipt in (await late.carry_out()).receipts)
            assert await snapshot(stores.store) == before

        # Between the question and the second try, and once more when all is done.
        store.plan("flush", late, meanwhile(arrive))
        await worker.run_until_idle()
        await arrive()
        await worker.stop()
        assert arrived == [False] * count * 2
        for handle in handles:
            assert await handle.result() == 2
            assert (await handle.describe()).revision == 3
        assert runs == {"one": count, "two": count, "three": count}


@pytest.mark.parametrize("fault", [lose_request, lose_reply], ids=["not-applied", "applied"])
async def test_the_answer_to_the_question_may_be_lost_as_well(stores: Stores, fault: Any) -> None:
    store = FaultyStore(stores.store)
    async with on_store(app, store.as_store):
        handle = await Walk.start(Trip())
        worker = await open_worker(store)
        store.plan("flush", fault)
        store.plan("reclaim", lose_reply, lose_request, lose_reply)
        await worker.run_until_idle()
        await worker.stop()
        assert await handle.result() == 2
        assert runs == {"one": 1, "two": 1, "three": 1}
        assert await outcomes(stores, handle.id.to_bytes()) == WALKED


@pytest.mark.parametrize("fault", [lose_request, lose_reply], ids=["not-applied", "applied"])
async def test_a_worker_cut_off_for_longer_than_its_lease_leaves_the_work_to_others(stores: Stores, fault: Any) -> None:
    store = FaultyStore(stores.store)
    async with on_store(app, store.as_store):
        handle = await Walk.start(Trip())
        cut_off = await open_worker(store)
        other = await open_worker(stores.store)

        async def taken_over() -> None:
            await stores.advance(31)
            assert await other.beat_once()
            await other.reap_once()
            await other.run_until_idle()

        store.plan("flush", fault)
        store.plan("reclaim", meanwhile(taken_over))
        await cut_off.run_until_idle()
        assert await handle.result() == 2
        assert runs["three"] == 1
        assert await outcomes(stores, handle.id.to_bytes()) == WALKED
        await cut_off.stop()
        await other.stop()


@pytest.mark.parametrize("point", ["lease.before", "lease.after"])
@pytest.mark.parametrize("fault", [lose_request, lose_reply], ids=["not-applied", "applied"])
async def test_a_worker_may_die_while_it_asks(stores: Stores, fault: Any, point: str) -> None:
    store = FaultyStore(stores.store)
    async with on_store(app, store.as_store):
        handle = await Walk.start(Trip())
        worker = await open_worker(store)
        store.plan("flush", fault)
        died = asyncio.Event()
        loop = asyncio.get_running_loop()
        points = CrashPoints([(point, 1)], lambda: loop.call_soon_threadsafe(died.set))
        with points.installed():
            working = asyncio.ensure_future(worker.run_until_idle())
            await died.wait()
            working.cancel()
            await asyncio.wait([working])
            await worker.abandon()
        await stores.advance(31)
        other = await open_worker(stores.store)
        await other.reap_once()
        await other.run_until_idle()
        await other.stop()
        assert await handle.result() == 2
        assert runs == {"one": 1 if fault is lose_reply else 2, "two": 1, "three": 1}
        assert await outcomes(stores, handle.id.to_bytes()) == WALKED


async def test_a_whole_group_of_lost_commits_is_resolved(stores: Stores) -> None:
    store = FaultyStore(stores.store)
    async with on_store(app, store.as_store):
        handles = [await Walk.options(key=str(n)).start(Trip()) for n in range(30)]
        worker = await open_worker(store)
        store.plan("flush", lose_reply, lose_request, lose_reply, lose_request)
        await worker.run_until_idle()
        await worker.stop()
        assert runs == {"one": 30, "two": 30, "three": 30}
        for handle in handles:
            assert await handle.result() == 2
            assert await outcomes(stores, handle.id.to_bytes()) == WALKED


async def test_a_row_picked_again_by_the_same_worker_displaces_its_lost_commit(stores: Stores) -> None:
    """The commit gave the row back, its reply is under way, and the same worker leases the row once more."""
    store = FaultyStore(stores.store)
    async with on_store(app, store.as_store):
        handle = await Park.start(Trip())
        await handle.signal("go", 1)
        worker = await open_worker(store)
        held = Held()
        store.plan("flush", held)
        working = asyncio.ensure_future(worker.run_until_idle())
        await held.carried_out.wait()
        assert await handle.status() is Status.RUNNABLE  # E2: the signal was there, so it did not park
        await worker._picker.run_once()
        view = await handle.describe()
        assert (view.status, view.locked_by, view.lease_epoch) == (Status.EXECUTING, worker.id, 2)
        held.lose()
        await working
        await worker.stop()
        assert await handle.result() == [1]
        assert runs == {"begin": 1, "woken": 1}
        assert await outcomes(stores, handle.id.to_bytes()) == [(1, "begin", "Await"), (2, "woken", "Done")]


async def test_rows_of_a_pick_whose_reply_was_lost_are_put_back(stores: Stores) -> None:
    store = FaultyStore(stores.store)
    async with on_store(app, store.as_store):
        handle = await Walk.start(Trip())
        worker = await open_worker(store)
        store.plan("pick", lose_reply)
        with pytest.raises(StoreUnavailableError):
            await worker.run_once()
        view = await handle.describe()
        assert (view.status, view.locked_by) == (Status.EXECUTING, worker.id)
        await worker.run_until_idle()
        await worker.stop()
        view = await handle.describe()
        assert (view.status, view.lease_epoch, view.crashes) == (Status.DONE, 2, 0)
        assert [line.attempt for line in await handle.history()] == [0, 0, 0]


async def test_the_answer_to_putting_back_may_be_lost_too(stores: Stores) -> None:
    store = FaultyStore(stores.store)
    async with on_store(app, store.as_store):
        handle = await Walk.start(Trip())
        worker = await open_worker(store)
        store.plan("pick", lose_reply)
        store.plan("disown", lose_request, lose_reply)
        for _ in range(3):
            with pytest.raises(StoreUnavailableError):
                await worker.run_once()
        await worker.run_until_idle()
        await worker.stop()
        assert await handle.result() == 2
        assert runs == {"one": 1, "two": 1, "three": 1}


async def test_a_pick_that_arrives_after_the_putting_back_is_swept_up(stores: Stores) -> None:
    store = FaultyStore(stores.store)
    async with on_store(app, store.as_store):
        handle = await Walk.start(Trip())
        worker = await open_worker(store)
        late = Late()
        store.plan("pick", late)
        with pytest.raises(StoreUnavailableError):
            await worker.run_once()
        store.plan("pick", meanwhile(late.carry_out))
        assert await worker.run_until_idle() == 0
        assert (await handle.describe()).locked_by == worker.id  # leased, and nobody knows
        (sweep,) = [loop for loop in worker._loops if loop.name == "orphan-sweep"]
        await sweep.run_once()
        assert await handle.status() is Status.RUNNABLE
        await worker.run_until_idle()
        await worker.stop()
        assert await handle.result() == 2
        assert runs == {"one": 1, "two": 1, "three": 1}
