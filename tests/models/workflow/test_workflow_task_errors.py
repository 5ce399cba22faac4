"""Whatever a task raises is its own failure; what its worker does to it is not."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Context, Handle, RetryPolicy, Status
from holdfast.core.errors import ExecutionFailedError, TaskCancelled, TaskFailed
from tests.models.workflow.kit import Gate, Rig

ONCE = RetryPolicy(max_attempts=1)
LIMIT_SECONDS = 20


class Odd(BaseException):
    """Not an Exception: user code that raises one must not take its run with it."""


def stop() -> int:
    return next(iter(list[int]()))


def cancelled() -> int:
    raise asyncio.CancelledError


def odd() -> int:
    raise Odd("what is this")


RAISED: dict[str, tuple[Callable[[], int], str, type[BaseException]]] = {
    "stop": (stop, "StopIteration", TaskFailed),
    "cancelled": (cancelled, "Cancelled", TaskCancelled),
    "odd": (odd, "what is this", TaskFailed),
}


def declare(rig: Rig, work: Callable[[], int], is_async: bool, **options: Any) -> Any:
    if is_async:

        @rig.app.task(name="work", retry=ONCE, **options)
        async def work_async() -> int:
            return work()

        return work_async

    @rig.app.task(name="work", retry=ONCE, **options)
    def work_plainly() -> int:
        return work()

    return work_plainly


async def finish(rig: Rig, handle: Handle[Any]) -> Any:
    async with asyncio.timeout(LIMIT_SECONDS):
        return await rig.result(handle)


@pytest.mark.parametrize("raised", list(RAISED))
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
@pytest.mark.parametrize("queue", [None, "elsewhere"])
async def test_the_body_hears_of_whatever_a_task_raises(
    rig: Rig, raised: str, is_async: bool, queue: str | None
) -> None:
    work, said, seen_as = RAISED[raised]
    task = declare(rig, work, is_async, queue=queue)

    @rig.app.workflow
    async def careful(ctx: Context) -> str:
        try:
            await task()
        except seen_as as error:
            return str(error)
        return "nothing was raised"

    assert said in await finish(rig, await careful.start())


@pytest.mark.parametrize("raised", list(RAISED))
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_task_alone_fails_with_whatever_it_raises(rig: Rig, raised: str, is_async: bool) -> None:
    work, said, _ = RAISED[raised]
    task = declare(rig, work, is_async)
    with pytest.raises(ExecutionFailedError, match=said):
        await finish(rig, await task.start())


@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "inline"])
async def test_an_error_that_a_task_makes_of_a_drain_is_not_recorded(rig: Rig, is_alone: bool) -> None:
    """What is cancelled because its worker leaves is given back, unrecorded: it did not fail."""
    gate, began = Gate(), list[int]()

    @rig.app.task(retry=ONCE)
    async def wrap() -> str:
        began.append(1)
        try:
            await gate.wait()
        except BaseException as error:
            raise RuntimeError("something went wrong") from error
        return "done"

    @rig.app.workflow
    async def calls(ctx: Context) -> str:
        return await wrap()

    handle: Handle[str] = await (wrap.start() if is_alone else calls.start())
    leaving = await rig.make_worker()
    working = rig.working(leaving)
    await gate.reached.wait()
    await rig.stop(leaving, drain_seconds=0)
    await asyncio.gather(working, return_exceptions=True)
    assert await rig.status(handle) is Status.RUNNABLE
    gate.opened.set()
    await rig.make_worker()
    assert (await finish(rig, handle), len(began)) == ("done", 2)


async def test_a_cancelled_member_that_raises_instead_is_not_tried_again(rig: Rig) -> None:
    gate, began = Gate(), list[int]()

    @rig.app.task
    async def stubborn() -> None:
        began.append(1)
        try:
            await gate.wait()
        except asyncio.CancelledError:
            raise RuntimeError("not now") from None

    @rig.app.task
    async def quick() -> int:
        await gate.reached.wait()
        return 1

    @rig.app.workflow
    async def race(ctx: Context) -> int:
        async with ctx.join_set(cancel_rest=True) as calls:
            calls.submit(stubborn)
            calls.submit(quick)
            winner = await calls.next()
        await ctx.sleep(600)
        return int(winner.result())

    handle = await race.start()
    await rig.run()
    await rig.advance(601)
    assert await finish(rig, handle) == 1
    assert len(began) == 1
    assert not [line for line in await rig.lines(handle) if line.startswith("InvokeRetrying")]


async def test_a_cancel_and_a_drain_together_leave_the_call_to_the_next_worker(rig: Rig) -> None:
    """A task that outlives its cancel and is cut off by the drain has not ended: nothing is recorded."""
    gate, heard = Gate(), asyncio.Event()

    @rig.app.task
    async def deaf() -> None:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            heard.set()
            await asyncio.Event().wait()

    @rig.app.workflow
    async def calls(ctx: Context) -> None:
        await deaf()

    handle = await calls.start()
    worker = await rig.make_worker()
    working = rig.working(worker)
    await gate.reached.wait()
    await handle.cancel()
    await worker._watcher.run_once()
    async with asyncio.timeout(LIMIT_SECONDS):
        await heard.wait()
    await rig.stop(worker, drain_seconds=0)
    await asyncio.gather(working, return_exceptions=True)
    assert await rig.status(handle) is Status.RUNNABLE
    await rig.make_worker()
    await rig.run()
    assert await rig.status(handle) is Status.CANCELLED


@pytest.mark.parametrize("queue", [None, "elsewhere"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_an_exit_ends_the_task_and_not_the_worker(rig: Rig, queue: str | None, is_async: bool) -> None:
    task = declare(rig, lambda: sys.exit("bad arguments"), is_async, queue=queue)

    @rig.app.workflow
    async def careful(ctx: Context) -> str:
        try:
            await task()
        except TaskFailed as error:
            return str(error)
        return "nothing was raised"

    assert "SystemExit: bad arguments" in await finish(rig, await careful.start())


@pytest.mark.parametrize("kind", [KeyboardInterrupt, GeneratorExit])
async def test_nothing_that_is_raised_in_a_thread_ends_more_than_the_task(rig: Rig, kind: type[BaseException]) -> None:
    def work() -> int:
        raise kind("in a thread")

    handle = await declare(rig, work, False).start()
    await rig.run()
    with pytest.raises(ExecutionFailedError, match=f"{kind.__name__}: in a thread"):
        await handle.result()


async def test_an_error_that_cannot_be_made_anew_arrives_as_a_failed_task(rig: Rig) -> None:
    """It would be of no use as the error of the attempt to make it."""

    def several() -> int:
        raise ExceptionGroup("both", [ValueError("left"), KeyError("right")])

    task = declare(rig, several, True, raises=(ExceptionGroup,))

    @rig.app.workflow
    async def careful(ctx: Context) -> list[str]:
        try:
            await task()
        except TaskFailed as error:
            return [str(error), *error.record.causes]
        return []

    told, *causes = await finish(rig, await careful.start())
    assert "work failed: ExceptionGroup: both (2 sub-exceptions) (it cannot be raised again: " in told
    assert [cause.partition(" at ")[0] for cause in causes] == ["ValueError: left", "KeyError: 'right'"]


async def test_an_exit_in_a_body_fails_the_run_and_not_the_worker(rig: Rig) -> None:
    @rig.app.workflow
    async def leave(ctx: Context) -> None:
        sys.exit("bad arguments")

    handle = await leave.start()
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    assert str(await handle.error()) == "SystemExit: bad arguments"


async def test_a_failed_call_that_a_child_lets_out_has_a_record(rig: Rig) -> None:
    """`raises` names a type of ours: it comes as what it is."""

    @rig.app.task(retry=ONCE)
    async def charge() -> None:
        raise ValueError("declined")

    @rig.app.workflow(raises=(TaskFailed,))
    async def pay(ctx: Context) -> None:
        await charge()

    @rig.app.workflow
    async def order(ctx: Context) -> list[str]:
        try:
            await pay()
        except TaskFailed as failed:
            return [str(failed), failed.record.type, failed.record.message]
        return []

    shown, kind, message = await rig.result(await order.start())
    assert shown.endswith("charge failed: ValueError: declined")
    assert (kind, message) == ("holdfast.core.errors.TaskFailed", shown)
