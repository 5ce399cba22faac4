"""The machines and workflows that the workloads run; imported by worker processes too."""

from __future__ import annotations

import asyncio
import os
import time

from msgspec import Struct

from benchmarks.peers.drivers.rounds import mark
from holdfast import App, Child, Context, Done, Machine, MachineContext, Next, Outcome, ScheduleChildren, step
from holdfast.core.outcomes import Await

app = App("benchmarks", os.environ.get("HOLDFAST_DATABASE") or "holdfast.db")


class Steps(Struct):
    """`left` steps to go."""

    left: int = 1
    note: str = "a payload of about a hundred bytes, as an order or a picture's name might be in a real state"


@app.machine
class Stepper(Machine[Steps]):
    """A machine of so many steps."""

    @step(initial=True)
    async def go(self, ctx: MachineContext[Steps]) -> Outcome:
        if ctx.state.left <= 1:
            return Done(0)
        return Next(self.go, Steps(ctx.state.left - 1))


@app.machine
class FanOut(Machine[Steps]):
    """A parent of `left` children."""

    @step(initial=True)
    async def spread(self, ctx: MachineContext[Steps]) -> Outcome:
        return ScheduleChildren(self.join, [Child(Stepper, Steps(1))] * ctx.state.left, ctx.state)

    @step
    async def join(self, ctx: MachineContext[Steps]) -> Outcome:
        return Done(len(ctx.children))


@app.machine
class Echo(Machine[Steps]):
    """Waits for `left` signals; its result is how long each took from before the send to after the receive."""

    @step(initial=True)
    async def begin(self, ctx: MachineContext[Steps]) -> Outcome:
        return Await("ping", self.heard, Steps(ctx.state.left, ""))

    @step
    async def heard(self, ctx: MachineContext[Steps]) -> Outcome:
        note = ctx.state.note
        for signal in ctx.awaited:
            note += f"{time.time() - float(signal.payload):.6f} "
        if ctx.state.left <= 1:
            return Done(note.split())
        return Next(self.again, Steps(ctx.state.left - 1, note))

    @step
    async def again(self, ctx: MachineContext[Steps]) -> Outcome:
        return Await("ping", self.heard, ctx.state)


@app.task
async def work(number: int) -> int:
    """As little as a task can do."""
    return number


@app.workflow
async def sequence(ctx: Context, steps: int) -> int:
    """So many tasks, one after the other."""
    total = 0
    for number in range(steps):
        total += await work(number)
    return total


@app.workflow
async def leaf(ctx: Context, number: int) -> int:
    return await work(number)


@app.workflow
async def tree(ctx: Context, children: int) -> int:
    """A parent of so many child workflows."""
    results = await ctx.all(*(ctx.invoke(leaf, number) for number in range(children)))
    return len(results)


@app.workflow
async def echo(ctx: Context, count: int) -> list[float]:
    """Waits for signals and says how long each took."""
    took = []
    for _ in range(count):
        sent = await ctx.signal("ping", float)
        took.append(_elapsed(sent))
    return took


def _elapsed(since: float) -> float:
    # The clock of the process, which a body has no business with: the moment of receiving itself is wanted, as it is
    # taken of the peers, and a task would be begun only after one more commit. No run of this is ever replayed.
    return time.time() - since


@app.workflow
async def sleeper(ctx: Context, seconds: float) -> None:
    await ctx.sleep(seconds)


@app.task
async def held() -> None:
    """What a worker is killed in; another one goes on."""
    mark(os.environ["BENCH_MARKS"])
    if os.environ.get("BENCH_HANG"):
        await asyncio.sleep(600)


@app.workflow
async def held_after(ctx: Context, steps: int) -> int:
    """So many tasks, then one that waits: where the recovery of a long history is measured."""
    total = 0
    for number in range(steps):
        total += await work(number)
    _past()
    await held()
    return total


def _past() -> None:
    # In the body too: a task would be begun only after one more commit, and what is asked is when the steps are past.
    mark(os.environ["BENCH_MARKS"])
