"""From outside: cancel, cascade, pause, resume (issue beyond the seed's section 8; rulings E10, E11)."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import (
    Await,
    Child,
    Done,
    Handle,
    Machine,
    MachineContext,
    Next,
    Outcome,
    PromiseId,
    Replay,
    ScheduleChildren,
    Status,
    Unique,
    step,
)
from holdfast.core.errors import ExecutionCancelledError, InvalidArgumentError, NotFoundError
from tests.engine.rig import Rig


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def hold() -> asyncio.Event:
    """Set: steps go through."""
    return asyncio.Event()


@pytest.fixture
def begun() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def machine(rig: Rig, ran: list[str], hold: asyncio.Event, begun: asyncio.Event) -> type[Machine[str]]:
    """`first` waits for `hold`; what follows is in the state: next, replay, await, done."""

    @rig.app.machine
    class Work(Machine[str]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[str]) -> Outcome:
            ran.append("first")
            begun.set()
            await hold.wait()
            if ctx.state == "next":
                return Next(self.second, ctx.state)
            if ctx.state == "replay":
                return Replay(ctx.state, delay=1000)
            if ctx.state == "await":
                return Await("go", self.second, ctx.state)
            return Done("finished")

        @step
        async def second(self, ctx: MachineContext[str]) -> Outcome:
            ran.append("second")
            return Done("finished")

    return Work


async def in_first(
    rig: Rig, machine: type[Machine[str]], state: str, begun: asyncio.Event
) -> tuple[Handle[object], asyncio.Task[int]]:
    """Started, and in the middle of its first step."""
    handle = await machine.start(state)
    worker = await rig.worker()
    working = asyncio.create_task(worker.run_until_idle())
    await begun.wait()
    return handle, working


async def test_what_nobody_works_on_is_cancelled_at_once(rig: Rig, machine: type[Machine[str]], ran: list[str]) -> None:
    handle = await machine.start("next")
    assert await handle.cancel() is Status.CANCELLED
    assert await rig.run() == 0
    assert ran == []
    with pytest.raises(ExecutionCancelledError, match=r"Work/.* was cancelled"):
        await handle.result()


@pytest.mark.parametrize("state", ["next", "replay", "await"])
async def test_a_running_step_finishes_and_nothing_follows(
    rig: Rig, machine: type[Machine[str]], ran: list[str], hold: asyncio.Event, begun: asyncio.Event, state: str
) -> None:
    """Ruling E11: cancel is honoured between steps, under a kept lease too."""
    handle, working = await in_first(rig, machine, state, begun)
    assert await handle.cancel() is Status.EXECUTING
    hold.set()
    await working
    assert await handle.status() is Status.CANCELLED
    assert ran == ["first"]


async def test_an_end_that_was_reached_before_the_cancel_stands(
    rig: Rig, machine: type[Machine[str]], hold: asyncio.Event, begun: asyncio.Event
) -> None:
    handle, working = await in_first(rig, machine, "done", begun)
    await handle.cancel()
    hold.set()
    await working
    assert await handle.result() == "finished"
    assert await handle.cancel() is Status.DONE


async def test_a_cancelled_run_spawns_no_children(rig: Rig) -> None:
    @rig.app.machine
    class Tree(Machine[int]):
        @step(initial=True)
        async def split(self, ctx: MachineContext[int]) -> Outcome:
            await rig.app.handle(ctx.id).cancel()
            return ScheduleChildren(self.join, [Child("Tree", 1)], ctx.state)

        @step
        async def join(self, ctx: MachineContext[int]) -> Outcome:
            return Done()

    handle = await Tree.start(0)
    await rig.run()
    assert await handle.status() is Status.CANCELLED
    assert await (await rig.store()).children(handle.id.to_bytes()) == []


@pytest.mark.parametrize("cascade", [True, False])
async def test_cancel_reaches_the_children_only_if_asked_to(rig: Rig, cascade: bool) -> None:
    """Ruling E10: they keep running unless `cascade` was asked for."""

    @rig.app.machine
    class Tree(Machine[int]):
        @step(initial=True)
        async def split(self, ctx: MachineContext[int]) -> Outcome:
            if ctx.state == 0:
                return Await("go", self.join, ctx.state)
            return ScheduleChildren(self.join, [Child("Tree", ctx.state - 1)] * 2, ctx.state)

        @step
        async def join(self, ctx: MachineContext[int]) -> Outcome:
            return Done()

    handle = await Tree.start(2)
    await rig.run()
    store = await rig.store()
    assert await handle.cancel(cascade=cascade) is Status.CANCELLED
    tree = [view for child in range(2) for view in await store.children(handle.id.child(child).to_bytes())]
    tree += await store.children(handle.id.to_bytes())
    assert len(tree) == 6
    assert {view.status is Status.CANCELLED for view in tree} == {cascade}


async def test_cancel_deletes_the_inbox_and_frees_the_unique_key(rig: Rig, machine: type[Machine[str]]) -> None:
    unique = Unique(key="k")
    handle = await machine.options(unique=unique).start("next")
    await handle.signal("go")
    await handle.cancel()
    assert await (await rig.store()).inbox(handle.id.to_bytes()) == []
    assert await (await machine.options(unique=unique).start("next")).status() is Status.RUNNABLE


async def test_a_paused_execution_is_not_worked_on(rig: Rig, machine: type[Machine[str]], hold: asyncio.Event) -> None:
    hold.set()
    handle = await machine.start("next")
    await handle.pause()
    assert await rig.run() == 0
    assert (await rig.view(handle)).paused
    await handle.resume()
    await rig.run()
    assert await handle.result() == "finished"


async def test_pause_is_honoured_between_steps(
    rig: Rig, machine: type[Machine[str]], ran: list[str], hold: asyncio.Event, begun: asyncio.Event
) -> None:
    """Ruling E11: the current step is recorded, the next one waits."""
    handle, working = await in_first(rig, machine, "next", begun)
    await handle.pause()
    hold.set()
    await working
    view = await rig.view(handle)
    assert (view.status, view.step, view.paused) == (Status.RUNNABLE, "second", True)
    await handle.resume()
    await rig.run()
    assert ran == ["first", "second"]


async def test_a_paused_execution_takes_signals_and_sees_them_later(
    rig: Rig, machine: type[Machine[str]], ran: list[str], hold: asyncio.Event
) -> None:
    hold.set()
    handle = await machine.start("await")
    await rig.run()
    await handle.pause()
    await handle.signal("go")
    assert await rig.run() == 0
    await handle.resume()
    await rig.run()
    assert ran == ["first", "second"]


async def test_a_paused_execution_can_be_cancelled(machine: type[Machine[str]]) -> None:
    handle = await machine.start("next")
    await handle.pause()
    assert await handle.cancel() is Status.CANCELLED


async def test_what_has_ended_can_be_neither_paused_nor_resumed(
    rig: Rig, machine: type[Machine[str]], hold: asyncio.Event
) -> None:
    hold.set()
    handle = await machine.start("done")
    await rig.run()
    with pytest.raises(InvalidArgumentError, match=r"Work/.* cannot be paused: it has ended"):
        await handle.pause()
    with pytest.raises(InvalidArgumentError, match=r"Work/.* cannot be resumed: it has ended"):
        await handle.resume()


async def test_what_does_not_exist_can_not_be_cancelled(rig: Rig) -> None:
    with pytest.raises(NotFoundError, match="there is no execution"):
        await rig.app.handle(PromiseId.of("Work", "nobody")).cancel()


@pytest.mark.parametrize("state", ["await", "replay"])
async def test_an_execution_with_a_deadline_is_cancelled_when_it_comes(
    rig: Rig, machine: type[Machine[str]], hold: asyncio.Event, ran: list[str], state: str
) -> None:
    hold.set()
    handle = await machine.options(deadline=60).start(state)
    await rig.run()
    await rig.advance(59)
    assert await rig.run() == 0
    await rig.advance(1)
    await rig.run()
    assert await handle.status() is Status.CANCELLED
    assert ran == ["first"]


async def test_an_execution_that_ends_before_its_deadline_is_left_alone(
    rig: Rig, machine: type[Machine[str]], hold: asyncio.Event
) -> None:
    hold.set()
    handle = await machine.options(deadline=60).start("done")
    await rig.run()
    await rig.advance(60)
    await rig.run()
    assert await handle.result() == "finished"
