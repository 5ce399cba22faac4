"""A machine that waits, for the tests of signals and deadlines."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast import Await, Done, Machine, MachineContext, Next, Outcome, step
from tests.engine.rig import Rig


def names(ctx: MachineContext[Any]) -> list[str]:
    return [signal.name for signal in ctx.awaited]


class Log:
    """A machine that waits for `awaits`, notes what it is woken with, and then does what `then` says."""

    def __init__(self, rig: Rig, awaits: Any, then: Any, timeout: float | timedelta | None = None) -> None:
        self.seen: list[tuple[list[str], list[str], bool]] = []
        outer = self

        @rig.app.machine
        class Waits(Machine[int]):
            @step(initial=True)
            async def ask(self, ctx: MachineContext[int]) -> Outcome:
                return Await(awaits, self.woken, ctx.state, timeout=timeout)

            @step
            async def woken(self, ctx: MachineContext[int]) -> Outcome:
                outer.seen.append((names(ctx), [signal.name for signal in ctx.inbox], ctx.timed_out))
                return then(self, ctx)  # type: ignore[no-any-return]

            @step
            async def after(self, ctx: MachineContext[int]) -> Outcome:
                outer.seen.append((names(ctx), [signal.name for signal in ctx.inbox], ctx.timed_out))
                return Done()

        self.machine = Waits


def go_on(machine: Any, ctx: MachineContext[int]) -> Outcome:
    return Next(machine.after, ctx.state)
