"""A worker that sleeps through its lease and wakes up changes nothing; a signal at the wrong moment wakes (E1, E2)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast import App, Await, Child, Done, Handle, Machine, Next, Replay, ScheduleChildren, Status, Stop, step
from holdfast.engine.settings import WorkerSettings
from holdfast.engine.worker import Worker
from holdfast.store.base import Store
from holdfast.store.values import NewSignal
from holdfast.testing.faults import FaultyStore, Held, meanwhile, on_store
from holdfast.testing.snapshot import snapshot
from holdfast.testing.stores import Stores

app = App("stale", store="unused.db")


@dataclass
class Door:
    """One a worker: its steps wait here while it is shut."""

    open: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    async def pass_through(self) -> None:
        self.reached.set()
        await self.open.wait()


@app.lifespan
async def door() -> AsyncIterator[Door]:
    yield Door()


@dataclass(frozen=True)
class Plan:
    """What the slow step returns."""

    outcome: str = "next"
    by: str = ""


@app.machine
class Slow(Machine[Plan]):
    @step(initial=True)
    async def begin(self, ctx: Any) -> Any:
        return Await("go", self.slow, ctx.state) if ctx.state.outcome != "parked" else Done()

    @step
    async def slow(self, ctx: Any, door: Door) -> Any:
        await door.pass_through()
        ctx.signal(app.handle("Ear", key="ear").id, "heard", ctx.state.outcome)
        match ctx.state.outcome:
            case "next":
                return Next(self.end, ctx.state)
            case "replay":
                return Replay(Plan("next"))
            case "await":
                return Await("more", self.end, ctx.state)
            case "children":
                return ScheduleChildren(self.end, [Child(Ear, Plan())], ctx.state)
            case "done":
                return Done("done")
            case "raise":
                raise ValueError("bad")
            case _:
                return Stop("stopped")

    @step
    async def end(self, ctx: Any) -> Any:
        return Done(len(ctx.children))


@app.machine
class Ear(Machine[Plan]):
    """Hears what steps send, and never ends."""

    @step(initial=True)
    async def listen(self, ctx: Any) -> Any:
        return Await("never", self.listen, ctx.state)


async def open_worker(store: Store) -> tuple[Worker, Door]:
    worker = Worker(store, app.runners(), WorkerSettings(), lifespans=(door,))
    await worker.open()
    return worker, worker.resources.need(Door, "this test")


# What its successor sends: a step that fails sends nothing, a replayed one sends each time.
SENT = {
    "next": ["next"],
    "replay": ["replay", "next"],
    "await": ["await"],
    "children": ["children"],
    "done": ["done"],
    "raise": [],
    "stop": ["stop"],
}


@pytest.mark.parametrize("outcome", SENT)
async def test_a_worker_that_wakes_after_its_lease_changes_nothing(stores: Stores, outcome: str) -> None:
    """Ruling E1, for each outcome with all that rides on it: inbox, children, signals, barrier."""
    async with on_store(app, stores.store):
        await Ear.options(key="ear").start(Plan())
        handle = await Slow.start(Plan(outcome))
        stale, stale_door = await open_worker(stores.store)
        fresh, fresh_door = await open_worker(stores.store)
        stale_door.open.set()
        await stale.run_until_idle()
        await handle.signal("go", 1)
        stale_door.open.clear()
        sleeping = asyncio.ensure_future(stale.run_until_idle())
        await stale_door.reached.wait()
        await stores.advance(31)
        assert await fresh.beat_once()
        await fresh.reap_once()
        view = await handle.describe()
        assert (view.status, view.attempt, view.crashes) == (Status.RUNNABLE, 1, 1)

        before = await snapshot(stores.store)
        stale_door.open.set()
        await sleeping
        assert await snapshot(stores.store) == before
        assert [signal.name for signal in await stores.store.inbox(handle.id.to_bytes())] == ["go"]

        fresh_door.open.set()
        await fresh.run_until_idle()
        heard = await stores.store.inbox(app.handle("Ear", key="ear").id.to_bytes())
        assert [json.loads(signal.payload) for signal in heard] == SENT[outcome]
        await stale.stop()
        await fresh.stop()


async def test_a_worker_that_lost_its_lease_goes_on_under_a_new_name(stores: Stores) -> None:
    async with on_store(app, stores.store):
        handle = await Slow.start(Plan("done"))
        await handle.signal("go")
        worker, its_door = await open_worker(stores.store)
        first_name = worker.id
        working = asyncio.ensure_future(worker.run_until_idle())
        await its_door.reached.wait()
        await stores.advance(31)
        other, _ = await open_worker(stores.store)
        await other.reap_once()
        assert not await worker.beat_once()
        its_door.open.set()
        await working
        await worker._identity.settle()
        assert worker.id != first_name
        await worker.run_until_idle()
        assert await handle.result() == "done"
        await worker.stop()
        await other.stop()


async def test_a_drained_step_is_not_recorded_and_runs_again(stores: Stores) -> None:
    """A stop is no crash: the row goes back as it was, attempt and all."""
    async with on_store(app, stores.store):
        handle = await Slow.start(Plan("done"))
        await handle.signal("go")
        first, first_door = await open_worker(stores.store)
        working = asyncio.ensure_future(first.run_until_idle())
        await first_door.reached.wait()
        await first.stop(drain_seconds=0)
        await working
        view = await handle.describe()
        assert (view.status, view.step, view.attempt, view.crashes) == (Status.RUNNABLE, "slow", 0, 0)
        second, second_door = await open_worker(stores.store)
        second_door.open.set()
        await second.run_until_idle()
        await second.stop()
        assert await handle.result() == "done"


async def test_a_signal_between_the_step_and_its_parking_is_not_lost(stores: Stores) -> None:
    """Ruling E2: it finds the row executing and cannot wake it; so parking looks into the inbox once more."""
    store = FaultyStore(stores.store)
    async with on_store(app, stores.store):
        handle = await Slow.start(Plan("done"))
        worker, its_door = await open_worker(store.as_store)
        its_door.open.set()
        store.plan("flush", meanwhile(lambda: handle.signal("go")))
        await worker.run_until_idle()
        await worker.stop()
        assert await handle.result() == "done"


async def test_a_signal_just_after_the_parking_wakes(stores: Stores) -> None:
    store = FaultyStore(stores.store)
    async with on_store(app, stores.store):
        handle = await Slow.start(Plan("done"))
        worker, its_door = await open_worker(store.as_store)
        its_door.open.set()
        held = Held()
        store.plan("flush", held)
        working = asyncio.ensure_future(worker.run_until_idle())
        await held.carried_out.wait()
        assert await handle.status() is Status.AWAITING_SIGNAL
        await handle.signal("go")
        held.give()
        await working
        await worker.run_until_idle()
        await worker.stop()
        assert await handle.result() == "done"


async def test_signals_racing_with_parking_wake_every_machine(stores: Stores) -> None:
    """Ruling E2 under real concurrency: a sender of its own against the parking of a hundred machines."""
    async with on_store(app, stores.store):
        sender = await stores.another()
        handles = await Slow.options(key=lambda plan: plan.by).start_many([Plan("done", str(n)) for n in range(100)])
        worker, its_door = await open_worker(stores.store)
        its_door.open.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run_until_idle())
            for handle in handles:
                await sender.deliver([NewSignal(handle.id.to_bytes(), "go", "null")])
        await worker.run_until_idle()
        await worker.stop()
        for handle in handles:
            assert isinstance(handle, Handle)
            assert await handle.result() == "done"
