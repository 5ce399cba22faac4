"""The ledger held against the audit: what the demo claims, it must be able to show.

Every committed step is a line of history, every run of a step a line of the audit. A run without a line of history
was cut short. So: each execution went its whole way, each committed step was committed once, and none of them ran
again afterwards; what did run twice was in flight when its worker was killed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.cli.demo.audit import Run
from holdfast.cli.demo.machines import ORDER_STEPS, PARCEL_STEPS
from holdfast.core.status import Status

REPLAY: Final = "Replay"
PATHS: Final[Mapping[str, tuple[str, ...]]] = {"Order": ORDER_STEPS, "Parcel": PARCEL_STEPS}


@dataclass(frozen=True, slots=True)
class Committed:
    """One line of an execution's history."""

    step: str
    attempt: int
    outcome: str


@dataclass(frozen=True, slots=True)
class Finished:
    """One execution, as the ledger has it at the end."""

    id: str
    label: str
    name: str
    status: Status
    result: Any
    expected: Any
    history: Sequence[Committed]


@dataclass(slots=True)
class Proof:
    """What was found. `faults` is empty exactly if all that is claimed holds."""

    executions: int = 0
    committed: int = 0  # steps that progressed
    retried: int = 0  # runs that ended in a recorded retry
    cut_short: int = 0  # runs of the killed worker that left nothing in the ledger
    expired: int = 0  # the same of a worker that was too slow to keep its lease
    faults: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not self.faults


def prove(finished: Sequence[Finished], runs: Iterable[Run], killed_pid: int, in_flight: frozenset[str]) -> Proof:
    """`in_flight` are the executions that the ledger said the worker held when it was killed."""
    proof = Proof(executions=len(finished))
    runs_of: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        runs_of[run.execution].append(run)
    for execution in finished:
        _check_end(execution, proof)
        _check_path(execution, proof)
        _check_runs(execution, runs_of.pop(execution.id, []), killed_pid, execution.id in in_flight, proof)
    for unknown in runs_of:
        proof.faults.append(f"steps ran for {unknown}, which is not in the ledger")
    return proof


def _check_end(execution: Finished, proof: Proof) -> None:
    if execution.status is not Status.DONE:
        proof.faults.append(f"{execution.label} is {execution.status}, not done")
    elif execution.result != execution.expected:
        proof.faults.append(f"{execution.label} came to {execution.result!r}, not {execution.expected!r}")


def _check_path(execution: Finished, proof: Proof) -> None:
    path = tuple(line.step for line in execution.history if line.outcome != REPLAY)
    if path != PATHS[execution.name]:
        proof.faults.append(f"{execution.label} committed {' -> '.join(path) or 'nothing'}")
    proof.committed += len(path)
    proof.retried += len(execution.history) - len(path)


def _check_runs(execution: Finished, runs: Sequence[Run], killed_pid: int, was_held: bool, proof: Proof) -> None:
    recorded = Counter((line.step, line.attempt) for line in execution.history)
    for line, count in recorded.items():
        if count > 1:
            proof.faults.append(f"{execution.label} committed {line[0]} (attempt {line[1]}) {count} times")
    done_at = {line.step: line.attempt for line in execution.history if line.outcome != REPLAY}
    ran: Counter[tuple[str, int]] = Counter()
    for run in runs:
        key = (run.step, run.attempt)
        ran[key] += 1
        is_repeat = (ran[key] > 1 and key in recorded) or run.attempt > done_at.get(run.step, run.attempt)
        if is_repeat:
            proof.faults.append(f"{execution.label} ran {run.step} again after it was committed")
        elif key not in recorded and run.pid == killed_pid and was_held:
            proof.cut_short += 1
        elif key not in recorded:
            proof.expired += 1
    for step, attempt in recorded.keys() - ran.keys():
        proof.faults.append(f"{execution.label} committed {step} (attempt {attempt}), which never ran")
