"""Code that no longer does what its journal says is stranded, and never gets a wrong value (rulings B5, B17, B18)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import App, Context, Handle, Status, Task
from holdfast.core.errors import ExecutionStrandedError
from tests.models.workflow.kit import Rig

Calls = dict[str, Task[[int], int]]
Body = Callable[[Context, Calls], Awaitable[Any]]


def declare(app: App, body: Body) -> Any:
    """The workflow `work` with this body, and two tasks for it."""

    @app.task(name="double")
    async def double(number: int) -> int:
        return number * 2

    @app.task(name="triple")
    async def triple(number: int) -> int:
        return number * 3

    @app.task(name="far", queue="far")
    async def far(number: int) -> int:
        return number * 7

    calls: Calls = {"double": double, "triple": triple, "far": far}

    @app.workflow(name="work")
    async def work(ctx: Context) -> Any:
        return await body(ctx, calls)

    return work


async def original(ctx: Context, call: Calls) -> Any:
    first = await call["double"](1)
    second = await call["triple"](2)
    moment = ctx.random()
    await ctx.sleep(10)
    go = await ctx.signal("go", int)
    return [first, second, moment < 1, go]


async def reordered(ctx: Context, call: Calls) -> Any:
    second = await call["triple"](2)
    first = await call["double"](1)
    ctx.random()
    await ctx.sleep(10)
    return [first, second, await ctx.signal("go", int)]


async def changed_input(ctx: Context, call: Calls) -> Any:
    first = await call["double"](1)
    second = await call["triple"](3)
    ctx.random()
    await ctx.sleep(10)
    return [first, second, await ctx.signal("go", int)]


async def removed_call(ctx: Context, call: Calls) -> Any:
    first = await call["double"](1)
    ctx.random()
    await ctx.sleep(10)
    return [first, await ctx.signal("go", int)]


async def added_call(ctx: Context, call: Calls) -> Any:
    first = await call["double"](1)
    second = await call["triple"](2)
    await call["double"](9)
    ctx.random()
    await ctx.sleep(10)
    return [first, second, await ctx.signal("go", int)]


async def added_at_the_end(ctx: Context, call: Calls) -> Any:
    first = await call["double"](1)
    second = await call["triple"](2)
    ctx.random()
    await ctx.sleep(10)
    await call["double"](9)
    return [first, second, await ctx.signal("go", int)]


async def removed_wait(ctx: Context, call: Calls) -> Any:
    first = await call["double"](1)
    second = await call["triple"](2)
    ctx.random()
    await ctx.sleep(10)
    return [first, second]


async def other_signal(ctx: Context, call: Calls) -> Any:
    first = await call["double"](1)
    second = await call["triple"](2)
    ctx.random()
    await ctx.sleep(10)
    return [first, second, await ctx.signal("stop", int)]


async def other_kind(ctx: Context, call: Calls) -> Any:
    first = await call["double"](1)
    second = await call["triple"](2)
    ctx.now()
    await ctx.sleep(10)
    return [first, second, await ctx.signal("go", int)]


async def other_randomness(ctx: Context, call: Calls) -> Any:
    first = await call["double"](1)
    second = await call["triple"](2)
    ctx.uuid()
    await ctx.sleep(10)
    return [first, second, await ctx.signal("go", int)]


async def other_duration(ctx: Context, call: Calls) -> Any:
    first = await call["double"](1)
    second = await call["triple"](2)
    ctx.random()
    await ctx.sleep(11)
    return [first, second, await ctx.signal("go", int)]


async def raises_early(ctx: Context, call: Calls) -> Any:
    await call["double"](1)
    raise KeyError("a mistake in the new code")


CHANGES: Sequence[tuple[Body, str]] = [
    (reordered, "triple"),
    (changed_input, 'journal: #1 Function triple {"number":2}'),
    (changed_input, 'code:    #1 Function triple {"number":3}'),
    (removed_call, "#1 Function triple"),
    (added_call, "#2 Random"),
    (added_at_the_end, "#4 Signal go"),
    (removed_wait, "the end of the function"),
    (other_signal, "#4 Signal stop"),
    (other_kind, "#2 Time"),
    (other_randomness, "#2 Random"),
    (other_duration, "#3 Timer"),
    (raises_early, "raise KeyError"),
]


async def stranded(rig: Rig, handle: Handle[Any]) -> str:
    assert await rig.status(handle) is Status.STRANDED
    with pytest.raises(ExecutionStrandedError):
        await handle.result()
    error = await handle.error()
    assert error is not None
    assert error.kind == "nondeterminism"
    return error.message


@pytest.mark.parametrize(("changed", "shown"), CHANGES, ids=lambda value: getattr(value, "__name__", ""))
async def test_changed_code_is_stranded_and_the_right_code_goes_on(rig: Rig, changed: Body, shown: str) -> None:
    """Nothing is recorded, the inbox stays, the diff names both sides and the line; `resume` goes on."""
    work = declare(rig.app, original)
    handle = await work.start()
    old = await rig.worker()
    await old.run_until_idle()
    await rig.advance(10)
    await old.run_until_idle()
    before = await rig.facts(handle)
    await handle.signal("go", 5)

    new_app = rig.another_app()
    declare(new_app, changed)
    new = await rig.make_worker(new_app)
    await new.run_until_idle()
    message = await stranded(rig, handle)
    assert shown in message
    assert "journal:" in message
    assert "code:" in message
    assert changed.__name__ in message or "its end" in message
    assert await rig.facts(handle) == before
    assert [signal.payload for signal in await rig.stores.store.inbox(handle.id.to_bytes())] == ["5"]

    await handle.resume()
    await old.run_until_idle()
    assert await handle.result() == [2, 6, True, 5]


async def test_swapped_calls_of_the_same_name_are_told_apart_by_their_input(rig: Rig) -> None:
    """The trap of others: two same-named calls swapped between a crash and its replay got each other's results."""

    async def before(ctx: Context, call: Calls) -> Any:
        a = await call["double"](1)
        b = await call["double"](2)
        await ctx.signal("go", int)
        return [a, b]

    async def after(ctx: Context, call: Calls) -> Any:
        b = await call["double"](2)
        a = await call["double"](1)
        await ctx.signal("go", int)
        return [a, b]

    work = declare(rig.app, before)
    handle = await work.start()
    await rig.run()
    new_app = rig.another_app()
    declare(new_app, after)
    await handle.signal("go", 1)
    await (await rig.make_worker(new_app)).run_until_idle()
    assert '{"number":1}' in await stranded(rig, handle)


async def moved(ctx: Context, call: Calls, sets: Sequence[int]) -> Any:
    jobs = [ctx.join_set(), ctx.join_set()]
    promises = [call["far"](1), call["far"](2)]
    for promise, owner in zip(promises, sets, strict=True):
        jobs[owner].submit(promise)
    first = (await jobs[0].next()).result()
    go = await ctx.signal("go", int)
    return [first, go]


@pytest.mark.parametrize("sets", [[1, 0], [0, 0], [1, 1]], ids=str)
async def test_a_call_that_moved_to_another_join_set_is_stranded(rig: Rig, sets: list[int]) -> None:
    async def before(ctx: Context, call: Calls) -> Any:
        return await moved(ctx, call, [0, 1])

    async def after(ctx: Context, call: Calls) -> Any:
        return await moved(ctx, call, sets)

    work = declare(rig.app, before)
    handle = await work.start()
    await rig.run()
    new_app = rig.another_app()
    declare(new_app, after)
    await handle.signal("go", 1)
    await (await rig.make_worker(new_app)).run_until_idle()
    assert "join set" in await stranded(rig, handle)


async def test_a_result_of_a_join_set_that_is_no_longer_taken_is_stranded(rig: Rig) -> None:
    async def before(ctx: Context, call: Calls) -> Any:
        jobs = ctx.join_set()
        jobs.submit(call["double"], 1)
        await jobs.next()
        return await ctx.signal("go", int)

    async def after(ctx: Context, call: Calls) -> Any:
        jobs = ctx.join_set()
        jobs.submit(call["double"], 1)
        return await ctx.signal("go", int)

    work = declare(rig.app, before)
    handle = await work.start()
    await rig.run()
    new_app = rig.another_app()
    declare(new_app, after)
    await handle.signal("go", 1)
    await (await rig.make_worker(new_app)).run_until_idle()
    assert "take a result of the join set" in await stranded(rig, handle)


async def test_code_that_catches_everything_is_stranded_all_the_same(rig: Rig) -> None:
    async def after(ctx: Context, call: Calls) -> Any:
        try:
            await call["triple"](1)
        except BaseException:
            return "caught"

    work = declare(rig.app, original)
    handle = await work.start()
    await rig.run()
    new_app = rig.another_app()
    declare(new_app, after)
    await rig.advance(10)
    await (await rig.make_worker(new_app)).run_until_idle()
    assert "#0 Function double" in await stranded(rig, handle)


async def test_a_stranded_workflow_does_not_harm_the_others_of_its_worker(rig: Rig) -> None:
    work = declare(rig.app, original)
    handle = await work.start()
    await rig.run()
    new_app = rig.another_app()
    other = declare(new_app, reordered)
    new = await rig.make_worker(new_app)
    await rig.advance(10)
    fresh = await other.start()
    await new.run_until_idle()
    assert await rig.status(handle) is Status.STRANDED
    await fresh.signal("go", 1)
    await rig.advance(10)
    await new.run_until_idle()
    assert await fresh.result() == [2, 6, 1]


async def test_a_new_field_with_a_default_is_no_change(rig: Rig) -> None:
    """B17: the recorded input means the same to today's code."""

    @dataclass
    class Order:
        id: int

    @dataclass
    class NewOrder:
        id: int
        gift: bool = False

    def declare_with(app: App, order: Any) -> Any:
        async def ship(order: Any) -> str:
            return f"shipped {order.id}"

        async def work(ctx: Context) -> Any:
            done = await shipping(order(7))
            await ctx.signal("go", int)
            return done

        ship.__annotations__["order"] = order
        shipping = app.task(name="ship")(ship)
        return app.workflow(name="work")(work)

    work = declare_with(rig.app, Order)
    handle = await work.start()
    await rig.run()
    new_app = rig.another_app()
    declare_with(new_app, NewOrder)
    await handle.signal("go", 1)
    await (await rig.make_worker(new_app)).run_until_idle()
    assert await handle.result() == "shipped 7"


async def test_a_new_field_with_another_value_is_a_change(rig: Rig) -> None:
    @dataclass
    class Order:
        id: int

    @dataclass
    class NewOrder:
        id: int
        gift: bool = False

    def declare_with(app: App, make: Callable[[], Any], annotation: Any) -> Any:
        async def ship(order: Any) -> str:
            return f"shipped {order.id}"

        async def work(ctx: Context) -> Any:
            done = await shipping(make())
            await ctx.signal("go", int)
            return done

        ship.__annotations__["order"] = annotation
        shipping = app.task(name="ship")(ship)
        return app.workflow(name="work")(work)

    work = declare_with(rig.app, lambda: Order(7), Order)
    handle = await work.start()
    await rig.run()
    new_app = rig.another_app()
    declare_with(new_app, lambda: NewOrder(7, gift=True), NewOrder)
    await handle.signal("go", 1)
    await (await rig.make_worker(new_app)).run_until_idle()
    assert '{"order":{"id":7}}' in await stranded(rig, handle)


async def old_path(ctx: Context, call: Calls) -> Any:
    first = await call["double"](1)
    await ctx.signal("go", int)
    return [first, await call["double"](5)]


async def patched_path(ctx: Context, call: Calls) -> Any:
    first = await call["triple"](1) if ctx.patched("triple it") else await call["double"](1)
    await ctx.signal("go", int)
    return [first, await call["double"](5)]


async def late_patch(ctx: Context, call: Calls) -> Any:
    first = await call["double"](1)
    await ctx.signal("go", int)
    if ctx.patched("triple the end"):
        return [first, await call["triple"](5)]
    return [first, await call["double"](5)]


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
async def test_a_run_begun_before_the_patch_keeps_the_old_path(rig: Rig, cold: bool) -> None:
    """B18: and a run begun after it takes the new one, also when it is replayed."""
    work = declare(rig.app, old_path)
    handle = await work.start()
    await rig.run()
    new_app = rig.another_app()
    patched = declare(new_app, patched_path)
    new = await rig.make_worker(new_app, warm_most=0 if cold else None)
    fresh = await patched.start()
    await new.run_until_idle()
    for run in (handle, fresh):
        await run.signal("go", 1)
    await new.run_until_idle()
    assert await handle.result() == [2, 10]
    assert await fresh.result() == [3, 10]


async def test_a_patch_ahead_of_a_run_is_taken_by_it(rig: Rig) -> None:
    work = declare(rig.app, old_path)
    handle = await work.start()
    await rig.run()
    new_app = rig.another_app()
    declare(new_app, late_patch)
    await handle.signal("go", 1)
    await (await rig.make_worker(new_app, warm_most=0)).run_until_idle()
    assert await handle.result() == [2, 15]


async def test_a_patch_answered_no_stays_no_when_the_run_moves_on(rig: Rig) -> None:
    """Sticky: the same id, asked again at the end of the history, keeps its answer."""

    async def twice(ctx: Context, call: Calls) -> Any:
        first = await call["triple"](1) if ctx.patched("p") else await call["double"](1)
        await ctx.signal("go", int)
        return [first, ctx.patched("p"), ctx.patched("q")]

    work = declare(rig.app, old_path)
    handle = await work.start()
    await rig.run()
    new_app = rig.another_app()
    declare(new_app, twice)
    await handle.signal("go", 1)
    await (await rig.make_worker(new_app, warm_most=0)).run_until_idle()
    assert await handle.result() == [2, False, True]


async def test_a_task_that_got_a_queue_meanwhile_ends_where_it_began(rig: Rig) -> None:
    """A call scheduled inline is neither lost nor run twice by code that would spawn it."""
    from holdfast import RetryPolicy

    ran: list[str] = []

    def declare_on(app: App, queue: str | None) -> Any:
        @app.task(name="flaky", queue=queue, retry=RetryPolicy(initial_delay=10, jitter=0))
        async def flaky() -> str:
            ran.append("ran")
            if len(ran) == 1:
                raise ConnectionError("away")
            return "done"

        @app.workflow(name="work")
        async def work(ctx: Context) -> str:
            return await flaky()

        return work

    work = declare_on(rig.app, None)
    handle = await work.start()
    await rig.run()
    new_app = rig.another_app()
    declare_on(new_app, "elsewhere")
    new = await rig.make_worker(new_app)
    await rig.advance(10)
    await new.run_until_idle()
    assert await handle.result() == "done"
    assert ran == ["ran", "ran"]
    assert await rig.stores.store.children(handle.id.to_bytes()) == []


async def test_a_log_line_is_written_once_however_often_it_is_replayed(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    @rig.app.workflow
    async def work(ctx: Context) -> None:
        signal = ctx.signal("go", int)
        ctx.log("before")
        timer = ctx.sleep(5)
        ctx.log("between")
        await timer
        ctx.log("after the timer")
        await signal
        ctx.log("at the end")

    handle = await work.start()
    await rig.make_worker(warm_most=0)
    with caplog.at_level("INFO", "holdfast.workflow"):
        await rig.run()
        await rig.advance(5)
        await rig.run()
        await handle.signal("go", 1)
        await rig.run()
    assert caplog.messages == ["before", "between", "after the timer", "at the end"]


async def test_other_code_tries_a_stranded_run_by_itself(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """B17: a new release goes on with what the one before it stranded; nobody has to resume it."""

    def release(app: App, number: int, body: Body) -> Any:
        work = declare(app, body)
        work.digest = f"release {number}"
        return work

    async def sweep(app: App) -> None:
        (loop,) = [service for service in (await app.make_worker())._services if service.name == "stranded"]
        await loop.run_once()

    work = release(rig.app, 1, original)
    handle = await work.start()
    await rig.run()
    bad, good = rig.another_app(), rig.another_app()
    release(bad, 2, reordered)
    release(good, 3, original)
    await rig.advance(10)
    bad_worker = await rig.make_worker(bad)
    await bad_worker.run_until_idle()
    await stranded(rig, handle)

    await sweep(bad)
    await stranded(rig, handle)
    await sweep(good)
    assert "1 stranded runs of queue default are tried again with this code" in caplog.text
    await bad_worker.run_until_idle()  # whose turn it was not
    await stranded(rig, handle)
    await sweep(good)
    await handle.signal("go", 5)
    await (await rig.make_worker(good)).run_until_idle()
    assert await handle.result() == [2, 6, True, 5]
