"""The example of the issue as it is written there, and what users get wrong around a flow."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from holdfast import FlowJob, RetryPolicy, Status
from holdfast.core.errors import ExecutionFailedError
from holdfast.models.flow.audit import audit_flows
from tests.engine.rig import Rig

ONCE = RetryPolicy(max_attempts=1)


@dataclass
class Order:
    amount: int


@dataclass
class Checked:
    ok: bool


@dataclass
class Receipt:
    paid: int


@dataclass
class Stock:
    pieces: int


@dataclass
class Parcel:
    pieces: int


@dataclass
class Delivery:
    by: str


@dataclass
class Closed:
    text: str


async def test_the_example_with_its_own_types(rig: Rig) -> None:
    """Delivered, not taken (ruling A10), and timed out; the completion task each time, which annotates nothing."""
    app, reported = rig.app, list[str]()
    order = app.flow("order")

    @order.activity
    async def validate(o: Order) -> Checked:
        return Checked(o.amount > 0)

    @order.activity(after=validate, when=lambda c: c.ok)
    async def charge(c: Checked) -> Receipt:
        return Receipt(30)

    @order.activity(after=validate)
    async def reserve(c: Checked) -> Stock:
        return Stock(3)

    @order.join(after=[charge, reserve])
    async def ship(r: Receipt, s: Stock) -> Parcel:
        return Parcel(s.pieces)

    @order.hook(after=ship, signal="delivered", timeout=timedelta(days=14))
    async def close(p: Parcel, note: Delivery) -> Closed:
        return Closed(f"{p.pieces} by {note.by}")

    @order.on_complete
    async def report(job):  # type: ignore[no-untyped-def]
        reported.append(f"{job.status} {sorted(job.results)}")

    delivered, untaken, late = await order.start(Order(1)), await order.start(Order(0)), await order.start(Order(1))
    await rig.run()
    await delivered.signal("delivered", Delivery("Ada"))
    await rig.run()
    assert await delivered.result() == Closed("3 by Ada")
    assert await untaken.result() is None
    await rig.advance(14 * 86400 + 1)
    await rig.run()
    with pytest.raises(ExecutionFailedError, match=r"no signal 'delivered' came to order\.close"):
        await late.result()
    assert reported == [
        "done ['reserve', 'validate']",
        "done ['charge', 'close', 'reserve', 'ship', 'validate']",
        "failed ['charge', 'reserve', 'ship', 'validate']",
    ]
    assert await audit_flows(await rig.store()) == []


@pytest.mark.parametrize(
    ("value", "reason"),
    [(object(), "no JSON form"), ({"at": float("nan")}, "nan"), ("\udc80", "surrogate"), ("x" * 3_000_000, "limit of")],
    ids=["object", "nan", "surrogate", "large"],
)
async def test_an_answer_that_cannot_be_kept_fails_its_activity_at_once(rig: Rig, value: Any, reason: str) -> None:
    """As of a task: to do the work again would not help."""
    flow = rig.app.flow("answers")

    @flow.activity
    async def answer(n: int) -> Any:
        return value

    handle = await flow.start(1)
    await rig.run()
    with pytest.raises(ExecutionFailedError, match=reason):
        await handle.result()
    assert await audit_flows(await rig.store()) == []


async def test_odd_text_and_large_answers_pass_through_a_join(rig: Rig) -> None:
    flow = rig.app.flow("odd")

    @flow.activity
    async def odd(n: int) -> str:
        return "a\0b\u2028\U0001f600"

    @flow.activity
    async def large(n: int) -> str:
        return "ü" * n

    @flow.join(after=[odd, large])
    async def both(a: str, b: str) -> list[Any]:
        return [a, len(b)]

    handle = await flow.start(800_000)
    await rig.run()
    assert await handle.result() == ["a\0b\u2028\U0001f600", 800_000]


async def test_a_payload_that_does_not_fit_its_hook_fails_it(rig: Rig) -> None:
    flow = rig.app.flow("wrong")

    @flow.activity
    async def first(n: int) -> int:
        return n

    @flow.hook(after=first, signal="go", retry=ONCE)
    async def wait(n: int, by: int) -> int:
        return n + by

    handle = await flow.start(1)
    await handle.signal("go", "not a number")
    await rig.run()
    with pytest.raises(ExecutionFailedError, match="Expected `int`"):
        await handle.result()
    assert await audit_flows(await rig.store()) == []


async def test_a_dedup_key_outlives_the_hook_that_took_its_signal(rig: Rig) -> None:
    """Ruling E12: the job remembers what its hooks consumed."""
    flow, got = rig.app.flow("dedup"), list[int]()

    @flow.activity
    async def first(n: int) -> int:
        return n

    @flow.hook(after=first, signal="go")
    async def one(n: int, by: int) -> int:
        got.append(by)
        return n

    @flow.hook(after=one, signal="go")
    async def two(n: int, by: int) -> int:
        got.append(by)
        return n

    handle = await flow.start(1)
    for key, value in (("a", 1), ("a", 1), ("b", 2)):
        await handle.signal("go", value, dedup_key=key)
        await rig.run()
    assert got == [1, 2]
    assert await handle.status() is Status.DONE


async def test_a_workflow_that_is_cancelled_takes_the_flow_it_awaits_along(rig: Rig) -> None:
    flow, ran = rig.app.flow("awaited"), Counter[str]()

    @flow.activity
    async def first(n: int) -> int:
        return n

    @flow.hook(after=first, signal="never")
    async def wait(n: int, by: int) -> int:
        return n

    @flow.on_complete
    async def complete(job: FlowJob) -> None:
        ran[job.status.value] += 1

    @rig.app.workflow
    async def caller(ctx: object, n: int) -> None:
        await flow(n)

    handle = await caller.start(1)
    await rig.run()
    await handle.cancel()
    await rig.run()
    assert await handle.status() is Status.CANCELLED
    assert ran == {"cancelled": 1}
    assert await audit_flows(await rig.store()) == []


async def test_a_schedule_starts_a_job(rig: Rig) -> None:
    flow = rig.app.flow("nightly")

    @flow.activity
    async def work(n: int) -> int:
        return n + 1

    await rig.app.schedules.create("night", "0 3 * * *", flow, args={"n": 1})
    await rig.worker()
    handle = await rig.app.schedules.trigger("night")
    await rig.run()
    assert await handle.result() == 2


async def test_a_completion_task_that_fails_for_good_fails_the_job_but_hides_no_earlier_error(rig: Rig) -> None:
    flow = rig.app.flow("both")

    @flow.activity(retry=ONCE)
    async def work(n: int) -> int:
        if n:
            raise ValueError("of the activity")
        return n

    @flow.on_complete(retry=ONCE)
    async def complete(job: FlowJob) -> None:
        raise RuntimeError("of the completion")

    good, bad = await flow.start(0), await flow.start(1)
    await rig.run()
    with pytest.raises(ExecutionFailedError, match="of the completion"):
        await good.result()
    with pytest.raises(ExecutionFailedError, match="of the activity"):
        await bad.result()
    assert await audit_flows(await rig.store()) == []
