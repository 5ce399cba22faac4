"""Calls as users meet them: ending, failing, spawning, cancelling, syncing, waiting, logging (API Design)."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast.models.operation.data import FrameState, OperationState
from holdfast.operation import (
    CallCallback,
    CallCrashedError,
    CallFailedError,
    CallsPendingError,
    CallStateError,
    Ledger,
    LogLevel,
    NotInitiatorError,
    Operation,
    OperationEndedError,
    OperationFailedError,
    OperationFailedInfo,
    SpawnedCall,
    SyncResult,
    Timing,
    WorkerFailedError,
    open_operation,
)

from .kit import SimProcess, Told, backup_of, events_of, log_of, run_virtual, until

Body = Callable[[SimProcess, Operation], Awaitable[None]]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def with_operation(base: Path, body: Body) -> None:
    async def main() -> None:
        process = SimProcess(base, "cli")
        operation = await process.ledger.create_operation(operation_id="op")
        await body(process, operation)
        await process.ledger.dispose(finish_cleanup=False)

    run_virtual(main)


async def forever() -> None:
    await asyncio.Event().wait()


def test_a_call_ends_once(base: Path) -> None:
    """Ruling C8: `end` or `fail` twice is an error."""

    async def body(process: SimProcess, operation: Operation) -> None:
        told = Told()
        call = await operation.start_call(told.callback(), description="Process document")
        assert process.ledger.read("op").stack[0].description == "Process document"
        await call.end(7)
        assert told.completions == [7]
        assert process.ledger.read("op").stack == ()
        for again in (call.end(8), call.fail(ValueError("x"))):
            with pytest.raises(CallStateError, match=call.call_id):
                await again
        assert told.completions == [7]
        failed = await operation.start_call(told.callback())
        await failed.fail(ValueError("broken"))
        with pytest.raises(CallStateError):
            await failed.end()
        assert told.completions == [7]
        await operation.complete()

    with_operation(base, body)
    assert "ValueError: broken" in log_of(base, "op")
    assert events_of(base, "op").count("CALL_FAILED") == 1


def test_a_failed_calls_trace_is_in_the_debug_log_alone(base: Path) -> None:
    async def body(process: SimProcess, operation: Operation) -> None:
        with pytest.raises(ZeroDivisionError):
            async with operation.start_call():
                _ = 1 // 0
        await operation.complete()

    with_operation(base, body)
    assert "Traceback" not in log_of(base, "op")
    assert "Traceback" in (base / "backup" / "op" / "operation.debug.log").read_text()


def test_call_as_context_manager_ends_or_fails(base: Path) -> None:
    async def body(process: SimProcess, operation: Operation) -> None:
        told = Told()
        async with operation.start_call(told.callback()) as call:
            assert process.ledger.read("op").frame(call.call_id) is not None
        async with operation.start_call(told.callback()) as call:
            await call.end("explicit")
        with pytest.raises(KeyError):
            async with operation.start_call(told.callback()):
                raise KeyError("k")
        assert told.completions == [None, "explicit"]
        assert process.ledger.read("op").stack == ()
        await operation.complete()

    with_operation(base, body)


def test_temp_resources_go_with_their_call_unless_kept(base: Path, tmp_path: Path) -> None:
    """StackFrame.resources."""
    gone, kept = tmp_path / "gone", tmp_path / "kept"
    gone.write_text("x")
    kept.write_text("x")

    async def body(process: SimProcess, operation: Operation) -> None:
        async with operation.start_call() as call:
            await call.add_temp_resource(str(gone))
            await call.add_temp_resource(str(kept))
            assert process.ledger.read("op").stack[0].resources == (str(gone), str(kept))
            assert (await operation.heartbeat()).temp_resource_count == 2
            await call.remove_temp_resource(str(kept))
        with pytest.raises(CallStateError):
            await call.add_temp_resource(str(kept))

    with_operation(base, body)
    assert not gone.exists()
    assert kept.exists()


def test_spawned_calls_with_and_without_the_call(base: Path) -> None:
    """SpawnedCall<T> Class: the id at once, typed results, flags."""

    async def body(process: SimProcess, operation: Operation) -> None:
        async def plain() -> int:
            return 1

        async def with_call(call: SpawnedCall[str]) -> str:
            return call.call_id

        first, second = operation.spawn_call(plain), operation.spawn_call(with_call)
        assert first.call_id.startswith("call_cli_")
        with pytest.raises(CallStateError, match="open"):
            _ = first.result
        assert await first.wait() + 1 == 2
        assert await second == second.call_id
        assert first.is_completed
        assert first.is_success
        assert not first.is_failed
        assert not first.is_cancelled

    with_operation(base, body)


@pytest.mark.parametrize("fallback", [None, -1])
def test_crashed_work_may_have_a_fallback(base: Path, fallback: int | None) -> None:
    """Ruling C6: a value is the result; none is a failure."""

    async def body(process: SimProcess, operation: Operation) -> None:
        told = Told()

        async def work() -> object:
            raise ValueError("no")

        call = operation.spawn_call(work, told.callback(fallback))
        await call.settled()
        assert told.crashed == 1
        if fallback is None:
            assert call.is_failed
            with pytest.raises(CallFailedError, match="ValueError: no") as caught:
                await call.wait()
            assert isinstance(caught.value.__cause__, ValueError)
            assert told.completions == []
        else:
            assert call.result == -1
            assert told.completions == [-1]
        assert operation.failure is None
        await operation.complete()

    with_operation(base, body)
    assert events_of(base, "op").count("CALL_FAILED" if fallback is None else "CALL_COMPLETED") == 1


def test_a_fallback_that_raises_is_a_failure(base: Path) -> None:
    """Ruling C6: an exception is a failure; callbacks never change another outcome."""

    async def body(process: SimProcess, operation: Operation) -> None:
        async def work() -> int:
            raise ValueError("no")

        def explode() -> int:
            raise RuntimeError("worse")

        call = operation.spawn_call(work, CallCallback(on_call_crashed=explode))
        with pytest.raises(CallFailedError, match="ValueError"):
            await call.wait()
        fine = operation.spawn_call(one, CallCallback(on_completion=lambda result: explode_with(result)))
        assert await fine.wait() == 1
        await asyncio.sleep(1)
        await operation.complete()

    def explode_with(result: int) -> None:
        raise RuntimeError(f"on {result}")

    async def one() -> int:
        return 1

    with_operation(base, body)
    log = log_of(base, "op")
    assert "raised RuntimeError: worse" in log
    assert "raised RuntimeError: on 1" in log


def test_cancel_is_cooperative_and_gives_partial_results(base: Path) -> None:
    """cancel(): sets isCancelled, invokes the cancellation callback (Example 4)."""

    async def body(process: SimProcess, operation: Operation) -> None:
        asked: list[str] = []

        async def work(call: SpawnedCall[int]) -> int:
            call.on_cancel(lambda: asked.append("asked"))
            for done in range(100):
                if call.is_cancelled:
                    return done
                await process.time.sleep(1)
            return 100

        call = operation.spawn_call(work)
        await asyncio.sleep(10)
        await call.cancel()
        await call.cancel()
        assert asked == ["asked"]
        assert 5 <= await call.wait() <= 12
        assert call.is_cancelled
        assert call.is_success
        assert not call.kill()  # no process is attached

    with_operation(base, body)


def test_sync_tells_successful_failed_and_unknown_apart(base: Path) -> None:
    """SyncResult: unknown calls were still running when the operation failed."""

    async def body(process: SimProcess, operation: Operation) -> None:
        async def good() -> int:
            return 1

        async def bad() -> int:
            raise ValueError("no")

        assert await operation.sync([]) == SyncResult()  # ruling C8
        calls = [operation.spawn_call(good), operation.spawn_call(bad)]
        result = await operation.sync(calls)
        assert (result.successful_calls, result.failed_calls) == ((calls[0],), (calls[1],))
        assert result.has_failed
        assert result.all_resolved
        assert not result.all_succeeded
        assert not result.operation_failed

        hanging = operation.spawn_call(forever)
        infos: list[OperationFailedInfo] = []
        waiting = asyncio.create_task(operation.sync([*calls, hanging], infos.append))
        await asyncio.sleep(1)
        await operation.abort("enough")
        result = await waiting
        assert result.unknown_calls == (hanging,)
        assert result.failed_calls == (calls[1],)
        assert result.operation_failed
        assert not result.all_resolved
        assert [info.reason for info in infos] == ["enough"]
        with pytest.raises(OperationFailedError):
            await hanging.wait()

    with_operation(base, body)


def test_wait_for_completion_races_work_against_failure(base: Path) -> None:
    """waitForCompletion with Typed Error Handling, each of its four rules."""

    async def body(process: SimProcess, operation: Operation) -> None:
        async def good() -> int:
            return 1

        async def bad() -> int:
            raise ValueError("no")

        async def fallback(error: Exception, trace: str) -> int:
            await operation.log(f"used a fallback for {error}", level=LogLevel.WARNING)
            assert "Traceback" in trace
            return -1

        assert await operation.wait_for_completion(good) == 1
        assert await operation.wait_for_completion(bad, on_error=fallback) == -1
        with pytest.raises(ValueError, match="no"):
            await operation.wait_for_completion(bad)
        infos: list[OperationFailedInfo] = []
        waiting = asyncio.create_task(operation.wait_for_completion(forever, on_operation_failed=infos.append))
        await asyncio.sleep(1)
        await operation.abort("enough")
        with pytest.raises(OperationFailedError, match="enough") as caught:
            await waiting
        assert infos == [caught.value.info]
        with pytest.raises(OperationFailedError):
            await operation.wait_for_completion(forever)

    with_operation(base, body)


def test_leaving_with_open_calls_is_an_error_unless_they_are_cancelled(base: Path) -> None:
    """Ruling C8."""

    async def body(process: SimProcess, operation: Operation) -> None:
        worker = SimProcess(base, "worker", 1)
        joined = await worker.ledger.join_operation("op")
        with pytest.raises(NotInitiatorError):
            await joined.complete()
        spawned = joined.spawn_call(forever)
        await asyncio.sleep(1)
        unborn = joined.spawn_call(forever)  # cancelled before its first step
        call = await joined.start_call()
        with pytest.raises(CallsPendingError, match=call.call_id):
            await joined.leave()
        await joined.leave(cancel_pending=True)
        for cancelled in (spawned, unborn):
            assert cancelled.is_failed
            assert cancelled.is_cancelled
        assert process.ledger.read("op").stack == ()
        with pytest.raises(OperationEndedError):
            await joined.leave()
        await operation.complete()

    with_operation(base, body)
    assert events_of(base, "op").count("CALL_FAILED") == 2


def test_operation_as_context_manager_completes_or_aborts(base: Path) -> None:
    """A task can own an operation: `async with ledger.create_operation(...)`."""

    async def main() -> None:
        process = SimProcess(base, "cli")
        async with process.ledger.create_operation(operation_id="good"):
            pass
        told = Told()

        async def bad() -> None:
            async with process.ledger.create_operation(operation_id="bad") as operation:
                await operation.start_call(told.callback())
                raise KeyError("k")

        with pytest.raises(KeyError):
            await bad()
        assert told.cleanup == 1  # own cleanup has run when the block is left
        await process.ledger.dispose()  # a coordinator finishes first
        assert backup_of(base, "bad").aborted
        assert backup_of(base, "bad").failure_reason == "KeyError: 'k'"

    run_virtual(main)


async def test_a_block_of_code_owns_an_operation(base: Path) -> None:
    """What a task uses: created, joined, completed and aborted without a ledger to look after."""
    timing = Timing.fast()
    async with (
        open_operation(base, participant_id="task", operation_id="good", timing=timing) as operation,
        open_operation(base, participant_id="other", join="good", timing=timing) as joined,
    ):
        assert joined.operation_id == operation.operation_id
    assert backup_of(base, "good").state is OperationState.COMPLETED

    async def bad() -> None:
        async with open_operation(base, participant_id="task", operation_id="bad", timing=timing):
            raise KeyError("k")

    with pytest.raises(KeyError):
        await bad()
    assert backup_of(base, "bad").aborted  # its cleanup was seen to the end


def test_leaving_the_block_of_a_failed_operation_says_so(base: Path) -> None:
    async def body(process: SimProcess, operation: Operation) -> None:
        worker = SimProcess(base, "worker", 1)

        async def take_part() -> None:
            async with worker.ledger.join_operation("op") as joined:
                await operation.abort("enough")
                await joined.wait_failed()

        with pytest.raises(OperationFailedError, match="enough"):
            await take_part()

    with_operation(base, body)


def test_heartbeat_reports_before_and_after(base: Path) -> None:
    """HeartbeatResult, every field."""

    async def body(process: SimProcess, operation: Operation) -> None:
        worker = SimProcess(base, "worker", 1)
        joined = await worker.ledger.join_operation("op")
        own = await operation.start_call()
        risky = await joined.start_call(fail_on_crash=False)
        worker.stop()
        await operation.stop_heartbeat()
        await asyncio.sleep(3)
        beat = await operation.heartbeat()
        assert beat.ledger_exists
        assert beat.heartbeat_updated
        assert not beat.abort_flag
        assert not beat.is_stale
        assert (beat.stack_depth, beat.heartbeat_age_ms) == (2, 3000)
        assert beat.stack_participants == ("cli", "worker")
        assert beat.participant_heartbeat_ages == {"cli": 3000, "worker": 3000}
        assert (beat.stale_participants, beat.has_stale_children) == ((), False)
        assert beat.data_before is not None
        assert beat.data_after is not None
        assert beat.data_after.last_heartbeat_us - beat.data_before.last_heartbeat_us == 3_000_000
        await asyncio.sleep(9)
        beat = await operation.heartbeat()
        assert beat.stale_participants == ("worker",)
        assert beat.has_stale_children
        assert beat.data_after is not None
        frame = beat.data_after.frame(risky.call_id)
        assert frame is not None
        assert frame.state is FrameState.CRASHED
        worker.resume()
        await until(lambda: risky.state.settled)
        with pytest.raises(CallCrashedError):
            await risky.end()
        operation.start_heartbeat()
        await own.end()
        await joined.leave()
        await operation.complete()
        gone = await operation.heartbeat()
        assert not gone.ledger_exists
        assert not gone.heartbeat_updated

    with_operation(base, body)


def test_heartbeats_start_by_themselves_4_to_5_seconds_apart(base: Path) -> None:
    """Timing Constants: with jitter."""

    async def body(process: SimProcess, operation: Operation) -> None:
        await asyncio.sleep(100)
        beats = [data.last_heartbeat_us for _, data in process.fs.recorded]
        gaps = [(late - early) / 1e6 for early, late in pairwise(beats)]
        assert len(gaps) >= 19
        assert all(4 <= gap <= 5 for gap in gaps)
        assert len(set(gaps)) > 10

    with_operation(base, body)


def test_logs_have_levels_depth_and_unforgeable_lines(base: Path) -> None:
    """Operation Logging."""

    async def body(process: SimProcess, operation: Operation) -> None:
        await operation.log("Processing started")
        await operation.log("hidden detail", level=LogLevel.DEBUG)
        await operation.log("first\nOPERATION_COMPLETED", level=LogLevel.ERROR)
        await operation.log_message(depth=2, message="Spawned worker")
        await operation.complete()
        await operation.log("afterwards")  # into the backup: nothing is lost

    with_operation(base, body)
    lines = log_of(base, "op").splitlines()
    assert all(line[:4] == "2026" and "] " in line for line in lines)
    assert [line.split(" ", 1)[1] for line in lines[1:5]] == [
        "INFO    [cli] Processing started",
        "ERROR   [cli] first",
        "ERROR   [cli] OPERATION_COMPLETED",
        "INFO    [cli]         Spawned worker",
    ]
    assert lines[-1].endswith("afterwards")
    assert "hidden detail" in (base / "backup" / "op" / "operation.debug.log").read_text()


def test_a_cancelled_start_leaves_no_frame_behind(base: Path) -> None:
    async def main() -> None:
        async with Ledger(base, participant_id="p") as ledger, ledger.create_operation() as operation:

            async def start() -> None:
                await operation.start_call()

            for _ in range(20):
                task = asyncio.create_task(start())
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait({task})
                frames = ledger.read(operation.operation_id).stack
                assert len(frames) == 0

    asyncio.run(main())


def test_errors_survive_pickling() -> None:
    """A `multiprocessing` worker hands them back."""
    info = OperationFailedInfo("op", "why", datetime(2026, 1, 1, tzinfo=UTC), ("c",), True)
    error = pickle.loads(pickle.dumps(OperationFailedError(info)))
    assert error.info == info
    assert "operation op failed: why" in str(error)
    worker = pickle.loads(pickle.dumps(WorkerFailedError("w", 3, "tail")))
    assert (str(worker), worker.exit_code, worker.stderr_tail) == ("w", 3, "tail")


def test_leaving_an_operation_that_failed_unnoticed_cleans_up_first(base: Path) -> None:
    async def body(process: SimProcess, operation: Operation) -> None:
        worker = SimProcess(base, "worker", 1)
        joined = await worker.ledger.join_operation("op")
        told = Told()
        await joined.start_call(told.callback())
        await operation.abort("enough")
        assert joined.failure is None  # it has not beaten since
        await joined.leave()
        assert told.cleanup == 1
        with pytest.raises(OperationFailedError):
            await joined.start_call()

    with_operation(base, body)


def test_leaving_by_an_error_cleans_up_what_was_open(base: Path) -> None:
    """A participant's block: calls are cancelled, nobody is left to be taken for dead."""

    async def body(process: SimProcess, operation: Operation) -> None:
        worker = SimProcess(base, "worker", 1)

        async def take_part() -> None:
            async with worker.ledger.join_operation("op") as joined:
                await joined.start_call()
                joined.spawn_call(forever)
                raise KeyError("k")

        with pytest.raises(KeyError):
            await take_part()
        assert process.ledger.read("op").stack == ()
        await operation.complete()

    with_operation(base, body)


async def test_no_thread_is_left_behind(base: Path) -> None:
    """One daemon thread a handle, ended with it; a log line afterwards starts none that stays."""
    async with Ledger(base, participant_id="p") as ledger:
        for number in range(3):
            operation = await ledger.create_operation(operation_id=f"op{number}")
            await operation.complete()
            await operation.log("afterwards")
    for thread in threading.enumerate():
        if thread.name.startswith("holdfast-operation-op"):
            thread.join(60)
            assert not thread.is_alive()
