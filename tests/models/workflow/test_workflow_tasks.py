"""Calls of tasks: retries, timeouts, heartbeats, at most once, threads, processes, and tasks alone as durable jobs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Context,
    Handle,
    PromiseId,
    RetryPolicy,
    Status,
    TaskCancelled,
    TaskFailed,
    TaskTimedOut,
    Uncertain,
    current,
)
from holdfast.core.errors import CallNotAllowedError, ExecutionCancelledError, ExecutionFailedError
from holdfast.models.options import Options
from holdfast.models.workflow import runner as workflow_runner
from holdfast.models.workflow import task_runner
from tests.models.workflow import process_tasks
from tests.models.workflow.kit import Gate, Rig

COLD = pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
PLACES = pytest.mark.parametrize("queue", [None, "remote"], ids=["inline", "remote"])


class DeclinedError(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


@dataclass
class Money:
    cents: int
    tags: tuple[str, ...] = ()


@COLD
@PLACES
async def test_a_failed_attempt_is_tried_again_after_its_delay(rig: Rig, cold: bool, queue: str | None) -> None:
    attempts: list[int] = []

    @rig.app.task(queue=queue, retry=RetryPolicy(initial_delay=10, multiplier=2, jitter=0))
    async def flaky() -> str:
        attempts.append(current().attempt)
        if len(attempts) < 3:
            raise ConnectionError("away")
        return "done"

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        return await flaky()

    handle = await work.start()
    await rig.make_worker(warm_most=0 if cold else None)
    for delay in (10, 20):
        await rig.run()
        before = len(attempts)
        await rig.advance(delay - 1)
        await rig.run()
        assert len(attempts) == before
        await rig.advance(1)
    assert await rig.result(handle) == "done"
    assert attempts == [1, 2, 3]
    calls = [line for line in await rig.lines(handle) if line.startswith("Invoke")]
    assert calls == [
        "InvokeScheduled root.0 flaky",
        "InvokeStarted root.0 attempt=1",
        "InvokeRetrying root.0 attempt=1",
        "InvokeStarted root.0 attempt=2",
        "InvokeRetrying root.0 attempt=2",
        "InvokeStarted root.0 attempt=3",
        'InvokeCompleted root.0 Ok("done") attempt=3',
    ]


@PLACES
async def test_exhausted_retries_are_a_completion_with_an_error(rig: Rig, queue: str | None) -> None:
    """B4: and the body may catch it."""

    @rig.app.task(queue=queue, retry=RetryPolicy(max_attempts=2, initial_delay=1, jitter=0))
    async def broken() -> None:
        raise ValueError("no good")

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        try:
            await broken()
        except TaskFailed as error:
            return str(error)
        return "no error"

    handle = await work.start()
    await rig.run()
    await rig.advance(1)
    assert "ValueError: no good" in await rig.result(handle)
    assert "InvokeCompleted root.0 Err(user:ValueError) attempt=2" in await rig.lines(handle)


@PLACES
async def test_no_attempt_begins_after_max_elapsed(rig: Rig, queue: str | None) -> None:
    attempts: list[int] = []

    @rig.app.task(queue=queue, retry=RetryPolicy(initial_delay=10, multiplier=1, jitter=0, max_elapsed=25))
    async def broken() -> None:
        attempts.append(current().attempt)
        raise ValueError("no good")

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        try:
            await broken()
        except TaskFailed:
            return "gave up"
        return "no error"

    handle = await work.start()
    for _ in range(4):
        await rig.run()
        await rig.advance(10)
    assert await rig.result(handle) == "gave up"
    assert attempts == [1, 2, 3]


@PLACES
async def test_an_error_named_in_raises_arrives_as_itself(rig: Rig, queue: str | None) -> None:
    """B11: type, message and fields; any other arrives as TaskFailed with the type's name."""

    @rig.app.task(queue=queue, raises=(DeclinedError,), retry=RetryPolicy(no_retry_on=(DeclinedError, KeyError)))
    async def charge(how: str) -> None:
        if how == "declined":
            raise DeclinedError(51, "no funds")
        raise KeyError(how)

    @rig.app.workflow
    async def work(ctx: Context) -> list[Any]:
        seen: list[Any] = []
        try:
            await charge("declined")
        except DeclinedError as error:
            seen += [error.code, error.reason, error.args == (51, "no funds")]
        try:
            await charge("other")
        except TaskFailed as error:
            seen += [error.record.type, error.record.args, "charge" in error.record.traceback[-1]]
        return seen

    handle = await work.start()
    await rig.make_worker(warm_most=0)
    assert await rig.result(handle) == [51, "no funds", True, "KeyError", ["other"], True]


@PLACES
async def test_values_go_through_the_codec_the_first_time_too(rig: Rig, queue: str | None) -> None:
    """B11: what the body gets is what a replay would give it, not the object that the task returned."""
    kept: list[Money] = []

    @rig.app.task(queue=queue)
    async def price() -> Money:
        kept.append(Money(5, ("a",)))
        return kept[0]

    @rig.app.task(queue=queue)
    async def untyped():  # type: ignore[no-untyped-def]
        return (1, 2)

    @rig.app.workflow
    async def work(ctx: Context, given: Money) -> list[bool]:
        first = await price()
        pair = await untyped()
        return [first == kept[0], first is not kept[0], pair == [1, 2], isinstance(given, Money)]

    assert await rig.result(await work.start(Money(1))) == [True] * 4


async def test_arguments_changed_by_the_task_do_not_reach_its_caller(rig: Rig) -> None:
    @rig.app.task
    async def spoil(items: list[int]) -> int:
        items.clear()
        return len(items)

    @rig.app.workflow
    async def work(ctx: Context) -> list[int]:
        items = [1, 2]
        await spoil(items)
        return items

    assert await rig.result(await work.start()) == [1, 2]


@PLACES
async def test_an_attempt_that_takes_too_long_times_out(rig: Rig, queue: str | None) -> None:
    ended: list[str] = []

    @rig.app.task(queue=queue, timeout=0.01, retry=RetryPolicy(max_attempts=2, initial_delay=1, jitter=0))
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        try:
            await slow()
        except TaskTimedOut as error:
            return str(error)
        return "no error"

    handle = await work.start()
    await rig.run()
    await rig.advance(1)
    assert "took longer than 0.01 s" in await rig.result(handle)
    assert ended == ["ended", "ended"]


@PLACES
async def test_a_timeout_error_of_the_task_itself_is_an_error_like_any_other(rig: Rig, queue: str | None) -> None:
    @rig.app.task(queue=queue, timeout=60, raises=(TimeoutError,), retry=RetryPolicy(max_attempts=1))
    async def call_out() -> None:
        raise TimeoutError("the other side was slow")

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        try:
            await call_out()
        except TimeoutError as error:
            return str(error)
        return "no error"

    assert await rig.result(await work.start()) == "the other side was slow"


@PLACES
async def test_a_task_without_heartbeats_times_out(rig: Rig, queue: str | None) -> None:
    @rig.app.task(queue=queue, heartbeat_timeout=0.01, retry=RetryPolicy(max_attempts=1))
    async def silent() -> None:
        current().heartbeat()
        await asyncio.Event().wait()

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        try:
            await silent()
        except TaskTimedOut as error:
            return str(error)
        return "no error"

    assert "gave no heartbeat for 0.01 s" in await rig.result(await work.start())


@COLD
@PLACES
async def test_the_next_attempt_gets_the_last_progress(rig: Rig, cold: bool, queue: str | None) -> None:
    seen: list[Any] = []

    @rig.app.task(queue=queue, retry=RetryPolicy(initial_delay=1, jitter=0))
    async def export() -> str:
        call = current()
        seen.append(call.progress)
        if call.attempt == 1:
            call.heartbeat({"row": 10})
            call.heartbeat({"row": 20})
            await asyncio.sleep(0)
            raise ConnectionError("away")
        return "done"

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        return await export()

    handle = await work.start()
    await rig.make_worker(warm_most=0 if cold else None)
    await rig.run()
    await rig.advance(1)
    assert await rig.result(handle) == "done"
    assert seen == [None, {"row": 20}]


@PLACES
@pytest.mark.parametrize("threaded", [False, True], ids=["loop", "thread"])
async def test_a_heartbeat_without_progress_keeps_what_was_said(rig: Rig, queue: str | None, threaded: bool) -> None:
    seen: list[Any] = []

    def export() -> str:
        call = current()
        seen.append(call.progress_as(dict))
        if call.attempt == 1:
            call.heartbeat({"row": 20})
        if call.attempt < 3:
            call.heartbeat()
            assert call.progress == {"row": 20}
        elif call.attempt == 3:
            call.heartbeat(None)
        else:
            return "done"
        raise ConnectionError("away")

    async def export_on_loop() -> str:
        return export()

    declare = rig.app.task(name="export", queue=queue, retry=RetryPolicy(initial_delay=0, jitter=0))
    task = declare(export) if threaded else declare(export_on_loop)

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        return await task()

    assert await rig.result(await work.start()) == "done"
    assert seen == [None, {"row": 20}, {"row": 20}, None]


@PLACES
async def test_progress_survives_the_death_of_its_worker(
    rig: Rig, queue: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """About once a second the last heartbeat becomes durable; here at once."""
    monkeypatch.setattr(workflow_runner, "BEAT_COMMIT_SECONDS", 0)
    monkeypatch.setattr(task_runner, "BEAT_COMMIT_SECONDS", 0)
    gate = Gate()
    seen: list[Any] = []

    @rig.app.task(queue=queue)
    async def export() -> str:
        seen.append(current().progress_as(Money))
        current().heartbeat(Money(7))
        await gate.wait()
        return "done"

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        return await export()

    handle = await work.start()
    first = await rig.worker()
    working = rig.working(first)
    await gate.reached.wait()
    held = handle.id if queue is None else handle.id.child(0)
    async with asyncio.timeout(20):
        while (await rig.app.handle(held).describe()).revision == 0:  # noqa: ASYNC110
            await asyncio.sleep(0)
    await rig.make_worker()
    gate.opened.set()
    await rig.kill(first, working)
    assert await rig.result(handle) == "done"
    assert seen == [None, Money(7)]


@PLACES
async def test_the_idempotency_key_is_the_same_in_every_attempt(rig: Rig, queue: str | None) -> None:
    keys: list[str] = []

    @rig.app.task(queue=queue, retry=RetryPolicy(initial_delay=1, jitter=0))
    async def charge() -> str:
        keys.append(current().idempotency_key)
        if len(keys) == 1:
            raise ConnectionError("away")
        return current().execution

    @rig.app.workflow
    async def work(ctx: Context) -> list[str]:
        return [await charge(), await charge()]

    handle = await work.start()
    await rig.run()
    await rig.advance(1)
    executions = await rig.result(handle)
    assert keys == [f"{handle.id}.0", f"{handle.id}.0", f"{handle.id}.1"]
    assert executions == ([str(handle.id)] * 2 if queue is None else [f"{handle.id}.0", f"{handle.id}.1"])


async def test_current_is_for_tasks_only() -> None:
    with pytest.raises(CallNotAllowedError, match="inside a task"):
        current()


@PLACES
async def test_an_at_most_once_call_cut_off_by_a_crash_is_uncertain(rig: Rig, queue: str | None) -> None:
    gate = Gate()
    ran: list[int] = []

    @rig.app.task(queue=queue, effects="at_most_once")
    async def launch() -> None:
        ran.append(1)
        await gate.wait()

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        try:
            await launch()
        except Uncertain as error:
            return str(error)
        return "no error"

    handle = await work.start()
    first = await rig.worker()
    working = rig.working(first)
    await gate.reached.wait()
    await rig.make_worker()
    gate.opened.set()
    await rig.kill(first, working)
    assert "interrupted" in await rig.result(handle)
    assert ran == [1]


@PLACES
async def test_an_at_most_once_call_cut_off_by_draining_is_uncertain(rig: Rig, queue: str | None) -> None:
    gate = Gate()
    ran: list[int] = []

    @rig.app.task(queue=queue, effects="at_most_once")
    async def launch() -> None:
        ran.append(1)
        await gate.wait()

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        try:
            await launch()
        except Uncertain as error:
            return str(error)
        return "no error"

    handle = await work.start()
    first = await rig.worker()
    working = rig.working(first)
    await gate.reached.wait()
    await rig.stop(first, 0)
    await working
    gate.opened.set()
    assert "interrupted" in await rig.result(handle)
    assert ran == [1]


@PLACES
async def test_an_at_most_once_call_is_not_repeated_when_it_fails(rig: Rig, queue: str | None) -> None:
    ran: list[int] = []

    @rig.app.task(queue=queue, effects="at_most_once", timeout=0.01)
    async def launch(how: str) -> None:
        ran.append(1)
        if how == "slow":
            await asyncio.Event().wait()
        raise ValueError("exploded")

    @rig.app.workflow
    async def work(ctx: Context) -> list[str]:
        seen = []
        for how in ("fail", "slow"):
            try:
                await launch(how)
            except TaskFailed as error:
                seen.append(type(error).__name__)
        return seen

    assert await rig.result(await work.start()) == ["TaskFailed", "Uncertain"]
    assert ran == [1, 1]


@PLACES
async def test_an_at_most_once_call_is_begun_when_its_worker_died_before_it(rig: Rig, queue: str | None) -> None:
    """Only an attempt that was recorded as begun is uncertain."""
    gate = Gate()
    ran: list[str] = []

    @rig.app.task
    async def first_of_all() -> None:
        await gate.wait()

    @rig.app.task(queue=queue, effects="at_most_once")
    async def launch() -> str:
        ran.append("launched")
        return "launched"

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        await first_of_all()
        return await launch()

    handle = await work.start()
    first = await rig.worker()
    working = rig.working(first)
    await gate.reached.wait()
    await rig.make_worker()
    await rig.kill(first, working)
    gate.opened.set()
    assert await rig.result(handle) == "launched"
    assert ran == ["launched"]


@PLACES
async def test_a_plain_function_runs_in_a_thread_and_knows_its_call(rig: Rig, queue: str | None) -> None:
    @rig.app.task(queue=queue)
    def compute(number: int) -> list[Any]:
        current().heartbeat({"half": True})
        return [number * 2, threading.current_thread() is not threading.main_thread(), current().attempt]

    @rig.app.workflow
    async def work(ctx: Context) -> list[Any]:
        return await compute(21)

    assert await rig.result(await work.start()) == [42, True, 1]


async def test_a_task_called_outside_a_workflow_just_runs(rig: Rig) -> None:
    @rig.app.task
    async def double(number: int) -> int:
        return number * 2

    @rig.app.task
    def triple(number: int) -> int:
        return number * 3

    assert await double(2) == 4
    assert await triple(2) == 6
    assert triple.fn(2) == 6


async def test_a_task_in_another_process_runs_there_and_its_errors_come_back(rig: Rig, tmp_path: Path) -> None:
    """And a process that died is replaced: the next attempt finds a living one."""
    rig.app._functions.add_task(process_tasks.pid_and)
    rig.app._functions.add_task(process_tasks.divide)
    rig.app._functions.add_task(process_tasks.die_unless)

    @rig.app.workflow
    async def work(ctx: Context, path: str) -> list[Any]:
        where, number = await process_tasks.pid_and(5)
        try:
            await process_tasks.divide(0)
        except TaskFailed as error:
            return [where, number, str(error), await process_tasks.die_unless(path)]
        return []

    handle = await work.start(str(tmp_path / "died"))
    await rig.run()
    await rig.advance(1)
    where, number, error, survived = await rig.result(handle)
    assert where != os.getpid()
    assert (number, survived) == (5, "survived")
    assert "ZeroDivisionError" in error


@pytest.mark.parametrize("is_alone", [False, True], ids=["called", "alone"])
async def test_a_task_in_another_process_knows_its_call_and_raises_what_it_says(rig: Rig, is_alone: bool) -> None:
    rig.app._functions.add_task(process_tasks.decline_at_last)
    rig.app._functions.add_task(process_tasks.beat)

    @rig.app.workflow
    async def work(ctx: Context) -> list[Any]:
        try:
            await process_tasks.decline_at_last()
        except process_tasks.DeclinedError as error:
            return [error.code, str(error), await process_tasks.beat(1000)]
        return []

    if is_alone:
        row = process_tasks.decline_at_last.row(PromiseId.of("decline", "1"), "{}", Options(), None)
        (inserted,) = await rig.stores.store.insert([row])
        handle: Handle[Any] = rig.app.handle(PromiseId.from_bytes(inserted.promise))
    else:
        handle = await work.start()
    await rig.run()
    await rig.advance(1)
    await rig.run()
    if is_alone:
        error = await handle.error()
        assert error is not None
        assert (error.type.rpartition(".")[2], error.message) == ("DeclinedError", f"2: {handle.id}")
    else:
        assert await handle.result() == [2, f"2: {handle.id}", 1000]


# ------------------------------------------------------------------ alone


async def test_a_task_alone_is_a_durable_job(rig: Rig) -> None:
    attempts: list[int] = []

    @rig.app.task(retry=RetryPolicy(initial_delay=timedelta(seconds=5), jitter=0))
    async def charge(cents: int) -> Money:
        attempts.append(current().attempt)
        if len(attempts) == 1:
            raise ConnectionError("away")
        return Money(cents)

    handle = await charge.options(key="c-1").start(7)
    again = await charge.options(key="c-1").start(7)
    assert again.id == handle.id
    await rig.run()
    assert await rig.status(handle) is Status.RUNNABLE
    await rig.advance(5)
    assert await rig.result(handle) == Money(7)
    assert attempts == [1, 2]


async def test_a_task_alone_that_fails_for_good_says_why(rig: Rig) -> None:
    @rig.app.task(retry=RetryPolicy(max_attempts=1))
    async def broken() -> None:
        raise ValueError("no good")

    handle = await broken.start()
    with pytest.raises(ExecutionFailedError, match="no good"):
        await rig.result(handle)


async def test_a_cancel_interrupts_a_task_alone(rig: Rig) -> None:
    gate = Gate()

    @rig.app.task
    async def slow() -> None:
        await gate.wait()

    handle = await slow.start()
    worker = await rig.worker()
    working = rig.working(worker)
    await gate.reached.wait()
    await handle.cancel()
    await worker._watcher.run_once()
    await working
    with pytest.raises(ExecutionCancelledError):
        await handle.result()


async def test_a_cancel_of_the_caller_interrupts_a_remote_call(rig: Rig) -> None:
    gate = Gate()
    ended: list[str] = []

    @rig.app.task(queue="remote")
    async def slow() -> None:
        try:
            await gate.wait()
        finally:
            ended.append("interrupted")

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        try:
            await slow()
        except TaskCancelled:
            ended.append("as a failure")

    handle = await work.start()
    caller, remote = await rig.make_worker(queues=["default"]), await rig.make_worker(queues=["remote"])
    await caller.run_until_idle()
    working = rig.working(remote)
    await gate.reached.wait()
    await handle.cancel()
    await caller.run_until_idle()
    await remote._watcher.run_once()
    await working
    assert await rig.status(handle) is Status.CANCELLED
    assert ended == ["interrupted"]


async def test_a_task_of_a_dead_worker_runs_again_and_counts(rig: Rig) -> None:
    gate = Gate()
    attempts: list[int] = []

    @rig.app.task
    async def slow() -> str:
        attempts.append(current().attempt)
        await gate.wait()
        return "done"

    handle = await slow.start()
    first = await rig.worker()
    working = rig.working(first)
    await gate.reached.wait()
    await rig.make_worker()
    gate.opened.set()
    await rig.kill(first, working)
    assert await rig.result(handle) == "done"
    assert attempts == [1, 2]


@PLACES
async def test_a_pause_does_not_cut_off_a_call_that_beats(
    rig: Rig, queue: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current step may end: its heartbeats become durable meanwhile, and its result is taken once."""
    monkeypatch.setattr(workflow_runner, "BEAT_COMMIT_SECONDS", 0)
    monkeypatch.setattr(task_runner, "BEAT_COMMIT_SECONDS", 0)
    gate = Gate()
    ran: list[int] = []

    @rig.app.task(queue=queue, effects="at_most_once")
    async def export() -> str:
        ran.append(1)
        await gate.wait()
        current().heartbeat(1)
        async with asyncio.timeout(20):
            while (await rig.app.handle(held).describe()).revision < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
        return "done"

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        return await export()

    handle = await work.start()
    held = handle.id if queue is None else handle.id.child(0)
    working = rig.working(await rig.worker())
    await gate.reached.wait()
    await rig.app.handle(held).pause()
    gate.opened.set()
    await working
    assert await rig.result(handle) == "done"
    assert ran == [1]


async def test_the_last_beat_of_an_attempt_that_ends_at_once_is_kept(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[object] = []

    @rig.app.task(heartbeat_timeout=10, retry=RetryPolicy(max_attempts=2, initial_delay=0))
    async def work() -> None:
        seen.append(current().progress)
        current().heartbeat(len(seen))
        if len(seen) == 1:
            raise ConnectionError("at once")

    @rig.app.workflow
    async def run(ctx: Context) -> None:
        await work()

    await rig.result(await run.start())
    assert seen == [None, 1]
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.parametrize("is_failing", [False, True], ids=["returns", "fails"])
async def test_the_beats_of_a_call_go_with_it(rig: Rig, is_failing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row holds those of calls in flight; a run of many calls would else carry all of them along."""
    monkeypatch.setattr(workflow_runner, "BEAT_COMMIT_SECONDS", 0)
    gate = Gate()
    rows: list[str | None] = []

    @rig.app.task(retry=RetryPolicy(max_attempts=1))
    async def load() -> None:
        current().heartbeat(1)
        await gate.wait()
        if is_failing:
            raise ConnectionError("away")

    @rig.app.task
    async def look() -> None:
        rows.append((await handle.describe()).beats)

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        with contextlib.suppress(TaskFailed):
            await load()
        await look()

    handle = await work.start()
    working = rig.working(await rig.worker())
    await rig.until(handle, "InvokeStarted")
    assert (await handle.describe()).beats == '{".0":1}'
    gate.opened.set()
    await working
    assert rows == ["{}"]


async def test_a_pause_waits_for_calls_that_may_not_be_repeated(rig: Rig) -> None:
    """A sibling that ends after the pause would else give the run up, and the call in flight with it."""
    slow, quick = Gate(), Gate()

    @rig.app.task(effects="at_most_once")
    async def charge() -> str:
        await slow.wait()
        return "charged"

    @rig.app.task
    async def note() -> str:
        await quick.wait()
        return "noted"

    @rig.app.workflow
    async def pay(ctx: Context) -> list[str]:
        return await ctx.all(charge(), note())

    handle = await pay.start()
    working = rig.working(await rig.worker())
    await slow.reached.wait()
    await quick.reached.wait()
    await handle.pause()
    quick.opened.set()
    await rig.until(handle, "InvokeCompleted root.1")
    assert await rig.status(handle) is Status.EXECUTING
    slow.opened.set()
    await working
    assert await rig.result(handle) == ["charged", "noted"]  # nothing was left to begin
