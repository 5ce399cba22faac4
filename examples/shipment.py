"""A shipment that waits for its carrier: signals, and a deadline for the one who never answers.

It prints:

    parcel 1: picked up by Ann
    parcel 2: returned to sender
    parcel 3: nobody answered, sent by post
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta

from holdfast import App, Await, Done, Machine, MachineContext, Next, Outcome, step

app = App("shipments")


@dataclass
class Pickup:
    driver: str


@dataclass
class Parcel:
    number: int
    is_labelled: bool = False


@app.machine
class Shipment(Machine[Parcel]):
    @step(initial=True)
    async def pack(self, ctx: MachineContext[Parcel]) -> Outcome:
        return Next(self.label, ctx.state)

    @step
    async def label(self, ctx: MachineContext[Parcel]) -> Outcome:
        labelled = replace(ctx.state, is_labelled=True)
        # Parked in the ledger, not in memory: this may take seconds or a year, and survives any restart.
        return Await({"carrier_ok", "carrier_no"}, self.decide, labelled, timeout=timedelta(seconds=1))

    @step
    async def decide(self, ctx: MachineContext[Parcel]) -> Outcome:
        if ctx.timed_out:
            return Done("nobody answered, sent by post")
        answer = ctx.awaited[0]
        if answer.name == "carrier_no":
            return Done("returned to sender")
        return Done(f"picked up by {answer.decode(Pickup).driver}")


async def main() -> None:
    async with app, app.worker():
        handles = [await Shipment.start(Parcel(number)) for number in (1, 2, 3)]
        await handles[0].signal("carrier_ok", Pickup("Ann"))
        await handles[1].signal("carrier_no")
        for number, handle in enumerate(handles, 1):
            print(f"parcel {number}: {await handle.result()}")


if __name__ == "__main__":
    asyncio.run(main())
