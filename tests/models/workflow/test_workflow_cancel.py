"""Cancel in two phases: it reaches the body at an await, clean-up may use durable calls, children are cancelled too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import App, Cancelled, Context, Handle, RetryPolicy, Status, TaskCancelled, Workflow
from holdfast.core.errors import ExecutionCancelledError, InvalidArgumentError
from tests.models.workflow.kit import Gate, Rig

COLD = pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])


@COLD
async def test_a_cancel_is_raised_at_the_wait_and_clean_up_is_durable(rig: Rig, cold: bool) -> None:
    """B2: while Cancelling no Awaiting and no Resumed is recorded, though clean-up suspends."""
    ran: list[str] = []

    @rig.app.task(queue="remote")
    async def refund(what: str) -> str:
        ran.append(what)
        return f"{what} refunded"

    @rig.app.workflow
    async def order(ctx: Context) -> None:
        try:
            await ctx.signal("approval", bool)
        finally:
            await refund("first")
            await ctx.sleep(5)
            await refund("second")

    handle = await order.start()
    await rig.make_worker(warm_most=0 if cold else None)
    await rig.run()
    await handle.cancel()
    await rig.run()
    assert await rig.status(handle) is Status.AWAITING_PROMISE
    await rig.advance(5)
    await rig.run()
    assert await rig.status(handle) is Status.CANCELLED
    assert ran == ["first", "second"]
    with pytest.raises(ExecutionCancelledError):
        await handle.result()
    assert await rig.lines(handle) == [
        "ExecutionStarted",
        "ExecutionAwaiting [root.0] Signal(approval)",
        "CancelRequested cancelled",
        "InvokeScheduled root.1 refund",
        "InvokeStarted root.1 attempt=1",
        'InvokeCompleted root.1 Ok("first refunded") attempt=1',
        "TimerScheduled root.2",
        "TimerFired root.2",
        "InvokeScheduled root.3 refund",
        "InvokeStarted root.3 attempt=1",
        'InvokeCompleted root.3 Ok("second refunded") attempt=1',
        "ExecutionCancelled cancelled",
    ]


async def test_clean_up_in_this_worker_is_not_cancelled_however_long_it_takes(rig: Rig) -> None:
    """The row says all the while that its cancel is requested, and the worker looks at it all the while."""
    working, refunding = Gate(), Gate()
    refunded: list[str] = []

    @rig.app.task
    async def work() -> None:
        await working.wait()

    @rig.app.task
    async def refund() -> str:
        await refunding.wait()
        return "refunded"

    @rig.app.workflow
    async def order(ctx: Context) -> None:
        try:
            await work()
        finally:
            refunded.append(await refund())

    handle = await order.start()
    worker = await rig.make_worker()
    at_work = rig.working(worker)
    await working.reached.wait()
    await handle.cancel()
    await worker._watcher.run_once()
    await refunding.reached.wait()
    for _ in range(3):
        await worker._watcher.run_once()
        for _ in range(10):
            await asyncio.sleep(0)
            await handle.describe()  # as many turns as the worker's own look takes
    refunding.opened.set()
    await at_work
    assert (refunded, await rig.status(handle)) == (["refunded"], Status.CANCELLED)


async def test_the_first_reason_of_a_cancel_is_kept_and_reaches_the_body(rig: Rig) -> None:
    heard: list[str] = []

    @rig.app.workflow
    async def order(ctx: Context) -> None:
        try:
            await ctx.signal("approval", bool)
        except Cancelled as cancelled:
            heard.append(str(cancelled))
            raise

    handle = await order.start()
    await rig.run()
    untyped: Any = handle
    for bad in ("", "nul \0", "half \ud800", 7, "long" * 1000):
        with pytest.raises(InvalidArgumentError, match="a reason has"):
            await untyped.cancel(reason=bad)
    await handle.cancel(reason="out of stock")
    await handle.cancel(reason="closing time")
    await rig.run()
    assert heard == ["out of stock"]
    lines = await rig.lines(handle)
    assert [line for line in lines if "ancel" in line] == [
        "CancelRequested out of stock",
        "ExecutionCancelled out of stock",
    ]


@COLD
async def test_clean_up_calls_are_not_cancelled_by_the_cancel_they_follow(rig: Rig, cold: bool) -> None:
    @rig.app.task(queue="one")
    async def one() -> int:
        return 1

    @rig.app.task(queue="two")
    async def two() -> int:
        return 2

    results: list[list[int]] = []

    @rig.app.workflow
    async def order(ctx: Context) -> None:
        try:
            await ctx.sleep(1000)
        except Cancelled:
            results.append(await ctx.all(ctx.invoke(one), ctx.invoke(two)))
            raise

    handle = await order.start()
    caller = await rig.make_worker(warm_most=0 if cold else None, queues=["default"])
    first, second = [await rig.make_worker(queues=[name]) for name in ("one", "two")]
    await caller.run_until_idle()
    await handle.cancel()
    await caller.run_until_idle()
    await first.run_until_idle()
    await caller.run_until_idle()
    await second.run_until_idle()
    await caller.run_until_idle()
    assert await rig.status(handle) is Status.CANCELLED
    assert results == [[1, 2]]


async def test_a_cancel_between_two_awaits_is_raised_at_the_second(rig: Rig) -> None:
    """What was answered before the cancel is still given."""
    seen: list[object] = []

    @rig.app.task
    async def first() -> int:
        await handle.cancel()
        return 1

    @rig.app.task
    async def never() -> None:
        seen.append("never")

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        seen.append(await first())
        try:
            await never()
        except Cancelled:
            seen.append("cancelled")
            raise

    handle: Handle[None] = await work.start()
    await rig.run()
    assert await rig.status(handle) is Status.CANCELLED
    assert seen == [1, "cancelled"]


@COLD
async def test_a_cancel_before_a_signal_leaves_its_number_to_clean_up(rig: Rig, cold: bool) -> None:
    """B3: the numbers stay without a gap, in the run as in its replay."""
    gate = Gate()

    @rig.app.task
    async def first() -> int:
        await gate.wait()
        return 1

    @rig.app.task(queue="remote")
    async def clean() -> str:
        return "clean"

    cleaned: list[str] = []

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        await first()
        try:
            await ctx.signal("go", int, timeout=10)
        except Cancelled:
            cleaned.append(await clean())
            raise

    handle = await work.start()
    worker = await rig.make_worker(warm_most=0 if cold else None)
    working = rig.working(worker)
    await gate.reached.wait()
    await handle.cancel()
    gate.opened.set()
    await working
    await rig.run()
    assert await rig.status(handle) is Status.CANCELLED
    assert cleaned == ["clean"]


async def test_a_cancel_interrupts_an_inline_call_in_flight(rig: Rig) -> None:
    """The body hears of the cancel, not of a call that failed because of it."""
    gate = Gate()
    seen: list[str] = []

    @rig.app.task
    async def slow() -> None:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            seen.append("interrupted")
            raise

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        try:
            await slow()
        except BaseException as error:
            seen.append(type(error).__name__)
            raise

    handle = await work.start()
    worker = await rig.worker()
    working = rig.working(worker)
    await gate.reached.wait()
    await handle.cancel()
    await worker._watcher.run_once()
    await working
    assert await rig.status(handle) is Status.CANCELLED
    assert seen == ["interrupted", "Cancelled"]
    assert (await rig.lines(handle))[-4:] == [
        "InvokeStarted root.0 attempt=1",
        "CancelRequested cancelled",
        "InvokeCompleted root.0 Err(cancelled:Cancelled) attempt=1",
        "ExecutionCancelled cancelled",
    ]


async def test_a_call_that_ends_well_in_spite_of_the_interruption_is_recorded(rig: Rig) -> None:
    gate = Gate()
    seen: list[object] = []

    @rig.app.task
    async def stubborn() -> str:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            return "done anyway"
        return "done"

    @rig.app.task
    async def tidy() -> str:
        return "tidied"

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        seen.append(await stubborn())
        try:
            await ctx.sleep(5)
        finally:
            seen.append(await tidy())

    handle = await work.start()
    worker = await rig.worker()
    working = rig.working(worker)
    await gate.reached.wait()
    await handle.cancel()
    await worker._watcher.run_once()
    await working
    await rig.run()
    assert await rig.status(handle) is Status.CANCELLED
    assert seen == ["done anyway", "tidied"]


async def test_a_cancel_interrupts_every_inline_call_in_flight(rig: Rig) -> None:
    gates = [Gate(), Gate()]
    ended: list[int] = []

    @rig.app.task
    async def slow(number: int) -> None:
        try:
            await gates[number].wait()
        finally:
            ended.append(number)

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        await ctx.all(ctx.invoke(slow, 0), ctx.invoke(slow, 1))

    handle = await work.start()
    worker = await rig.worker()
    working = rig.working(worker)
    for gate in gates:
        await gate.reached.wait()
    await handle.cancel()
    await worker._watcher.run_once()
    await working
    assert await rig.status(handle) is Status.CANCELLED
    assert sorted(ended) == [0, 1]


@COLD
async def test_a_cancel_cascades_to_children_which_clean_up_themselves(rig: Rig, cold: bool) -> None:
    cleaned: list[str] = []

    @rig.app.task
    async def note(who: str) -> None:
        cleaned.append(who)

    @rig.app.workflow
    async def child(ctx: Context, name: str) -> None:
        try:
            await ctx.signal("never", int)
        finally:
            await note(name)

    @rig.app.workflow
    async def parent(ctx: Context) -> None:
        try:
            await ctx.all(ctx.invoke(child, "a"), ctx.invoke(child, "b"))
        finally:
            await note("parent")

    handle = await parent.start()
    await rig.make_worker(warm_most=0 if cold else None)
    await rig.run()
    await handle.cancel()
    await rig.run()
    assert await rig.status(handle) is Status.CANCELLED
    children = await rig.stores.store.children(handle.id.to_bytes())
    assert [view.status for view in children] == [Status.CANCELLED, Status.CANCELLED]
    assert sorted(cleaned) == ["a", "b", "parent"]


@COLD
async def test_a_cancel_that_cascades_is_no_failure_of_its_children(rig: Rig, cold: bool) -> None:
    """They have ended when the run hears of its cancel. As failed it would be retried with what failed by itself."""

    @rig.app.task(queue="elsewhere")
    async def slow(number: int) -> int:
        return number

    @rig.app.workflow
    async def fan(ctx: Context) -> None:
        await ctx.all(slow(1), slow(2))

    await rig.app.configure_queue("elsewhere", paused=True)
    handle = await fan.start()
    await rig.make_worker(warm_most=0 if cold else None)
    await rig.run()
    await handle.cancel(cascade=True, reason="runaway")
    await rig.run()
    children = await rig.stores.store.children(handle.id.to_bytes())
    assert [view.status for view in children] == [Status.CANCELLED, Status.CANCELLED]
    assert await rig.status(handle) is Status.CANCELLED


async def test_a_cancelled_child_is_a_failure_of_its_call(rig: Rig) -> None:
    @rig.app.workflow
    async def child(ctx: Context) -> None:
        await ctx.signal("never", int)

    @rig.app.workflow
    async def parent(ctx: Context) -> str:
        try:
            await child()
        except TaskCancelled as error:
            return str(error)
        return "no error"

    handle = await parent.start()
    await rig.run()
    await rig.app.handle(handle.id.child(0)).cancel()
    assert "was cancelled" in await rig.result(handle)


async def test_a_cancel_that_the_body_swallows_does_not_stop_it(rig: Rig) -> None:
    @rig.app.workflow
    async def work(ctx: Context) -> str:
        try:
            await ctx.sleep(1000)
        except Cancelled:
            await ctx.sleep(1)
        return "went on"

    handle = await work.start()
    await rig.run()
    await handle.cancel()
    await rig.run()
    await rig.advance(1)
    assert await rig.result(handle) == "went on"
    assert (await rig.lines(handle))[-1] == 'ExecutionCompleted Ok("went on")'


async def test_except_exception_does_not_swallow_a_cancel(rig: Rig) -> None:
    @rig.app.workflow
    async def work(ctx: Context) -> str:
        try:
            await ctx.sleep(1000)
        except Exception:
            return "swallowed"
        return "woke"

    handle = await work.start()
    await rig.run()
    await handle.cancel()
    await rig.run()
    assert await rig.status(handle) is Status.CANCELLED


@COLD
async def test_a_second_cancel_changes_nothing(rig: Rig, cold: bool) -> None:
    raised: list[str] = []

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        try:
            await ctx.sleep(1000)
        except Cancelled:
            raised.append("first")
            try:
                await ctx.sleep(10)
            except Cancelled:
                raised.append("second")
            raise

    handle = await work.start()
    await rig.make_worker(warm_most=0 if cold else None)
    await rig.run()
    await handle.cancel()
    await rig.run()
    await handle.cancel()
    await rig.run()
    await rig.advance(10)
    await rig.run()
    assert await rig.status(handle) is Status.CANCELLED
    assert set(raised) == {"first"}
    assert [line for line in await rig.lines(handle) if "Cancel" in line] == [
        "CancelRequested cancelled",
        "ExecutionCancelled cancelled",
    ]


async def test_a_cancel_before_the_start_begins_no_call(rig: Rig) -> None:
    ran: list[str] = []

    @rig.app.task
    async def inline() -> None:
        ran.append("inline")

    @rig.app.task(queue="remote")
    async def remote() -> None:
        ran.append("remote")

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        await ctx.all(ctx.invoke(inline), ctx.invoke(remote))

    handle = await work.start()
    await handle.cancel()
    await rig.run()
    assert await rig.status(handle) is Status.CANCELLED
    assert ran == []
    assert await rig.stores.store.children(handle.id.to_bytes()) == []


@COLD
async def test_a_call_that_waits_for_its_retry_is_cancelled_with_its_caller(rig: Rig, cold: bool) -> None:
    attempts: list[int] = []

    @rig.app.task(retry=RetryPolicy(initial_delay=100, jitter=0))
    async def flaky() -> None:
        attempts.append(1)
        raise ConnectionError("away")

    @rig.app.task(queue="remote")
    async def clean() -> None:
        return None

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        try:
            await flaky()
        finally:
            await clean()

    handle = await work.start()
    await rig.make_worker(warm_most=0 if cold else None)
    await rig.run()
    await handle.cancel()
    await rig.run()
    await rig.advance(200)
    await rig.run()
    assert await rig.status(handle) is Status.CANCELLED
    assert attempts == [1]


async def test_a_cancel_lost_with_its_worker_is_raised_again_and_children_end(rig: Rig) -> None:
    """The cancel is in the journal, the clean-up in flight, and the worker dies."""
    gate = Gate()
    cleaned: list[int] = []

    @rig.app.workflow
    async def child(ctx: Context) -> None:
        await ctx.signal("never", int)

    @rig.app.task
    async def clean() -> None:
        cleaned.append(1)
        await gate.wait()

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        try:
            await child()
        finally:
            ctx.now()
            await clean()

    handle = await work.start()
    worker = await rig.worker()
    await worker.run_until_idle()
    await handle.cancel()
    working = rig.working(worker)
    await gate.reached.wait()
    await rig.make_worker()
    gate.opened.set()
    await rig.kill(worker, working)
    await rig.run()
    assert await rig.status(handle) is Status.CANCELLED
    assert await rig.status(rig.app.handle(handle.id.child(0))) is Status.CANCELLED
    assert len(cleaned) == 2


async def test_an_execution_past_its_deadline_is_cancelled_with_the_reason(rig: Rig) -> None:
    reasons: list[str] = []

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        try:
            await ctx.sleep(1000)
        except Cancelled as error:
            reasons.append(str(error))
            raise

    handle = await work.options(deadline=60).start()
    await rig.run()
    await rig.advance(61)
    await rig.run()
    assert await rig.status(handle) is Status.CANCELLED
    assert reasons == ["deadline exceeded"]


@COLD
async def test_clean_up_waits_for_a_signal(rig: Rig, cold: bool) -> None:
    """B2: what it waits for is kept on the row. So the signal has its number from when it comes."""
    seen: list[int] = []

    @rig.app.task
    async def tidy(number: int) -> int:
        return number

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        try:
            await ctx.sleep(1000)
        finally:
            seen.append(await tidy(await ctx.signal("confirm", int)))
            await ctx.sleep(1)

    handle = await work.start()
    await rig.make_worker(warm_most=0 if cold else None)
    await rig.run()
    await handle.cancel()
    await rig.run()
    assert (await rig.status(handle), (await handle.describe()).awaits) == (Status.AWAITING_PROMISE, ("confirm",))
    await handle.signal("other", 3)
    await rig.run()
    assert await rig.status(handle) is Status.AWAITING_PROMISE
    await handle.signal("confirm", 4)
    await rig.run()
    await rig.advance(1)
    await rig.run()
    assert await rig.status(handle) is Status.CANCELLED
    assert set(seen) == {4}
    assert [line for line in await rig.lines(handle) if "other" not in line][3:] == [
        "CancelRequested cancelled",
        "SignalDelivered confirm delivery_id=1",
        "SignalReceived root.1 confirm delivery_id=1",
        "InvokeScheduled root.2 tidy",
        "InvokeStarted root.2 attempt=1",
        "InvokeCompleted root.2 Ok(4) attempt=1",
        "TimerScheduled root.3",
        "TimerFired root.3",
        "ExecutionCancelled cancelled",
    ]


@COLD
async def test_clean_up_waits_for_a_signal_until_its_deadline(rig: Rig, cold: bool) -> None:
    seen: list[object] = []

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        try:
            await ctx.sleep(1000)
        finally:
            results: list[object] = []
            for _ in range(3):
                try:
                    results.append(await ctx.signal("confirm", int, timeout=10))
                except TimeoutError as error:
                    results.append(str(error))
            results.append(ctx.random() < 1)  # its number is the next
            seen.append(results)
            await ctx.sleep(1)

    handle = await work.start()
    await rig.make_worker(warm_most=0 if cold else None)
    await rig.run()
    await handle.cancel()
    await rig.run()
    await rig.advance(10)
    await rig.run()
    await handle.signal("confirm", 4)
    await rig.advance(11)  # in time, though whoever is to receive it comes late
    await rig.run()
    await handle.signal("confirm", 5)
    await rig.run()
    await rig.advance(1)
    await rig.run()
    assert await rig.status(handle) is Status.CANCELLED
    assert seen
    assert all(results == ["no signal 'confirm' came within 10 s", 4, 5, True] for results in seen)


@COLD
async def test_in_clean_up_a_signal_that_lost_leaves_its_number_to_what_follows(rig: Rig, cold: bool) -> None:
    seen: list[object] = []

    @rig.app.task(queue="remote")
    async def remote() -> str:
        return "remote"

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        try:
            await ctx.sleep(1000)
        finally:
            first, second = ctx.signal("first", int), ctx.signal("second", int)
            results: list[object] = [(await ctx.any(first, remote(), second)).result()]
            results.append(await remote())
            results.append((await ctx.any(first, second)).result())
            results += await ctx.all(ctx.signal("third", int), first, ctx.sleep(1))
            seen.append(results)
            await ctx.sleep(1)

    handle = await work.start()
    await rig.make_worker(warm_most=0 if cold else None)
    await rig.run()
    await handle.cancel()
    await rig.run()
    for name, payload in [("second", 2), ("first", 1), ("third", 3)]:
        await handle.signal(name, payload)
        await rig.run()
        assert not seen
    for _ in range(2):
        await rig.advance(1)
        await rig.run()
    assert await rig.status(handle) is Status.CANCELLED
    assert seen
    assert all(results == ["remote", "remote", 2, 3, 1, None] for results in seen)


@COLD
async def test_a_signal_that_the_cancel_found_waited_for_is_waited_for_again(rig: Rig, cold: bool) -> None:
    seen: list[object] = []

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        signal = ctx.signal("go", int)
        try:
            await signal
        finally:
            seen.append([await signal, (await ctx.any(ctx.signal("more", int), ctx.signal("go", int))).result()])
            await ctx.sleep(1)

    handle = await work.start()
    await rig.make_worker(warm_most=0 if cold else None)
    await rig.run()
    await handle.cancel()
    await rig.run()
    for name in ("go", "more"):
        assert not seen
        await handle.signal(name, 7)
        await rig.run()
    await rig.advance(1)
    await rig.run()
    assert await rig.status(handle) is Status.CANCELLED
    assert seen
    assert all(results == [7, 7] for results in seen)


async def test_clean_up_that_asks_for_another_signal_diverges(rig: Rig) -> None:
    """Nothing of its wait is in the journal; what came is."""

    def declare(app: App, name: str) -> Workflow[[], None]:
        @app.workflow(name="work")
        async def work(ctx: Context) -> None:
            try:
                await ctx.sleep(1000)
            finally:
                await ctx.signal(name)
                await ctx.sleep(1)

        return work

    handle = await declare(rig.app, "confirm").start()
    other = rig.another_app()
    declare(other, "agree")
    before = await rig.worker()
    await rig.run()
    await handle.cancel()
    await handle.signal("confirm")
    await rig.run()
    await rig.stop(before)
    await rig.make_worker(other)
    await rig.advance(1)
    await rig.run()
    assert await rig.status(handle) is Status.STRANDED
    error = await handle.error()
    assert error is not None
    assert "confirm" in error.message
    assert "agree" in error.message


async def test_clean_up_may_receive_a_signal_that_is_there(rig: Rig) -> None:
    seen: list[int] = []

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        try:
            await ctx.sleep(1000)
        finally:
            seen.append(await ctx.signal("confirm", int))

    handle = await work.start()
    await rig.run()
    await handle.signal("confirm", 4)
    await handle.cancel()
    await rig.run()
    assert await rig.status(handle) is Status.CANCELLED
    assert seen == [4]


async def test_a_cancel_that_nobody_asked_for_is_a_failure_like_any_other(rig: Rig) -> None:
    """S-5: an execution is cancelled only if that was requested."""

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        raise Cancelled("enough")

    handle = await work.start()
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    error = await handle.error()
    assert error is not None
    assert (error.type.rpartition(".")[2], error.message) == ("Cancelled", "enough")
