"""What was sent to a run that failed: a retry has it all, once (rulings B13, E12)."""

from __future__ import annotations

import pytest

from holdfast import App, Await, Context, Done, Machine, MachineContext, Outcome, Status, step
from holdfast.core.errors import SignalRefusedError
from holdfast.store.values import Delivery
from tests.models.workflow.kit import Rig
from tests.models.workflow_features.shelf import ONCE


async def test_signals_that_nobody_had_read_when_the_run_failed_are_read_by_its_retry(rig: Rig) -> None:
    broken = True

    @rig.app.task(retry=ONCE)
    async def ship() -> None:
        if broken:
            await handle.signal("gift", "bow")
            await handle.signal("gift", "card", dedup_key="c-1")
            raise ValueError("no van")

    @rig.app.workflow
    async def checkout(ctx: Context) -> list[str]:
        await ship()
        return [await ctx.signal("gift", str), await ctx.signal("gift", str)]

    handle = await checkout.options(key="o1").start()
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    with pytest.raises(SignalRefusedError, match="has ended"):
        await handle.signal("gift", "late")
    broken = False
    again = await handle.retry()
    assert await handle.signal("gift", "card", dedup_key="c-1") is Delivery.DUPLICATE
    assert await rig.result(again) == ["bow", "card"]
    assert await (await rig.app.store()).inbox(handle.id.to_bytes()) == []


@pytest.mark.parametrize("is_read_at_once", [True, False], ids=["in its last commit", "before"])
async def test_a_signal_with_a_dedup_key_is_read_once_by_a_run_and_its_retries(rig: Rig, is_read_at_once: bool) -> None:
    broken = True

    @rig.app.workflow
    async def account(ctx: Context) -> list[int | None]:
        first = await ctx.signal("pay", int)
        if not is_read_at_once:
            await ctx.sleep(1)
        if broken:
            raise ValueError("no")
        try:
            return [first, await ctx.signal("pay", int, timeout=5)]
        except TimeoutError:
            return [first, None]

    options = account.options(key="a1", dedup_key="e1")
    handle = await options.signal_with_start("pay", 7)
    await rig.run()
    await rig.advance(2)
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    for _ in range(2):
        handle = await handle.retry()
        await rig.run()
        await rig.advance(2)
        await rig.run()
    assert await rig.status(handle) is Status.FAILED
    broken = False
    again = await handle.retry()
    assert await handle.signal("pay", 7, dedup_key="e1") is Delivery.DUPLICATE
    assert (await options.signal_with_start("pay", 7)).id == rig.app.handle(account.name, key="a1").id
    await rig.run()
    await rig.advance(6)
    assert await rig.result(again) == [7, None]


def till(app: App, broken: list[bool]) -> type[Machine[int]]:
    @app.machine(retry=ONCE)
    class Till(Machine[int]):
        @step(initial=True)
        async def open(self, ctx: MachineContext[int]) -> Outcome:
            return Await("pay", self.take, ctx.state, timeout=60)

        @step
        async def take(self, ctx: MachineContext[int]) -> Outcome:
            if broken[0]:
                raise ValueError("the drawer is stuck")
            return Done([ctx.timed_out, [signal.payload for signal in ctx.awaited], len(ctx.inbox)])

    return Till


async def test_a_step_of_a_machine_that_failed_sees_the_signals_that_it_saw(rig: Rig) -> None:
    broken = [True]
    handle = await till(rig.app, broken).options(key="t1").start(0)
    await rig.run()
    await handle.signal("note", "hello")
    await handle.signal("pay", 3, dedup_key="p-1")
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    broken[0] = False
    again = await handle.retry()
    assert await handle.signal("pay", 3, dedup_key="p-1") is Delivery.DUPLICATE
    assert await rig.result(again) == [False, [3], 2]


async def test_a_step_of_a_machine_that_failed_at_its_deadline_finds_it_passed(rig: Rig) -> None:
    broken = [True]
    handle = await till(rig.app, broken).start(0)
    await rig.run()
    await rig.advance(61)
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    broken[0] = False
    assert await rig.result(await handle.retry()) == [True, [], 0]
