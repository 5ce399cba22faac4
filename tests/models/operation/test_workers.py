"""Worker processes as spawned calls (Execution Helper Methods, ruling C4) and the blocking facade."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.operation import (
    CallCallback,
    CallFailedError,
    Ledger,
    OperationEndedError,
    OperationFailedError,
    SpawnedCall,
    Timing,
    WorkerFailedError,
)
from tests.forked import CONTEXT

from .kit import backup_of, events_of


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger", participant_id="cli", timing=Timing.fast(), temp_roots=[tmp_path])


def shell(script: str) -> tuple[str, list[str]]:
    return "sh", ["-c", script]


async def test_parallel_file_workers_give_their_results(ledger: Ledger, tmp_path: Path) -> None:
    """Example 2: parallel workers; one that fails does not disturb the others."""
    exits: list[int] = []
    async with ledger, ledger.create_operation() as operation:
        workers = [
            operation.exec_file_result_worker(
                *shell(f"echo '{{\"id\": {number}}}' > {tmp_path}/r{number}; exit {3 if number == 2 else 0}"),
                result_file_path=tmp_path / f"r{number}",
                deserializer=json.loads,
                on_exit=exits.append,
            )
            for number in range(4)
        ]
        result = await operation.sync(workers)
        assert [worker.result for worker in result.successful_calls] == [{"id": 0}, {"id": 1}, {"id": 3}]
        assert result.failed_calls == (workers[2],)
        assert isinstance(workers[2].error, WorkerFailedError)
        assert workers[2].error.exit_code == 3
    assert sorted(exits) == [0, 0, 0, 3]


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        ("echo going down >&2; exit 7", 7, "exited with code 7"),
        ("echo nothing written >&2", 0, "without writing its result file"),
        ("echo shot >&2; kill -9 $$", -9, "killed by SIGKILL"),
    ],
)
async def test_a_worker_without_a_result_fails_with_code_and_stderr(
    ledger: Ledger, tmp_path: Path, script: str, code: int, message: str
) -> None:
    """Ruling C4. A file left by an earlier run is no result."""
    stale = tmp_path / "result"
    stale.write_text("stale")
    async with ledger, ledger.create_operation() as operation:
        worker = operation.exec_file_result_worker(*shell(script), result_file_path=stale, deserializer=str)
        with pytest.raises(CallFailedError, match=message) as caught:
            await worker.wait()
        error = caught.value.__cause__
        assert isinstance(error, WorkerFailedError)
        assert error.exit_code == code
        assert error.stderr_tail in ("going down", "nothing written", "shot")


async def test_a_result_file_is_not_read_while_it_is_being_written(ledger: Ledger, tmp_path: Path) -> None:
    """Ruling C4: only once the process has exited, however long half of it lies there."""
    result, half = tmp_path / "result", tmp_path / "half"
    async with ledger, ledger.create_operation() as operation:
        worker = operation.exec_file_result_worker(
            *shell(
                f"printf half > {result}; touch {half}; "
                f"while [ -e {half} ]; do sleep 0.01; done; printf whole > {result}"
            ),
            result_file_path=result,
            deserializer=str,
        )
        await wait_for(half)
        await operation.heartbeat()
        assert not worker.is_completed
        half.unlink()
        assert await worker.wait() == "whole"


async def test_a_renamed_result_is_read_at_once_and_the_worker_stopped(ledger: Ledger, tmp_path: Path) -> None:
    """Ruling C4: renamed into place."""
    result = tmp_path / "result"
    exits: list[int] = []
    async with ledger, ledger.create_operation() as operation:
        worker = operation.exec_file_result_worker(
            *shell(f"echo 1 > {result}.tmp; mv {result}.tmp {result}; exec sleep 600"),
            result_file_path=result,
            deserializer=int,
            result_renamed=True,
            on_exit=exits.append,
        )
        assert await worker.wait() == 1
    assert exits == [-signal.SIGTERM]


async def test_stdio_worker_finds_the_operation_in_its_environment(ledger: Ledger) -> None:
    async with ledger, ledger.create_operation() as operation:
        worker = operation.exec_stdio_worker(
            *shell('echo "$HOLDFAST_OPERATION $HOLDFAST_LEDGER"'), deserializer=str.split
        )
        assert await worker.wait() == [operation.operation_id, str(ledger.base_path)]


async def test_a_worker_gets_the_pace_of_its_operation(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ruling C7: one place for the constants; a worker with others would be taken for dead, or take others for it."""
    async with ledger, ledger.create_operation() as operation:
        worker = operation.exec_stdio_worker(*shell('echo "$HOLDFAST_OPERATION_TIMING"'), deserializer=str.strip)
        told = await worker.wait()
    assert Ledger(ledger.base_path).timing == Timing()
    monkeypatch.setenv("HOLDFAST_OPERATION_TIMING", told)
    assert Ledger(ledger.base_path).timing == ledger.timing


async def test_a_grandchild_that_keeps_the_pipes_open_does_not_hang_the_call(ledger: Ledger) -> None:
    async with ledger, ledger.create_operation() as operation:
        worker = operation.exec_stdio_worker(*shell("sleep 600 & echo $!"), deserializer=int)
        grandchild = await worker.wait()
        os.kill(grandchild, signal.SIGKILL)


async def test_kill_reaches_the_attached_process(ledger: Ledger, tmp_path: Path) -> None:
    """kill(): SIGTERM, or another signal."""
    async with ledger, ledger.create_operation() as operation:
        for number in (signal.SIGTERM, signal.SIGKILL):
            up = tmp_path / f"up{number}"
            worker = operation.exec_stdio_worker(*shell(f"touch {up}; exec sleep 600"), deserializer=str)
            await wait_for(up)
            assert worker.kill(number)
            with pytest.raises(CallFailedError, match=signal.Signals(number).name):
                await worker.wait()
            assert not worker.kill()


async def test_cleanup_stops_worker_processes(ledger: Ledger, tmp_path: Path) -> None:
    """Phase 2: a worker that ignores SIGTERM is killed after the grace."""
    up = tmp_path / "up"
    exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with ledger:
        operation = await ledger.create_operation()
        worker = operation.exec_stdio_worker(
            *shell(f"trap '' TERM; touch {up}; while :; do sleep 0.05; done"),
            deserializer=str,
            on_exit=exited.set_result,
        )
        await wait_for(up)
        await operation.abort()
        with pytest.raises(OperationFailedError):
            await worker.wait()
        await operation.wait_cleaned_up()
    # Cleanup waits for its workers no longer than the grace; on a busy machine a killed one may be reaped after it.
    assert await exited == -signal.SIGKILL


async def test_a_program_that_does_not_exist_fails_its_call(ledger: Ledger) -> None:
    async with ledger, ledger.create_operation() as operation:
        worker = operation.exec_stdio_worker("no-such-program-here", deserializer=str)
        with pytest.raises(CallFailedError, match="could not be started"):
            await worker.wait()


async def test_server_requests_and_plain_functions_are_spawned_calls(ledger: Ledger) -> None:
    """execServerRequest; plain functions run in threads, so that the heart goes on."""
    async with ledger, ledger.create_operation() as operation:
        request = operation.exec_server_request(lambda: "response")
        await request.settled()
        assert request.is_success
        assert request.result == "response"


async def wait_for(path: Path) -> None:
    def seen() -> bool:
        return path.exists()

    while not seen():  # noqa: ASYNC110  (written by another process)
        await asyncio.sleep(0.01)


# --- the blocking facade --------------------------------------------------------------------------------


def test_a_plain_script_takes_part(ledger: Ledger) -> None:
    with ledger.sync as blocking, blocking.create_operation(operation_id="op") as operation:
        told: list[int] = []
        with operation.start_call(CallCallback(on_completion=told.append)) as call:
            operation.log("working")
            call.end(5)
        assert told == [5]
        spawned = operation.spawn_call(lambda: 42)
        assert operation.sync([spawned]).all_succeeded
        assert spawned.wait() == 42
        assert operation.wait_for_completion(lambda: "done") == "done"
        assert operation.heartbeat().heartbeat_updated

        def cancellable(call: SpawnedCall[str]) -> str:
            while not call.is_cancelled:
                pass
            return "stopped"

        endless = operation.spawn_call(cancellable)
        endless.cancel()
        assert endless.wait() == "stopped"
        echo = operation.spawn(lambda o: o.exec_stdio_worker("echo", ["hi"], deserializer=str.strip))
        assert echo.wait() == "hi"
    assert backup_of(ledger.base_path, "op").crashed_call_ids == ()
    with pytest.raises(OperationEndedError, match="closed"):
        blocking.create_operation()


def test_a_blocking_call_from_a_callback_is_refused_instead_of_hanging(ledger: Ledger) -> None:
    with ledger.sync as blocking, blocking.create_operation(operation_id="op") as operation:
        errors: list[str] = []

        def on_completion(_result: object) -> None:
            try:
                operation.log("from the loop's own thread")
            except OperationEndedError as error:
                errors.append(str(error))

        with operation.start_call(CallCallback(on_completion=on_completion)):
            pass
        assert "wait for itself" in errors[0]


def _join_from_another_process(base: Path, operation_id: str) -> None:
    ledger = Ledger(base, participant_id="child", timing=Timing.fast())
    with ledger.sync as blocking, blocking.join_operation(operation_id) as operation, operation.start_call():
        operation.log("hello from a multiprocessing worker")


def test_a_multiprocessing_worker_takes_part(ledger: Ledger) -> None:
    with ledger.sync as blocking, blocking.create_operation(operation_id="op"):
        worker = CONTEXT.Process(target=_join_from_another_process, args=(ledger.base_path, "op"))
        worker.start()
        worker.join()
        assert worker.exitcode == 0
    events = events_of(ledger.base_path, "op")
    assert events[-2:] == ["PARTICIPANT_LEFT", "OPERATION_COMPLETED"]


def test_the_interpreter_exits_while_a_lock_is_held_elsewhere(tmp_path: Path) -> None:
    """A thread that waits for the kernel must not keep a process alive."""
    program = (
        "import asyncio, fcntl, sys\n"
        "from holdfast.operation import Ledger, LockTimeoutError, Timing\n"
        "async def main():\n"
        "    ledger = Ledger(sys.argv[1], participant_id='p', timing=Timing(lock_timeout_ms=50))\n"
        "    operation = await ledger.create_operation(operation_id='op')\n"
        "    held = open(sys.argv[1] + '/op.operation.lock')\n"
        "    fcntl.flock(held, fcntl.LOCK_EX)\n"
        "    try:\n"
        "        await operation.log('x')\n"
        "    except LockTimeoutError:\n"
        "        print('timed out')\n"
        "    globals()['held'] = held\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "ledger")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "timed out\n"
