"""The app that the tests of the command line work with: `holdfast worker shop:app`."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

from holdfast import (
    App,
    Await,
    Child,
    Done,
    Machine,
    MachineContext,
    Next,
    Outcome,
    RetryPolicy,
    ScheduleChildren,
    Stop,
    step,
)
from holdfast.store.base import Store


@dataclass
class Basket:
    wish: str
    queue: str = "default"  # of its children


class Order(Machine[Basket]):
    """Does what its wish says."""

    @step(initial=True)
    async def take(self, ctx: MachineContext[Basket]) -> Outcome:
        return Next(self.work, ctx.state)

    @step
    async def work(self, ctx: MachineContext[Basket]) -> Outcome:
        match ctx.state.wish:
            case "wait":
                return Await({"paid", "refused"}, self.close, ctx.state, timeout=3600)
            case "children":
                wishes = [Basket("wait"), Basket("done")]
                return ScheduleChildren(
                    self.close, [Child(Order, wish, queue=ctx.state.queue) for wish in wishes], ctx.state
                )
            case "fail":
                return Stop("out of stock")
            case "jam":
                return Stop("the till is jammed\x1b[31m\nfor good")
            case "flaky" if ctx.attempt == 0:
                raise ValueError("the till is jammed\x1b[31m\nfor good")
            case "hang":
                print("hanging", flush=True)
                await asyncio.Event().wait()
        return Next(self.close, ctx.state)

    @step
    async def close(self, ctx: MachineContext[Basket]) -> Outcome:
        return Done({"wish": ctx.state.wish, "signals": [signal.name for signal in ctx.awaited]})


class Press(Machine[Basket]):
    """Runs in a thread and never comes back."""

    @step(initial=True)
    def work(self, ctx: MachineContext[Basket]) -> Outcome:
        print("pressing", flush=True)
        threading.Event().wait()
        return Done()


def build(store: str | Store | None = None) -> App:
    shop = App("shop", store)
    shop.machine(history=True, retry=RetryPolicy(initial_delay=0))(Order)
    shop.machine(Press)
    return shop


app = build()
not_an_app = 17
