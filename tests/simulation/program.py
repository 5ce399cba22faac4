"""The program whose processes the tests kill: `python -m tests.simulation.program LEASE_SECONDS [GATE]`.

HOLDFAST_DATABASE says where its ledger is. With GATE, the path of a file, no step ends before that file exists: so a
test can freeze a worker in its steps.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast import App, Await, Child, Done, Machine, Next, ScheduleChildren, step
from holdfast.engine.settings import WorkerSettings

app = App("program")
gate: Path | None = None


async def work_a_little() -> None:
    await asyncio.sleep(random.uniform(0, 0.02))
    while gate is not None and not gate.exists():  # noqa: ASYNC110 - a file of another process has no event
        await asyncio.sleep(0.01)


@dataclass(frozen=True)
class Parcel:
    number: int
    stamps: tuple[str, ...] = ()

    def stamped(self, stamp: str) -> Parcel:
        return replace(self, stamps=(*self.stamps, stamp))


@app.machine(history=True)
class Chain(Machine[Parcel]):
    """Four transitions."""

    @step(initial=True)
    async def one(self, ctx: Any) -> Any:
        await work_a_little()
        return Next(self.two, ctx.state.stamped("one"))

    @step
    async def two(self, ctx: Any) -> Any:
        await work_a_little()
        return Next(self.three, ctx.state.stamped("two"))

    @step
    async def three(self, ctx: Any) -> Any:
        await work_a_little()
        return Next(self.four, ctx.state.stamped("three"))

    @step
    async def four(self, ctx: Any) -> Any:
        await work_a_little()
        return Done(list(ctx.state.stamps))


@app.machine(history=True)
class Leaf(Machine[Parcel]):
    @step(initial=True)
    async def one(self, ctx: Any) -> Any:
        await work_a_little()
        return Done(ctx.state.number)


@app.machine(history=True)
class Tree(Machine[Parcel]):
    """Three children and a join."""

    @step(initial=True)
    async def spawn(self, ctx: Any) -> Any:
        return ScheduleChildren(self.join, [Child(Leaf, Parcel(n)) for n in range(3)], ctx.state)

    @step
    async def join(self, ctx: Any) -> Any:
        await work_a_little()
        return Done([child.result for child in ctx.children])


@app.machine(history=True)
class Waiter(Machine[Parcel]):
    """Waits for a signal of the test's."""

    @step(initial=True)
    async def park(self, ctx: Any) -> Any:
        await work_a_little()
        return Await("go", self.woken, ctx.state)

    @step
    async def woken(self, ctx: Any) -> Any:
        await work_a_little()
        return Next(self.end, ctx.state.stamped(str([signal.payload for signal in ctx.awaited])))

    @step
    async def end(self, ctx: Any) -> Any:
        return Done(list(ctx.state.stamps))


# What the history of each must be, line by line: every transition once, in order.
TRANSITIONS = {
    "Chain": [("one", "Next"), ("two", "Next"), ("three", "Next"), ("four", "Done")],
    "Leaf": [("one", "Done")],
    "Tree": [("spawn", "ScheduleChildren"), ("join", "Done")],
    "Waiter": [("park", "Await"), ("woken", "Next"), ("end", "Done")],
}


async def main(lease_seconds: float) -> None:
    async with app:
        worker = await app.make_worker(
            WorkerSettings(lease_seconds=lease_seconds, poll_seconds=0.25, drain_seconds=5, concurrency=100)
        )
        await worker.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format=f"%(asctime)s {os.getpid()} %(message)s")
    if len(sys.argv) > 2:
        gate = Path(sys.argv[2])
    asyncio.run(main(float(sys.argv[1])))
