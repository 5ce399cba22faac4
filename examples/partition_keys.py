"""Bookings of one account happen one at a time and in order; accounts do not wait for each other.

It prints:

    ann: +1 +2 +3 +4
    bob: +1 +2 +3 +4
    most bookings of one account at a time: 1
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, defaultdict
from dataclasses import dataclass

from holdfast import App, Done, Handle, Machine, MachineContext, Outcome, step

app = App("bank")


@dataclass
class Booking:
    account: str
    amount: int


# Only to show what happens: a real machine keeps what lasts in its state.
booked: defaultdict[str, list[int]] = defaultdict(list)
at_work: Counter[str] = Counter()
most_at_work = 0


@app.machine
class Book(Machine[Booking]):
    @step(initial=True)
    async def book(self, ctx: MachineContext[Booking]) -> Outcome:
        global most_at_work
        account = ctx.state.account
        at_work[account] += 1
        most_at_work = max(most_at_work, at_work[account])
        await asyncio.sleep(0.01)
        booked[account].append(ctx.state.amount)
        at_work[account] -= 1
        return Done()


async def main() -> None:
    run = secrets.token_hex(4)
    async with app:
        handles = []
        for account in ("ann", "bob"):
            keyed = Book.options(partition_key=f"{run}/{account}")
            started = await keyed.start_many([Booking(account, amount) for amount in (1, 2, 3, 4)])
            handles += [item for item in started if isinstance(item, Handle)]
        async with app.worker(concurrency=50):
            await app.results(handles)
    for account, amounts in sorted(booked.items()):
        print(f"{account}:", *(f"+{amount}" for amount in amounts))
    print("most bookings of one account at a time:", most_at_work)


if __name__ == "__main__":
    asyncio.run(main())
