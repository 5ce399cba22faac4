"""Signals: buffered or blocking, first come first served, with a deadline, beside calls (rulings B7, B9, B10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import Context, Status
from holdfast.core.errors import DecodeError, InvalidArgumentError, SignalRefusedError
from holdfast.store.values import Delivery
from tests.models.workflow.kit import Gate, Rig

COLD = pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])


@dataclass
class Vote:
    by: str


async def test_signals_of_a_name_are_received_in_the_order_of_delivery(rig: Rig) -> None:
    @rig.app.workflow
    async def collect(ctx: Context) -> list[str]:
        return [(await ctx.signal("vote", Vote)).by for _ in range(3)]

    handle = await collect.start()
    for name in ("a", "b"):
        await handle.signal("vote", Vote(name))
    await rig.run()
    await handle.signal("vote", Vote("c"))
    assert await rig.result(handle) == ["a", "b", "c"]


async def test_signals_of_different_names_do_not_get_in_each_others_way(rig: Rig) -> None:
    @rig.app.workflow
    async def collect(ctx: Context) -> list[int]:
        return [await ctx.signal("b", int), await ctx.signal("a", int)]

    handle = await collect.start()
    await handle.signal("a", 1)
    await rig.run()
    await handle.signal("b", 2)
    assert await rig.result(handle) == [2, 1]


async def test_a_signal_delivered_twice_with_one_key_is_received_once(rig: Rig) -> None:
    """E12: the key holds after the signal was consumed."""

    @rig.app.workflow
    async def collect(ctx: Context) -> list[int]:
        return [await ctx.signal("n", int), await ctx.signal("n", int)]

    handle = await collect.start()
    assert await handle.signal("n", 1, dedup_key="k") is Delivery.DELIVERED
    await rig.run()
    assert await handle.signal("n", 1, dedup_key="k") is Delivery.DUPLICATE
    await rig.run()
    await handle.signal("n", 2)
    assert await rig.result(handle) == [1, 2]


async def test_a_signal_in_time_beats_its_deadline(rig: Rig) -> None:
    @rig.app.workflow
    async def wait(ctx: Context) -> int:
        return await ctx.signal("n", int, timeout=60)

    handle = await wait.start()
    await rig.run()
    await rig.advance(59)
    await handle.signal("n", 7)
    assert await rig.result(handle) == 7
    assert await rig.lines(handle) == [
        "ExecutionStarted",
        "TimerScheduled root.0",
        "ExecutionAwaiting [root.1, root.0] Any",
        "SignalDelivered n delivery_id=1",
        "SignalReceived root.1 n delivery_id=1",
        "ExecutionResumed",
        "ExecutionCompleted Ok(7)",
    ]


async def test_a_buffered_signal_with_a_deadline_needs_no_timer(rig: Rig) -> None:
    @rig.app.workflow
    async def wait(ctx: Context) -> int:
        return await ctx.signal("n", int, timeout=60)

    handle = await wait.start()
    await handle.signal("n", 7)
    assert await rig.result(handle) == 7
    assert "TimerScheduled root.0" not in await rig.lines(handle)


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
async def test_a_signal_awaited_again_after_a_timeout_yields_no_phantom(rig: Rig, cold: bool) -> None:
    """B7: the same promise times out again; the next wait gets the real signal."""

    @rig.app.workflow
    async def wait(ctx: Context) -> list[str]:
        seen = []
        first = ctx.signal("n", int, timeout=10)
        for _ in range(2):
            try:
                seen.append(str(await first))
            except TimeoutError:
                seen.append("timeout")
        seen.append(str(await ctx.signal("n", int)))
        seen.append(str(await ctx.signal("n", int)))
        return seen

    handle = await wait.start()
    await rig.make_worker(warm_most=0 if cold else None)
    await rig.run()
    await rig.advance(10)
    await rig.run()
    await handle.signal("n", 1)
    await rig.run()
    await handle.signal("n", 2)
    assert await rig.result(handle) == ["timeout", "timeout", "1", "2"]


async def test_a_signal_does_not_lose_to_a_worker_that_comes_late(rig: Rig) -> None:
    """The inbox is taken in before timers fire."""

    @rig.app.workflow
    async def wait(ctx: Context) -> str:
        try:
            return f"got {await ctx.signal('n', int, timeout=10)}"
        except TimeoutError:
            return "timeout"

    handle = await wait.start()
    await rig.run()
    await rig.advance(5)
    await handle.signal("n", 1)
    await rig.advance(20)
    result = await rig.result(handle)
    events = [line.split()[0] for line in await rig.lines(handle)]
    assert result == "got 1"
    assert events.index("SignalReceived") < events.index("TimerFired")


async def test_a_signal_delivered_while_an_inline_call_runs_is_buffered(rig: Rig) -> None:
    gate = Gate()

    @rig.app.task
    async def slow() -> int:
        await gate.wait()
        return 1

    @rig.app.workflow
    async def work(ctx: Context) -> list[int]:
        return [await slow(), await ctx.signal("n", int)]

    handle = await work.start()
    working = rig.working(await rig.worker())
    await gate.reached.wait()
    await handle.signal("n", 2)
    gate.opened.set()
    await working
    assert await rig.result(handle) == [1, 2]


async def test_a_signal_beside_a_call_in_flight_wins_and_the_call_goes_on(rig: Rig) -> None:
    gate = Gate()

    @rig.app.task
    async def slow() -> int:
        await gate.wait()
        return 1

    @rig.app.workflow
    async def work(ctx: Context) -> list[object]:
        call = ctx.invoke(slow)
        first = await ctx.any(call, ctx.signal("n", int))
        return [first.result(), await call]

    handle = await work.start()
    worker = await rig.worker()
    working = rig.working(worker)
    await gate.reached.wait()
    await handle.signal("n", 2)
    await worker._watcher.run_once()
    await rig.until(handle, "SignalReceived")
    gate.opened.set()
    await working
    assert await rig.result(handle) == [2, 1]


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
@pytest.mark.parametrize("order", [["a", "b"], ["b", "a"]], ids="".join)
async def test_all_waits_for_several_signals_in_any_order(rig: Rig, cold: bool, order: list[str]) -> None:
    @rig.app.workflow
    async def both(ctx: Context) -> list[str]:
        return await ctx.all(ctx.signal("a", str), ctx.signal("b", str))

    handle = await both.start()
    await rig.make_worker(warm_most=0 if cold else None)
    await rig.run()
    for name in order:
        await handle.signal(name, name.upper())
        await rig.run()
    assert await rig.result(handle) == ["A", "B"]


@pytest.mark.parametrize("buffered", [["b"], ["a", "b"], ["a"]], ids="".join)
async def test_all_of_several_signals_of_which_some_are_buffered(rig: Rig, buffered: list[str]) -> None:
    """B3: numbers are in the journal in their order, though the second signal is there before the first."""

    @rig.app.workflow
    async def both(ctx: Context) -> list[str]:
        return await ctx.all(ctx.signal("a", str), ctx.signal("b", str))

    handle = await both.start()
    for name in buffered:
        await handle.signal(name, name.upper())
    await rig.run()
    for name in {"a", "b"} - set(buffered):
        await handle.signal(name, name.upper())
    assert await rig.result(handle) == ["A", "B"]


async def test_any_takes_the_buffered_one_of_several_signals(rig: Rig) -> None:
    @rig.app.workflow
    async def either(ctx: Context) -> list[object]:
        first, second = ctx.signal("a", str), ctx.signal("b", str)
        done = await ctx.any(first, second)
        return [done.promise is second, done.result(), await first]

    handle = await either.start()
    await handle.signal("b", "B")
    await rig.run()
    await handle.signal("a", "A")
    assert await rig.result(handle) == [True, "B", "A"]


@COLD
@pytest.mark.parametrize("looked_after", [1, 3, 20])
async def test_any_takes_one_signal_and_leaves_the_others_for_later(rig: Rig, cold: bool, looked_after: int) -> None:
    """However many are there when the body is looked at: a promise that lost may be dropped, its signal not."""

    @rig.app.workflow
    async def work(ctx: Context) -> list[int]:
        seen: list[int] = []
        while len(seen) < 20:
            first = await ctx.any(ctx.signal("a", int), ctx.signal("b", int))
            seen.append(first.result())
        return seen

    handle = await work.start()
    await rig.make_worker(warm_most=0 if cold else None)
    for number in range(20):
        await handle.signal("ab"[number % 2], number)
        if number % looked_after == 0:
            await rig.run()
    assert await rig.result(handle) == list(range(20))  # in the order in which they came


@COLD
async def test_a_signal_beside_what_is_settled_already_is_not_taken(rig: Rig, cold: bool) -> None:
    @rig.app.task(queue="far")
    async def far() -> str:
        return "far"

    @rig.app.workflow
    async def work(ctx: Context) -> list[Any]:
        call = ctx.invoke(far)
        await ctx.sleep(5)
        first = await ctx.any(call, ctx.signal("a", int))
        second = await ctx.any(ctx.sleep(100), ctx.signal("a", int))
        return [first.result(), second.result()]

    handle = await work.start()
    await rig.make_worker(warm_most=0 if cold else None)
    await rig.run()
    await handle.signal("a", 1)
    await rig.advance(6)
    assert await rig.result(handle) == ["far", 1]


async def test_two_waits_for_one_name_share_the_deliveries_in_order(rig: Rig) -> None:
    @rig.app.workflow
    async def both(ctx: Context) -> list[int]:
        return await ctx.all(ctx.signal("n", int), ctx.signal("n", int))

    handle = await both.start()
    await handle.signal("n", 1)
    await rig.run()
    await handle.signal("n", 2)
    assert await rig.result(handle) == [1, 2]


async def test_a_signal_that_lost_can_still_be_awaited(rig: Rig) -> None:
    @rig.app.workflow
    async def work(ctx: Context) -> list[object]:
        signal = ctx.signal("n", int)
        first = await ctx.any(ctx.sleep(5), signal)
        return [first.promise is signal, await signal]

    handle = await work.start()
    await rig.run()
    await rig.advance(5)
    await rig.run()
    await handle.signal("n", 3)
    assert await rig.result(handle) == [False, 3]


async def test_a_signal_of_the_wrong_shape_fails_the_workflow_that_wanted_another(rig: Rig) -> None:
    @rig.app.workflow
    async def wait(ctx: Context) -> Vote:
        return await ctx.signal("vote", Vote)

    handle = await wait.start()
    await handle.signal("vote", 17)
    await rig.run()
    view = await handle.describe()
    assert view.status is Status.FAILED
    error = await handle.error()
    assert error is not None
    assert "DecodeError" in error.type
    assert error.message.startswith("the signal 'vote' does not fit Vote at $: ")


async def test_a_signal_of_the_wrong_shape_is_caught_and_consumed(rig: Rig) -> None:
    @rig.app.workflow
    async def wait(ctx: Context) -> list[int]:
        bad = 0
        while True:
            try:
                return [bad, await ctx.signal("n", int)]
            except DecodeError:
                bad += 1

    await rig.make_worker(warm_most=0)
    handle = await wait.start()
    for sent in ("one", [2], 3):
        await handle.signal("n", sent)
        await rig.run()
    assert await rig.result(handle) == [2, 3]


async def test_a_signal_to_a_finished_workflow_is_refused(rig: Rig) -> None:
    @rig.app.workflow
    async def nothing(ctx: Context) -> None:
        return None

    handle = await nothing.start()
    await rig.run()
    with pytest.raises(SignalRefusedError, match="has ended"):
        await handle.signal("n", 1)


@pytest.mark.parametrize("name", ["", 7, "x" * 201], ids=["empty", "number", "long"])
async def test_a_bad_name_of_a_signal_is_an_error_at_the_call(rig: Rig, name: str) -> None:
    @rig.app.workflow
    async def wait(ctx: Context) -> str:
        try:
            await ctx.signal(name, int)
        except InvalidArgumentError as error:
            return str(error)
        return "no error"

    assert "no name of a signal" in await rig.result(await wait.start())


async def test_a_signal_with_a_deadline_of_its_own_is_refused_in_a_combination(rig: Rig) -> None:
    @rig.app.workflow
    async def wait(ctx: Context) -> str:
        try:
            await ctx.any(ctx.signal("n", int, timeout=5), ctx.sleep(1))
        except InvalidArgumentError as error:
            return str(error)
        return "no error"

    assert "timeout of its own" in await rig.result(await wait.start())
