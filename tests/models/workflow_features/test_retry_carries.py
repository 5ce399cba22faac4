"""What a retry begins with beside its past: the deadline, and what tasks had told of their progress."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from holdfast import Context, RetryPolicy, Status, TaskFailed, current
from holdfast.core.errors import ExecutionCancelledError
from tests.models.workflow.kit import Rig
from tests.models.workflow_features.shelf import ONCE, Shelf


async def test_a_retry_is_to_end_when_its_run_was_to(rig: Rig) -> None:
    shelf = Shelf(rig)

    @rig.app.workflow
    async def checkout(ctx: Context) -> str:
        await ctx.sleep(10)
        await shelf.reserve()
        return await ctx.signal("never", str)

    handle = await checkout.options(deadline=60).start()
    await rig.run()
    await rig.advance(11)
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    shelf.is_empty = False
    again = await handle.retry()
    assert (await again.describe()).deadline_at == (await handle.describe()).deadline_at
    await rig.run()
    await rig.advance(50)
    with pytest.raises(ExecutionCancelledError):
        await rig.result(again)


async def test_a_retry_after_the_deadline_has_none(rig: Rig) -> None:
    shelf = Shelf(rig)

    @rig.app.workflow
    async def checkout(ctx: Context) -> str:
        return await shelf.reserve()

    handle = await checkout.options(deadline=60).start()
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    await rig.advance(61)
    shelf.is_empty = False
    again = await handle.retry()
    assert (await again.describe()).deadline_at is None
    assert await rig.result(again) == "r1"


async def test_a_task_goes_on_in_a_retry_from_its_last_progress(rig: Rig) -> None:
    found: list[object] = []

    @rig.app.task(retry=RetryPolicy(max_attempts=1))
    async def copy() -> int:
        call = current()
        found.append(call.progress)
        if call.progress is None:
            call.heartbeat(41)
            raise ConnectionError("cut off")
        return call.progress_as(int) or 0

    @rig.app.workflow
    async def archive(ctx: Context) -> int:
        return await copy()

    for start in (copy.start, archive.start):
        found.clear()
        handle = await start()
        await rig.run()
        assert await rig.status(handle) is Status.FAILED
        assert await rig.result(await handle.retry()) == 41
        assert found == [None, 41]


async def test_a_call_that_was_cut_off_goes_on_in_a_retry_from_its_last_progress(rig: Rig) -> None:
    shelf = Shelf(rig)
    found: list[object] = []
    told = asyncio.Event()

    @rig.app.task(retry=ONCE)
    async def copy() -> str:
        found.append(current().progress)
        if shelf.is_empty:
            current().heartbeat("half")
            told.set()
            await asyncio.Event().wait()
        return "copied"

    @rig.app.workflow
    async def archive(ctx: Context) -> list[str]:
        async with ctx.join_set() as calls:
            calls.submit(copy)
            calls.submit(shelf.reserve)
            return [done.result() async for done in calls]

    handle = await archive.start()
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    shelf.is_empty = False
    assert sorted(await rig.result(await handle.retry())) == ["copied", "r1"]
    assert found == [None, "half"]


async def test_progress_is_not_that_of_another_call_in_its_place(rig: Rig) -> None:
    """What the failed run began after its cause is cut off, and its numbers are given to other calls."""
    seen: list[object] = []
    declines = True

    @rig.app.task(retry=ONCE)
    async def charge() -> None:
        if declines:
            raise ValueError("declined")

    @rig.app.task(retry=ONCE)
    async def note() -> None:
        pass

    @rig.app.task(retry=ONCE)
    async def refund() -> None:
        current().heartbeat(7)
        raise ValueError("there is nothing to give back")

    @rig.app.task(retry=ONCE)
    async def ship() -> None:
        seen.append(current().progress)

    @rig.app.workflow
    async def checkout(ctx: Context) -> None:
        try:
            await charge()
        except TaskFailed as error:
            await note()
            with contextlib.suppress(TaskFailed):
                await refund()
            raise error
        await ctx.all(ship(), ship())

    handle = await checkout.start()
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    declines = False
    await rig.result(await handle.retry())
    assert seen == [None, None]
