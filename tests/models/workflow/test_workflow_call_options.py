"""A call in a body with options of its own: `await fetch.options(partition_key=host)(url)`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import App, Context, Done, Machine, MachineContext, Outcome, RetryPolicy, TaskCancelled, Unique, step
from holdfast.core.errors import CallNotAllowedError, ExecutionFailedError, InvalidArgumentError
from tests.models.workflow.kit import Rig

COLD = pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])


def declare_parcel(app: App) -> type[Machine[int]]:
    @app.machine
    class Parcel(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.state)

    return Parcel


@COLD
async def test_calls_of_one_partition_key_run_one_at_a_time(rig: Rig, cold: bool) -> None:
    at_work: list[str] = []
    together: list[list[str]] = []

    @rig.app.task(retry=RetryPolicy(max_attempts=1))
    async def fetch(host: str, number: int) -> int:
        at_work.append(host)
        together.append(sorted(at_work))
        await asyncio.sleep(0)
        at_work.remove(host)
        return number

    @rig.app.workflow(queue="crawl")
    async def crawl(ctx: Context) -> list[int]:
        async with ctx.join_set() as pages:
            for number in range(6):
                host = "ab"[number % 2]
                pages.submit(fetch.options(partition_key=host, priority=number), host, number)
            found = [page.result() async for page in pages]
        alone = ctx.invoke(fetch.options(attributes={"last": True}), "c", 6)
        return [*sorted(found), await alone, await fetch.options(priority=1)("d", 7)]

    handle = await crawl.start()
    await rig.make_worker(warm_most=0 if cold else None)
    assert await rig.result(handle) == list(range(8))
    assert all(len(hosts) == len(set(hosts)) for hosts in together)
    rows = sorted(await rig.stores.store.children(handle.id.to_bytes()), key=lambda row: row.promise)
    assert [(row.queue, row.priority, row.partition_key) for row in rows[:2]] == [("crawl", 0, "a"), ("crawl", 1, "b")]
    assert (rows[6].attributes, rows[6].partition_key) == ('{"last":true}', None)


async def test_a_child_has_a_deadline_and_a_queue_of_its_own(rig: Rig) -> None:
    @rig.app.workflow
    async def child(ctx: Context) -> None:
        await ctx.signal("never")

    @rig.app.workflow
    async def parent(ctx: Context) -> str:
        try:
            await child.options(deadline=60, queue="slow")()
        except TaskCancelled:
            return "given up"
        return "done"

    handle = await parent.start()
    await rig.make_worker(queues=["default", "slow"])
    await rig.run()
    (row,) = await rig.stores.store.children(handle.id.to_bytes())
    assert row.queue == "slow"
    await rig.advance(61)
    assert await rig.result(handle) == "given up"


@pytest.mark.parametrize("given", [{"key": "k"}, {"unique": Unique(key="k")}], ids=["key", "unique"])
@pytest.mark.parametrize("of", ["task", "batch", "machine"])
async def test_what_names_a_start_is_refused_in_a_call(rig: Rig, given: dict[str, Any], of: str) -> None:
    @rig.app.task
    async def work() -> None: ...

    @rig.app.batch
    async def resize(width: int) -> None: ...

    parcel = declare_parcel(rig.app)

    @rig.app.workflow
    async def call(ctx: Context) -> None:
        if of == "task":
            await work.options(**given)()
        elif of == "batch":
            await resize.options(**given)([1])
        else:
            await parcel.options(**given)(1)

    with pytest.raises(ExecutionFailedError, match="which is for starts from outside"):
        await rig.result(await call.start())


async def test_what_an_execution_cannot_have_is_an_error_of_the_call(rig: Rig) -> None:
    flow = rig.app.flow("order")

    @flow.activity
    async def pack(number: int) -> int:
        return number

    @rig.app.workflow
    async def call(ctx: Context) -> int:
        try:
            await flow.options(partition_key="p")(1)
        except InvalidArgumentError:
            return int(await flow.options(priority=3)(2))
        return 0

    handle = await call.start()
    assert await rig.result(handle) == 2


@pytest.mark.parametrize("had_options", [False, True], ids=["got them", "lost them"])
async def test_a_call_goes_on_as_it_was_begun_when_the_code_gives_it_options(rig: Rig, had_options: bool) -> None:
    """Neither is another call: what is on its way is neither begun again nor left alone."""
    begun: list[str] = []

    def declare(app: App, code: str, *, with_options: bool) -> Any:
        @app.task(name="fetch", retry=RetryPolicy(max_attempts=9))
        async def fetch(number: int) -> int:
            begun.append(code)
            if code == "old":
                raise ValueError("not yet")
            return number

        @app.workflow(name="crawl")
        async def crawl(ctx: Context) -> int:
            return await (fetch.options(priority=1) if with_options else fetch)(7)

        return crawl

    handle = await declare(rig.app, "old", with_options=had_options).start()
    await rig.run()
    new_app = rig.another_app()
    declare(new_app, "new", with_options=not had_options)
    worker = await rig.make_worker(new_app)
    await rig.advance(3600)
    await worker.run_until_idle()
    assert await handle.result(timeout=0) == 7
    assert begun == ["old", "new"]


async def test_what_an_execution_cannot_have_is_an_error_of_each_call(rig: Rig) -> None:
    @rig.app.task
    async def work() -> None: ...

    marked = work.options(attributes={"tags": ["a"]})  # type: ignore[dict-item]

    @rig.app.workflow
    async def call(ctx: Context) -> None:
        await marked()

    for _ in range(2):
        with pytest.raises(ExecutionFailedError, match="the attribute 'tags'"):
            await rig.result(await call.start())


async def test_a_call_that_was_taken_is_not_refused_when_it_is_replayed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As earlier code took it: a run that is on its way since then goes on."""

    parcel = declare_parcel(rig.app)

    @rig.app.workflow
    async def call(ctx: Context) -> Any:
        got = await parcel.options(unique=Unique(key="k"))(1)
        await ctx.signal("go")
        return got

    handle = await call.start()
    await rig.make_worker(warm_most=0)
    with monkeypatch.context() as earlier:
        earlier.setattr("holdfast.models.machine.start.refuse_names", lambda name, options: None)
        await rig.run()
    await handle.signal("go")
    assert await rig.result(handle) == 1


async def test_attributes_that_a_machine_cannot_have_are_an_error_of_the_call(rig: Rig) -> None:
    parcel = declare_parcel(rig.app)

    @rig.app.workflow
    async def call(ctx: Context) -> None:
        await parcel.options(attributes={"tags": ["a"]})(1)  # type: ignore[dict-item]

    with pytest.raises(ExecutionFailedError, match="the attribute 'tags'"):
        await rig.result(await call.start())


@COLD
async def test_a_machine_is_called_with_options_as_a_task_is(rig: Rig, cold: bool) -> None:
    parcel = declare_parcel(rig.app)

    @rig.app.workflow
    async def call(ctx: Context) -> list[int]:
        promise = ctx.invoke(parcel.options(priority=2), 2)
        async with ctx.join_set() as parcels:
            parcels.submit(parcel.options(priority=3), 3)
            submitted = await parcels.next()
        return [await parcel.options(priority=1)(1), await promise, submitted.result()]

    handle = await call.start()
    await rig.make_worker(warm_most=0 if cold else None)
    assert await rig.result(handle) == [1, 2, 3]
    rows = await rig.stores.store.children(handle.id.to_bytes())
    assert sorted((row.priority, row.state) for row in rows) == [(1, "1"), (2, "2"), (3, "3")]


@COLD
async def test_a_batch_is_called_with_options_as_a_task_is(rig: Rig, cold: bool) -> None:
    @rig.app.batch
    async def resize(width: int) -> int:
        return width

    @rig.app.workflow
    async def call(ctx: Context) -> list[int]:
        promise = ctx.invoke(resize.options(priority=2, attributes={"of": "album"}), [1, 2, 3])
        async with ctx.join_set() as albums:
            albums.submit(resize.options(priority=3), [5])
            submitted = await albums.next()
        done = [await resize.options(priority=1)([4]), await promise, submitted.result()]
        return [one.succeeded for one in done]

    handle = await call.start()
    await rig.make_worker(warm_most=0 if cold else None)
    assert await rig.result(handle) == [1, 3, 1]
    rows = await rig.stores.store.children(handle.id.to_bytes())
    assert sorted((row.priority, row.attributes) for row in rows) == [(1, None), (2, '{"of":"album"}'), (3, None)]


async def test_outside_of_a_body_it_is_started() -> None:
    app = App("outside", store="unused.db")

    @app.task
    async def work(number: int) -> None: ...

    @app.batch
    async def resize(width: int) -> None: ...

    parcel = declare_parcel(app)
    calls: list[Any] = [
        lambda: work.options(priority=1)(1),
        lambda: resize.options(priority=1)([1]),
        lambda: parcel.options(priority=1)(1),
    ]
    for call in calls:
        with pytest.raises(CallNotAllowedError, match=r"start it from outside with `.start\(...\)`"):
            await call()
