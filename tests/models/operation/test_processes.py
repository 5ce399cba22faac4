"""The scenarios with real processes, killed with SIGKILL, stopped with SIGSTOP and resumed, on fast constants.

Every scenario mostly waits, so those of a group are played at the same time, each in a folder of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from holdfast.models.operation.data import FrameState, LedgerData, OperationState
from holdfast.models.operation.filesystem import LocalFileSystem
from holdfast.operation import Ledger, Timing
from tests.forked import CONTEXT

from .kit import assert_failed_and_backed_up, backup_of, events_of, in_backup
from .participant import Plan, participate

FAST = Timing.fast()
# Fifty hearts at the fast pace would be 450 beats a second on one lock.
MANY = replace(FAST, heartbeat_min_ms=1_000, heartbeat_max_ms=1_250, staleness_ms=7_000, lock_timeout_ms=8_000)
# Windows long enough for the killer to be in time on a busy machine.
WIDE = replace(FAST, self_cleanup_window_ms=2_000, deletion_delay_ms=2_000)
LIMIT_SECONDS = 60


class Stage:
    """A ledger folder and the processes on it."""

    def __init__(self, folder: Path, timing: Timing = FAST) -> None:
        self.base = folder / "ledger"
        self.notes = folder / "notes"
        self.notes.mkdir(parents=True)
        self.timing = timing
        self.processes: dict[str, BaseProcess] = {}
        self.ledger = Ledger(self.base, participant_id="audience", timing=timing, temp_roots=[folder])

    def start(self, name: str, **plan: object) -> None:
        whole = Plan(self.base, self.notes, name, self.timing, **plan)  # type: ignore[arg-type]
        process = CONTEXT.Process(target=participate, args=(whole,), daemon=True)
        process.start()
        self.processes[name] = process

    def start_ready(self, name: str, **plan: object) -> None:
        self.start(name, **plan)
        self.ready(name)

    def ready(self, name: str) -> None:
        self.until(lambda: any(line.startswith("ready") for line in self.told(name)), f"{name} is ready")

    def let_go(self, *names: str) -> None:
        for name in names:
            (self.notes / f"{name}.go").touch()

    def signal(self, name: str, number: int) -> None:
        pid = self.processes[name].pid
        assert pid is not None
        os.kill(pid, number)

    def stop(self, name: str) -> None:
        """SIGSTOP, but not inside the lock: nobody may take a lock from its owner (ruling C2), so that would
        stop the whole operation, which is another story."""
        with LocalFileSystem().locked(self.base / "op.operation.lock"):
            self.signal(name, signal.SIGSTOP)
            pid = self.processes[name].pid
            self.until(lambda: Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T", "stopped")

    def kill(self, name: str) -> None:
        self.signal(name, signal.SIGKILL)
        self.processes[name].join()

    def join(self, *names: str) -> None:
        for name in names:
            self.processes[name].join(LIMIT_SECONDS)
            assert self.processes[name].exitcode == 0, (name, self.told(name))

    def told(self, name: str) -> list[str]:
        path = self.notes / name
        return path.read_text().splitlines() if path.exists() else []

    def count(self, name: str, word: str) -> int:
        return sum(line.split()[0] == word for line in self.told(name))

    def data(self, operation_id: str = "op") -> LedgerData:
        return self.ledger.read(operation_id)

    def backed_up(self, operation_id: str = "op") -> None:
        self.until(lambda: in_backup(self.base, operation_id), f"{operation_id} is in backup")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        limit = time.monotonic() + LIMIT_SECONDS
        while not condition():
            assert time.monotonic() < limit, f"not in {LIMIT_SECONDS} s: {what}; {self.data()}"
            time.sleep(0.01)

    def close(self) -> None:
        for process in self.processes.values():
            if process.is_alive():
                process.kill()
            process.join()

    def assert_failed(self, operation_id: str = "op") -> LedgerData:
        return assert_failed_and_backed_up(self.base, operation_id, self.timing)

    def assert_cleaned_up_once(self, *names: str) -> None:
        for name in names:
            assert (self.count(name, "cleanup"), self.count(name, "failed")) == (1, 1), (name, self.told(name))
            assert self.told(name)[-1] == "over True"


def happy_path(stage: Stage) -> None:
    stage.start_ready("cli", create=True)
    stage.start("one")
    stage.start("two")
    stage.ready("one")
    stage.ready("two")
    assert len(stage.data().stack) == 3
    stage.let_go("one", "two")
    stage.join("one", "two")
    stage.let_go("cli")
    stage.join("cli")
    assert backup_of(stage.base, "op").state is OperationState.COMPLETED
    for name in ("cli", "one", "two"):
        assert stage.told(name)[1:] == ["completed worked", "result worked", "over False"]
    events = events_of(stage.base, "op")
    assert events.count("CALL_COMPLETED") == 3
    assert events[-1] == "OPERATION_COMPLETED"
    assert [path.name for path in stage.base.iterdir()] == ["backup"]


def crash_of(victim: str) -> Callable[[Stage], None]:
    def scenario(stage: Stage) -> None:
        resource = stage.base.parent / "scratch"
        resource.mkdir()
        (resource / "file").write_text("x")
        survivors = {"cli", "worker", "other"} - {victim}
        stage.start_ready("cli", create=True, resource=resource if victim == "cli" else None)
        stage.start("worker", resource=resource if victim == "worker" else None)
        stage.start("other")
        stage.ready("worker")
        stage.ready("other")
        stage.kill(victim)
        [last_beat_us] = [f.last_heartbeat_us for f in stage.data().stack if f.participant_id == victim]
        stage.join(*survivors)
        data = stage.assert_failed()
        assert data.detection_us is not None
        assert data.detection_us - last_beat_us > FAST.staleness_ms * 1000
        assert [call_id.split("_")[1] for call_id in data.crashed_call_ids] == [victim]
        stage.assert_cleaned_up_once(*survivors)
        assert stage.count(victim, "cleanup") == 0
        assert not resource.exists()
        assert events_of(stage.base, "op").count("CRASH_DETECTED") == 1

    return scenario


def coordinator_dies(phase: str) -> Callable[[Stage], None]:
    def scenario(stage: Stage) -> None:
        names = ["a", "b", "c"]
        stage.start_ready("a", create=True)
        for name in ("b", "c", "victim"):
            stage.start(name)
        for name in ("b", "c", "victim"):
            stage.ready(name)
        stage.kill("victim")
        stage.until(lambda: stage.data().state is OperationState.CLEANUP, "cleanup")
        detected = stage.data()
        [coordinator] = [frame.participant_id for frame in detected.stack if frame.state is FrameState.CLEANING_UP]
        survivors = [name for name in names if name != coordinator]
        if phase == "cleaned up":
            stage.until(lambda: [frame.state for frame in stage.data().stack].count(FrameState.CLEANED_UP) == 2, phase)
        if phase == "removed":
            stage.until(lambda: stage.data().state is OperationState.FAILED, phase)
        stage.kill(coordinator)
        stage.join(*survivors)
        data = stage.assert_failed()
        assert data.detection_us == detected.detection_us
        stage.assert_cleaned_up_once(*survivors)
        assert events_of(stage.base, "op").count("CLEANUP_STARTED") == 2

    return scenario


def hang(stage: Stage) -> None:
    stage.start_ready("cli", create=True)
    stage.start_ready("hung")
    stage.stop("hung")
    stage.join("cli")
    before = stage.assert_failed()
    assert stage.count("hung", "cleanup") == 0
    stage.signal("hung", signal.SIGCONT)
    stage.join("hung")
    stage.assert_cleaned_up_once("cli", "hung")
    assert "result OperationFailedError" in stage.told("hung")
    assert stage.assert_failed() == before


def stopped_with_the_lock(stage: Stage) -> None:
    """Ruling C2: no one takes the lock away; the operation waits, nothing is lost, and goes on when it is free."""
    stage.start_ready("cli", create=True)
    stage.start_ready("other")
    with LocalFileSystem().locked(stage.base / "op.operation.lock"):
        before = stage.data()
        stage.until(lambda: time.time_ns() // 1000 - before.last_heartbeat_us > FAST.staleness_ms * 1000, "stale")
        assert stage.data() == before
    stage.until(lambda: stage.data().last_heartbeat_us > before.last_heartbeat_us, "beating again")
    stage.let_go("other")
    stage.join("other")
    stage.let_go("cli")
    stage.join("cli")
    assert backup_of(stage.base, "op").state is OperationState.COMPLETED


def contained(fallback: str | None) -> Callable[[Stage], None]:
    def scenario(stage: Stage) -> None:
        resource = stage.base.parent / "chunk"
        resource.write_text("x")
        stage.start_ready("cli", create=True)
        stage.start_ready("risky", fail_on_crash=False, fallback=fallback, resource=resource)
        stage.start_ready("doomed", fail_on_crash=False)
        stage.stop("risky")
        stage.kill("doomed")
        stage.until(lambda: len(stage.data().stack) == 1, "the crashed calls are gone")
        assert stage.data().state is OperationState.RUNNING
        assert not resource.exists()
        stage.signal("risky", signal.SIGCONT)
        stage.until(lambda: stage.count("risky", "crashed") == 1, "the risky call knows")
        stage.let_go("risky")
        stage.join("risky")
        stage.let_go("cli")
        stage.join("cli")
        outcome = "CallCrashedError" if fallback is None else fallback
        assert f"result {outcome}" in stage.told("risky")
        assert (stage.count("risky", "cleanup"), stage.count("risky", "failed")) == (1, 0)
        assert stage.told("cli")[1:] == ["completed worked", "result worked", "over False"]
        assert backup_of(stage.base, "op").state is OperationState.COMPLETED
        assert events_of(stage.base, "op").count("CRASH_DETECTED") == 2

    return scenario


def nested_five_deep(stage: Stage) -> None:
    names = [f"level{depth}" for depth in range(5)]
    for name in names:
        stage.start_ready(name, create=name == "level0")
    assert [frame.participant_id for frame in stage.data().stack] == names
    stage.kill("level4")
    stage.join(*names[:4])
    stage.assert_failed()
    stage.assert_cleaned_up_once(*names[:4])


def abort(stage: Stage) -> None:
    stage.start_ready("cli", create=True)
    stage.start_ready("worker", abort=True)
    stage.let_go("worker")
    stage.join("cli", "worker")
    data = stage.assert_failed()
    assert data.aborted
    assert data.failure_reason == "as planned"
    assert data.crashed_call_ids == ()
    stage.assert_cleaned_up_once("cli", "worker")


def two_operations(stage: Stage) -> None:
    stage.start_ready("sound", create=True, operation_id="sound")
    stage.start_ready("watcher", create=True)
    stage.start_ready("victim")
    stage.kill("victim")
    stage.join("watcher")
    stage.assert_failed()
    assert stage.data("sound").state is OperationState.RUNNING
    stage.let_go("sound")
    stage.join("sound")
    assert backup_of(stage.base, "sound").state is OperationState.COMPLETED
    assert "CRASH_DETECTED" not in events_of(stage.base, "sound")


def nobody_left(stage: Stage) -> None:
    """Ruling C10: all are killed; the next one to open the folder sees to it."""
    stage.start_ready("cli", create=True)
    stage.start_ready("worker")
    stage.kill("cli")
    stage.kill("worker")
    stage.until(lambda: time.time_ns() // 1000 - stage.data().last_heartbeat_us > FAST.staleness_ms * 1000, "stale")
    with stage.ledger.sync as ledger:
        assert ledger.recover() == 1
    data = stage.assert_failed()
    assert data.failure_reason == "no participant is left"
    assert len(data.crashed_call_ids) == 2


def fifty(stage: Stage) -> None:
    names = [f"p{number}" for number in range(50)]
    stage.start_ready("p0", create=True)
    for name in names[1:]:
        stage.start(name)
    for name in names[1:]:
        stage.ready(name)
    assert len(stage.data().stack) == 50
    stage.kill("p17")
    survivors = [name for name in names if name != "p17"]
    stage.join(*survivors)
    stage.assert_failed()
    stage.assert_cleaned_up_once(*survivors)
    assert events_of(stage.base, "op").count("CLEANUP_STARTED") == 1


Scenarios = dict[str, tuple[Callable[[Stage], None], Timing]]

GROUPS: dict[str, Scenarios] = {
    "many participants and dying coordinators": {
        "fifty participants": (fifty, MANY),
        "the coordinator dies when it has detected": (coordinator_dies("detected"), WIDE),
        "the coordinator dies when others have cleaned up": (coordinator_dies("cleaned up"), WIDE),
        "the coordinator dies when frames are removed": (coordinator_dies("removed"), WIDE),
    },
    "crashes and ends": {
        "happy path": (happy_path, FAST),
        "crash of a worker": (crash_of("worker"), FAST),
        "crash of the initiator": (crash_of("cli"), FAST),
        "nested calls five deep": (nested_five_deep, FAST),
        "abort": (abort, FAST),
        "two operations in one folder": (two_operations, FAST),
    },
    "stopped, contained and abandoned": {
        "hang": (hang, FAST),
        "the lock held for longer than the threshold": (stopped_with_the_lock, FAST),
        "contained crash": (contained(None), FAST),
        "contained crash with fallback": (contained("instead"), FAST),
        "nobody left": (nobody_left, FAST),
    },
}


@pytest.mark.parametrize("group", GROUPS)
def test_scenarios_with_real_processes(group: str, tmp_path: Path) -> None:
    """Seed: Cleanup Mechanism, whole; rulings C2, C5, C6, C9, C10."""

    def play(name: str, scenario: Callable[[Stage], None], timing: Timing) -> None:
        with contextlib.closing(Stage(tmp_path / name.replace(" ", "-"), timing)) as stage:
            scenario(stage)

    failures = []
    with ThreadPoolExecutor() as stages:
        playing = {
            name: stages.submit(play, name, scenario, timing) for name, (scenario, timing) in GROUPS[group].items()
        }
        for name, outcome in playing.items():
            error = outcome.exception()
            if isinstance(error, Exception):
                error.add_note(f"scenario: {name}")
                failures.append(error)
    if failures:
        raise ExceptionGroup(f"{len(failures)} scenarios failed", failures)
