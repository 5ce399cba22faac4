"""The seed's scenarios on a virtual clock with its real constants: detection, the four phases, containment.

Each asserts the recorded phases, states and timestamps, callbacks once, temp resources gone, backup in place.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.models.operation.data import FrameState, LedgerData, OperationState
from holdfast.operation import (
    CallCrashedError,
    CallFailedError,
    CallsPendingError,
    OperationEndedError,
    OperationFailedError,
)

from .kit import (
    SECOND_US,
    SEED_TIMING,
    START_US,
    Killed,
    SimProcess,
    Told,
    assert_failed_and_backed_up,
    backup_of,
    events_of,
    in_backup,
    run_virtual,
    until,
)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def states(process: SimProcess) -> list[OperationState]:
    """The operation states that this process wrote, without repeats."""
    found: list[OperationState] = []
    for _, data in process.fs.recorded:
        if not found or found[-1] is not data.state:
            found.append(data.state)
    return found


def frame_states(data: LedgerData) -> dict[str, FrameState]:
    return {frame.participant_id: frame.state for frame in data.stack}


def test_happy_path_ends_completed_in_backup(base: Path) -> None:
    """Seed: Architecture, Call Lifecycle, Backup Mechanism."""

    async def main() -> str:
        cli, worker = SimProcess(base, "cli"), SimProcess(base, "worker", 1)
        told = Told()
        operation = await cli.ledger.create_operation(description="Build")
        call = await operation.start_call(told.callback(), description="Main task")
        joined = await worker.ledger.join_operation(operation.operation_id)

        async def work() -> int:
            return 41

        spawned = joined.spawn_call(work)
        await asyncio.sleep(30)  # beats go on by themselves
        assert cli.ledger.read(operation.operation_id).state is OperationState.RUNNING
        assert await spawned.wait() == 41
        await joined.leave()
        await call.end("done")
        await operation.complete()
        assert told.completions == ["done"]
        assert told.cleanup == 0
        await cli.ledger.dispose()
        return operation.operation_id

    operation_id = run_virtual(main)
    data = backup_of(base, operation_id)
    assert data.state is OperationState.COMPLETED
    assert data.initiator_id == "cli"
    assert events_of(base, operation_id) == [
        "OPERATION_CREATED", "CALL_STARTED", "PARTICIPANT_JOINED", "CALL_SPAWNED",
        "CALL_COMPLETED", "PARTICIPANT_LEFT", "CALL_ENDED", "OPERATION_COMPLETED",
    ]  # fmt: skip
    assert names_in(base) == ["backup"]


@pytest.mark.parametrize("victim_name", ["worker", "cli"])
def test_crash_runs_all_four_phases_in_time(base: Path, tmp_path: Path, victim_name: str) -> None:
    """Seed: Phase Overview, with the crash of a worker and of the initiator. Rulings C5, C9."""
    resource = tmp_path / "scratch.bin"

    async def main() -> None:
        processes = {name: SimProcess(base, name, seed) for seed, name in enumerate(["cli", "worker", "other"])}
        operation = await processes["cli"].ledger.create_operation(operation_id="op")
        handles = {"cli": operation}
        for name in ("worker", "other"):
            handles[name] = await processes[name].ledger.join_operation("op")
        told = {name: Told() for name in processes}
        for name, handle in handles.items():
            call = await handle.start_call(told[name].callback())
            if name == victim_name:
                resource.write_text("x")
                await call.add_temp_resource(str(resource))
        await asyncio.sleep(13)
        victim = processes.pop(victim_name)
        victim.kill()
        last_beat_us = next(
            frame.last_heartbeat_us
            for frame in next(iter(processes.values())).ledger.read("op").stack
            if frame.participant_id == victim_name
        )
        backed_up_at = await until(lambda: in_backup(base, "op"))

        data = assert_failed_and_backed_up(base, "op", SEED_TIMING)
        assert data.detection_us is not None
        assert data.removal_us is not None
        # Ruling C9: 10 to 15 s after the last beat; the overview's T+30 and T+40 are upper bounds.
        assert 10 * SECOND_US < data.detection_us - last_beat_us <= 15 * SECOND_US
        assert data.removal_us - data.detection_us == 10 * SECOND_US
        assert data.removal_us - last_beat_us <= 30 * SECOND_US
        assert abs(START_US + backed_up_at * SECOND_US - data.removal_us - 10 * SECOND_US) <= 0.1 * SECOND_US
        assert (
            data.crashed_call_ids
            == tuple(frame for frame in data.crashed_call_ids if frame.startswith(f"call_{victim_name}_"))
            != ()
        )

        written = [data for process in processes.values() for _, data in process.fs.recorded]
        detected = [data for data in written if data.detection_us == data.last_heartbeat_us]
        seen = frame_states(min(detected, key=lambda data: data.last_heartbeat_us))
        assert seen[victim_name] is FrameState.CRASHED
        assert sorted(state.value for name, state in seen.items() if name != victim_name) == [
            "active", "cleaningUp",
        ]  # fmt: skip
        [coordinator] = [name for name, state in seen.items() if state is FrameState.CLEANING_UP]
        [other] = processes.keys() - {coordinator}
        assert states(processes[coordinator])[-2:] == [OperationState.CLEANUP, OperationState.FAILED]
        cleaned = [data for _, data in processes[other].fs.recorded if data.state is OperationState.CLEANUP]
        assert frame_states(cleaned[-1])[other] is FrameState.CLEANED_UP
        # Phase 2 is over within one beat of the others, and nobody beats after it.
        assert cleaned[-1].last_heartbeat_us - data.detection_us <= 5 * SECOND_US

        assert not resource.exists()
        assert told.pop(victim_name) == Told()
        for name, record in told.items():
            assert record.cleanup == 1, name
            assert [info.crashed_call_ids for info in record.failures] == [data.crashed_call_ids]
        for process in processes.values():
            await process.ledger.dispose()

    run_virtual(main)
    events = events_of(base, "op")
    assert events.count("CRASH_DETECTED") == 1
    assert events.count("CLEANUP_STARTED") == 1


@pytest.mark.parametrize("phase", ["detected", "cleaned up", "removed", "moving"])
def test_next_live_participant_takes_over_from_a_dead_coordinator(base: Path, phase: str) -> None:
    """Ruling C5: the coordinator dies in each phase; the next one goes on from the recorded phase."""

    async def main() -> None:
        processes = [SimProcess(base, name, seed) for seed, name in enumerate(["a", "b", "c", "victim"])]
        await processes[0].ledger.create_operation(operation_id="op")
        told = []
        for process in processes:
            handle = await process.ledger.join_operation("op")
            told.append(Told())
            await handle.start_call(told[-1].callback())
        await asyncio.sleep(6)
        processes[-1].kill()

        await until(lambda: processes[0].ledger.read("op").state is OperationState.CLEANUP)
        data = processes[0].ledger.read("op")
        [coordinator] = [frame.participant_id for frame in data.stack if frame.state is FrameState.CLEANING_UP]
        first = next(process for process in processes if process.name == coordinator)
        others = [process for process in processes[:3] if process is not first]
        if phase == "cleaned up":
            await until(lambda: FrameState.ACTIVE not in frame_states(others[0].ledger.read("op")).values())
        if phase in ("removed", "moving"):
            await until(lambda: others[0].ledger.read("op").state is OperationState.FAILED)
        if phase == "moving":  # dead in the middle of the move: a log is in backup, the JSON is not
            first.fs.fail = lambda number, step, path: (
                Killed() if step == "rename" and path.name == "operation.json" else None
            )
            await until(lambda: first.fs.dead)
            assert (base / "backup" / "op" / "operation.log").exists()
            assert not in_backup(base, "op")
        first.kill()
        await until(lambda: in_backup(base, "op"))

        final = assert_failed_and_backed_up(base, "op", SEED_TIMING)
        assert final.detection_us == data.detection_us
        assert any(call_id.startswith("call_victim_") for call_id in final.crashed_call_ids)
        assert [record.cleanup for record, process in zip(told, processes, strict=True) if process in others] == [1, 1]
        for process in others:
            await process.ledger.dispose()

    run_virtual(main)
    assert events_of(base, "op").count("CLEANUP_STARTED") == 2


def test_hung_participant_that_returns_changes_nothing_and_cleans_up_once(base: Path) -> None:
    """A stopped process is taken for dead (seed: Terminology, Cleanup); resumed, it learns what happened."""

    async def main() -> None:
        cli, hung = SimProcess(base, "cli"), SimProcess(base, "hung", 1)
        operation = await cli.ledger.create_operation(operation_id="op")
        await operation.start_call()
        joined = await hung.ledger.join_operation("op")
        told = Told()
        call = await joined.start_call(told.callback())
        hung.stop()
        await until(lambda: in_backup(base, "op"))
        before = backup_of(base, "op")
        assert told == Told()
        hung.resume()
        info = await joined.wait_failed()
        await joined.wait_over()
        assert info.crashed_call_ids == (call.call_id,)
        assert told.cleanup == 1
        assert len(told.failures) == 1
        with pytest.raises(OperationFailedError):
            await call.end("late")
        with pytest.raises(OperationFailedError):
            await joined.start_call()
        assert backup_of(base, "op") == before
        assert names_in(base) == ["backup"]

    run_virtual(main)


def test_hung_participant_that_returns_in_time_is_unharmed(base: Path) -> None:
    """Staleness threshold: a pause shorter than it is no crash."""

    async def main() -> None:
        cli, slow = SimProcess(base, "cli"), SimProcess(base, "slow", 1)
        operation = await cli.ledger.create_operation(operation_id="op")
        own = await operation.start_call()
        async with slow.ledger.join_operation("op") as joined, joined.start_call():
            for _ in range(5):
                slow.stop()
                await asyncio.sleep(4)
                slow.resume()
                await asyncio.sleep(6)
        await own.end()
        await operation.complete()

    run_virtual(main)
    assert backup_of(base, "op").state is OperationState.COMPLETED
    assert "CRASH_DETECTED" not in events_of(base, "op")


def test_process_that_was_stopped_itself_accuses_nobody(base: Path) -> None:
    """Ruling C9: what a process remembers from before its own stop proves nothing about others."""

    async def main() -> None:
        cli, other = SimProcess(base, "cli"), SimProcess(base, "other", 1)
        operation = await cli.ledger.create_operation(operation_id="op")
        await operation.start_call()
        joined = await other.ledger.join_operation("op")
        await joined.start_call()
        await asyncio.sleep(20)
        # The whole machine sleeps for an hour: both stop, and wake at the same moment.
        cli.stop()
        other.stop()
        await asyncio.sleep(3600)
        cli.resume()
        other.resume()
        await asyncio.sleep(60)
        assert cli.ledger.read("op").state is OperationState.RUNNING

    run_virtual(main)


def test_nested_calls_five_deep(base: Path) -> None:
    """Stack frames of five processes; the innermost crashes; every level is cleaned up once."""

    async def main() -> None:
        processes = [SimProcess(base, f"level{depth}", depth) for depth in range(5)]
        operation = await processes[0].ledger.create_operation(operation_id="op")
        handles = [operation] + [await process.ledger.join_operation("op") for process in processes[1:]]
        told = [Told() for _ in handles]
        for handle, record in zip(handles, told, strict=True):
            await handle.start_call(record.callback())
        beat = await operation.heartbeat()
        assert beat.stack_depth == 5
        assert beat.stack_participants == tuple(process.name for process in processes)
        processes[4].kill()
        await until(lambda: in_backup(base, "op"))
        assert_failed_and_backed_up(base, "op", SEED_TIMING)
        assert [record.cleanup for record in told] == [1, 1, 1, 1, 0]

    run_virtual(main)


def test_fifty_participants_learn_of_one_crash(base: Path) -> None:
    """Every one of 49 live participants cleans up once, and one of them coordinates."""

    async def main() -> None:
        processes = [SimProcess(base, f"p{number}", number) for number in range(50)]
        operation = await processes[0].ledger.create_operation(operation_id="op")
        handles = [operation] + [await process.ledger.join_operation("op") for process in processes[1:]]
        told = [Told() for _ in handles]
        for handle, record in zip(handles, told, strict=True):
            await handle.start_call(record.callback())
        processes[17].kill()
        await until(lambda: in_backup(base, "op"))
        assert_failed_and_backed_up(base, "op", SEED_TIMING)
        assert [record.cleanup for record in told] == [0 if number == 17 else 1 for number in range(50)]
        assert sum(len(record.failures) for record in told) == 49

    run_virtual(main)
    assert events_of(base, "op").count("CLEANUP_STARTED") == 1


def test_abort_cleans_up_like_a_crash_without_crashed_calls(base: Path, tmp_path: Path) -> None:
    """Operation file: `aborted`; every participant runs its cleanup, and the history is kept."""
    resource = tmp_path / "shared.tmp"
    resource.write_text("x")

    async def main() -> None:
        cli, worker = SimProcess(base, "cli"), SimProcess(base, "worker", 1)
        operation = await cli.ledger.create_operation(operation_id="op")
        await operation.add_temp_resource(resource)
        joined = await worker.ledger.join_operation("op")
        told = Told()
        await joined.start_call(told.callback())
        await operation.abort("the user changed their mind")
        with pytest.raises(OperationFailedError, match="changed their mind"):
            await operation.start_call()
        with pytest.raises(OperationFailedError):
            await operation.complete()  # ruling C5
        info = await joined.wait_failed()
        assert info.aborted
        assert info.crashed_call_ids == ()
        with pytest.raises(OperationFailedError):
            await worker.ledger.join_operation("op")  # ruling C10
        await until(lambda: in_backup(base, "op"))
        with pytest.raises(OperationFailedError):
            await worker.ledger.join_operation("op")
        data = assert_failed_and_backed_up(base, "op", SEED_TIMING)
        assert data.aborted
        assert told.cleanup == 1
        assert not resource.exists()

    run_virtual(main)
    assert "CRASH_DETECTED" not in events_of(base, "op")


def test_abort_flag_from_outside_is_acted_on_by_the_next_beat(base: Path) -> None:
    """HeartbeatResult.abortFlag: whoever beats next coordinates."""

    async def main() -> None:
        cli, outsider = SimProcess(base, "cli"), SimProcess(base, "outsider", 1)
        operation = await cli.ledger.create_operation(operation_id="op")
        told = Told()
        await operation.start_call(told.callback())
        await outsider.ledger.request_abort("op")
        with pytest.raises(OperationFailedError, match="aborted"):
            await outsider.ledger.request_abort("op")
        result = await operation.heartbeat()
        assert result.abort_flag
        assert operation.is_coordinator
        await operation.wait_over()
        assert assert_failed_and_backed_up(base, "op", SEED_TIMING).aborted
        assert told.cleanup == 1

    run_virtual(main)


@pytest.mark.parametrize("fallback", [None, -1])
def test_contained_crash_leaves_the_operation_running(base: Path, tmp_path: Path, fallback: int | None) -> None:
    """Contained Crashes (failOnCrash = false); the returned process gets its fallback (ruling C6)."""
    resource = tmp_path / "chunk.tmp"
    resource.write_text("x")

    async def main() -> None:
        cli, worker = SimProcess(base, "cli"), SimProcess(base, "worker", 1)
        operation = await cli.ledger.create_operation(operation_id="op")
        own = Told()
        call = await operation.start_call(own.callback())
        joined = await worker.ledger.join_operation("op")
        told = Told()
        gate = asyncio.Event()

        async def work() -> object:
            await gate.wait()
            return 1

        risky = joined.spawn_call(work, told.callback(fallback), fail_on_crash=False)
        await until(lambda: len(cli.ledger.read("op").stack) == 2)
        await risky.add_temp_resource(str(resource))
        worker.stop()
        await until(lambda: len(cli.ledger.read("op").stack) == 1)
        marked = [data for _, data in cli.fs.recorded if "worker" in frame_states(data)]
        assert frame_states(marked[-1])["worker"] is FrameState.CRASHED
        assert not resource.exists()
        await asyncio.sleep(30)
        assert cli.ledger.read("op").state is OperationState.RUNNING

        worker.resume()
        await risky.settled()
        assert (told.cleanup, told.crashed) == (1, 1)
        assert told.failures == []
        if fallback is None:
            assert risky.is_failed
            with pytest.raises(CallFailedError) as caught:
                await risky.wait()
            assert isinstance(caught.value.__cause__, CallCrashedError)
        else:
            assert risky.result == fallback
            assert told.completions == [fallback]
        await joined.leave()
        await call.end()
        await operation.complete()
        assert own.cleanup == 0

    run_virtual(main)
    assert backup_of(base, "op").state is OperationState.COMPLETED
    assert "CLEANUP_STARTED" not in events_of(base, "op")
    assert events_of(base, "op").count("CRASH_DETECTED") == 1


def test_one_crashed_frame_that_fails_the_operation_outweighs_contained_ones(base: Path) -> None:
    """Phase 1, step 4: *any* crashed frame with failOnCrash."""

    async def main() -> None:
        cli, worker = SimProcess(base, "cli"), SimProcess(base, "worker", 1)
        operation = await cli.ledger.create_operation(operation_id="op")
        joined = await worker.ledger.join_operation("op")
        await joined.start_call(fail_on_crash=False)
        await joined.start_call(fail_on_crash=True)
        worker.kill()
        info = await operation.wait_failed()
        assert len(info.crashed_call_ids) == 2
        await operation.wait_over()
        assert_failed_and_backed_up(base, "op", SEED_TIMING)

    run_virtual(main)


def test_two_operations_in_one_folder_do_not_touch_each_other(base: Path) -> None:
    async def main() -> None:
        cli, worker = SimProcess(base, "cli"), SimProcess(base, "worker", 1)
        sound = await cli.ledger.create_operation(operation_id="sound")
        crashing = await cli.ledger.create_operation(operation_id="crashing")
        call = await sound.start_call()
        joined = await worker.ledger.join_operation("crashing")
        await joined.start_call()
        worker.kill()
        await crashing.wait_over()
        assert_failed_and_backed_up(base, "crashing", SEED_TIMING)
        await call.end()
        await sound.complete()

    run_virtual(main)
    assert backup_of(base, "sound").state is OperationState.COMPLETED


@pytest.mark.parametrize("opener", ["ledger", "create", "join"])
def test_nobody_left_is_cleaned_up_by_whoever_opens_the_folder(base: Path, tmp_path: Path, opener: str) -> None:
    """Ruling C10, in every way to open a folder; frame and temp resources are gone."""
    resource = tmp_path / "left.tmp"
    resource.write_text("x")

    async def main() -> None:
        dead = SimProcess(base, "dead")
        operation = await dead.ledger.create_operation(operation_id="op")
        call = await operation.start_call(fail_on_crash=False)
        await call.add_temp_resource(str(resource))
        dead.kill()
        await asyncio.sleep(100)
        late = SimProcess(base, "late", 1)
        if opener == "ledger":
            await late.ledger.__aenter__()
        elif opener == "create":
            await late.ledger.create_operation(operation_id="next")
        else:
            with pytest.raises(OperationFailedError, match="no participant is left"):
                await late.ledger.join_operation("op")
        await until(lambda: in_backup(base, "op"))
        data = assert_failed_and_backed_up(base, "op", SEED_TIMING)
        assert data.crashed_call_ids == (call.call_id,)
        assert not resource.exists()
        await late.ledger.dispose()

    run_virtual(main)


@pytest.mark.parametrize("phase", [OperationState.CLEANUP, OperationState.FAILED, OperationState.COMPLETED])
def test_recovery_goes_on_from_the_recorded_phase(base: Path, phase: OperationState) -> None:
    """Rulings C5 and C10: everyone died in the middle of a cleanup, or between completing and the move."""

    async def main() -> None:
        dead = SimProcess(base, "dead")
        operation = await dead.ledger.create_operation(operation_id="op")

        def die(data: LedgerData) -> None:
            if data.state is phase:
                dead.kill()

        dead.fs.on_record = die
        try:
            await (operation.complete() if phase is OperationState.COMPLETED else operation.abort())
            await until(lambda: dead.fs.dead)
        except Killed:
            pass
        recorded = SimProcess(base, "reader").ledger.read("op")
        assert recorded.state is phase
        await asyncio.sleep(100)
        late = SimProcess(base, "late", 1)
        assert await late.ledger.recover() == 1
        final = backup_of(base, "op")
        if phase is OperationState.COMPLETED:
            assert final == recorded
        else:
            assert final.detection_us == recorded.detection_us
            assert final.state is OperationState.FAILED
        assert names_in(base) == ["backup"]

    run_virtual(main)


def test_recovery_leaves_a_living_operation_alone(base: Path) -> None:
    """Ruling C10 with C9: an operation beaten by a clock that is an hour behind only looks abandoned."""

    async def main() -> None:
        behind = SimProcess(base, "behind", offset_seconds=-3600)
        operation = await behind.ledger.create_operation(operation_id="op")
        await operation.start_call()
        late = SimProcess(base, "late", 1)
        joined = await late.ledger.join_operation("op")
        await asyncio.sleep(100)
        assert late.ledger.read("op").state is OperationState.RUNNING
        await joined.leave()
        assert await SimProcess(base, "third", 2).ledger.recover() == 0

    run_virtual(main)


def test_complete_waits_for_no_one_and_refuses_open_calls(base: Path, tmp_path: Path) -> None:
    """Ruling C8: open calls, own or of others, refuse completion, and refusing deletes nothing."""
    resource = tmp_path / "keep.tmp"
    resource.write_text("x")

    async def main() -> None:
        cli, worker = SimProcess(base, "cli"), SimProcess(base, "worker", 1)
        operation = await cli.ledger.create_operation(operation_id="op")
        await operation.add_temp_resource(resource)
        joined = await worker.ledger.join_operation("op")
        call = await joined.start_call()
        with pytest.raises(CallsPendingError, match="worker"):
            await operation.complete()
        assert resource.exists()
        await call.end()
        await operation.complete()
        assert not resource.exists()
        with pytest.raises(OperationEndedError):
            await operation.complete()
        await joined.wait_over()  # an idle participant learns of the completion by itself
        assert joined.failure is None
        with pytest.raises(OperationEndedError):
            await joined.start_call()
        with pytest.raises(OperationEndedError):
            await worker.ledger.join_operation("op")

    run_virtual(main)
