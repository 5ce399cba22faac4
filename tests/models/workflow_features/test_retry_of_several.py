"""`handle.retry()` of a run in which several calls failed beside each other: one retry tries all of them again."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Context, Status, TaskFailed, Uncertain
from holdfast.models.workflow.task import Effects
from tests.models.workflow.kit import Rig
from tests.models.workflow_features.shelf import ONCE, Shelf


@pytest.mark.parametrize("told", ["alike", "apart"])
@pytest.mark.parametrize("queue", [None, "far"], ids=["inline", "remote"])
@pytest.mark.parametrize("effects", ["at_least_once", "at_most_once"])
async def test_calls_that_failed_together_are_all_tried_again(
    rig: Rig, told: str, queue: str | None, effects: Effects
) -> None:
    ran: list[int] = []
    broken = True

    @rig.app.task(retry=ONCE, queue=queue, effects=effects)
    async def ship(number: int) -> int:
        ran.append(number)
        if broken and number:
            raise ConnectionError("no route" if told == "alike" else f"no route for {number}")
        return number

    @rig.app.workflow
    async def ship_all(ctx: Context) -> list[int]:
        return await ctx.all(*(ship(number) for number in range(4)))

    handle = await ship_all.start()
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    broken = False
    assert await rig.result(await handle.retry()) == [0, 1, 2, 3]
    assert sorted(ran) == [0, 1, 1, 2, 2, 3, 3]


async def test_a_failure_that_the_body_went_on_from_stays(rig: Rig) -> None:
    ran: list[str] = []
    broken = True

    @rig.app.task(retry=ONCE)
    async def ship(how: str) -> str:
        ran.append(how)
        if broken:
            raise ConnectionError("no route")
        return how

    @rig.app.workflow
    async def ship_somehow(ctx: Context) -> str:
        try:
            return await ship("air")
        except TaskFailed:
            return await ship("sea")

    handle = await ship_somehow.start()
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    broken = False
    assert await rig.result(await handle.retry()) == "sea"
    assert ran == ["air", "sea", "sea"]


async def test_a_call_that_was_cut_off_and_may_not_be_repeated_is_not(rig: Rig) -> None:
    shelf = Shelf(rig)
    ran, reserve = shelf.ran, shelf.reserve

    @rig.app.task(retry=ONCE, effects="at_most_once")
    async def charge() -> str:
        ran.append("charge")
        await asyncio.Event().wait()
        return "paid"

    @rig.app.workflow
    async def checkout(ctx: Context) -> list[str]:
        got: list[str] = []
        async with ctx.join_set() as calls:
            calls.submit(charge)
            calls.submit(reserve)
            async for done in calls:
                try:
                    got.append(done.result())
                except Uncertain:
                    got.append("uncertain")
        return got

    handle = await checkout.start()
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    shelf.is_empty = False
    assert await rig.result(await handle.retry()) == ["uncertain", "r1"]
    assert ran == ["charge", "reserve", "reserve"]
