"""An order as a flow: a condition, a join, a hook, an error edge, a completion task.

It prints:

    order of 3: done, shipped 3 pieces for 30, signed by Ada
    order of 0: done, nothing to ship
    order of 99: done, out of stock
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from holdfast import App, ErrorRecord, FlowJob, RetryPolicy

app = App("flow-order")
order = app.flow("order")
lines: dict[int, str] = {}


@dataclass
class Checked:
    amount: int
    is_needed: bool


@order.activity
async def validate(amount: int) -> Checked:
    return Checked(amount, amount > 0)


@order.activity(after=validate, when=lambda checked: checked.is_needed)
async def charge(checked: Checked) -> int:
    return checked.amount * 10


@order.activity(after=validate, when=lambda checked: checked.is_needed, retry=RetryPolicy(max_attempts=1))
def reserve(checked: Checked) -> str:
    if checked.amount > 50:
        raise LookupError("out of stock")
    return f"{checked.amount} pieces"


@order.error(after=reserve, catches=LookupError)
async def refuse(error: ErrorRecord) -> str:
    return error.message


@order.join(after=[charge, reserve])
async def ship(paid: int, stock: str) -> str:
    return f"shipped {stock} for {paid}"


@order.hook(after=ship, signal="delivered", timeout=timedelta(days=14))
async def close(parcel: str, signed_by: str) -> str:
    return f"{parcel}, signed by {signed_by}"


@order.on_complete
async def report(job: FlowJob) -> None:
    amount = job.result_of(validate).amount
    said = job.result_of(close) or job.result_of(refuse) or "nothing to ship"
    lines[amount] = f"order of {amount}: {job.status}, {said}"


async def main() -> None:
    async with app, app.worker():
        handles = [await order.start(amount) for amount in (3, 0, 99)]
        await handles[0].signal("delivered", "Ada")
        for handle in handles:
            await handle.result()
    print("\n".join(lines[amount] for amount in (3, 0, 99)))


if __name__ == "__main__":
    asyncio.run(main())
