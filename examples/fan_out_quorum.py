"""Ask five suppliers, go on when three have answered: children, a quorum, and what the rest does.

It prints:

    the best of 3 offers is 20
    the late ones were still asked: 5 of 5 ended
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from holdfast import App, Await, Child, Done, Machine, MachineContext, Outcome, ScheduleChildren, Status, step

app = App("purchasing")


@dataclass
class Request:
    supplier: str
    price: int
    is_slow: bool = False


@dataclass
class Purchase:
    suppliers: list[Request] = field(default_factory=list)


@app.machine
class Offer(Machine[Request]):
    @step(initial=True)
    async def ask(self, ctx: MachineContext[Request]) -> Outcome:
        if ctx.state.is_slow:
            return Await("reminder", self.answer, ctx.state)
        return Done(ctx.state.price)

    @step
    async def answer(self, ctx: MachineContext[Request]) -> Outcome:
        return Done(ctx.state.price)


@app.machine
class Buy(Machine[Purchase]):
    @step(initial=True)
    async def ask_all(self, ctx: MachineContext[Purchase]) -> Outcome:
        # The children and the barrier are one commit: none can end before the parent waits for it.
        offers = [Child(Offer, request) for request in ctx.state.suppliers]
        return ScheduleChildren(self.choose, offers, ctx.state, quorum=3)

    @step
    async def choose(self, ctx: MachineContext[Purchase]) -> Outcome:
        offers = [child.result_as(int) for child in ctx.children if child.is_done]
        return Done({"offers": len(offers), "best": min(offers)})


async def main() -> None:
    suppliers = [Request("a", 30), Request("b", 20), Request("c", 25), Request("d", 10, True), Request("e", 5, True)]
    async with app, app.worker():
        buy = await Buy.start(Purchase(suppliers))
        result = await buy.result()
        print(f"the best of {result['offers']} offers is {result['best']}")

        # A quorum lets the others go on by themselves; cancel them with `buy.cancel(cascade=True)` if that is meant.
        ended = 0
        for number in range(len(suppliers)):
            child = app.handle(buy.id.child(number))
            if await child.status() is not Status.DONE:
                await child.signal("reminder")
            await child.result()
            ended += 1
        print(f"the late ones were still asked: {ended} of {len(suppliers)} ended")


if __name__ == "__main__":
    asyncio.run(main())
