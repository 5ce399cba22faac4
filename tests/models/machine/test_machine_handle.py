"""Errors: `handle` turns them into outcomes, without one the retry policy does (seed sections 3 and 4, ruling E6)."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
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
    RetryPolicy,
    ScheduleChildren,
    Status,
    Stop,
    step,
)
from holdfast.core.error_record import ErrorRecord
from holdfast.core.errors import ExecutionFailedError
from tests.engine.rig import Rig


class BrokenError(Exception):
    """What the steps here raise."""


async def failure_of(handle: Any) -> ErrorRecord:
    with pytest.raises(ExecutionFailedError):
        await handle.result()
    error = await handle.error()
    assert isinstance(error, ErrorRecord)
    return error


async def test_handle_gets_the_error_and_the_context_of_the_step(rig: Rig) -> None:
    """Section 4: `ctx = %{id, fsm, fsm_version, step, attempt, state}`."""
    seen: list[Any] = []

    @rig.app.machine(name="Shipment", version=3)
    class V3(Machine[int]):
        @step(initial=True)
        async def pack(self, ctx: MachineContext[int]) -> Outcome:
            raise BrokenError("no tape")

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            seen.append((type(error), str(error), ctx.id, ctx.machine, ctx.version, ctx.step, ctx.attempt, ctx.state))
            return Replay(ctx.state) if ctx.attempt == 0 else Done()

    handle = await V3.start(5)
    await rig.run()
    expected = (BrokenError, "no tape", handle.id, "Shipment", 3, "pack")
    assert seen == [(*expected, 0, 5), (*expected, 1, 5)]


async def test_handle_may_return_next(rig: Rig) -> None:
    @rig.app.machine
    class Fails(Machine[int]):
        @step(initial=True)
        async def pack(self, ctx: MachineContext[int]) -> Outcome:
            raise BrokenError

        @step
        async def repair(self, ctx: MachineContext[int]) -> Outcome:
            return Done([ctx.state, ctx.attempt])

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            return Next(self.repair, ctx.state + 1)

    handle = await Fails.start(1)
    await rig.run()
    assert await handle.result() == [2, 0]
    assert (await rig.view(handle)).error is None, "what was mended is shown no more"


async def test_handle_may_return_replay_with_a_delay(rig: Rig) -> None:
    """Section 3: backoff is computed by the user from `attempt`."""

    @rig.app.machine
    class Fails(Machine[int]):
        @step(initial=True)
        async def pack(self, ctx: MachineContext[int]) -> Outcome:
            if ctx.attempt < 3:
                raise BrokenError(f"attempt {ctx.attempt}")
            return Done(ctx.attempt)

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            return Replay(ctx.state, delay=2**ctx.attempt)

    handle = await Fails.start(1)
    waits = []
    while await rig.run():
        view = await rig.view(handle)
        if view.status is Status.RUNNABLE:
            waits.append((view.eligible_at - rig.now).total_seconds())
            error = await handle.error()
            assert error is not None
            assert error.message == f"attempt {view.attempt - 1}", "the error is shown while it is retried"
            await rig.advance(waits[-1])
    assert waits == [1, 2, 4]
    assert await handle.result() == 3


async def test_handle_may_return_await(rig: Rig) -> None:
    @rig.app.machine
    class Fails(Machine[int]):
        @step(initial=True)
        async def pack(self, ctx: MachineContext[int]) -> Outcome:
            if not ctx.awaited:
                raise BrokenError
            return Done(ctx.awaited[0].payload)

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            return Await("mended", self.pack, ctx.state)

    handle = await Fails.start(1)
    await rig.run()
    assert await handle.status() is Status.AWAITING_SIGNAL
    await handle.signal("mended", "by hand")
    await rig.run()
    assert await handle.result() == "by hand"


async def test_handle_may_return_schedule_children(rig: Rig) -> None:
    @rig.app.machine
    class Undo(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.state)

    @rig.app.machine
    class Fails(Machine[int]):
        @step(initial=True)
        async def pack(self, ctx: MachineContext[int]) -> Outcome:
            raise BrokenError

        @step
        async def undone(self, ctx: MachineContext[int]) -> Outcome:
            return Done([child.result for child in ctx.children])

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            return ScheduleChildren(self.undone, [Child(Undo, 1), Child(Undo, 2)], ctx.state)

    handle = await Fails.start(1)
    await rig.run()
    assert await handle.result() == [1, 2]


async def test_handle_may_return_done(rig: Rig) -> None:
    @rig.app.machine
    class Fails(Machine[int]):
        @step(initial=True)
        async def pack(self, ctx: MachineContext[int]) -> Outcome:
            raise BrokenError

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            return Done("good enough")

    handle = await Fails.start(1)
    await rig.run()
    assert await handle.result() == "good enough"


async def test_the_reason_of_a_stop_by_handle_is_the_last_error(rig: Rig) -> None:
    """Section 3: `last_error := reason`; what it stopped for is kept beside it."""

    @rig.app.machine
    class Fails(Machine[int]):
        @step(initial=True)
        async def pack(self, ctx: MachineContext[int]) -> Outcome:
            raise BrokenError("no tape")

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            return Stop("gave up packing")

    handle = await Fails.start(1)
    await rig.run()
    error = await failure_of(handle)
    assert (error.type, error.message) == ("Stop", "gave up packing")
    assert error.causes[0].endswith("BrokenError: no tape")
    assert error.traceback[-1].endswith("in pack")


async def test_if_handle_raises_the_execution_fails(rig: Rig) -> None:
    """Section 4.2."""

    @rig.app.machine
    class Fails(Machine[int]):
        @step(initial=True)
        async def pack(self, ctx: MachineContext[int]) -> Outcome:
            raise BrokenError("no tape")

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            raise LookupError("no handler either")

    handle = await Fails.start(1)
    await rig.run()
    error = await failure_of(handle)
    assert (error.type, error.message) == ("LookupError", "no handler either")
    assert error.causes[0].endswith("BrokenError: no tape")


async def test_handle_that_is_cancelled_from_within_fails_the_execution(rig: Rig) -> None:
    """It must not be taken for a worker that stops, which records nothing."""

    @rig.app.machine
    class Fails(Machine[int]):
        @step(initial=True)
        async def pack(self, ctx: MachineContext[int]) -> Outcome:
            raise BrokenError

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            raise asyncio.CancelledError

    handle = await Fails.start(1)
    await rig.run()
    assert "handle was cancelled from within" in (await failure_of(handle)).message


async def test_a_step_that_is_cancelled_from_within_goes_to_handle(rig: Rig) -> None:
    @rig.app.machine
    class Fails(Machine[int]):
        @step(initial=True)
        async def pack(self, ctx: MachineContext[int]) -> Outcome:
            task = asyncio.ensure_future(asyncio.Event().wait())
            task.cancel()
            await task
            return Done()

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            return Done(str(error))

    handle = await Fails.start(1)
    await rig.run()
    assert await handle.result() == "Fails.pack was cancelled from within"


async def test_handle_may_be_a_plain_function(rig: Rig) -> None:
    @rig.app.machine
    class Fails(Machine[int]):
        @step(initial=True)
        async def pack(self, ctx: MachineContext[int]) -> Outcome:
            raise BrokenError("x")

        def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            return Done(str(error))

    handle = await Fails.start(1)
    await rig.run()
    assert await handle.result() == "x"


@dataclass
class Cart:
    items: list[str] = field(default_factory=list)


@pytest.mark.parametrize("with_handle", [True, False])
async def test_a_failed_step_leaves_no_trace_in_the_state(rig: Rig, with_handle: bool) -> None:
    """Section 1: the step re-executes from scratch, whatever it did to `ctx.state` before it raised."""

    class Fills(Machine[Cart]):
        @step(initial=True)
        async def fill(self, ctx: MachineContext[Cart]) -> Outcome:
            ctx.state.items.append("tape")
            if ctx.attempt < 2:
                raise BrokenError
            return Done(ctx.state.items)

    class Handled(Fills):
        async def handle(self, error: Exception, ctx: MachineContext[Cart]) -> Outcome:
            return Replay(ctx.state, delay=1)

    machine = rig.app.machine(Handled if with_handle else Fills)
    handle = await machine.start(Cart())
    for _ in range(3):
        await rig.run()
        await rig.advance(10)
    assert await handle.result() == ["tape"]


# ---------------------------------------------------------------------- ruling E6: what is no outcome

BAD_OUTCOMES: list[tuple[Any, str, str]] = [
    (None, "OutcomeError", "returned None, which is no outcome"),
    ("done", "OutcomeError", "returned 'done', which is no outcome"),
    (Next, "OutcomeError", "which is no outcome"),
    (Next("elsewhere", 1), "OutcomeError", "has no step 'elsewhere'; its steps are pack"),
    (Next(print, 1), "OutcomeError", "has no step 'print'"),
    (Next("pack", "one"), "EncodeError", "does not fit int"),
    (Next("pack", object()), "EncodeError", "object"),
    (Replay(1, delay=-1), "InvalidArgumentError", "below zero"),
    (Replay(1.5), "EncodeError", "does not fit int"),
    (Done(object()), "EncodeError", "object"),
    (Done({"nan": float("nan")}), "EncodeError", "nan"),
    (Stop(3), "OutcomeError", "the reason of Stop is a text"),  # type: ignore[arg-type]
    (Await("", "pack", 1), "OutcomeError", "no name of a signal"),
    (Await([], "pack", 1), "OutcomeError", "would wait for ever"),
    (Await([3], "pack", 1), "OutcomeError", "no name of a signal"),  # type: ignore[list-item]
    (Await("go", "elsewhere", 1), "OutcomeError", "has no step 'elsewhere'"),
    (Await("go", "pack", 1, timeout=-1), "InvalidArgumentError", "timeout of Await"),
    (ScheduleChildren("pack", ["Leaf"], 1), "OutcomeError", "takes Child"),  # type: ignore[list-item]
    (ScheduleChildren("pack", [Child("Nobody", 1)], 1), "ConfigurationError", "no machine 'Nobody' here"),
    (ScheduleChildren("pack", [Child("Fails", 1, version=9)], 1), "ConfigurationError", "no version 9 of Fails"),
    (ScheduleChildren("pack", [Child("Fails", "x")], 1), "EncodeError", "does not fit int"),
    (ScheduleChildren("pack", [Child("Fails", 1, step="no")], 1), "OutcomeError", "has no step 'no'"),
    (ScheduleChildren("pack", [Child("Fails", 1, delay=-1)], 1), "InvalidArgumentError", "delay"),
    (ScheduleChildren("pack", [Child(int, 1)], 1), "ConfigurationError", "int is no machine"),
    (ScheduleChildren("pack", [], 1, quorum=0), "OutcomeError", "quorum"),
    (ScheduleChildren("pack", [], 1, timeout=-1), "InvalidArgumentError", "timeout of ScheduleChildren"),
    (ScheduleChildren("elsewhere", [], 1), "OutcomeError", "has no step 'elsewhere'"),
]


@pytest.mark.parametrize(
    ("outcome", "type_name", "message"), BAD_OUTCOMES, ids=[str(n) for n in range(len(BAD_OUTCOMES))]
)
async def test_a_bad_outcome_goes_to_handle_like_an_exception(
    rig: Rig, outcome: Any, type_name: str, message: str
) -> None:
    """Ruling E6: and nothing of it is written."""

    @rig.app.machine
    class Fails(Machine[int]):
        @step(initial=True)
        async def pack(self, ctx: MachineContext[int]) -> Outcome:
            return outcome  # type: ignore[no-any-return]

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            return Done([type(error).__name__, str(error), ctx.state])

    handle = await Fails.start(7)
    await rig.run()
    name, text, state = await handle.result()
    assert name == type_name
    assert message in text
    assert state == 7


async def test_a_bad_outcome_of_handle_fails_the_execution(rig: Rig) -> None:
    """Ruling E6 with section 4.2: `handle` is not asked about itself."""

    @rig.app.machine
    class Fails(Machine[int]):
        @step(initial=True)
        async def pack(self, ctx: MachineContext[int]) -> Outcome:
            raise BrokenError("first")

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            return Next("elsewhere", 1)

    handle = await Fails.start(7)
    await rig.run()
    error = await failure_of(handle)
    assert "has no step 'elsewhere'" in error.message
    assert error.causes[0].endswith("BrokenError: first")


# ---------------------------------------------------------------------- without handle: the retry policy


async def test_without_handle_a_step_is_retried_with_backoff_and_then_fails(rig: Rig) -> None:
    attempts: list[int] = []

    @rig.app.machine(retry=RetryPolicy(max_attempts=4, initial_delay=10, multiplier=3, jitter=0))
    class Fails(Machine[int]):
        @step(initial=True)
        async def pack(self, ctx: MachineContext[int]) -> Outcome:
            attempts.append(ctx.attempt)
            raise BrokenError(f"attempt {ctx.attempt}")

    handle = await Fails.start(1)
    waits = []
    await rig.run()
    while await handle.status() is Status.RUNNABLE:
        waits.append(((await rig.view(handle)).eligible_at - rig.now).total_seconds())
        await rig.advance(waits[-1])
        await rig.run()
    assert waits == [10, 30, 90]
    assert attempts == [0, 1, 2, 3]
    error = await failure_of(handle)
    assert error.type.endswith("BrokenError")
    assert error.message == "attempt 3"


async def test_the_default_policy_tries_ten_times(rig: Rig) -> None:
    attempts: list[int] = []

    @rig.app.machine
    class Fails(Machine[int]):
        @step(initial=True)
        async def pack(self, ctx: MachineContext[int]) -> Outcome:
            attempts.append(ctx.attempt)
            raise BrokenError

    handle = await Fails.start(1)
    for _ in range(12):
        await rig.run()
        await rig.advance(300)
    assert attempts == list(range(10))
    assert await handle.status() is Status.FAILED


async def test_a_policy_may_give_up_at_once_on_chosen_errors(rig: Rig) -> None:
    @rig.app.machine(retry=RetryPolicy(no_retry_on=(BrokenError,)))
    class Fails(Machine[int]):
        @step(initial=True)
        async def pack(self, ctx: MachineContext[int]) -> Outcome:
            raise BrokenError("for good")

    handle = await Fails.start(1)
    await rig.run()
    assert (await failure_of(handle)).message == "for good"


async def test_the_policy_starts_anew_in_the_next_step(rig: Rig) -> None:
    """`attempt` counts the tries of the current step."""

    @rig.app.machine(retry=RetryPolicy(max_attempts=2, initial_delay=0))
    class Fails(Machine[int]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            if ctx.attempt == 0:
                raise BrokenError
            return Next(self.second, ctx.state)

        @step
        async def second(self, ctx: MachineContext[int]) -> Outcome:
            if ctx.attempt == 0:
                raise BrokenError
            return Done("both mended")

    handle = await Fails.start(1)
    await rig.run()
    assert await handle.result() == "both mended"


async def test_the_worker_goes_on_after_every_kind_of_failure(rig: Rig) -> None:
    """One execution that goes wrong costs the others nothing."""

    @rig.app.machine(retry=RetryPolicy(max_attempts=1))
    class Mixed(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            if ctx.state == 0:
                raise BrokenError
            if ctx.state == 1:
                return None  # type: ignore[return-value]
            if ctx.state == 2:
                return Stop("enough")
            return Done(ctx.state)

    started = [await Mixed.start(n) for n in range(5)]
    await rig.run()
    assert [await handle.status() for handle in started] == [Status.FAILED] * 3 + [Status.DONE] * 2


async def test_a_step_that_exits_goes_to_handle_and_the_worker_goes_on(rig: Rig) -> None:
    """As where a step calls the main function of a command-line tool."""

    @rig.app.machine
    class Exits(Machine[int]):
        @step(initial=True)
        async def pack(self, ctx: MachineContext[int]) -> Outcome:
            if ctx.state == 1:
                sys.exit(3)
            return Next(self.label, ctx.state)

        @step
        def label(self, ctx: MachineContext[int]) -> Outcome:
            sys.exit("no printer")

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            if ctx.state == 3:
                sys.exit(4)
            return Done(str(error))

    first, second, third = [await Exits.start(n) for n in (1, 2, 3)]
    await rig.run()
    assert await first.result() == "Exits.pack called sys.exit(3)"
    assert await second.result() == "Exits.label called sys.exit('no printer')"
    assert (await failure_of(third)).message == "Exits.handle called sys.exit(4)"
