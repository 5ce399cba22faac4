"""Whoever waits for what was cancelled is told why: by a handle, in a workflow, by a join set; on replay as well."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from holdfast import Context, PromiseId, TaskCancelled
from holdfast.core.errors import ExecutionCancelledError
from tests.models.workflow.kit import Rig

WHY = 'ordered "twice" ü'


async def test_a_handle_tells_why(rig: Rig) -> None:
    @rig.app.workflow
    async def wait(ctx: Context) -> None:
        await ctx.signal("never")

    queued, running, plain = [await wait.start() for _ in range(3)]
    await queued.cancel(reason=WHY, force=True)
    await rig.run()
    await running.cancel(reason=WHY)
    await plain.cancel()
    for handle, reason in ((queued, WHY), (running, WHY), (plain, None)):
        with pytest.raises(ExecutionCancelledError) as caught:
            await rig.result(handle)
        assert caught.value.reason == pickle.loads(pickle.dumps(caught.value)).reason == reason
        assert str(caught.value).partition(" was cancelled")[2] == (f": {WHY}" if reason else "")


async def test_a_waiter_that_the_worker_tells_hears_it_too(rig: Rig) -> None:
    @rig.app.workflow
    async def wait(ctx: Context) -> None:
        await ctx.signal("never")

    handle = await wait.start()
    async with rig.app.worker():
        waiting = asyncio.create_task(rig.app.results([handle], return_exceptions=True))
        await handle.cancel(reason=WHY)
        (error,) = await waiting
    assert isinstance(error, ExecutionCancelledError)
    assert error.reason == WHY


@pytest.mark.parametrize("warm", [None, 0], ids=["warm", "replayed"])
@pytest.mark.parametrize("how", ["awaited", "joined"])
async def test_a_workflow_hears_why_its_call_was_cancelled(rig: Rig, warm: int | None, how: str) -> None:
    @rig.app.task(queue="nobody")
    async def work() -> None: ...

    @rig.app.workflow
    async def wait(ctx: Context) -> tuple[str, str | None]:
        try:
            if how == "awaited":
                await work()
            else:
                async with ctx.join_set() as calls:
                    calls.submit(work)
                    (await calls.next()).result()
        except TaskCancelled as error:
            heard = str(error).rpartition("Cancelled: ")[2].removeprefix(work.name), error.reason
            await ctx.signal("go")  # without a warm session, what follows is a replay
            return heard
        return "", None

    await rig.make_worker(queues=["default"], warm_most=warm)
    handle = await wait.start()
    await rig.run()
    (child,) = await rig.stores.store.children(handle.id.to_bytes())
    await rig.app.handle(PromiseId.from_bytes(child.promise)).cancel(reason=WHY)
    await rig.run()
    await handle.signal("go")
    assert tuple(await rig.result(handle)) == (f" was cancelled: {WHY}", WHY)
