"""A counter that lives for ever: it takes in signals, shows its total, and starts a new journal now and then.

It prints:

    the total is 15
    and still 15 after 5 runs, in 1 handle
"""

from __future__ import annotations

import asyncio

from holdfast import App, Context

app = App("counters")


@app.workflow
async def counter(ctx: Context, total: int, runs: int) -> list[int]:
    # A journal that only grows would make every replay longer; a new one begins with what matters.
    number = await ctx.signal("add", int)
    if number != 0:
        ctx.publish("total", total + number)
        ctx.continue_as_new(total + number, runs + 1)
    return [total, runs]


async def main() -> None:
    async with app, app.worker():
        handle = await counter.start(0, 0)
        for number in (1, 2, 3, 4, 5):
            await handle.signal("add", number)
        await handle.signal("add", 0)
        total, runs = await handle.result()
        print(f"the total is {total}")
        print(f"and still {total} after {runs} runs, in 1 handle")


if __name__ == "__main__":
    asyncio.run(main())
