"""Searching by attributes, and what a workflow shows of itself."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from holdfast import Context, Handle, PromiseId, RetryPolicy, Status
from holdfast.core.errors import InvalidArgumentError
from holdfast.store.base import Store
from holdfast.store.values import ExecutionFilter, Retention
from holdfast.testing.hand import Hand, done, row
from tests.models.workflow.kit import Rig


async def test_a_workflow_is_found_by_what_it_says_of_itself(rig: Rig) -> None:
    @rig.app.workflow
    async def order(ctx: Context, city: str) -> None:
        ctx.set_attributes(city=city, paid=False)
        await ctx.signal("paid")
        ctx.set_attributes(paid=True)

    ulm = await order.options(attributes={"customer": 7}).start("Ulm")
    bonn = await order.options(attributes={"customer": 8}).start("Bonn")
    await rig.run()
    await ulm.signal("paid")
    await rig.run()
    search = rig.app.search
    assert [handle.id for handle in await search({"city": "Ulm"})] == [ulm.id]
    assert [handle.id for handle in await search({"paid": False})] == [bonn.id]
    assert [handle.id for handle in await search({"customer": 7, "paid": True})] == [ulm.id]
    assert await search({"customer": 7, "paid": False}) == []
    assert await search({"city": "Ulm"}, statuses=[Status.FAILED]) == []
    with pytest.raises(InvalidArgumentError):
        await search({})


class Real(float):
    """As numpy's are: subclasses of Python's own."""


class Words(str):
    pass


class Counted(dict[str, int]):
    pass


async def test_subclasses_of_plain_values_are_taken_for_what_they_are(rig: Rig) -> None:
    @rig.app.workflow
    async def score(ctx: Context) -> object:
        ctx.set_attributes(score=Real(0.5), by=Words("anna"))
        ctx.publish("score", Real(0.5))
        days = await ctx.signal("days", list[date])
        return [await ctx.signal("go"), await ctx.signal("go", dict[str, int]), len(days)]

    handle = await score.options(attributes={"first": Words("one"), "rate": Real(1.5)}).start()
    await handle.signal("go", Words("now"))
    await handle.signal("go", Counted(a=1))
    await handle.signal("days", [date(2024, 1, 1)])
    assert await rig.result(handle) == ["now", {"a": 1}, 1]
    assert await handle.published() == {"score": 0.5}
    (found,) = await rig.app.search({"score": 0.5, "by": "anna", "first": "one", "rate": 1.5})
    assert found.id == handle.id
    bad: Any = [("a", 1)]
    with pytest.raises(InvalidArgumentError, match="attributes are a mapping"):
        await score.options(attributes=bad).start()


async def test_values_of_different_types_are_different(store: Store) -> None:
    values = ["1", "true", '"1"', '"true"']
    await store.insert([row(str(at), attributes=f'{{"a":{value}}}') for at, value in enumerate(values)])
    for wanted in (1, True, "1", "true"):
        where = ExecutionFilter(attributes={"a": wanted})
        assert len((await store.browse(where, 10)).items) == 1
        assert await store.count(where) == {Status.RUNNABLE: 1}
    assert (await store.browse(ExecutionFilter(attributes={"a": False}), 10)).items == []


async def test_pages_go_on_where_the_last_one_ended(store: Store) -> None:
    await store.insert([row(str(number), attributes='{"a":1,"b":2}') for number in range(5)])
    where = ExecutionFilter(attributes={"a": 1, "b": 2})
    first = await store.browse(where, 3)
    rest = await store.browse(where, 3, first.cursor)
    assert (len(first.items), len(rest.items), rest.cursor) == (3, 2, None)


async def test_what_is_deleted_is_found_no_more(hand: Hand, store: Store) -> None:
    await hand.apply(await hand.take(row("a", attributes='{"a":1}')), done())
    await store.purge(Retention(age_seconds=0), 10)
    assert await store.count(ExecutionFilter(attributes={"a": 1})) == {}


async def test_published_values_are_read_from_outside(rig: Rig) -> None:
    @rig.app.workflow
    async def job(ctx: Context) -> None:
        ctx.publish("progress", {"done": 3})
        await ctx.signal("go")
        ctx.publish("progress", {"done": 4})

    handle = await job.start()
    assert await handle.published() == {}
    await rig.run()
    assert await handle.published() == {"progress": {"done": 3}}
    await handle.signal("go")
    await rig.run()
    assert await handle.published() == {"progress": {"done": 4}}


async def test_executions_are_found_by_name_and_status_alone(rig: Rig) -> None:
    @rig.app.task(name="good")
    async def good() -> None: ...

    @rig.app.task(name="bad", retry=RetryPolicy(max_attempts=1))
    async def bad() -> None:
        raise ValueError("no")

    first, second, failed = await good.start(), await good.start(), await bad.start()
    await rig.run()
    search = rig.app.search
    assert [handle.id for handle in await search()] == [failed.id, second.id, first.id]
    assert [handle.id for handle in await search(limit=1)] == [failed.id]
    assert [handle.id for handle in await search(name="good")] == [second.id, first.id]
    assert [handle.id for handle in await search(statuses=["failed", Status.STRANDED])] == [failed.id]
    assert await search(name="good", statuses=["failed"]) == []
    with pytest.raises(InvalidArgumentError, match="'faild' is no status; there are runnable, "):
        await search(statuses=["faild"])


@pytest.mark.parametrize("number", [2**63, 10**5000], ids=["long", "too long to be shown"])
async def test_numbers_that_no_store_has_are_refused(rig: Rig, number: int) -> None:
    """Python itself writes no number of more than 4300 digits."""

    @rig.app.workflow
    async def order(ctx: Context) -> None: ...

    with pytest.raises(InvalidArgumentError, match="the attribute 'n' is "):
        await order.options(attributes={"n": number}).start()
    with pytest.raises(InvalidArgumentError, match="the attribute 'n' is "):
        await rig.app.search({"n": number})
    with pytest.raises(InvalidArgumentError, match="no execution has an attribute 'n' of "):
        ExecutionFilter(attributes={"n": number})
    with pytest.raises(InvalidArgumentError, match=r"the priority .* is outside"):
        await order.options(priority=number).start()
    with pytest.raises(InvalidArgumentError, match="the concurrency of a queue"):
        await rig.app.configure_queue("default", concurrency=number)


@pytest.mark.parametrize("queue", [None, "remote"])
async def test_what_is_published_before_the_first_call_is_seen_while_that_runs(rig: Rig, queue: str | None) -> None:
    """Nothing else has to be committed before it, and it may take an hour."""
    seen: list[dict[str, Any]] = []

    @rig.app.task(queue=queue)
    async def load() -> None:
        seen.append(await handle.published())

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        ctx.publish("stage", "loading")
        await load()

    handle = await work.start()
    await rig.run()
    assert seen == [{"stage": "loading"}]


@pytest.mark.parametrize("queue", [None, "remote"])
async def test_a_run_is_found_by_what_it_set_before_its_first_call_while_that_runs(rig: Rig, queue: str | None) -> None:
    found: list[PromiseId] = []

    @rig.app.task(queue=queue)
    async def load() -> None:
        found.extend(handle.id for handle in await rig.app.search({"stage": "loading"}))

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        ctx.set_attributes(stage="loading")
        await load()

    handle = await work.start()
    await rig.run()
    assert found == [handle.id]


async def attributes(handle: Handle[Any]) -> dict[str, Any]:
    text = (await handle.describe()).attributes
    return {} if text is None else dict(json.loads(text))


async def test_a_fork_has_the_attributes_of_where_it_begins(rig: Rig) -> None:
    @rig.app.workflow
    async def ship(ctx: Context) -> None:
        ctx.set_attributes(stage="packing")
        await ctx.signal("go")
        ctx.set_attributes(stage="gone", late=True)

    handle = await ship.options(attributes={"city": "Bern", "stage": "new"}).start()
    await rig.run()
    await handle.signal("go")
    await rig.run()
    assert await attributes(handle) == {"city": "Bern", "stage": "gone", "late": True}
    fork = await handle.fork(1)
    assert await attributes(fork) == {"city": "Bern", "stage": "new"}
    await rig.run()
    assert await attributes(fork) == {"city": "Bern", "stage": "packing"}
    again = await fork.fork(0)
    assert await attributes(again) == {"city": "Bern", "stage": "new"}


async def test_a_fork_of_a_run_that_was_started_without_attributes_has_none_at_first(rig: Rig) -> None:
    @rig.app.workflow
    async def ship(ctx: Context) -> None:
        await ctx.signal("go")
        ctx.set_attributes(late=True)

    handle = await ship.start()
    await rig.run()
    await handle.signal("go")
    await rig.run()
    fork = await handle.fork(1)
    await rig.run()
    assert await attributes(fork) == {}


async def test_an_attribute_has_a_name(rig: Rig) -> None:
    @rig.app.workflow
    async def work(ctx: Context) -> str:
        try:
            ctx.set_attributes(**{"": 1})
        except InvalidArgumentError as error:
            return str(error)
        return "no error"

    assert "give it one" in await rig.result(await work.start())
    with pytest.raises(InvalidArgumentError, match="an attribute has no name: give it one"):
        await work.options(attributes={"": 1}).start()
