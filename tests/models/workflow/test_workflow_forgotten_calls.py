"""A call that the body made and did not await: loud where it never ran, left alone where it did."""

from __future__ import annotations

import pytest

from holdfast import Context, Status
from holdfast.core.errors import ExecutionFailedError
from tests.models.workflow.kit import Rig


async def test_a_call_that_never_ran_fails_the_run(rig: Rig) -> None:
    ran: list[int] = []

    @rig.app.task(name="charge")
    async def charge(number: int) -> None:
        ran.append(number)

    @rig.app.workflow
    async def pay(ctx: Context) -> str:
        charge(1)
        return "paid"

    handle = await pay.start()
    with pytest.raises(ExecutionFailedError, match="charge was called and never awaited, so it did not run: write `aw"):
        await rig.result(handle)
    assert ran == []
    assert (await rig.lines(handle))[-1] == "ExecutionFailed user:NeverAwaitedError"


async def test_neither_may_a_run_that_goes_on_as_another_nor_a_join_set_forget_it(rig: Rig) -> None:
    @rig.app.task
    async def charge(number: int) -> None: ...

    @rig.app.workflow
    async def again(ctx: Context) -> None:
        charge(1)
        ctx.continue_as_new()

    @rig.app.workflow
    async def together(ctx: Context) -> None:
        ctx.join_set().submit(charge, 1)

    for workflow in (again, together):
        handle = await workflow.start()
        with pytest.raises(ExecutionFailedError, match="never awaited"):
            await rig.result(handle)


async def test_a_call_begins_when_the_body_next_waits_awaited_or_not(rig: Rig) -> None:
    ran: list[int] = []

    @rig.app.task
    async def note(number: int) -> int:
        ran.append(number)
        return number

    @rig.app.workflow
    async def work(ctx: Context) -> int:
        note(1)
        return await note(2)

    assert await rig.result(await work.start()) == 2
    assert sorted(ran) == [1, 2]


async def test_what_lost_a_race_was_not_forgotten(rig: Rig) -> None:
    @rig.app.task
    async def number(value: int) -> int:
        return value

    @rig.app.workflow
    async def race(ctx: Context) -> int:
        first = ctx.invoke(number, 1)
        await number(2)
        winner = await ctx.any(first, number(3))  # settled before the third begins
        return int(winner.result())

    assert await rig.result(await race.start()) == 1


async def test_a_body_that_failed_says_why_itself(rig: Rig) -> None:
    @rig.app.task
    async def number(value: int) -> int:
        return value

    @rig.app.workflow
    async def work(ctx: Context) -> int:
        number(1)
        raise ValueError("of its own")

    with pytest.raises(ExecutionFailedError, match="of its own"):
        await rig.result(await work.start())


async def test_a_call_on_a_queue_runs_on_its_own(rig: Rig) -> None:
    """It has an execution of its own, which a parent that ends does not end (ruling E10)."""
    ran: list[int] = []

    @rig.app.task(queue="notes")
    async def note(number: int) -> None:
        ran.append(number)

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        note(1)
        return "done"

    handle = await work.start()
    assert await rig.result(handle) == "done"
    await rig.run()
    assert (ran, await rig.status(handle)) == ([1], Status.DONE)
