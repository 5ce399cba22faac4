"""A shop with everything that a page can show, made by real workers on a SQLite file.

The ledger's clock begins days ago and jumps ahead between the working hours of its workers, so that sleeps of hours and
approvals of days are in it, and it all takes a second. After the last jump it shows the time of this machine.

`python -m tests.browser.world FILE` fills a file for a look by hand.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast import (
    App,
    Await,
    Child,
    Context,
    Done,
    Machine,
    MachineContext,
    Next,
    Outcome,
    RetryPolicy,
    ScheduleChildren,
    Skip,
    Stop,
    step,
)
from holdfast.core.error_record import ErrorRecord
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.models.handle import Handle
from holdfast.models.operation import FrameState, LedgerData, OperationState, StackFrame
from holdfast.models.operation.data import encode
from holdfast.models.operation.files import JSON_SUFFIX
from holdfast.store.base import Store, handler_of
from holdfast.store.sqlite import SqliteStore
from holdfast.store.values import ExecutionFilter, NewExecution

XSS: Final = "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script>'\"{{7*7}}"
HOUR: Final = 3_600.0
LONG_NAME: Final = "import_" * 28  # names may have 200 characters
QUEUES: Final = ("default", "mail", "gpu")


class ShiftedClock:
    """This machine's time, shifted."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def now_us(self) -> int:
        return time.time_ns() // 1_000 + round(self.seconds * 1_000_000)


@dataclass
class Order:
    number: int
    total: float = 42.0
    note: str = ""


@dataclass
class Parcel:
    order: int
    address: str = "Hafenstraße 1"
    tries: int = 0


class DeclinedError(Exception):
    __module__ = "shop.payments"  # as pages show it


class Shop:
    """The program: its definitions, and how its code is changed under a run."""

    def __init__(self, store: str | Store, hostile: str = XSS) -> None:
        self.app = App("shop", store)
        self.hostile = hostile  # what ill-meaning users write wherever they may
        self.is_changed = False
        self.flaky = 2  # how often the bank does not answer
        _declare_tasks(self)
        _declare_machines(self)
        _declare_flow(self)
        _declare_batch(self)


def _declare_tasks(shop: Shop) -> None:
    app = shop.app

    @app.task(
        name="charge",
        retry=RetryPolicy(max_attempts=5, initial_delay=0.05, multiplier=2.0, jitter=0.0),
        raises=(DeclinedError,),
    )
    async def charge(order: Order) -> str:
        await asyncio.sleep(0.03)
        if shop.flaky > 0:
            shop.flaky -= 1
            raise ConnectionError("the bank did not answer in time")
        if order.total > 1000:
            raise DeclinedError(f"{order.total:.0f} is more than the card allows")
        return f"receipt-{order.number}"

    @app.task(name="quote")
    async def quote(carrier: str) -> float:
        await asyncio.sleep({"sea": 0.06, "rail": 0.04, "air": 0.02}.get(carrier, 0.01))
        return float(len(carrier)) * 3.5

    @app.task(name="mail", queue="mail")
    async def mail(to: str, text: str) -> int:
        await asyncio.sleep(0.02)
        return len(text)

    @app.task(name="render_label", queue="gpu", retry=RetryPolicy(max_attempts=1))
    async def render_label(order: int) -> str:
        raise RuntimeError(f"order {order}: no driver for this card {shop.hostile}")

    @app.workflow(name="deliver")
    async def deliver(ctx: Context, order: Order) -> str:
        await ctx.sleep(timedelta(hours=2))
        await mail("customer", f"order {order.number} is on its way")
        return "delivered"

    @app.workflow(name="checkout")
    async def checkout(ctx: Context, order: Order) -> dict[str, Any]:
        ctx.publish("stage", "paying")
        receipt = await charge(order)
        ctx.random()
        async with ctx.join_set() as quotes:
            for carrier in ("sea", "rail", "air"):
                quotes.submit(quote, carrier)
            prices = [done.result() async for done in quotes]
        ctx.publish("stage", "waiting for approval")
        decision = await ctx.signal("approval", str, timeout=timedelta(days=3))
        await mail("customer", f"thank you: {receipt}, {order.note}")
        delivered = await deliver(order)
        await ctx.sleep(timedelta(hours=24))
        return {"receipt": receipt, "quotes": prices, "approved_by": decision, "delivery": delivered}

    @app.workflow(name="refund")
    async def refund(ctx: Context, order: Order) -> str:
        await quote("air")
        return await charge(order)

    @app.workflow(name="audit", lint="off")
    async def audit(ctx: Context, order: Order) -> str:
        await quote("rail" if shop.is_changed else "sea")
        await ctx.signal("close", str)
        return "closed"

    @app.workflow(name=LONG_NAME)
    async def long_winded(ctx: Context, text: str) -> str:
        return await ctx.signal(LONG_NAME, str)

    @app.schedule("0 6 * * mon-fri", timezone="Europe/Berlin", args={"to": "team", "text": "the nightly report"})
    @app.task(queue="mail", name="report")
    async def report(to: str, text: str) -> int:
        return len(text)

    shop.charge, shop.quote, shop.mail, shop.render_label = charge, quote, mail, render_label  # type: ignore[attr-defined]
    shop.checkout, shop.refund, shop.audit = checkout, refund, audit  # type: ignore[attr-defined]
    shop.long_winded = long_winded  # type: ignore[attr-defined]


class Shipment(Machine[Parcel]):
    @step(initial=True)
    async def pack(self, ctx: MachineContext[Parcel]) -> Outcome:
        await asyncio.sleep(0.01)
        return ScheduleChildren(self.label, [Child(Box, ctx.state), Child(Box, ctx.state)], ctx.state)

    @step
    async def label(self, ctx: MachineContext[Parcel]) -> Outcome:
        if ctx.attempt == 0:
            raise TimeoutError("the printer is out of paper")
        return Await(["pickup", "recall"], self.transit, ctx.state, timeout=timedelta(days=2))

    @step
    async def transit(self, ctx: MachineContext[Parcel]) -> Outcome:
        if any(signal.name == "recall" for signal in ctx.awaited):
            return Stop("recalled by the sender")
        if ctx.timed_out:
            return Next(self.pack, replace(ctx.state, tries=ctx.state.tries + 1))
        return Next(self.handover, ctx.state)

    @step
    async def handover(self, ctx: MachineContext[Parcel]) -> Outcome:
        return Done({"order": ctx.state.order, "tries": ctx.state.tries})


class Box(Machine[Parcel]):
    @step(initial=True)
    async def fold(self, ctx: MachineContext[Parcel]) -> Outcome:
        await asyncio.sleep(0.01)
        return Done("folded")


def _declare_machines(shop: Shop) -> None:
    retry = RetryPolicy(initial_delay=0.02, max_delay=0.05)
    for machine in (Shipment, Box):
        shop.app.machine(history=True, retry=retry)(machine)


def _declare_flow(shop: Shop) -> None:
    order = shop.app.flow("order")

    @order.activity(name="reserve")
    async def reserve(number: int) -> int:
        return number

    @order.activity(name="invoice", after=reserve)
    async def invoice(number: int) -> str:
        return f"invoice-{number}"

    @order.activity(name="pick", after=reserve)
    async def pick(number: int) -> int:
        return number - 1

    @order.activity(name="check", after=pick)
    async def check(left: int) -> int:
        return left

    order.repeat(after=check, to=pick, when=lambda left: left > 0)

    @order.activity(name="address", after=reserve)
    async def address(number: int) -> str:
        return "Hafenstraße 1"

    @order.join(name="dispatch", after=[invoice, address])
    async def dispatch(paper: str, street: str) -> str:
        return f"{paper} to {street}"

    @order.hook(name="sign", after=dispatch, signal="signature")
    async def sign(paper: str, signature: str) -> str:
        return f"{paper} by {signature}"

    @order.error(name="refuse", after=reserve)
    async def refuse(error: ErrorRecord) -> str:
        return str(error)

    shop.order = order  # type: ignore[attr-defined]


def _declare_batch(shop: Shop) -> None:
    @shop.app.batch(name="resize", chunk=25, concurrency=16, retry=RetryPolicy(max_attempts=2, initial_delay=0.001))
    async def resize(picture: int) -> int:
        if picture % 97 == 5:
            raise ValueError(f"picture {picture} is torn {shop.hostile}")
        if picture % 50 == 7:
            raise Skip("it is small enough")
        return picture * 2

    shop.resize = resize  # type: ignore[attr-defined]


@dataclass
class World:
    """What was made, by what it shows."""

    path: Path
    ids: dict[str, str]
    operations: Path


async def fill(path: Path, hostile: str = XSS) -> World:
    """Make the world in a new file."""
    clock = ShiftedClock(-30 * HOUR)
    shop = Shop(SqliteStore(path, clock=clock), hostile)
    app: Any = shop
    ids: dict[str, str] = {}

    async def started(name: str, starter: Any, *args: Any) -> Handle[Any]:
        handle: Handle[Any] = await starter.start(*args)
        ids[name] = str(handle.id)
        return handle

    async with shop.app:
        await shop.app.configure_queue("mail", concurrency=10)
        done = await started("done", app.checkout.options(key="order-1", attributes={"customer": 17}), Order(1))
        audit = await started("stranded", app.audit, Order(9))
        async with worker(shop):
            await parked(done, audit)
            await done.signal("approval", "ada")
            await until(lambda: at_step(done, "deliver"))
            await until(lambda: is_idle(shop))
        clock.seconds += 3 * HOUR
        async with worker(shop):
            await until(lambda: at_step(done, "sleep"))
        clock.seconds += 25 * HOUR
        shop.is_changed = True  # a deploy that is not compatible with the audit in flight
        async with worker(shop):
            await done.result()
            await audit.signal("close", "now")
            await until(lambda: has_status(audit, "stranded"))
        shop.is_changed = False
        clock.seconds = 0
        await _today(shop, ids, started)
    operations = path.parent / "operations"
    fill_operations(operations, ShiftedClock().now_us(), hostile)
    return World(path, ids, operations)


async def _today(shop: Shop, ids: dict[str, str], started: Callable[..., Awaitable[Handle[Any]]]) -> None:
    app: Any = shop
    shop.flaky = 0
    failed = await started("failed", app.refund.options(key="refund-3"), Order(3, total=5000.0))
    approval = await started(
        "waiting",
        app.checkout.options(key="order-4", attributes={"customer": 17, "vip": True}),
        Order(4, note=shop.hostile),
    )
    shipment = await started("machine", Shipment, Parcel(5))
    text = shop.hostile or "hello"
    hostile = await started("hostile", app.mail.options(key=text[:200], attributes={"note": text}), text, text)
    long = await started("long", app.long_winded.options(key="k" * 300), "w" * 250_000) if shop.hostile else None
    label = await started("failed_task", app.render_label, 7)
    sent = await started("machine_done", Shipment.options(key="parcel-6"), Parcel(6))
    job = await started("flow", app.order, 4)
    run = await app.resize.start(range(1_000))
    ids["batch"] = str(run.id)
    async with worker(shop):
        await run.result()
        await until(lambda: at_hook(job))
        await parked(approval, shipment, sent, *([long] if long else []))
        await sent.signal("pickup", {"van": 3})
        for handle in (failed, label, hostile, sent):
            await until(lambda handle=handle: is_ended(handle))  # type: ignore[misc]
    await approval.signal("unasked", {"html": shop.hostile})
    if shop.hostile:
        await approval.signal(shop.hostile[:60], shop.hostile)
    await started("paused", app.mail, "nobody", "later")
    await shop.app.handle(ids["paused"]).pause()
    for number in range(12):
        await app.mail.options(queue="newsletter", priority=number % 3).start(f"reader-{number}", "the news")
    await shop.app.schedules.create("hourly-sync", "0 * * * *", "mail", args={"to": "x", "text": "sync"})


def fill_operations(folder: Path, now_us: int, hostile: str) -> None:
    """Two operations as their files say: one at work, one that is being cleaned up after a crash; and a broken file."""
    folder.mkdir()
    second = 1_000_000
    running = LedgerData(
        operation_id="nightly-index",
        initiator_id="indexer",
        start_us=now_us - 95 * second,
        last_heartbeat_us=now_us - second,
        description="index the catalogue of the day",
        stack=(
            StackFrame("c-1", "indexer", 4711, now_us - 95 * second, now_us - second, description="plan"),
            StackFrame("c-2", "shard-7", 4720, now_us - 40 * second, now_us - 2 * second, fail_on_crash=False),
            StackFrame("c-3", "shard-8", 4721, now_us - 40 * second, now_us - 33 * second, description=hostile),
        ),
    )
    failing = LedgerData(
        operation_id="import-2041",
        initiator_id="importer",
        start_us=now_us - 300 * second,
        last_heartbeat_us=now_us - 4 * second,
        state=OperationState.CLEANUP,
        detection_us=now_us - 9 * second,
        failure_reason="participant loader-2 gave no heartbeat for 14 s",
        crashed_call_ids=("c-9",),
        stack=(
            StackFrame("c-8", "importer", 4800, now_us - 300 * second, now_us, state=FrameState.CLEANING_UP),
            StackFrame("c-9", "loader-2", 4801, now_us - 290 * second, now_us - 30 * second, state=FrameState.CRASHED),
        ),
    )
    for data in (running, failing):
        (folder / f"{data.operation_id}{JSON_SUFFIX}").write_bytes(encode(data))
    (folder / f"torn{JSON_SUFFIX}").write_text('{"operationId": "to')


def worker(shop: Shop) -> Any:
    return shop.app.worker(queues=QUEUES)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await is_so():  # noqa: ASYNC110  (it is another process's work that is waited for, by looking)
            await asyncio.sleep(0.005)


async def parked(*handles: Handle[Any]) -> None:
    for handle in handles:
        await until(lambda handle=handle: _is_parked_on_signal(handle))  # type: ignore[misc]


async def _is_parked_on_signal(handle: Handle[Any]) -> bool:
    view = await handle.describe()
    return view.status.is_parked and bool(view.awaits)


async def at_step(handle: Handle[Any], name: str) -> bool:
    view = await handle.describe()
    return view.status.is_parked and view.step == name


async def is_idle(shop: Shop) -> bool:
    """Nothing is runnable or at work: whatever lives waits for something."""
    store = await shop.app.store()
    return not await store.count(ExecutionFilter(statuses=(Status.RUNNABLE, Status.EXECUTING)))


async def at_hook(job: Handle[Any]) -> bool:
    """Everything but the hook is done."""
    store = await job._connection.store()
    records = await store.flow_records((await job.resolve()).to_bytes())
    return records is not None and [found.status for found in records.messages] == [Status.AWAITING_SIGNAL]


async def has_status(handle: Handle[Any], status: str) -> bool:
    return await handle.status() == status


async def is_ended(handle: Handle[Any]) -> bool:
    return (await handle.status()).is_terminal


async def crowd(store: Store, count: int, batch: int = 5_000) -> None:
    """Many executions that nobody works on."""
    for first in range(0, count, batch):
        rows = [
            NewExecution(
                promise=PromiseId.of("import_row", f"row-{number}").to_bytes(),
                kind="task",
                name="import_row",
                version=1,
                handler=handler_of("task", "import_row", 1),
                step="",
                state=msgspec.json.encode({"input": {"row": number}}).decode(),
                input_hash=str(number),
                queue="bulk",
            )
            for number in range(first, min(count, first + batch))
        ]
        await store.insert(rows)


if __name__ == "__main__":
    world = asyncio.run(fill(Path(sys.argv[1])))
    print("\n".join(f"{name} {found}" for name, found in world.ids.items()))
