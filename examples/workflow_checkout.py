"""A checkout as a workflow: a retried task, several at once, a signal with a deadline.

It prints:

    charged after 2 attempts
    the parcel goes by train
    a person said: yes
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from holdfast import App, Context, RetryPolicy, current

app = App("checkout")


@dataclass
class Order:
    number: int
    city: str


@app.task(retry=RetryPolicy(max_attempts=5, initial_delay=0.05), timeout=10)
async def charge(order: Order) -> int:
    # Hand `current().idempotency_key` to the bank: it is the same in every attempt of this call.
    if current().attempt == 1:
        raise ConnectionError("the bank did not answer")
    return current().attempt


@app.task
def price(carrier: str, city: str) -> int:  # a plain function: it runs in a thread
    return len(city) * {"train": 2, "truck": 3, "plane": 9}[carrier]


@app.workflow
async def checkout(ctx: Context, order: Order) -> list[str]:
    attempts = await charge(order)
    prices: dict[int, str] = {}
    async with ctx.join_set() as offers:
        names = {offers.submit(price, carrier, order.city).id: carrier for carrier in ("train", "truck", "plane")}
        async for offer in offers:
            prices[offer.result()] = names[str(offer.promise.id)]
    try:
        said = await ctx.signal("approval", str, timeout=timedelta(days=3))
    except TimeoutError:
        said = "nothing"
    return [f"charged after {attempts} attempts", f"the parcel goes by {prices[min(prices)]}", f"a person said: {said}"]


async def main() -> None:
    async with app, app.worker():
        handle = await checkout.start(Order(17, "Aachen"))
        await handle.signal("approval", "yes")
        print("\n".join(await handle.result()))


if __name__ == "__main__":
    asyncio.run(main())
