"""What the demo works on: orders that are reserved, charged, packed into parcels and shipped.

Ordinary user code. Some charges fail the first time and are tried again; large orders wait for an approval, which
arrives as a signal; each order spawns two parcels and waits for both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

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
    step,
)
from holdfast.cli.demo.audit import AuditLog

APPROVAL: Final = "approval"
PARCELS_AN_ORDER: Final = 2
ORDER_STEPS: Final = ("reserve", "charge", "pack", "ship")
PARCEL_STEPS: Final = ("label", "dispatch")
STEPS_AN_ORDER: Final = len(ORDER_STEPS) + PARCELS_AN_ORDER * len(PARCEL_STEPS)


@dataclass(frozen=True)
class OrderState:
    number: int
    is_charged: bool = False
    is_approved: bool = False

    @property
    def is_large(self) -> bool:
        return self.number % 4 == 0

    @property
    def has_slow_bank(self) -> bool:
        return self.number % 10 == 3


@dataclass(frozen=True)
class ParcelState:
    order: int
    number: int


class PaymentTimeoutError(Exception):
    """The bank did not answer."""


class Bench:
    """Where the work is done: each step notes in the audit that it runs, then takes its time."""

    def __init__(self, audit: AuditLog, work_seconds: float) -> None:
        self._audit = audit
        self._work_seconds = work_seconds

    async def work(self, ctx: MachineContext[Any]) -> None:
        self._audit.note(str(ctx.id), ctx.step, ctx.attempt)
        await asyncio.sleep(self._work_seconds)


class Order(Machine[OrderState]):
    @step(initial=True)
    async def reserve(self, ctx: MachineContext[OrderState], bench: Bench) -> Outcome:
        await bench.work(ctx)
        return Next(self.charge, ctx.state)

    @step
    async def charge(self, ctx: MachineContext[OrderState], bench: Bench) -> Outcome:
        await bench.work(ctx)
        if ctx.state.has_slow_bank and ctx.attempt == 0:
            raise PaymentTimeoutError(f"order {ctx.state.number}: the bank did not answer")
        charged = replace(ctx.state, is_charged=True)
        if charged.is_large:
            return Await(APPROVAL, self.pack, charged)
        return Next(self.pack, charged)

    @step
    async def pack(self, ctx: MachineContext[OrderState], bench: Bench) -> Outcome:
        await bench.work(ctx)
        parcels = [Child(Parcel, ParcelState(ctx.state.number, number)) for number in range(PARCELS_AN_ORDER)]
        return ScheduleChildren(self.ship, parcels, replace(ctx.state, is_approved=bool(ctx.awaited)))

    @step
    async def ship(self, ctx: MachineContext[OrderState], bench: Bench) -> Outcome:
        await bench.work(ctx)
        sent = sum(child.is_done for child in ctx.children)
        return Done(result_of(ctx.state, sent))


class Parcel(Machine[ParcelState]):
    @step(initial=True)
    async def label(self, ctx: MachineContext[ParcelState], bench: Bench) -> Outcome:
        await bench.work(ctx)
        return Next(self.dispatch, ctx.state)

    @step
    async def dispatch(self, ctx: MachineContext[ParcelState], bench: Bench) -> Outcome:
        await bench.work(ctx)
        return Done()


def result_of(state: OrderState, parcels: int) -> dict[str, Any]:
    """What an order comes to."""
    return {"order": state.number, "charged": state.is_charged, "approved": state.is_approved, "parcels": parcels}


def expected_result(number: int) -> dict[str, Any]:
    """What order `number` must come to, crash or no crash."""
    state = OrderState(number)
    return result_of(replace(state, is_charged=True, is_approved=state.is_large), PARCELS_AN_ORDER)


def build_app(database: str, queue: str, audit: Path, work_seconds: float) -> App:
    """The app of one run of the demo, which keeps to a queue of its own."""
    app = App("demo", database)
    retry = RetryPolicy(initial_delay=0.3, max_delay=1.0)
    for machine in (Order, Parcel):
        app.machine(history=True, queue=queue, retry=retry)(machine)

    @app.lifespan
    def bench() -> Iterator[Bench]:
        log = AuditLog(audit)
        yield Bench(log, work_seconds)
        log.close()

    return app
