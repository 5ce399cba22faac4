"""Read models: what every reader shows of a ledger, as JSON that its own shape reads back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from holdfast import App, Context, PromiseId, Status
from holdfast.core.errors import InvalidArgumentError
from holdfast.core.journal.events import InvokeScheduled
from holdfast.engine.settings import WorkerSettings
from holdfast.store.base import Store
from holdfast.store.values import ExecutionFilter
from holdfast.testing.stores import Stores
from holdfast.views import reading


class Shop:
    def __init__(self, app: App, store: Store, parent: PromiseId) -> None:
        self.app, self.store, self.parent = app, store, parent


@pytest_asyncio.fixture
async def shop(stores: Stores) -> AsyncIterator[Shop]:
    app = App("shop", store=stores.unopened())

    @app.task(name="pack", queue="default")
    async def pack(number: int) -> int:
        return number

    @app.workflow(name="order")
    async def order(ctx: Context, count: int) -> int:
        total = sum([await pack(number) for number in range(count)])
        await ctx.signal("ship", str)
        return total

    app.schedule("0 6 * * *", name="daily", args={"count": 1})(order)
    handle = await order.options(key="k", attributes={"city": "Rome"}).start(3)
    worker = await app.make_worker(WorkerSettings())
    await worker.open()
    await worker.run_until_idle()
    await handle.signal("other", {"n": 12345678901234567890123})
    yield Shop(app, await app.store(), handle.id)
    await worker.stop(0)
    await app.close()


def same(value: Any) -> Any:
    """As a client reads it: by the documented shape."""
    text = msgspec.json.encode(value)
    assert msgspec.json.encode(msgspec.json.decode(text, type=type(value))) == text
    return json.loads(text)


async def test_an_execution_is_shown_with_its_inbox_and_children(shop: Shop) -> None:
    shown = same(await reading.execution(shop.store, str(shop.parent)[:8]))
    assert (shown["label"], shown["status"], shown["attributes"]) == (
        shop.parent.label("order"),
        "awaiting_promise",
        {"city": "Rome"},
    )
    assert shown["inbox"] == [{"name": "other", "payload": {"n": 12345678901234567890123}}]
    assert [child["result" if "result" in child else "name"] for child in shown["children"]] == ["pack"] * 3
    bounded = await reading.execution(shop.store, shop.parent, children_most=2)
    whole = await reading.execution(shop.store, shop.parent)
    assert bounded.children == whole.children[-2:]
    assert await reading.children(shop.store, shop.parent) == whole.children
    assert await reading.inbox(shop.store, shop.parent) == whole.inbox


async def test_lists_are_narrowed_and_paged(shop: Shop) -> None:
    where = await reading.filter_of(shop.store, parent=str(shop.parent), statuses=["done"])
    first = await reading.executions(shop.store, where, None, 2)
    rest = await reading.executions(shop.store, where, first.cursor, 2)
    assert (len(first.executions), len(rest.executions), rest.cursor) == (2, 1, None)
    found = await reading.filter_of(shop.store, attributes={"city": "Rome"}, name="order", kind="workflow")
    assert [item.id for item in (await reading.executions(shop.store, found)).executions] == [str(shop.parent)]
    assert len((await reading.executions(shop.store, ExecutionFilter())).executions) == 4
    same(first)


async def test_the_journal_and_everything_else_is_read(shop: Shop) -> None:
    journal = await reading.journal(shop.store, shop.parent)
    assert [event.sequence for event in journal.events] == list(range(len(journal.events)))
    calls = [event.promise_id for event in journal.events if isinstance(event, InvokeScheduled)]
    assert calls == [str(shop.parent.child(number)) for number in range(len(calls))]
    assert (await reading.history(shop.store, shop.parent)).transitions == []
    assert [line.name for line in await reading.definitions(shop.store)] == ["order", "pack"]
    (schedule,) = await reading.schedules(shop.store)
    assert same(schedule)["spec"]["definition"] == "order"
    (worker,) = await reading.workers(shop.store)
    assert same(worker)["queues"] == ["default"]


async def test_the_overview_is_the_ledger_at_a_glance(shop: Shop) -> None:
    overview = await reading.overview(shop.store)
    counts = {item.status: item.count for item in overview.statuses if item.count}
    assert counts == {Status.DONE: 3, Status.AWAITING_PROMISE: 1}
    assert sum(bucket.done for bucket in overview.pace.buckets) == 3
    assert (overview.workers, overview.workers_expired) == (1, 0)
    assert [queue.name for queue in overview.queues] == ["default"]
    same(overview)


@pytest.mark.parametrize(
    "given",
    [
        {"name": "a\0b"},
        {"queue": "\udcff"},
        {"kind": "\0"},
        {"attributes": {"n": 2**63}},
        {"attributes": {"n": float("inf")}},
        {"attributes": {"n": "\udcff"}},
        {"attributes": {"\0": 1}},
    ],
)
def test_a_filter_refuses_what_no_store_can_hold(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        ExecutionFilter(**given)
