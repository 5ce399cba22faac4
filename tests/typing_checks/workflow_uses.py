"""How workflows and tasks are used, for the type checker: `test_typing` runs mypy over it. Nothing here is executed.

Every `type: ignore` marks a mistake that the types must catch; one that caught nothing would be an error itself.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, assert_type
from uuid import UUID

from asyncpg import Connection

from holdfast import (
    App,
    Collision,
    Completed,
    Context,
    Done,
    ErrorRecord,
    Handle,
    HoldfastError,
    JoinSet,
    Machine,
    MachineContext,
    Outcome,
    Promise,
    RetryPolicy,
    TaskFailed,
    Workflow,
    current,
    step,
)
from holdfast.errors import ExecutionFailedError
from holdfast.sync import SyncHandle

app = App("orders", store="orders.db")


@dataclass
class Order:
    number: str


@dataclass
class Receipt:
    cents: int


class DeclinedError(Exception):
    pass


@app.task
async def plain(order: Order) -> Receipt:
    return Receipt(1)


@app.task
def blocking(order: Order, times: int = 1) -> int:
    return times


@app.transaction
async def booked(connection: Connection, order: Order) -> Receipt:
    return Receipt(1)


@app.task(
    name="charge",
    retry=RetryPolicy(max_attempts=5),
    timeout=timedelta(seconds=30),
    heartbeat_timeout=5,
    raises=(DeclinedError,),
    effects="at_most_once",
    queue="charges",
    priority=-1,
)
async def charge(order: Order) -> Receipt:
    assert_type(current().attempt, int)
    assert_type(current().idempotency_key, str)
    assert_type(current().progress_as(Order), Order | None)
    current().heartbeat({"row": 1})
    return Receipt(2)


@app.task(executor="process")
def crunch(number: int) -> float:
    return number / 2


@app.machine
class Shipment(Machine[Order]):
    @step(initial=True)
    async def only(self, ctx: MachineContext[Order]) -> Outcome:
        return Done()


@app.workflow
async def child(ctx: Context, number: int) -> str:
    return str(number)


@app.workflow(name="checkout", version=2, queue="vip", raises=(DeclinedError,))
async def checkout(ctx: Context, order: Order, urgent: bool = False) -> Receipt:
    assert_type(await plain(order), Receipt)
    assert_type(await blocking(order, times=2), int)
    assert_type(await charge(order), Receipt)
    assert_type(await crunch(3), float)
    assert_type(await child(3), str)
    assert_type(ctx.invoke(charge, order), Promise[Receipt])
    assert_type(await ctx.invoke(blocking, order), int)
    assert_type(await ctx.invoke(child, 3), str)
    assert_type(await charge.options(partition_key="ann")(order), Receipt)
    assert_type(ctx.invoke(child.options(deadline=60), 3), Promise[str])
    assert_type(ctx.invoke(Shipment, order), Promise[Any])
    assert_type(await ctx.sleep(timedelta(hours=1)), None)
    assert_type(ctx.now(), datetime)
    assert_type(ctx.random(), float)
    assert_type(ctx.uuid(), UUID)
    assert_type(ctx.patched("a change"), bool)
    assert_type(await ctx.signal("approval", Order), Order)
    assert_type(await ctx.signal("approval", Order, timeout=timedelta(days=3)), Order)
    assert_type(await ctx.all(ctx.invoke(charge, order), ctx.sleep(1)), list[Any])
    await ctx.all(charge(order), plain(order))
    first = await ctx.any(ctx.invoke(charge, order), ctx.signal("stop"))
    assert_type(first, Completed[Any])
    jobs: JoinSet[Receipt] = ctx.join_set(cancel_rest=True)
    async with jobs:
        jobs.submit(charge, order)
        jobs.submit(ctx.invoke(plain, order))
        jobs.submit(plain(order))
        assert_type(await jobs.next(), Completed[Receipt])
        assert_type((await jobs.next(timeout=timedelta(minutes=1))).result(), Receipt)
        assert_type(await jobs.first(2), list[Completed[Receipt]])
        async for done in jobs:
            assert_type(done.result(), Receipt)
    assert_type(await booked(order), Receipt)
    assert_type(await ctx.transaction(booked, order), Receipt)
    ctx.log("%s is done", order.number)
    ctx.publish("stage", "charged")
    ctx.set_attributes(customer="c-1", total=3)
    try:
        return await charge(order)
    except TaskFailed as failed:
        assert_type(failed.record, ErrorRecord)
        raise


async def uses() -> None:
    assert_type(await charge.start(Order("1")), Handle[Receipt])
    assert_type(await blocking.start(Order("1"), times=3), Handle[int])
    handle = await checkout.start(Order("1"), urgent=True)
    assert_type(handle, Handle[Receipt])
    assert_type(await handle.result(), Receipt)
    assert_type(await handle.result(Order), Order)
    assert_type(ExecutionFailedError("it failed").record, ErrorRecord | None)
    assert_type(await checkout.options(key="o-1", delay=60).start(Order("1")), Handle[Receipt])
    started = await checkout.start_many([Order("1")])
    assert_type(started, list[Handle[Receipt]])
    assert_type(await app.results(started), list[Receipt])
    assert_type(await charge.start_many([Order("1")]), list[Handle[Receipt]])
    assert_type(await checkout.options(queue="vip").start_many([Order("1")]), list[Handle[Receipt] | Collision])
    assert_type(app.sync.results(app.sync.start_many(checkout, [Order("1")])), list[Receipt])
    assert_type(app.sync.start_many(charge.options(priority=1), [Order("1")]), list[SyncHandle[Receipt] | Collision])
    assert_type(await app.results([handle]), list[Receipt])
    assert_type(await app.results([handle], return_exceptions=True), list[Receipt | HoldfastError])
    assert_type(await app.run(checkout, Order("1")), Receipt)
    assert_type(await app.run(blocking, Order("1")), int)
    outside: Awaitable[Receipt] = plain(Order("1"))
    assert_type(await outside, Receipt)
    await handle.cancel(reason="out of stock")
    wrapped: Workflow[[int], str] = child
    assert_type(await wrapped.start(1), Handle[str])


async def mistakes(ctx: Context) -> None:
    await plain("not an order")  # type: ignore[arg-type]
    await blocking(Order("1"), times="two")  # type: ignore[arg-type]
    await child()  # type: ignore[call-arg]
    await checkout.start("not an order")  # type: ignore[arg-type]
    await checkout.options(key="k").start(Order("1"), nonsense=1)  # type: ignore[call-arg]
    await charge.start()  # type: ignore[call-arg]
    await ctx.invoke(charge, 7)  # type: ignore[call-overload]
    await ctx.transaction(booked, 7)  # type: ignore[arg-type]
    await ctx.signal(7, Order)  # type: ignore[call-overload]
    await ctx.sleep("soon")  # type: ignore[arg-type]
    await app.run(child, "three")  # type: ignore[call-overload]
    app.task(effects="sometimes")  # type: ignore[call-overload]
    app.task(executor="cloud")  # type: ignore[call-overload]
    checkout.options(ky="o-1")  # type: ignore[call-arg]
    checkout.options(delay="soon")  # type: ignore[arg-type]
    app.worker(lease=3)  # type: ignore[call-arg]
    app.schedule("@daily", overlap="never")  # type: ignore[arg-type]


@app.workflow  # type: ignore[arg-type]
async def without_context(number: int) -> int:
    return number
