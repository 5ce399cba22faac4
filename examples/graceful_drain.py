"""A worker that is asked to stop finishes the steps at work, and another goes on from there.

It prints:

    the first worker stops in the middle of step 2
    step 2 was allowed to finish, and is in the ledger
    another worker goes on with step 3, then step 4
    every step ran once: [1, 2, 3, 4]
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from holdfast import App, Done, Machine, MachineContext, Next, Outcome, step

app = App("reports")
ran: list[int] = []
in_step_two = asyncio.Event()
may_finish = asyncio.Event()


@dataclass
class Report:
    chapter: int = 1


@app.machine
class Write(Machine[Report]):
    @step(initial=True)
    async def write(self, ctx: MachineContext[Report]) -> Outcome:
        chapter = ctx.state.chapter
        if chapter == 2:
            in_step_two.set()
            await may_finish.wait()
        ran.append(chapter)
        if chapter == 4:
            return Done(ran)
        return Next(self.write, replace(ctx.state, chapter=chapter + 1))


async def main() -> None:
    async with app:
        handle = await Write.start(Report())

        first = await app.make_worker()
        await first.start()
        await in_step_two.wait()
        print("the first worker stops in the middle of step 2")
        stopping = asyncio.create_task(first.stop())  # what SIGTERM does to `holdfast worker`
        may_finish.set()
        await stopping
        view = await handle.describe()
        assert view.state == '{"chapter":3}'
        print("step 2 was allowed to finish, and is in the ledger")

        async with app.worker():
            await handle.result()
        print("another worker goes on with step 3, then step 4")
        print("every step ran once:", ran)


if __name__ == "__main__":
    asyncio.run(main())
