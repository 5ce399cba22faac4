"""What replay compares: the operations that an event began, each with its fingerprint (ruling B5)."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.core.journal.events import (
    Event,
    ExecutionAwaiting,
    InvokeScheduled,
    JoinSetCreated,
    RandomGenerated,
    SignalReceived,
    TimeRecorded,
    TimerScheduled,
)


class Operation(NamedTuple):
    """An operation as the body asked for it: what kind, of what name, and the hash of its input."""

    promise_id: str
    kind: str
    name: str
    fingerprint: str


def operations_of(event: Event) -> tuple[Operation, ...]:
    """The operations that took a child number with this event.

    A signal that was waited for has its operation in the wait already; its SignalReceived names it again.
    """
    match event:
        case InvokeScheduled():
            found = Operation(event.promise_id, event.kind, event.function_name, event.fingerprint)
        case TimerScheduled():
            found = Operation(event.promise_id, "Timer", "", event.fingerprint)
        case RandomGenerated():
            found = Operation(event.promise_id, "Random", "", event.fingerprint)
        case TimeRecorded():
            found = Operation(event.promise_id, "Time", "", event.fingerprint)
        case JoinSetCreated():
            found = Operation(event.join_set_id, "JoinSet", "", event.fingerprint)
        case SignalReceived():
            found = Operation(event.promise_id, "Signal", event.signal_name, event.fingerprint)
        case ExecutionAwaiting():
            return tuple(
                Operation(wait.promise_id, "Signal", wait.signal_name, wait.fingerprint) for wait in event.signals
            )
        case _:
            return ()
    return (found,)
