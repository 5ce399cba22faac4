"""Pools and clients are opened once a worker, closed with it, and handed to steps by their type.

It prints:

    open the warehouse
    3 boxes of nails taken, 7 are left
    2 boxes of nails taken, 5 are left
    close the warehouse
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from holdfast import App, Done, Machine, MachineContext, Outcome, step

app = App("warehouse")


class Warehouse:
    """Stands for a connection pool or an HTTP client."""

    def __init__(self) -> None:
        self._boxes = {"nails": 10}

    async def take(self, thing: str, count: int) -> int:
        self._boxes[thing] -= count
        return self._boxes[thing]


@app.lifespan
async def warehouse() -> AsyncIterator[Warehouse]:
    print("open the warehouse")
    yield Warehouse()
    print("close the warehouse")


@dataclass
class Order:
    thing: str
    count: int


@app.machine
class Fetch(Machine[Order]):
    @step(initial=True)
    async def take(self, ctx: MachineContext[Order], store: Warehouse) -> Outcome:
        """Every parameter after `ctx` is a resource; a worker that has none of that type refuses to start."""
        left = await store.take(ctx.state.thing, ctx.state.count)
        return Done(f"{ctx.state.count} boxes of {ctx.state.thing} taken, {left} are left")


async def main() -> None:
    async with app, app.worker():
        for count in (3, 2):
            print(await (await Fetch.start(Order("nails", count))).result())


if __name__ == "__main__":
    asyncio.run(main())
