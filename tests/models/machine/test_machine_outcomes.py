"""The six outcomes of a step (seed section 3), as a machine's user meets them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    Await,
    Child,
    Done,
    Machine,
    MachineContext,
    Next,
    Outcome,
    Replay,
    ScheduleChildren,
    Status,
    Stop,
    step,
)
from holdfast.core.errors import ExecutionFailedError
from tests.engine.rig import Rig


async def test_next_goes_to_the_step_with_the_state(rig: Rig) -> None:
    @rig.app.machine
    class Walk(Machine[int]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            return Next(self.second, ctx.state + 1)

        @step
        async def second(self, ctx: MachineContext[int]) -> Outcome:
            return Done([ctx.step, ctx.state])

    handle = await Walk.start(1)
    await rig.run()
    assert await handle.result() == ["second", 2]


async def test_a_step_may_be_named_by_its_text(rig: Rig) -> None:
    @rig.app.machine
    class Walk(Machine[int]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            return Next("second", ctx.state)

        @step
        async def second(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.step)

    handle = await Walk.start(1)
    await rig.run()
    assert await handle.result() == "second"


async def test_next_sets_the_attempt_to_zero(rig: Rig) -> None:
    attempts: list[tuple[str, int]] = []

    @rig.app.machine
    class Walk(Machine[int]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            attempts.append((ctx.step, ctx.attempt))
            return Replay(ctx.state) if ctx.attempt < 2 else Next(self.second, ctx.state)

        @step
        async def second(self, ctx: MachineContext[int]) -> Outcome:
            attempts.append((ctx.step, ctx.attempt))
            return Done()

    await Walk.start(0)
    await rig.run()
    assert attempts == [("first", 0), ("first", 1), ("first", 2), ("second", 0)]


async def test_replay_runs_the_same_step_with_the_new_state(rig: Rig) -> None:
    @rig.app.machine
    class Again(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done([ctx.state, ctx.attempt]) if ctx.state == 3 else Replay(ctx.state + 1)

    handle = await Again.start(0)
    await rig.run()
    assert await handle.result() == [3, 3]


@pytest.mark.parametrize("delay", [90, timedelta(seconds=90)])
async def test_replay_waits_for_its_delay(rig: Rig, delay: Any) -> None:
    """The engine does not compute the delay: the user does, from `ctx.attempt`."""

    @rig.app.machine
    class Again(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done("later") if ctx.attempt else Replay(ctx.state, delay=delay)

    handle = await Again.start(0)
    await rig.run()
    view = await rig.view(handle)
    assert (view.status, view.step, view.attempt) == (Status.RUNNABLE, "only", 1)
    assert view.eligible_at == rig.now + timedelta(seconds=90)
    await rig.advance(89)
    assert await rig.run() == 0
    await rig.advance(1)
    await rig.run()
    assert await handle.result() == "later"


async def test_await_parks_at_its_next_step(rig: Rig) -> None:
    @rig.app.machine
    class Waits(Machine[int]):
        @step(initial=True)
        async def ask(self, ctx: MachineContext[int]) -> Outcome:
            return Await({"yes", "no"}, self.decide, ctx.state + 1)

        @step
        async def decide(self, ctx: MachineContext[int]) -> Outcome:
            return Done([ctx.state, [signal.name for signal in ctx.awaited]])

    handle = await Waits.start(1)
    await rig.run()
    view = await rig.view(handle)
    assert (view.status, view.step, view.state) == (Status.AWAITING_SIGNAL, "decide", "2")
    assert sorted(view.awaits or ()) == ["no", "yes"]
    assert view.locked_by is None
    await handle.signal("yes")
    await rig.run()
    assert await handle.result() == [2, ["yes"]]


async def test_schedule_children_parks_until_they_have_ended(rig: Rig) -> None:
    @rig.app.machine
    class Leaf(Machine[int]):
        @step(initial=True)
        async def square(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.state**2)

    @rig.app.machine
    class Tree(Machine[int]):
        @step(initial=True)
        async def split(self, ctx: MachineContext[int]) -> Outcome:
            return ScheduleChildren(self.join, [Child(Leaf, n) for n in range(ctx.state)], ctx.state)

        @step
        async def join(self, ctx: MachineContext[int]) -> Outcome:
            return Done(sum(child.result_as(int) for child in ctx.children))

    handle = await Tree.start(4)
    await rig.once()
    view = await rig.view(handle)
    assert (view.status, view.step, view.children_pending) == (Status.AWAITING_CHILDREN, "join", 4)
    await rig.run()
    assert await handle.result(int) == 0 + 1 + 4 + 9


@pytest.mark.parametrize("result", [None, 0, "text", [1, [2]], {"a": {"b": None}}, True, 1.5])
async def test_done_records_its_result(rig: Rig, result: Any) -> None:
    @rig.app.machine
    class Ends(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done(result)

    handle = await Ends.start(7)
    await rig.run()
    view = await rig.view(handle)
    assert (view.status, view.state, view.ended_at) == (Status.DONE, "7", rig.now)
    assert await handle.result() == result


async def test_done_does_not_rewrite_the_state(rig: Rig) -> None:
    """Section 10: `{:done, result}` carries no state."""

    @rig.app.machine
    class Ends(Machine[list[int]]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[list[int]]) -> Outcome:
            ctx.state.append(1)
            return Done()

    handle = await Ends.start([])
    await rig.run()
    assert (await rig.view(handle)).state == "[]"


async def test_stop_fails_with_its_reason(rig: Rig) -> None:
    @rig.app.machine
    class Stops(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Stop("the depot is closed")

    handle = await Stops.start(0)
    await rig.run()
    with pytest.raises(ExecutionFailedError, match=r"Stops/.* failed: Stop: the depot is closed"):
        await handle.result()
    error = await handle.error()
    assert error is not None
    assert (error.type, error.message) == ("Stop", "the depot is closed")


@pytest.mark.parametrize(("outcome", "left"), [(Done(1), 0), (Stop("enough"), 1)])
async def test_an_end_deletes_the_whole_inbox(rig: Rig, outcome: Outcome, left: int) -> None:
    """Section 5: the instance is finished, so nothing will read its signals again, unless it is retried (B13)."""

    @rig.app.machine
    class Ends(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return outcome

    handle = await Ends.start(0)
    await handle.signal("never-awaited")
    await rig.run()
    assert len(await (await rig.store()).inbox(handle.id.to_bytes())) == left
