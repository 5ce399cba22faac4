"""A trip booked in three steps, each with a way back: when one fails for good, the others are undone, in reverse.

It prints:

    flight booked
    hotel booked
    hotel cancelled
    flight cancelled
    no car: nothing is booked
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast import App, Context, RetryPolicy, Task, TaskFailed

app = App("trips")
ONCE = RetryPolicy(max_attempts=1)


@app.task(retry=ONCE)
async def flight(trip: str) -> None:
    print("flight booked")


@app.task
async def cancel_flight(trip: str) -> None:
    print("flight cancelled")


@app.task(retry=ONCE)
async def hotel(trip: str) -> None:
    print("hotel booked")


@app.task
async def cancel_hotel(trip: str) -> None:
    print("hotel cancelled")


@app.task(retry=ONCE, timeout=timedelta(seconds=30))
async def car(trip: str) -> None:
    raise LookupError("none left")


@app.workflow
async def book(ctx: Context, trip: str) -> str:
    undo: list[Task[[str], None]] = []
    try:
        await flight(trip)
        undo.append(cancel_flight)
        await hotel(trip)
        undo.append(cancel_hotel)
        await car(trip)
    except TaskFailed:
        # Durable like everything else: a crash in the middle goes on with the undoing.
        for cancel in reversed(undo):
            await cancel(trip)
        return "no car: nothing is booked"
    return "all is booked"


async def main() -> None:
    async with app:
        print(await app.run(book, "Lisbon"))


if __name__ == "__main__":
    asyncio.run(main())
