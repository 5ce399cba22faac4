"""One heartbeat, as a change under the lock: beat, look at the others, and take the phase that is due.

`beat` decides everything that must be decided while the file cannot change; what follows from it outside the
lock (callbacks, deleting resources) is in `cleanup`. `HeartbeatResult` is what the seed's `heartbeat()` returns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .data import FrameState, LedgerData, OperationState, StackFrame
from .files import Transaction
from .lifecycle import BEATING, coordinate, enter_cleanup, mark_crashed, must_clean_up, touch
from .logs import Event, LogLevel
from .observer import OPERATION, Observer
from .timing import MILLISECOND_US, Timing


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The state around one heartbeat (seed: HeartbeatResult). Ages are those before the update."""

    abort_flag: bool
    ledger_exists: bool
    heartbeat_updated: bool
    stack_depth: int = 0
    temp_resource_count: int = 0
    heartbeat_age_ms: int = 0
    is_stale: bool = False
    stack_participants: tuple[str, ...] = ()
    participant_heartbeat_ages: dict[str, int] = field(default_factory=dict)
    stale_participants: tuple[str, ...] = ()
    has_stale_children: bool = False
    data_before: LedgerData | None = None
    data_after: LedgerData | None = None


@dataclass(slots=True)
class Member:
    """One participant's place in an operation, as its own process knows it."""

    participant_id: str
    pid: int
    observer: Observer
    timing: Timing
    own: set[str] = field(default_factory=set)
    marker_id: str = ""
    cleaned_up: bool = False
    closing: bool = False  # holds the operation in `failed`, where no frame marks the coordinator
    recovering: bool = False  # takes no part: only looks whether anybody is left (ruling C10)
    lost: frozenset[str] = frozenset()  # own frames that others declared crashed, as of the last beat

    def coordinates(self, data: LedgerData) -> bool:
        if data.state is OperationState.FAILED:
            return self.closing
        return any(frame.call_id in self.own and frame.state is FrameState.CLEANING_UP for frame in data.stack)

    def marker(self, now_us: int) -> StackFrame:
        """The frame of a coordinator that has none: its own death must not fail anything more."""
        return StackFrame(
            call_id=self.marker_id,
            participant_id=self.participant_id,
            pid=self.pid,
            start_us=now_us,
            last_heartbeat_us=now_us,
            fail_on_crash=False,
            description="cleanup coordinator",
        )


def beat(transaction: Transaction, member: Member, monotonic_us: int, waited_us: int) -> HeartbeatResult:
    """Beat once and do what the state of the operation asks of this participant."""
    before = transaction.data
    if before is None:
        return HeartbeatResult(
            abort_flag=transaction.final is not None and transaction.final.aborted,
            ledger_exists=False,
            heartbeat_updated=False,
            data_before=transaction.final,
            data_after=transaction.final,
        )
    dead = member.observer.look(before, transaction.now_us, monotonic_us, waited_us) - member.own
    match before.state:
        case OperationState.RUNNING if member.recovering:
            after = _while_abandoned(transaction, before, member, dead)
        case OperationState.RUNNING:
            after = _while_running(transaction, before, member, dead)
        case OperationState.CLEANUP:
            after = _while_cleaning_up(transaction, before, member, dead)
        case OperationState.FAILED:
            after = _while_failed(transaction, before, member, dead)
        case OperationState.COMPLETED:
            after = before
            transaction.ends = True  # seen only if a process died between completing and moving to backup
    if after != before:
        transaction.data = after
    alive = {frame.call_id for frame in after.stack if frame.state is not FrameState.CRASHED}
    member.lost = frozenset(member.own - alive)
    return _describe(before, after, member, dead, transaction.now_us)


def start_cleanup(transaction: Transaction, data: LedgerData, member: Member, reason: str) -> LedgerData:
    """Phase 1, steps 5 to 7, with this participant as coordinator."""
    marker = member.marker(transaction.now_us)
    after = enter_cleanup(data, member.own, marker, transaction.now_us, reason)
    _own_marker(member, after)
    transaction.event(Event.CLEANUP_STARTED, f"coordinator={member.participant_id} reason: {reason}")
    return after


def _while_running(transaction: Transaction, data: LedgerData, member: Member, dead: frozenset[str]) -> LedgerData:
    after = touch(data, member.own, transaction.now_us)
    if dead - {OPERATION}:
        after = _declare_dead(transaction, after, dead)
    if not must_clean_up(after):
        return after
    crashed = [frame for frame in after.stack if frame.state is FrameState.CRASHED and frame.fail_on_crash]
    reason = "aborted" if after.aborted else f"crash of {', '.join(_names(crashed))}"
    return start_cleanup(transaction, after, member, reason)


def _while_abandoned(transaction: Transaction, data: LedgerData, member: Member, dead: frozenset[str]) -> LedgerData:
    """Nobody beats, neither the operation nor any frame: it has crashed as a whole (ruling C10)."""
    beating = {frame.call_id for frame in data.stack if frame.state in BEATING}
    if OPERATION not in dead or not beating <= dead:
        return data
    after = _declare_dead(transaction, data, dead)
    reason = "aborted" if after.aborted else "no participant is left"
    return start_cleanup(transaction, after, member, reason)


def _while_cleaning_up(transaction: Transaction, data: LedgerData, member: Member, dead: frozenset[str]) -> LedgerData:
    if dead - {OPERATION}:
        data = _declare_dead(transaction, data, dead)
    if any(frame.state is FrameState.CLEANING_UP for frame in data.stack):
        beats = not member.cleaned_up or member.coordinates(data)
        return touch(data, member.own, transaction.now_us) if beats else data  # phase 2, step 4
    # The coordinator is dead: go on from the phase that is recorded (ruling C5).
    after = coordinate(data, member.own, member.marker(transaction.now_us))
    _own_marker(member, after)
    transaction.event(Event.CLEANUP_STARTED, f"coordinator={member.participant_id} takes over")
    return touch(after, member.own, transaction.now_us)


def _while_failed(transaction: Transaction, data: LedgerData, member: Member, dead: frozenset[str]) -> LedgerData:
    if OPERATION in dead and not member.closing:
        member.closing = True
        transaction.event(Event.CLEANUP_STARTED, f"coordinator={member.participant_id} takes over the backup")
    return touch(data, member.own, transaction.now_us) if member.closing else data


def _declare_dead(transaction: Transaction, data: LedgerData, dead: frozenset[str]) -> LedgerData:
    """Phase 1, steps 1 and 2 (the lock is held)."""
    for frame in data.stack:
        if frame.call_id in dead:
            age_ms = (transaction.now_us - frame.last_heartbeat_us) // MILLISECOND_US
            transaction.event(
                Event.CRASH_DETECTED,
                f"callId={frame.call_id} participant={frame.participant_id} pid={frame.pid} "
                f"heartbeatAgeMs={age_ms} failOnCrash={str(frame.fail_on_crash).lower()}",
                LogLevel.ERROR if frame.fail_on_crash else LogLevel.WARNING,
            )
    return mark_crashed(data, dead)


def _own_marker(member: Member, data: LedgerData) -> None:
    if data.frame(member.marker_id) is not None:
        member.own.add(member.marker_id)


def _names(frames: list[StackFrame]) -> list[str]:
    return list(dict.fromkeys(f"{frame.participant_id} (pid {frame.pid})" for frame in frames))


def _describe(
    before: LedgerData, after: LedgerData, member: Member, dead: frozenset[str], now_us: int
) -> HeartbeatResult:
    ages: dict[str, int] = {}
    for frame in before.stack:
        age_ms = max(0, now_us - frame.last_heartbeat_us) // MILLISECOND_US
        ages[frame.participant_id] = max(age_ms, ages.get(frame.participant_id, 0))
    stale_ids = dead | {frame.call_id for frame in after.stack if frame.state is FrameState.CRASHED}
    own_at = [index for index, frame in enumerate(before.stack) if frame.call_id in member.own]
    above = before.stack[own_at[0] + 1 :] if own_at else before.stack
    operation_age_ms = max(0, now_us - before.last_heartbeat_us) // MILLISECOND_US
    return HeartbeatResult(
        abort_flag=after.aborted,
        ledger_exists=True,
        heartbeat_updated=after.last_heartbeat_us == now_us,
        stack_depth=len(after.stack),
        temp_resource_count=len(after.temp_resources) + sum(len(frame.resources) for frame in after.stack),
        heartbeat_age_ms=operation_age_ms,
        is_stale=operation_age_ms > member.timing.staleness_ms,
        stack_participants=tuple(ages),
        participant_heartbeat_ages=ages,
        stale_participants=tuple(
            dict.fromkeys(frame.participant_id for frame in before.stack if frame.call_id in stale_ids)
        ),
        has_stale_children=any(frame.call_id in stale_ids for frame in above),
        data_before=before,
        data_after=after,
    )
