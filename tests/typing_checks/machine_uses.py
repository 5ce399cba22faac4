"""How machines are used, for the type checker: `test_typing` runs mypy over it. Nothing here is executed.

Every `type: ignore` marks a mistake that the types must catch; one that caught nothing would be an error itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from holdfast import (
    App,
    Await,
    Child,
    ChildResult,
    Collision,
    Done,
    Handle,
    Machine,
    MachineContext,
    Next,
    Outcome,
    PromiseId,
    ReceivedSignal,
    Replay,
    RetryPolicy,
    ScheduleChildren,
    Status,
    Stop,
    Unique,
    step,
)

app = App("orders", store="orders.db")


@dataclass
class Order:
    number: str
    total: int = 0


class Pool:
    """A resource."""


@app.machine
class Plain(Machine[Order]):
    @step(initial=True)
    async def only(self, ctx: MachineContext[Order]) -> Outcome:
        return Done()


@app.machine(version=2, queue="ship", priority=-1, retry=RetryPolicy(max_attempts=3), history=True)
class Shipment(Machine[Order]):
    @step(initial=True, timeout=timedelta(seconds=30))
    async def pack(self, ctx: MachineContext[Order], pool: Pool) -> Outcome:
        assert_type(ctx.state, Order)
        assert_type(ctx.id, PromiseId)
        assert_type(ctx.attempt, int)
        print(ctx.state.weight)  # type: ignore[attr-defined]
        return Next(self.label, ctx.state)

    @step
    def label(self, ctx: MachineContext[Order]) -> Outcome:
        ctx.signal(ctx.id, "packed", {"number": ctx.state.number}, dedup_key="once")
        return Await({"ok", "no"}, self.decide, ctx.state, timeout=timedelta(days=2))

    @step
    async def decide(self, ctx: MachineContext[Order]) -> Outcome:
        assert_type(ctx.awaited, tuple[ReceivedSignal, ...])
        assert_type(ctx.inbox[0].decode(Order), Order)
        if ctx.timed_out:
            return Stop("no answer")
        children = [Child(Plain, ctx.state, delay=5), Child("Plain", ctx.state, version=1, unique=Unique(key="k"))]
        return ScheduleChildren(self.join, children, ctx.state, quorum=1, timeout=60)

    @step
    async def join(self, ctx: MachineContext[Order]) -> Outcome:
        assert_type(ctx.children, tuple[ChildResult, ...])
        assert_type(ctx.children[0].result_as(int), int)
        assert_type(ctx.children[0].status, Status)
        return Done([child.result for child in ctx.children])

    async def handle(self, error: Exception, ctx: MachineContext[Order]) -> Outcome:
        return Replay(ctx.state, delay=2**ctx.attempt)


async def starting() -> None:
    order = Order("17")
    assert_type(Shipment, type[Shipment])
    handle = await Shipment.start(order)
    assert_type(handle, Handle[Any])
    await Shipment.start("17")  # type: ignore[arg-type]
    await Shipment.start()  # type: ignore[call-arg]
    await Shipment.options(
        key="17",
        queue="vip",
        priority=1,
        partition_key="depot-7",
        delay=timedelta(minutes=1),
        at=datetime.now(UTC),
        unique=Unique(key=lambda state: state.number, scope={Status.RUNNABLE}),
        attributes={"customer": "anna"},
    ).start(order)
    await Shipment.options(queue="vip").start(3)  # type: ignore[arg-type]
    started = await Shipment.options(key=lambda state: state.number).start_many([order, order])
    for item in started:
        if isinstance(item, Collision):
            assert_type(item.id, PromiseId)
        else:
            assert_type(item, Handle[Any])
    await Shipment.start_many(["17"])  # type: ignore[list-item]
    await app.run(Shipment, order)
    await app.run(Shipment, "17")  # type: ignore[misc]
    app.sync.start(Shipment, order).result()
    app.sync.start(Shipment, 5)  # type: ignore[misc]


async def handles() -> None:
    handle = app.handle("Shipment", key="17")
    assert_type(await handle.result(Order), Order)
    assert_type(await handle.result(list[str], timeout=5), list[str])
    assert_type(await handle.status(), Status)
    assert_type((await handle.describe()).attempt, int)
    assert_type(await handle.cancel(cascade=True), Status)
    await handle.signal("ok", {"by": "anna"}, dedup_key="d")
    await handle.signal(3)  # type: ignore[arg-type]
    await handle.pause()
    await handle.resume()


def outcomes(ctx: MachineContext[int]) -> list[Outcome]:
    Stop(3)  # type: ignore[arg-type]
    Await(3, "step", 1)  # type: ignore[arg-type]
    Replay(1, delay="soon")  # type: ignore[arg-type]
    return [Next("step", 1), Replay(1), Await("go", "step", 1), ScheduleChildren("step", [], 1), Done(), Stop("x")]


async def working() -> None:
    async with app.worker(queues=["default"], concurrency=200, lease_seconds=10) as worker:
        assert_type(worker.active, int)
    async with app.worker(queues={"default": None, "slow": 2}):
        pass
    async with app.worker(concurrency="many"):  # type: ignore[arg-type]
        pass
