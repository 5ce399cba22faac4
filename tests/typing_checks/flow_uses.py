"""How flows are used, for the type checker: `test_typing` runs mypy over it. Nothing here is executed.

Every `type: ignore` marks a mistake that the types must catch; one that caught nothing would be an error itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from holdfast import Activity, App, Flow, FlowJob, Handle, RetryPolicy

app = App("orders", store="orders.db")


@dataclass
class Order:
    number: str


@dataclass
class Checked:
    ok: bool


order = app.flow("order", version=2, queue="orders", priority=-1)
assert_type(order, Flow)


@order.activity
async def validate(o: Order) -> Checked:
    return Checked(bool(o.number))


assert_type(validate.name, str)
checked: Activity[[Order], Checked] = validate


@order.activity(after=validate, when=lambda c: c.ok, retry=RetryPolicy(max_attempts=3), timeout=timedelta(seconds=3))
async def charge(c: Checked) -> int:
    return 1


@order.activity(after=validate)
def reserve(c: Checked) -> str:
    return ""


@order.join(after=[charge, reserve], optional=[reserve])
async def ship(r: int, s: str | None) -> str:
    return f"{r}{s}"


@order.hook(after=ship, signal="delivered", timeout=timedelta(days=14))
async def close(p: str, note: str) -> bool:
    return True


@order.on_complete
async def report(job: FlowJob) -> None:
    assert_type(job.id, str)


order.repeat(after=charge, to=validate, when=lambda n: n < 3)


async def uses() -> None:
    assert_type(await validate(Order("1")), Checked)
    handle = await order.options(key="17").start(Order("17"))
    assert_type(handle, Handle[Any])
    assert_type(order.diagram(), str)
    page = await app.dead_letters.list(limit=3)
    await app.dead_letters.retry(page.items[0].id)


async def mistakes() -> None:
    await validate(3)  # type: ignore[arg-type]
    order.activity(after=validate, when=lambda c: c.missing)  # type: ignore[attr-defined]
    order.repeat(after=charge, to=validate)  # type: ignore[call-arg]
    order.hook(after=ship)  # type: ignore[call-arg]
