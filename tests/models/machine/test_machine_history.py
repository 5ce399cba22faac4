"""The optional history: every transition of a machine declared with `history=True`, and of no other."""

from __future__ import annotations

import pytest

from holdfast import Await, Child, Done, Machine, MachineContext, Next, Outcome, Replay, ScheduleChildren, Stop, step
from holdfast.core.error_record import decode_error
from tests.engine.rig import Rig


def declare(rig: Rig, *, history: bool) -> type[Machine[str]]:
    class Walk(Machine[str]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[str]) -> Outcome:
            return Replay(ctx.state, delay=5) if ctx.attempt == 0 else Next(self.second, ctx.state)

        @step
        async def second(self, ctx: MachineContext[str]) -> Outcome:
            return Await("go", self.third, ctx.state)

        @step
        async def third(self, ctx: MachineContext[str]) -> Outcome:
            return ScheduleChildren(self.fourth, [Child("Walk", "child", step=self.fourth)], ctx.state)

        @step
        async def fourth(self, ctx: MachineContext[str]) -> Outcome:
            return Stop("the end") if ctx.state == "stop" else Done()

    return rig.app.machine(name="Walk", history=history)(Walk)


@pytest.mark.parametrize("end", ["done", "stop"])
async def test_every_transition_is_kept_in_order(rig: Rig, end: str) -> None:
    handle = await declare(rig, history=True).start(end)
    await rig.run()
    await rig.advance(5)
    await rig.run()
    await handle.signal("go")
    await rig.run()
    lines = await handle.history()
    assert [(line.step, line.outcome, line.next_step, line.attempt) for line in lines] == [
        ("first", "Replay", None, 0),
        ("first", "Next", "second", 1),
        ("second", "Await", "third", 0),
        ("third", "ScheduleChildren", "fourth", 0),
        ("fourth", end.capitalize(), None, 0),
    ]
    assert [line.revision for line in lines] == [1, 2, 3, 4, 5]
    assert lines[0].at < lines[1].at == rig.now
    errors = [line.error for line in lines if line.error]
    assert [decode_error(error).message for error in errors] == (["the end"] if end == "stop" else [])


async def test_without_history_nothing_is_kept(rig: Rig) -> None:
    """Section 8: current-state snapshot only, unless it was asked for."""
    handle = await declare(rig, history=False).start("done")
    await rig.run()
    assert await handle.history() == []


async def test_a_retried_error_is_in_the_history(rig: Rig) -> None:
    @rig.app.machine(history=True)
    class Fails(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            if ctx.attempt == 0:
                raise ValueError("once")
            return Done()

    handle = await Fails.start(0)
    await rig.run()
    await rig.advance(5)
    await rig.run()
    lines = await handle.history()
    assert [(line.outcome, line.attempt) for line in lines] == [("Replay", 0), ("Done", 1)]
    assert lines[0].error is not None
    assert decode_error(lines[0].error).message == "once"


async def test_a_handle_that_raises_is_in_the_history(rig: Rig) -> None:
    @rig.app.machine(history=True)
    class Fails(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            raise ValueError("once")

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            raise LookupError("twice")

    handle = await Fails.start(0)
    await rig.run()
    (line,) = await handle.history()
    assert line.outcome == "Stop"
    assert line.error is not None
    assert decode_error(line.error).message == "twice"
