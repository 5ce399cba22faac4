"""The four cleanup phases and the life of a frame, as pure changes of `LedgerData`.

Each function takes the data and the time and returns new data; what is illegal from a state is refused here
and nowhere else. `NEXT_STATES` and `NEXT_FRAME_STATES` are the tables of what may follow what.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from holdfast.core.clock import to_datetime

from .data import FrameState, LedgerData, OperationState, StackFrame
from .errors import CallStateError, OperationEndedError, OperationFailedError, OperationFailedInfo

NEXT_STATES: dict[OperationState, frozenset[OperationState]] = {
    OperationState.RUNNING: frozenset({OperationState.CLEANUP, OperationState.COMPLETED}),
    OperationState.CLEANUP: frozenset({OperationState.FAILED}),
    OperationState.FAILED: frozenset(),
    OperationState.COMPLETED: frozenset(),
}

NEXT_FRAME_STATES: dict[FrameState, frozenset[FrameState]] = {
    FrameState.ACTIVE: frozenset({FrameState.CRASHED, FrameState.CLEANING_UP, FrameState.CLEANED_UP}),
    FrameState.CLEANING_UP: frozenset({FrameState.CRASHED}),
    # A participant that has cleaned up may still take over from a dead coordinator (ruling C5).
    FrameState.CLEANED_UP: frozenset({FrameState.CLEANING_UP}),
    FrameState.CRASHED: frozenset(),
}

BEATING = frozenset({FrameState.ACTIVE, FrameState.CLEANING_UP})


def failure_of(data: LedgerData) -> OperationFailedInfo:
    """What participants are told about an operation in cleanup or failed."""
    return OperationFailedInfo(
        operation_id=data.operation_id,
        reason=data.failure_reason or ("aborted" if data.aborted else "a participant crashed"),
        failed_at=to_datetime(data.detection_us or data.last_heartbeat_us),
        crashed_call_ids=data.crashed_call_ids,
        aborted=data.aborted,
    )


def require_running(data: LedgerData) -> None:
    """Refuse to go on in an operation that is over; an abort that nobody acted on yet counts (ruling C5)."""
    if data.state is OperationState.COMPLETED:
        raise OperationEndedError(f"operation {data.operation_id} is completed; start a new one")
    if data.state is not OperationState.RUNNING or data.aborted:
        raise OperationFailedError(failure_of(data))


def push_frame(data: LedgerData, frame: StackFrame) -> LedgerData:
    require_running(data)
    if data.frame(frame.call_id) is not None:
        raise CallStateError(f"call {frame.call_id} is already on the stack of operation {data.operation_id}")
    return replace(data, stack=(*data.stack, frame))


def pop_frame(data: LedgerData, call_id: str) -> LedgerData:
    return replace(data, stack=tuple(frame for frame in data.stack if frame.call_id != call_id))


def set_resources(data: LedgerData, call_id: str, resources: Iterable[str]) -> LedgerData:
    kept = tuple(dict.fromkeys(resources))
    return _update(data, {call_id}, lambda frame: replace(frame, resources=kept))


def touch(data: LedgerData, own: Collection[str], now_us: int) -> LedgerData:
    """A heartbeat. It never revives a frame that was declared crashed, nor one that has cleaned up."""
    beaten = _update(
        data, own, lambda frame: replace(frame, last_heartbeat_us=now_us) if frame.state in BEATING else frame
    )
    return replace(beaten, last_heartbeat_us=now_us)


def mark_crashed(data: LedgerData, dead: Collection[str]) -> LedgerData:
    """Phase 1, step 2."""
    return _set_state(data, dead, FrameState.CRASHED)


def must_clean_up(data: LedgerData) -> bool:
    """Phase 1, steps 3 and 4: an abort, or any crashed frame that is not contained."""
    return data.aborted or any(frame.state is FrameState.CRASHED and frame.fail_on_crash for frame in data.stack)


def enter_cleanup(data: LedgerData, own: Collection[str], marker: StackFrame, now_us: int, reason: str) -> LedgerData:
    """Phase 1, steps 5 to 7. `marker` stands in for a coordinator that has no frame of its own."""
    _require_next(data, OperationState.CLEANUP)
    crashed = tuple(frame.call_id for frame in data.stack if frame.state is FrameState.CRASHED)
    return replace(
        coordinate(data, own, marker),
        state=OperationState.CLEANUP,
        detection_us=now_us,
        failure_reason=reason,
        crashed_call_ids=crashed,
    )


def coordinate(data: LedgerData, own: Collection[str], marker: StackFrame) -> LedgerData:
    """Mark own frames as the coordinator's, so that its heartbeat can be watched (phase 1, step 6)."""
    mine = {frame.call_id for frame in data.stack if frame.call_id in own}
    if any(frame.state is not FrameState.CRASHED for frame in data.stack if frame.call_id in mine):
        return _set_state(data, mine, FrameState.CLEANING_UP)
    return replace(data, stack=(*data.stack, replace(marker, state=FrameState.CLEANING_UP)))


def mark_cleaned_up(data: LedgerData, own: Collection[str]) -> LedgerData:
    """Phase 2, step 3; the coordinator keeps its marker."""
    return _set_state(data, own, FrameState.CLEANED_UP)


def remove_frames(data: LedgerData, now_us: int) -> LedgerData:
    """Phase 3, steps 3 to 5."""
    _require_next(data, OperationState.FAILED)
    late = tuple(
        frame.call_id
        for frame in data.stack
        if frame.state is FrameState.CRASHED and frame.call_id not in data.crashed_call_ids
    )
    return replace(
        data,
        stack=(),
        temp_resources=(),
        state=OperationState.FAILED,
        removal_us=now_us,
        crashed_call_ids=data.crashed_call_ids + late,
    )


def complete(data: LedgerData, now_us: int) -> LedgerData:
    require_running(data)
    _require_next(data, OperationState.COMPLETED)
    return replace(data, state=OperationState.COMPLETED, last_heartbeat_us=now_us, temp_resources=())


def _require_next(data: LedgerData, state: OperationState) -> None:
    if state not in NEXT_STATES[data.state]:
        raise OperationEndedError(
            f"operation {data.operation_id} is {data.state.value} and cannot become {state.value}"
        )


def _set_state(data: LedgerData, call_ids: Collection[str], state: FrameState) -> LedgerData:
    return _update(
        data,
        call_ids,
        lambda frame: replace(frame, state=state) if state in NEXT_FRAME_STATES[frame.state] else frame,
    )


def _update(data: LedgerData, call_ids: Collection[str], change: Callable[[StackFrame], StackFrame]) -> LedgerData:
    return replace(data, stack=tuple(change(frame) if frame.call_id in call_ids else frame for frame in data.stack))
