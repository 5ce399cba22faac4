"""An operation held for an owner that waits elsewhere, on a virtual clock with the seed's real constants."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.models.operation.data import FrameState, OperationState
from holdfast.models.operation.holding import Holding, find_holding, see_to_its_end
from holdfast.operation import CallsPendingError, OperationExistsError, OperationFailedError

from .kit import (
    SEED_TIMING,
    Killed,
    SimProcess,
    Told,
    assert_failed_and_backed_up,
    backup_of,
    disk_full,
    events_of,
    in_backup,
    run_virtual,
    until,
)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def test_a_verdict_completes_the_operation(base: Path) -> None:
    async def scenario() -> None:
        holding = Holding(SimProcess(base, "owner").ledger, "op", "import")
        await holding.wait_opened()
        assert find_holding("op") is holding
        await asyncio.sleep(60)  # the owner's call beats all along
        holding.decide(None)
        assert await holding.ended() is None
        assert find_holding("op") is None

    run_virtual(scenario)
    assert backup_of(base, "op").state is OperationState.COMPLETED
    assert events_of(base, "op") == ["OPERATION_CREATED", "CALL_STARTED", "CALL_ENDED", "OPERATION_COMPLETED"]


def test_a_verdict_with_a_reason_aborts_it_and_the_cleanup_is_seen_through(base: Path) -> None:
    async def scenario() -> None:
        owner, other = SimProcess(base, "owner"), SimProcess(base, "other", seed=1)
        told = Told()
        holding = Holding(owner.ledger, "op", None)
        await holding.wait_opened()
        joined = await other.ledger.join_operation("op")
        await joined.start_call(told.callback())
        holding.decide("the owner failed")
        holding.decide(None)  # the first verdict stands
        info = await holding.ended()
        assert info is not None
        assert info.reason == "the owner failed"
        assert (told.cleanup, [failure.reason for failure in told.failures]) == (1, ["the owner failed"])
        await other.ledger.dispose()

    run_virtual(scenario)
    assert assert_failed_and_backed_up(base, "op", SEED_TIMING).aborted


def test_giving_up_returns_when_the_others_can_see_it(base: Path) -> None:
    """The cleanup goes on beside whoever gave up."""

    async def scenario() -> None:
        owner = SimProcess(base, "owner")
        holding = Holding(owner.ledger, "op", None)
        await holding.wait_opened()
        before = asyncio.get_running_loop().time()
        await holding.give_up("moved")
        assert asyncio.get_running_loop().time() == before
        assert owner.ledger.read("op").state is OperationState.CLEANUP
        await holding.ended()

    run_virtual(scenario)
    assert_failed_and_backed_up(base, "op", SEED_TIMING)


def test_giving_up_on_a_full_disk_keeps_nobody_waiting(base: Path) -> None:
    """A worker that stops must get away; the abort is tried again for as long as it lives."""

    async def scenario() -> None:
        owner = SimProcess(base, "owner")
        holding = Holding(owner.ledger, "op", None)
        await holding.wait_opened()
        owner.fs.fail = lambda number, step, path: disk_full(path) if step == "write" else None
        before = asyncio.get_running_loop().time()
        await holding.give_up("moved")
        assert asyncio.get_running_loop().time() - before == pytest.approx(SEED_TIMING.stop_grace_ms / 1000)
        assert owner.ledger.read("op").state is OperationState.RUNNING
        owner.fs.fail = lambda number, step, path: None
        info = await holding.ended()
        assert info is not None
        assert info.reason == "moved"

    run_virtual(scenario)
    assert_failed_and_backed_up(base, "op", SEED_TIMING)


def test_the_owners_death_is_a_crash_to_the_others(base: Path) -> None:
    """Seed: detection 10 s after the last beat, at most 15 (ruling C9)."""

    async def scenario() -> None:
        owner, other = SimProcess(base, "owner"), SimProcess(base, "other", seed=1)
        holding = Holding(owner.ledger, "op", None)
        await holding.wait_opened()
        joined = await other.ledger.join_operation("op")
        await asyncio.sleep(30)
        last_beat_us = other.ledger.read("op").stack[0].last_heartbeat_us
        owner.kill()
        info = await joined.wait_failed()
        assert info.reason == "crash of owner (pid 1000)"
        data = other.ledger.read("op")
        assert data.detection_us is not None
        assert 10_000_000 < data.detection_us - last_beat_us <= 15_000_000
        assert [frame.state for frame in data.stack if frame.participant_id == "owner"] == [FrameState.CRASHED]
        await joined.wait_over()
        holding.task.cancel()
        with pytest.raises((asyncio.CancelledError, Killed)):
            await holding.task

    run_virtual(scenario)
    assert_failed_and_backed_up(base, "op", SEED_TIMING)


@pytest.mark.parametrize("dead_seconds", [0, 31])
def test_whoever_goes_on_for_a_dead_owner_sees_the_operation_to_its_end(base: Path, dead_seconds: float) -> None:
    """Whether or not the heartbeat is stale yet: the owner is known to be gone."""

    async def scenario() -> None:
        owner, successor = SimProcess(base, "owner"), SimProcess(base, "owner", seed=7)
        await (await owner.ledger.create_operation(operation_id="op")).start_call()
        owner.kill()
        await asyncio.sleep(dead_seconds)
        started = asyncio.get_running_loop().time()
        info = await see_to_its_end(successor.ledger, "op", "its worker was lost")
        assert info is not None
        assert info.reason == "its worker was lost"
        assert asyncio.get_running_loop().time() - started == pytest.approx(20)  # phases 2 and 3
        assert in_backup(base, "op")

    run_virtual(scenario)
    data = assert_failed_and_backed_up(base, "op", SEED_TIMING)
    assert len(data.crashed_call_ids) == 1  # silent for the whole of phase 2: the history names it


def test_whoever_goes_on_for_an_owner_that_died_in_its_cleanup_takes_the_cleanup_over(base: Path) -> None:
    """Ruling C5: from the recorded phase, once the heartbeat of the dead coordinator is stale."""

    async def scenario() -> None:
        owner, successor = SimProcess(base, "owner"), SimProcess(base, "owner", seed=7)
        holding = Holding(owner.ledger, "op", None)
        await holding.wait_opened()
        await holding.give_up("moved")
        owner.kill()
        info = await see_to_its_end(successor.ledger, "op", "its worker was lost")
        assert info is not None
        assert info.reason == "moved"
        assert in_backup(base, "op")
        holding.task.cancel()
        with pytest.raises((asyncio.CancelledError, Killed)):
            await holding.task

    run_virtual(scenario)
    assert_failed_and_backed_up(base, "op", SEED_TIMING)
    assert events_of(base, "op").count("CLEANUP_STARTED") == 2


def test_an_owner_that_died_after_completing_has_completed(base: Path) -> None:
    async def scenario() -> None:
        owner, successor = SimProcess(base, "owner"), SimProcess(base, "owner", seed=7)
        holding = Holding(owner.ledger, "op", None)
        await holding.wait_opened()
        holding.decide(None)
        await holding.ended()
        assert await see_to_its_end(successor.ledger, "op", "its worker was lost") is None
        gone = await see_to_its_end(successor.ledger, "unknown", "its worker was lost")
        assert gone is not None
        assert "deleted" in gone.reason

    run_virtual(scenario)


def test_a_full_disk_delays_the_end_and_loses_nothing(base: Path) -> None:
    async def scenario() -> None:
        owner = SimProcess(base, "owner")
        holding = Holding(owner.ledger, "op", None)
        await holding.wait_opened()
        owner.fs.fail = lambda number, step, path: disk_full(path) if step == "write" else None
        holding.decide(None)
        await asyncio.sleep(8)
        assert not holding.task.done()
        owner.fs.fail = lambda number, step, path: None
        assert await holding.ended() is None

    run_virtual(scenario)
    assert backup_of(base, "op").state is OperationState.COMPLETED


def test_what_cannot_be_created_is_said_to_whoever_waits_for_it(base: Path) -> None:
    async def scenario() -> None:
        await SimProcess(base, "first").ledger.create_operation(operation_id="op")
        holding = Holding(SimProcess(base, "owner", seed=1).ledger, "op", None)
        with pytest.raises(OperationExistsError):
            await holding.wait_opened()
        with pytest.raises(OperationExistsError):
            await holding.ended()
        assert find_holding("op") is None

    run_virtual(scenario)


def test_completing_over_the_open_call_of_another_aborts(base: Path) -> None:
    """Ruling C8; its owner has gone on, so that nobody could complete it later."""

    async def scenario() -> None:
        owner, other = SimProcess(base, "owner"), SimProcess(base, "other", seed=1)
        holding = Holding(owner.ledger, "op", None)
        await holding.wait_opened()
        joined = await other.ledger.join_operation("op")
        await joined.start_call()
        holding.decide(None)
        with pytest.raises(CallsPendingError, match="of other"):
            await holding.ended()
        await until(lambda: joined.failure is not None)
        with pytest.raises(OperationFailedError, match="of other"):
            await joined.start_call()
        await other.ledger.dispose()

    run_virtual(scenario)
    assert_failed_and_backed_up(base, "op", SEED_TIMING)
