"""The same thing asked for twice: keys find the first one, unique keys refuse a second one while the first is busy.

It prints:

    one key, one execution: True
    another input under the same key is refused: KeyConflictError
    of 3 imports 2 were started, 1 collided
    a second import of the same file is refused: UniqueConflictError
    once the first has ended it may be imported again: done
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from holdfast import (
    App,
    Await,
    Collision,
    Done,
    Handle,
    HoldfastError,
    Machine,
    MachineContext,
    Outcome,
    Unique,
    step,
)

app = App("imports")


@dataclass
class File:
    name: str
    size: int = 0


@app.machine
class Import(Machine[File]):
    @step(initial=True)
    async def read(self, ctx: MachineContext[File]) -> Outcome:
        return Await("go", self.finish, ctx.state)

    @step
    async def finish(self, ctx: MachineContext[File]) -> Outcome:
        return Done("done")


async def main() -> None:
    run = secrets.token_hex(4)  # so that the example can be run again on the same ledger
    async with app, app.worker():
        # An idempotency key: the same definition and key is the same execution, for ever.
        keyed = Import.options(key=f"report-{run}")
        first, again = await keyed.start(File("report.csv")), await keyed.start(File("report.csv"))
        print("one key, one execution:", first.id == again.id)
        try:
            await keyed.start(File("report.csv", size=7))
        except HoldfastError as error:
            print("another input under the same key is refused:", type(error).__name__)

        # A unique key: at most one at a time. Many are started in one commit, and each answers for itself.
        unique = Import.options(unique=Unique(key=lambda file: f"{run}/{file.name}"))
        started = await unique.start_many([File("a.csv"), File("b.csv"), File("a.csv")])
        handles = [item for item in started if isinstance(item, Handle)]
        collisions = [item for item in started if isinstance(item, Collision)]
        print(f"of 3 imports {len(handles)} were started, {len(collisions)} collided")
        try:
            await unique.start(File("a.csv"))
        except HoldfastError as error:
            print("a second import of the same file is refused:", type(error).__name__)

        await handles[0].signal("go")
        await handles[0].result()
        third = await unique.start(File("a.csv"))
        for handle in (first, handles[1], third):
            await handle.signal("go")
        print("once the first has ended it may be imported again:", await third.result(str))


if __name__ == "__main__":
    asyncio.run(main())
