"""Calls that were cancelled and are awaited all the same: the body hears that they were, wherever they stood."""

from __future__ import annotations

import pytest

from holdfast import Cancelled, Context, RetryPolicy, Status, TaskCancelled
from tests.models.workflow.kit import Gate, Rig

COLD = pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])


@COLD
@pytest.mark.parametrize("queue", [None, "far"], ids=["inline", "remote"])
async def test_a_member_that_was_cancelled_with_the_rest_before_it_began(
    rig: Rig, cold: bool, queue: str | None
) -> None:
    ran: list[int] = []

    @rig.app.task(queue=queue)
    async def slow() -> None:
        ran.append(1)

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        async with ctx.join_set(cancel_rest=True) as calls:
            left = calls.submit(slow)
        try:
            await left
        except TaskCancelled:
            return "cancelled"
        return "ran"

    handle = await work.start()
    await rig.make_worker(warm_most=0 if cold else None)
    assert await rig.result(handle) == "cancelled"
    assert ran == []
    assert await rig.stores.store.children(handle.id.to_bytes()) == []


@COLD
async def test_clean_up_awaits_a_call_that_waited_for_its_retry(rig: Rig, cold: bool) -> None:
    @rig.app.task(retry=RetryPolicy(initial_delay=100, jitter=0))
    async def flaky() -> None:
        raise ConnectionError("away")

    heard: list[str] = []

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        call = ctx.invoke(flaky)
        try:
            await ctx.sleep(1000)
        finally:
            try:
                await call
            except TaskCancelled as error:
                heard.append(str(error))

    handle = await work.start()
    await rig.make_worker(warm_most=0 if cold else None)
    await rig.run()
    await handle.cancel()
    await rig.run()
    assert await rig.status(handle) is Status.CANCELLED
    assert "flaky was cancelled in attempt 1" in heard[-1]


@pytest.mark.parametrize("queue", [None, "far"], ids=["inline", "remote"])
async def test_clean_up_awaits_a_call_in_flight(rig: Rig, queue: str | None) -> None:
    gate = Gate()
    heard: list[str] = []

    @rig.app.task(queue=queue)
    async def slow() -> None:
        await gate.wait()

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        call = ctx.invoke(slow)
        try:
            await ctx.sleep(1000)
        except Cancelled:
            try:
                await call
            except TaskCancelled:
                heard.append("cancelled")
            raise

    handle = await work.start()
    async with rig.app.worker(queues=["default", "far"]):
        await gate.reached.wait()
        await handle.cancel()
        await rig.until(handle, "ExecutionCancelled")
    assert heard == ["cancelled"]


async def test_the_row_shows_the_call_that_is_awaited_not_one_that_was_cancelled_after_it(rig: Rig) -> None:
    seen: list[tuple[str, str]] = []

    @rig.app.task(name="pack")
    async def pack() -> None:
        seen.append(("pack", (await handle.describe()).step))

    @rig.app.task(name="ship")
    async def ship() -> None:
        seen.append(("ship", (await handle.describe()).step))

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        for _ in range(3):
            await pack()
            shipped = ship()
            async with ctx.join_set(cancel_rest=True) as calls:
                calls.submit(pack)
            await shipped

    handle = await work.start()
    await rig.result(handle)
    assert seen == [("pack", ""), ("ship", "ship"), *[("pack", "pack"), ("ship", "ship")] * 2]
