"""Mishaps beside the disk: callbacks that are cancelled, texts that are no Unicode, resources that come late."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from holdfast.core.errors import InvalidArgumentError
from holdfast.models.operation.data import OperationState
from holdfast.operation import CallCallback, Ledger, Timing

from .kit import SimProcess, Told, backup_of, log_of, run_virtual


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def test_a_cleanup_that_awaits_a_cancelled_task_keeps_no_other_from_running(base: Path) -> None:
    """`task.cancel(); await task` raises CancelledError, which is no wish to stop the cleanup (phase 2)."""

    async def main() -> None:
        process = SimProcess(base, "p")
        operation = await process.ledger.create_operation(operation_id="op")
        outer, told = Told(), Told()

        async def stop_helper() -> None:
            helper = asyncio.create_task(asyncio.Event().wait())
            helper.cancel()
            await helper

        await operation.start_call(outer.callback())
        await operation.start_call(
            CallCallback[object](on_cleanup=stop_helper, on_operation_failed=told.failures.append)
        )
        await operation.abort()
        await operation.wait_over()
        assert outer.cleanup == 1
        assert len(told.failures) == 1

    run_virtual(main)
    assert "callback on_cleanup of call_p_2_" in log_of(base, "op")
    assert "raised CancelledError" in log_of(base, "op")


def test_texts_that_are_no_unicode_are_recorded_in_a_readable_form(base: Path, tmp_path: Path) -> None:
    """The name of a file, in an error message, may hold bytes that are no UTF-8: an abort must not fail over it."""

    async def main() -> None:
        process = SimProcess(base, "p")
        operation = await process.ledger.create_operation(operation_id="op", description="bad \udcff")
        await operation.start_call(description="worse \udcfe")
        assert process.ledger.read("op").stack[0].description == "worse \\udcfe"
        with pytest.raises(InvalidArgumentError, match="not UTF-8"):
            await operation.add_temp_resource(tmp_path / "x\udcff")
        error = FileNotFoundError("no file named \udcff")
        await operation.__aexit__(FileNotFoundError, error, None)
        await process.ledger.dispose()

    run_virtual(main)
    data = backup_of(base, "op")
    assert data.description == "bad \\udcff"
    assert data.failure_reason == "FileNotFoundError: no file named \\udcff"


def test_a_temp_resource_added_while_the_operation_completes_is_deleted_too(base: Path, tmp_path: Path) -> None:
    early, late = tmp_path / "early", tmp_path / "late"
    early.write_text("x")
    late.write_text("x")

    async def main() -> None:
        cli, other = SimProcess(base, "cli"), SimProcess(base, "other", 1)
        operation = await cli.ledger.create_operation(operation_id="op")
        joined = await other.ledger.join_operation("op")
        await operation.add_temp_resource(early)
        delete = operation.part.delete

        async def delete_while_others_add(resources: Iterable[str]) -> None:
            await delete(resources)
            if late.exists():
                await joined.add_temp_resource(late)

        operation.part.delete = delete_while_others_add  # type: ignore[method-assign]
        await operation.complete()
        await other.ledger.dispose()

    run_virtual(main)
    assert backup_of(base, "op").state is OperationState.COMPLETED
    assert not early.exists()
    assert not late.exists()


def test_a_heart_survives_an_error_that_nobody_expected(base: Path) -> None:
    """A bug in one beat must not look like a death for ever."""

    async def main() -> None:
        process = SimProcess(base, "p")
        operation = await process.ledger.create_operation(operation_id="op")
        process.fs.fail = lambda number, step, path: ValueError("a bug") if step == "read" else None
        await asyncio.sleep(6)
        errors = [operation.last_heartbeat_error]
        process.fs.fail = lambda number, step, path: None
        await asyncio.sleep(6)
        errors.append(operation.last_heartbeat_error)
        assert [str(error) for error in errors] == ["a bug", "None"]
        await operation.complete()

    run_virtual(main)
    assert backup_of(base, "op").state is OperationState.COMPLETED


def test_the_blocking_facade_of_a_ledger_is_one_until_it_is_closed(base: Path) -> None:
    """Looking at `ledger.sync` twice starts no second event loop, and none is left behind."""
    before = set(threading.enumerate())
    ledger = Ledger(base, participant_id="p", timing=Timing.fast())
    with ledger.sync as blocking:
        assert id(ledger.sync) == id(blocking)
        with blocking.create_operation(operation_id="op") as operation, operation.start_call() as call:
            path = base / "kept"
            path.write_text("x")
            call.add_temp_resource(path)
            call.remove_temp_resource(path)
        assert path.exists()
    another = ledger.sync
    assert (blocking.is_closed, another.is_closed) == (True, False)
    another.dispose()
    assert {thread for thread in threading.enumerate() if thread.name == "holdfast-blocking"} <= before
