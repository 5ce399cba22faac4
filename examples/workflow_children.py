"""Workflows that call workflows, a task on a queue of its own, and a clean-up that is durable too.

It prints:

    3 regions report 60 sales
    the slow report was cancelled, and its desk was cleared
"""

from __future__ import annotations

import asyncio

from holdfast import App, Context
from holdfast.errors import ExecutionCancelledError

app = App("reports")


@app.task(queue="numbers")  # an execution of its own, on any worker of that queue
async def count_sales(region: int) -> int:
    return region * 10


@app.task
async def clear_desk(name: str) -> str:
    return f"{name} was cleared"


@app.workflow
async def region_report(ctx: Context, region: int) -> int:
    return await count_sales(region)


@app.workflow
async def report(ctx: Context, regions: list[int]) -> int:
    return sum(await ctx.all(*(ctx.invoke(region_report, region) for region in regions)))


@app.workflow
async def slow_report(ctx: Context) -> None:
    try:
        await ctx.signal("never sent")
    finally:
        ctx.publish("desk", await clear_desk("its desk"))


async def main() -> None:
    async with app, app.worker(queues=["default", "numbers"]):
        regions = [1, 2, 3]
        total = await (await report.start(regions)).result()
        print(f"{len(regions)} regions report {total} sales")

        slow = await slow_report.start()
        await slow.cancel(cascade=True)
        try:
            await slow.result()
        except ExecutionCancelledError:
            print("the slow report was cancelled, and its desk was cleared")


if __name__ == "__main__":
    asyncio.run(main())
