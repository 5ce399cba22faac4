"""An app of workflows for the tests of the command line; what its tasks did is in the file that EFFECTS names."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast import App, Context, RetryPolicy
from holdfast.store.base import Store


def build(store: str | Store | None = None) -> App:
    desk = App("desk", store)

    @desk.task(name="charge", retry=RetryPolicy(max_attempts=1))
    def charge(amount: int) -> int:
        if amount < 0:
            raise ValueError(f"{amount} is no amount")
        effects = os.environ.get("EFFECTS")
        if effects:
            with Path(effects).open("a") as file:
                file.write(f"charged {amount}\n")
        return amount

    @desk.workflow(name="pay")
    async def pay(ctx: Context, amount: int) -> str:
        paid = await charge(amount)
        approved = await ctx.signal("approval", bool)
        more = await charge(amount + 1)
        return f"{paid} and {more}" if approved else "refused"

    @desk.workflow(name="double")
    async def double(ctx: Context, amount: int) -> int:
        paid: int = await charge(amount)
        return paid * 2

    @desk.workflow(name="tell")
    async def tell(ctx: Context, amount: int) -> None:
        ctx.publish("stage", "packing")
        ctx.publish("left", {"boxes": amount})
        await ctx.signal("approval", bool)

    return desk


app = build()
