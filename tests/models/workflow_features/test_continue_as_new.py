"""`ctx.continue_as_new`: one journal ends and another begins in one commit; whoever waits follows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Context, Status, Unique
from holdfast.core.errors import ExecutionFailedError, HoldfastError, UniqueConflictError
from holdfast.core.identity import PromiseId
from holdfast.store.values import ExecutionFilter, ExecutionView
from holdfast.views.finding import newest
from tests.models.workflow.kit import Rig


async def test_the_result_is_that_of_the_last_run(rig: Rig) -> None:
    @rig.app.workflow
    async def count(ctx: Context, number: int) -> int:
        if number < 5:
            ctx.continue_as_new(number + 1)
        return number

    handle = await count.options(key="k").start(1)
    assert await rig.result(handle) == 5
    views = (await rig.stores.store.browse(ExecutionFilter(), 10)).items
    assert [view.status for view in views] == [Status.DONE] * 5
    first = await handle.describe()
    assert first.successor == views[0].promise  # the first names the newest, the others the next
    assert {view.idempotency_key for view in views} == {"k"}
    assert await rig.app.handle(count.name, key="k").newest() == PromiseId.from_bytes(views[0].promise)


@pytest.mark.parametrize(
    ("given", "told"), [(("many",), "int"), ((), "cannot be called like this"), ((1, 2), "cannot be called like this")]
)
async def test_input_that_does_not_fit_is_an_error_of_the_line_that_gives_it(
    rig: Rig, given: tuple[Any, ...], told: str
) -> None:
    """So the body may catch it, and a failed run shows which line it was."""

    @rig.app.workflow
    async def count(ctx: Context, is_caught: bool, number: int) -> str:
        try:
            ctx.continue_as_new(False, *given)
        except HoldfastError as error:
            if not is_caught:
                raise
            return str(error)

    assert told in await rig.result(await count.start(True, 0))
    handle = await count.start(False, 0)
    with pytest.raises(ExecutionFailedError, match=told):
        await rig.result(handle)
    error = await handle.error()
    assert error is not None
    assert error.traceback is not None
    assert any("in count" in frame for frame in error.traceback)


async def test_the_newest_of_many_runs_is_found_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """From any of them: a run that goes on every minute has had half a million turns in a year."""

    @rig.app.workflow
    async def count(ctx: Context, number: int) -> int:
        if number < 9:
            ctx.continue_as_new(number + 1)
        return number

    await count.start(0)
    await rig.run()
    views = (await rig.stores.store.browse(ExecutionFilter(), 20)).items
    store, asked = await rig.app.store(), 0
    get = store.get

    async def counted(promise: bytes) -> ExecutionView | None:
        nonlocal asked
        asked += 1
        return await get(promise)

    monkeypatch.setattr(store, "get", counted)
    for view in views:
        assert (await rig.app.handle(PromiseId.from_bytes(view.promise)).newest()).to_bytes() == views[0].promise
        last = await newest(store, view)
        assert (views[0] if last is None else last).promise == views[0].promise
    assert asked <= 5 * len(views)


async def test_a_waiter_of_this_process_follows(rig: Rig) -> None:
    @rig.app.workflow
    async def twice(ctx: Context, again: bool) -> str:
        if again:
            ctx.continue_as_new(False)
        await ctx.signal("go")
        return "done"

    async with rig.app.worker():
        handle = await twice.start(True)
        async with asyncio.timeout(20):
            while await handle.newest() == handle.id:  # noqa: ASYNC110
                await asyncio.sleep(0)
        await handle.signal("go")
        assert await handle.result(timeout=20) == "done"


async def test_the_status_is_that_of_the_run_that_lives(rig: Rig) -> None:
    @rig.app.workflow
    async def turns(ctx: Context, turn: int) -> int:
        if turn == 2:
            raise ValueError("no third turn")
        await ctx.signal("go")
        ctx.continue_as_new(turn + 1)

    handle = await turns.options(key="k").start(0)
    await handle.signal("go")
    await rig.run()
    named = rig.app.handle(turns.name, key="k")
    assert (await handle.describe()).status is Status.DONE
    assert await named.status() is await handle.status() is Status.AWAITING_PROMISE
    await handle.signal("go")
    await rig.run()
    assert await named.status() is Status.FAILED
    record = await named.error()
    assert record is not None
    assert record.message == "no third turn"


async def test_what_was_published_is_shown_until_it_is_published_anew(rig: Rig) -> None:
    @rig.app.workflow
    async def turns(ctx: Context, turn: int) -> None:
        if turn == 1:
            ctx.publish("late", True)
        await ctx.signal("go")
        ctx.publish("turn", turn)
        ctx.continue_as_new(turn + 1)

    handle = await turns.start(0)
    for seen in ({"turn": 0, "late": True}, {"turn": 1, "late": True}):
        await handle.signal("go")
        await rig.run()
        assert await handle.published() == seen


async def test_what_was_taken_along_is_shown_by_a_retry_too(rig: Rig) -> None:
    """It is not in the journal that the retry has its past from."""
    is_mended = False

    @rig.app.workflow
    async def turns(ctx: Context, turn: int) -> None:
        ctx.publish(f"turn {turn}", True)
        if turn == 0:
            ctx.continue_as_new(1)
        if not is_mended:
            raise ValueError("no second turn")

    handle = await turns.start(0)
    await rig.run()
    is_mended = True
    again = await handle.retry()
    assert await again.published() == {"turn 0": True, "turn 1": True}
    await rig.result(again)
    assert await handle.published() == {"turn 0": True, "turn 1": True}


async def test_a_parent_gets_the_result_of_the_last_run_of_its_child(rig: Rig) -> None:
    @rig.app.workflow
    async def child(ctx: Context, number: int) -> int:
        if number:
            ctx.continue_as_new(number - 1)
        return 42

    @rig.app.workflow
    async def parent(ctx: Context) -> int:
        return await child(3)

    handle = await parent.start()
    assert await rig.result(handle) == 42
    assert "InvokeCompleted root.0 Ok(42) attempt=1" in await rig.lines(handle)


async def test_cancelling_a_parent_reaches_the_run_that_its_child_is_now(rig: Rig) -> None:
    @rig.app.workflow
    async def child(ctx: Context, wait: bool) -> None:
        if not wait:
            ctx.continue_as_new(True)
        await ctx.signal("never")

    @rig.app.workflow
    async def parent(ctx: Context) -> None:
        await child(False)

    handle = await parent.start()
    await rig.run()
    await handle.cancel()
    await rig.run()
    views = (await rig.stores.store.browse(ExecutionFilter(name=child.name), 10)).items
    assert [view.status for view in views] == [Status.CANCELLED, Status.DONE]
    assert await rig.status(handle) is Status.CANCELLED


async def test_no_signal_is_lost_and_their_order_is_kept(rig: Rig) -> None:
    @rig.app.workflow
    async def collect(ctx: Context, seen: list[int]) -> list[int]:
        seen.append(await ctx.signal("n", int))
        if len(seen) < 3:
            ctx.continue_as_new(seen)
        return seen

    handle = await collect.start([])
    for number in (1, 2, 3):
        await handle.signal("n", number, dedup_key=str(number))
    await rig.once()  # the first run has taken in all three and read one
    assert (await handle.signal("n", 1, dedup_key="1")).value == "duplicate"  # E12: for the life of the chain
    assert await rig.result(handle) == [1, 2, 3]


async def test_signals_of_several_names_stay_in_the_order_in_which_they_came(rig: Rig) -> None:
    @rig.app.workflow
    async def collect(ctx: Context, seen: list[int]) -> list[int]:
        first = await ctx.any(ctx.signal("a", int), ctx.signal("b", int))
        seen.append(first.result())
        if len(seen) < 4:
            ctx.continue_as_new(seen)
        return seen

    handle = await collect.start([])
    for number, name in enumerate("abba"):
        await handle.signal(name, number)
    await rig.run()
    assert await rig.status(rig.app.handle(await handle.newest())) is Status.DONE
    assert await handle.result() == [0, 1, 2, 3]


async def test_a_cancel_and_a_unique_key_go_over_to_the_next_run(rig: Rig) -> None:
    @rig.app.workflow
    async def loop(ctx: Context, number: int) -> None:
        if number == 0:
            ctx.continue_as_new(1)
        await ctx.signal("never")

    unique = Unique(key="only")
    handle = await loop.options(unique=unique, attributes={"city": "Ulm"}).start(0)
    await rig.run()
    newest = rig.app.handle(await handle.newest())
    assert (await newest.describe()).attributes == '{"city":"Ulm"}'
    with pytest.raises(UniqueConflictError):
        await loop.options(unique=unique).start(0)
    await handle.cancel()
    await rig.run()
    assert await rig.status(newest) is Status.CANCELLED
    await loop.options(unique=unique).start(0)


async def test_input_that_cannot_be_encoded_fails_the_run(rig: Rig) -> None:
    @rig.app.workflow
    async def loop(ctx: Context, number: int) -> None:
        ctx.continue_as_new("x", 2, 3)

    handle = await loop.start(0)
    await rig.run()
    assert await rig.status(handle) is Status.FAILED


async def test_a_cancel_that_cascades_reaches_what_earlier_runs_started(rig: Rig) -> None:
    """They are one execution to who cancels it; what a run forgot to wait for is its own as well."""

    @rig.app.task(queue="nobody")
    async def slow(turn: int) -> None: ...

    @rig.app.workflow
    async def loop(ctx: Context, turn: int) -> None:
        slow(turn)
        await ctx.sleep(1)
        if turn < 3:
            ctx.continue_as_new(turn + 1)
        await ctx.signal("never")

    await rig.make_worker(queues=["default"])
    handle = await loop.start(1)
    for _ in range(3):
        await rig.run()
        await rig.advance(2)
    await rig.run()
    runs = (await rig.stores.store.browse(ExecutionFilter(name=loop.name), 10)).items
    assert len(runs) == 3
    await handle.cancel(cascade=True, reason="enough")
    await rig.run()
    calls = (await rig.stores.store.browse(ExecutionFilter(name=slow.name), 10)).items
    assert [(call.status, call.cancel_reason) for call in calls] == [(Status.CANCELLED, "enough")] * 3
    runs = (await rig.stores.store.browse(ExecutionFilter(name=loop.name), 10)).items
    assert [run.status for run in runs] == [Status.CANCELLED, Status.DONE, Status.DONE]
    assert [run.cancel_requested for run in runs] == [True, False, False]
