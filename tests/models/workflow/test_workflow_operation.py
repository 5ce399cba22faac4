"""`async with ctx.operation(...)`: a workflow owns an operation of several processes (issue 6, seed 002)."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

import holdfast
from holdfast import Context, Status
from holdfast.core.errors import CallNotAllowedError, ExecutionFailedError, InvalidArgumentError
from holdfast.models.operation.data import OperationState
from holdfast.models.operation.holding import _HOLDINGS
from holdfast.models.workflow.operation import GIVEN_UP, HOLD
from holdfast.operation import (
    CallsPendingError,
    Ledger,
    LedgerData,
    LedgerStorageError,
    OperationFailedError,
    Timing,
    open_operation,
)
from tests.models.workflow.kit import Gate, Rig

# The phases of a cleanup pass in a blink; nothing here waits for a silent participant.
QUICK = replace(Timing.fast(), self_cleanup_window_ms=20, deletion_delay_ms=20)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "operations")


def only_backup(folder: str) -> LedgerData:
    """The one operation of the folder, which has ended."""
    ledger = Ledger(folder)
    assert ledger.operations() == {}
    (operation_id,) = ledger.backups()
    return ledger.read(operation_id)


async def gone() -> None:
    """Wait until nothing is held in this process any more."""
    while _HOLDINGS:
        await asyncio.wait({holding.task for holding in _HOLDINGS.values()})


async def test_leaving_the_block_completes_the_operation(rig: Rig, folder: str) -> None:
    joined: list[str] = []

    @rig.app.task
    async def take_part(operation_id: str) -> str:
        async with (
            Ledger(folder, participant_id="part", timing=QUICK) as ledger,
            ledger.join_operation(operation_id) as operation,
            operation.start_call(description="the part") as call,
        ):
            joined.append(operation_id)
            owner = ledger.read(operation_id).stack[0]
            await call.end()
            return owner.participant_id

    @rig.app.workflow(name="nightly.import")
    async def nightly(ctx: Context) -> list[str]:
        async with ctx.operation(folder, description="Import", timing=QUICK) as operation:
            return [operation.id, await take_part(operation.id)]

    handle = await nightly.start()
    operation_id, owner = await rig.result(handle)
    assert joined == [operation_id]
    assert owner == "nightly_import"
    # The seed's format, from the ledger's time and the run's own chance: every replay gives the same.
    assert re.fullmatch(r"\d{8}T\d{2}:\d{2}:\d{2}\.\d{3}-nightly_import-[0-9a-f]{8}", operation_id)
    data = only_backup(folder)
    assert data.operation_id == operation_id
    assert data.state is OperationState.COMPLETED
    assert data.description == "Import"
    calls = [line.split()[2] for line in await rig.lines(handle) if line.startswith("InvokeScheduled")]
    assert calls == ["hold", "ready", "take_part", "release"]


async def test_what_follows_the_block_is_replayed_without_it(rig: Rig, folder: str) -> None:
    """A hold that has ended is read from the journal as any call: no second operation is made."""

    @rig.app.workflow
    async def nightly(ctx: Context) -> str:
        async with ctx.operation(folder, timing=QUICK) as operation:
            kept = operation.id
        await ctx.sleep(60)
        return kept

    handle = await nightly.start()
    await rig.run()
    rig.forget()
    await rig.advance(61)
    assert await rig.result(handle) == only_backup(folder).operation_id


async def test_timers_and_signals_reach_a_body_inside_the_block(rig: Rig, folder: str) -> None:
    """The hold is in flight all the time, so the run is never parked; it hears of everything nevertheless."""

    @rig.app.workflow
    async def nightly(ctx: Context) -> str:
        async with ctx.operation(folder, timing=QUICK):
            await ctx.sleep(0.01)
            return await ctx.signal("word", str)

    handle = await nightly.start()
    async with rig.app.worker():
        await handle.signal("word", "done")
        assert await handle.result() == "done"
    assert only_backup(folder).state is OperationState.COMPLETED


async def test_an_error_in_the_block_aborts_the_operation_and_goes_on(rig: Rig, folder: str) -> None:
    @rig.app.workflow
    async def nightly(ctx: Context) -> None:
        async with ctx.operation(folder, timing=QUICK):
            raise ValueError(f"at {id(ctx)}")  # a message that differs in every replay

    handle = await nightly.start()
    with pytest.raises(ExecutionFailedError, match="ValueError"):
        await rig.result(handle)
    data = only_backup(folder)
    assert data.state is OperationState.FAILED
    assert data.aborted
    assert data.failure_reason == "its owner left by ValueError"


async def test_cancelling_the_run_aborts_the_operation(rig: Rig, folder: str) -> None:
    @rig.app.workflow
    async def nightly(ctx: Context) -> None:
        async with ctx.operation(folder, timing=QUICK):
            await ctx.signal("never", str)

    handle = await nightly.start()
    async with rig.app.worker():
        await rig.until(handle, "InvokeCompleted root.3")
        await handle.cancel()
        with pytest.raises(holdfast.HoldfastError, match="cancelled"):
            await handle.result()
    assert await rig.status(handle) is Status.CANCELLED
    data = only_backup(folder)
    assert data.state is OperationState.FAILED
    assert data.failure_reason == GIVEN_UP


async def test_a_worker_that_stops_gives_the_operation_up_and_the_resumed_run_hears_of_it(
    rig: Rig, folder: str
) -> None:
    gate = Gate()

    @rig.app.task
    async def work(operation_id: str) -> str:
        await gate.wait()
        return operation_id

    @rig.app.workflow
    async def nightly(ctx: Context) -> list[str]:
        operation = ctx.operation(folder, timing=QUICK)
        try:
            async with operation:
                await work(operation.id)
        except OperationFailedError as error:
            return [error.info.operation_id, error.info.reason]
        return []

    first = await rig.make_worker()
    second = await rig.make_worker()
    handle = await nightly.start()
    working = rig.working(first)
    await gate.reached.wait()
    gate.opened.set()
    gate.reached.clear()
    await rig.kill(first, working)
    await second.run_until_idle()
    operation_id, reason = await handle.result()
    assert reason == GIVEN_UP
    data = only_backup(folder)
    assert data.operation_id == operation_id
    assert data.state is OperationState.FAILED


async def test_a_failure_of_the_operation_reaches_a_body_that_waits_with_it(rig: Rig, folder: str) -> None:
    """Seed: waitForCompletion races work against operation failure."""

    @rig.app.workflow
    async def nightly(ctx: Context) -> str:
        try:
            async with ctx.operation(folder, timing=QUICK) as operation:
                ctx.publish("operation", operation.id)
                await ctx.sleep(0.001)
                await operation.wait_for_completion(ctx.sleep(1_000_000))
        except OperationFailedError as error:
            return error.info.reason
        return "not failed"

    handle = await nightly.start()
    async with rig.app.worker():
        await rig.until(handle, "TimerFired")
        (operation_id,) = Ledger(folder).operations()
        await Ledger(folder, participant_id="person", timing=QUICK).request_abort(operation_id)
        assert await handle.result() == "aborted"
    await gone()
    assert only_backup(folder).state is OperationState.FAILED


async def test_waiting_with_the_operation_gives_the_calls_result(rig: Rig, folder: str) -> None:
    @rig.app.task
    async def work() -> int:
        return 17

    @rig.app.workflow
    async def nightly(ctx: Context) -> int:
        async with ctx.operation(folder, timing=QUICK) as operation:
            return await operation.wait_for_completion(work())

    assert await rig.result(await nightly.start()) == 17


async def test_a_folder_that_cannot_be_used_is_the_same_error_as_without_a_workflow(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")

    @rig.app.workflow
    async def nightly(ctx: Context, folder: str) -> str:
        try:
            async with ctx.operation(folder, timing=QUICK):
                return "opened"
        except LedgerStorageError as error:
            return str(error)

    assert "Not a directory" in await rig.result(await nightly.start(str(tmp_path / "file" / "inside")))
    assert _HOLDINGS == {}


async def test_leaving_while_others_have_open_calls_is_an_error_that_aborts(rig: Rig, folder: str) -> None:
    """Ruling C8: nothing is completed over somebody's open call."""
    async with Ledger(folder, participant_id="slow", timing=QUICK) as ledger:

        @rig.app.task
        async def begin(operation_id: str) -> None:
            operation = await ledger.join_operation(operation_id)
            await operation.start_call(description="still open")

        @rig.app.workflow
        async def nightly(ctx: Context) -> str:
            try:
                async with ctx.operation(folder, timing=QUICK) as operation:
                    await begin(operation.id)
            except CallsPendingError as error:
                return str(error)
            return "completed"

        assert "of slow" in await rig.result(await nightly.start())
    assert only_backup(folder).state is OperationState.FAILED


async def test_continuing_as_new_inside_the_block_completes_the_operation(rig: Rig, folder: str) -> None:
    """It is a way of returning."""

    @rig.app.workflow
    async def nightly(ctx: Context, left: int) -> int:
        if left:
            async with ctx.operation(folder, timing=QUICK):
                ctx.continue_as_new(left - 1)
        return left

    assert await rig.result(await nightly.start(1)) == 0
    assert only_backup(folder).state is OperationState.COMPLETED


async def test_wrong_use_is_refused(rig: Rig, folder: str) -> None:
    @rig.app.workflow
    async def nightly(ctx: Context) -> None:
        with pytest.raises(InvalidArgumentError, match="whole path"):
            ctx.operation("operations")
        with pytest.raises(InvalidArgumentError, match="not a valid id"):
            ctx.operation(folder, participant_id="../other")
        operation = ctx.operation(folder, timing=QUICK)
        with pytest.raises(CallNotAllowedError, match="before its block"):
            assert operation.id
        with pytest.raises(CallNotAllowedError, match="not open"):
            await operation.wait_for_completion(ctx.sleep(1))
        async with operation:
            pass
        with pytest.raises(CallNotAllowedError, match="entered before"):
            await operation.__aenter__()

    await rig.result(await nightly.start())
    with pytest.raises(CallNotAllowedError, match="started alone"):
        await HOLD.start()


async def test_a_task_owns_an_operation_of_its_own(rig: Rig, folder: str) -> None:
    @rig.app.task
    async def build() -> str:
        call = holdfast.current()
        async with call.operation(folder, participant_id="build", timing=QUICK) as operation:
            async with (
                open_operation(folder, participant_id="part", join=operation.operation_id, timing=QUICK) as other,
                other.start_call(),
            ):
                assert other.operation_id == operation.operation_id
            return call.promise

    handle = await build.start()
    promise = await rig.result(handle)
    data = only_backup(folder)
    assert data.state is OperationState.COMPLETED
    assert data.initiator_id == "build"
    assert data.description == f"attempt 1 of call {promise}"
