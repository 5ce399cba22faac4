"""Limits of a queue hold over all workers together; a paused queue gives nothing out.

It prints:

    most calls at a time, over two workers: 2
    while the queue is paused nothing is called: runnable
    open again: done
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from holdfast import App, Done, Handle, Machine, MachineContext, Outcome, step

app = App("partner")
at_work = most_at_work = 0


@dataclass
class Request:
    number: int


@app.machine(queue="partner-api")
class Call(Machine[Request]):
    @step(initial=True)
    async def call(self, ctx: MachineContext[Request]) -> Outcome:
        global at_work, most_at_work
        at_work += 1
        most_at_work = max(most_at_work, at_work)
        await asyncio.sleep(0.01)
        at_work -= 1
        return Done("done")


async def main() -> None:
    async with app:
        await app.configure_queue("partner-api", concurrency=2)
        started = await Call.start_many([Request(number) for number in range(10)])
        async with app.worker(queues=["partner-api"]), app.worker(queues=["partner-api"]):
            await app.results([handle for handle in started if isinstance(handle, Handle)])
            print("most calls at a time, over two workers:", most_at_work)

        await app.configure_queue("partner-api", concurrency=2, paused=True)
        late = await Call.start(Request(11))
        async with app.worker(queues=["partner-api"]):
            try:
                await late.result(timeout=0.5)
            except TimeoutError:  # of this wait; the execution is left alone
                print("while the queue is paused nothing is called:", await late.status())
            await app.configure_queue("partner-api", concurrency=2)
            print("open again:", await late.result())


if __name__ == "__main__":
    asyncio.run(main())
