"""A machine that decides for itself what an error means: try again later, give up, or go another way.

It prints:

    a busy bank: paid at attempt 2
    a closed account: failed: Stop: the account is closed
    a bank that never answers: paid by invoice
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from holdfast import App, Done, HoldfastError, Machine, MachineContext, Next, Outcome, Replay, Stop, step

app = App("payments")


class BankBusyError(Exception):
    pass


class AccountClosedError(Exception):
    pass


@dataclass
class Payment:
    bank: str
    tries: int = 0


@app.machine
class Pay(Machine[Payment]):
    @step(initial=True)
    async def charge(self, ctx: MachineContext[Payment]) -> Outcome:
        if ctx.state.bank == "closed":
            raise AccountClosedError
        if ctx.state.bank == "silent" or ctx.attempt < 2:
            raise BankBusyError(ctx.state.bank)
        return Done(f"paid at attempt {ctx.attempt}")

    @step
    async def invoice(self, ctx: MachineContext[Payment]) -> Outcome:
        return Done("paid by invoice")

    async def handle(self, error: Exception, ctx: MachineContext[Payment]) -> Outcome:
        """Every exception of a step comes here. Any outcome may answer it; it is committed like a step's own."""
        match error:
            case BankBusyError() if ctx.attempt < 4:
                return Replay(replace(ctx.state, tries=ctx.attempt + 1), delay=0.01 * 2**ctx.attempt)
            case BankBusyError():
                return Next(self.invoice, ctx.state)
            case AccountClosedError():
                return Stop("the account is closed")
        raise error


async def main() -> None:
    async with app, app.worker():
        for words, bank in (
            ("a busy bank", "busy"),
            ("a closed account", "closed"),
            ("a bank that never answers", "silent"),
        ):
            handle = await Pay.start(Payment(bank))
            result: Any
            try:
                result = await handle.result()
            except HoldfastError:
                view = await handle.describe()
                result = f"{view.status}: {await handle.error()}"
            print(f"{words}: {result}")


if __name__ == "__main__":
    asyncio.run(main())
