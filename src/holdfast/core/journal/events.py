"""The 20 events of an execution journal, in the five categories of the seed.

- Values that events carry: `Ok` and `Err` (a call's result), `Failure`, `SignalWait`.
- Lifecycle (5), side effects (4), nondeterminism (2), control flow (6), concurrency (3).
- `Event`: the union of them all; `CATEGORIES`: which is which.

Events are plain values: what makes a sequence of them legal is in `rules` and the checks beside it, how they are
written is in `format`. Payloads are JSON text as `msgspec.Raw`, so that writing a journal never looks into
them. A `Raw` that was read from a journal keeps its whole segment in memory until it is dropped.

A journal names its own children locally: `.7` is child 7 of the execution whose journal it is, in the stored text as
in memory. The whole id is that execution's followed by the local one (ruling B3: parent plus the next number); the
journal's own part of it is understood, so a copy of a journal is the journal of another execution. `whole` puts it in
front where an id leaves the journal. `parent_id` is of another execution, and whole.

What says nothing is not written: a field that has its default is left out, but for `v`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Raw, Struct, field

FORMAT_VERSION: Final = 1

AwareTime: TypeAlias = Annotated[datetime, Meta(tz=True)]
InvokeKind: TypeAlias = Literal["Function", "Http"]
AwaitKind: TypeAlias = Literal["Single", "Any", "All", "Signal"]
FailureKind: TypeAlias = Literal["user", "timeout", "cancelled", "uncertain", "nondeterminism", "internal"]

NULL: Final = Raw(b"null")


class Failure(Struct, frozen=True, gc=False):
    """Why a call or an execution failed (rulings B4, B11)."""

    kind: FailureKind
    type: str
    message: str
    fields: Raw = NULL
    traceback: str | None = None


class Ok(Struct, frozen=True, gc=False, tag_field="outcome", tag="ok"):
    """A call that returned."""

    value: Raw


class Err(Struct, frozen=True, gc=False, tag_field="outcome", tag="error"):
    """A call that failed for good: there is no failed-invoke event (ruling B4)."""

    error: Failure


Result: TypeAlias = Ok | Err


class SignalWait(Struct, frozen=True, gc=False):
    """A signal among the promises that are waited for; naming it lets a deliverer match it (ruling B10)."""

    promise_id: str
    signal_name: str
    fingerprint: str = ""


def version() -> Literal[1]:
    """Of the format, as it is written today."""
    return FORMAT_VERSION


class _Versioned(Struct, frozen=True, gc=False, kw_only=True, tag_field="event", omit_defaults=True):
    v: Literal[1] = field(default_factory=version)  # ruling B14: made, and so written; a plain default is left out


class JournalEvent(_Versioned, frozen=True, gc=False):
    """What every event has. `timestamp` is for people: replay never looks at it."""

    sequence: int
    timestamp: AwareTime


# Lifecycle: proper start and end.


class ExecutionStarted(JournalEvent, frozen=True, gc=False, tag=True):
    """Always first. `version` and `component_digest` say which code began it (ruling B6).

    `copied_from` are the runs whose past a fork begins with: what they called may hold their ids. With `attributes` it
    was started; the body may have set others since.
    """

    component_digest: str
    input: Raw
    parent_id: str | None = None
    idempotency_key: str | None = None
    version: int = 1
    copied_from: tuple[str, ...] = ()
    attributes: Raw = NULL


class ExecutionCompleted(JournalEvent, frozen=True, gc=False, tag=True):
    """The function returned."""

    result: Raw


class ExecutionFailed(JournalEvent, frozen=True, gc=False, tag=True):
    """The function raised."""

    error: Failure


class CancelRequested(JournalEvent, frozen=True, gc=False, tag=True):
    """Someone asked for the end; clean-up follows."""

    reason: str


class ExecutionCancelled(JournalEvent, frozen=True, gc=False, tag=True):
    """Clean-up is over."""

    reason: str


# Side effects: Scheduled is the intent, Started the attempt in flight, Completed the result that replay reads.


class InvokeScheduled(JournalEvent, frozen=True, gc=False, tag=True):
    """The intent to call. `fingerprint` is the hash of the canonical input (ruling B5)."""

    promise_id: str
    kind: InvokeKind
    function_name: str
    input: Raw
    fingerprint: str
    retry_policy: Raw = NULL


class InvokeStarted(JournalEvent, frozen=True, gc=False, tag=True):
    """An attempt is in flight."""

    promise_id: str
    attempt: int


class InvokeCompleted(JournalEvent, frozen=True, gc=False, tag=True):
    """The result, good or bad, that every replay returns."""

    promise_id: str
    result: Result
    attempt: int


class InvokeRetrying(JournalEvent, frozen=True, gc=False, tag=True):
    """An attempt failed and another one follows at `retry_at`."""

    promise_id: str
    failed_attempt: int
    error: Failure
    retry_at: AwareTime


# Nondeterminism: one phase, because there is nothing in flight.


class RandomGenerated(JournalEvent, frozen=True, gc=False, tag=True):
    """A random value; `fingerprint` tells what was asked for (a float, an integer of a range, a uuid)."""

    promise_id: str
    value: Raw
    fingerprint: str


class TimeRecorded(JournalEvent, frozen=True, gc=False, tag=True):
    """What `now()` returned."""

    promise_id: str
    time: AwareTime
    fingerprint: str = ""


# Control flow: the same path on replay.


class TimerScheduled(JournalEvent, frozen=True, gc=False, tag=True):
    """A timer that fires at `fire_at`, by the store's clock."""

    promise_id: str
    duration: timedelta
    fire_at: AwareTime
    fingerprint: str


class TimerFired(JournalEvent, frozen=True, gc=False, tag=True):
    """The timer's time has come."""

    promise_id: str


class SignalDelivered(JournalEvent, frozen=True, gc=False, tag=True):
    """A signal arrived and is buffered. It has no promise id: it comes from outside the call tree."""

    signal_name: str
    payload: Raw
    delivery_id: int


class SignalReceived(JournalEvent, frozen=True, gc=False, tag=True):
    """The body took the oldest buffered signal of a name."""

    promise_id: str
    signal_name: str
    payload: Raw
    delivery_id: int
    fingerprint: str = ""


class ExecutionAwaiting(JournalEvent, frozen=True, gc=False, tag=True):
    """The body is blocked. A signal that is waited for gets its promise id here, unless it has one already.

    `join_set_id` stands for every member of that join set whose result was not taken, beside what is named: a large
    one would be written out at each of its results.
    """

    waiting_on: tuple[str, ...]
    kind: AwaitKind
    signals: tuple[SignalWait, ...] = ()
    join_set_id: str | None = None


class ExecutionResumed(JournalEvent, frozen=True, gc=False, tag=True):
    """The wait is satisfied and the body goes on."""


# Concurrency: results in the order in which they were taken.


class JoinSetCreated(JournalEvent, frozen=True, gc=False, tag=True):
    """A join set. Its id is a child's, but it is no promise: it cannot be awaited, completed or submitted."""

    join_set_id: str
    fingerprint: str = ""


class JoinSetSubmitted(JournalEvent, frozen=True, gc=False, tag=True):
    """A call became a member of a join set."""

    join_set_id: str
    promise_id: str


class JoinSetAwaited(JournalEvent, frozen=True, gc=False, tag=True):
    """A member's result was taken here. A marker for replay, no change of state."""

    join_set_id: str
    promise_id: str
    result: Result


Event: TypeAlias = (
    ExecutionStarted
    | ExecutionCompleted
    | ExecutionFailed
    | CancelRequested
    | ExecutionCancelled
    | InvokeScheduled
    | InvokeStarted
    | InvokeCompleted
    | InvokeRetrying
    | RandomGenerated
    | TimeRecorded
    | TimerScheduled
    | TimerFired
    | SignalDelivered
    | SignalReceived
    | ExecutionAwaiting
    | ExecutionResumed
    | JoinSetCreated
    | JoinSetSubmitted
    | JoinSetAwaited
)

CATEGORIES: Final[dict[str, tuple[type[JournalEvent], ...]]] = {
    "lifecycle": (
        ExecutionStarted,
        ExecutionCompleted,
        ExecutionFailed,
        CancelRequested,
        ExecutionCancelled,
    ),
    "side effects": (InvokeScheduled, InvokeStarted, InvokeCompleted, InvokeRetrying),
    "nondeterminism": (RandomGenerated, TimeRecorded),
    "control flow": (
        TimerScheduled,
        TimerFired,
        SignalDelivered,
        SignalReceived,
        ExecutionAwaiting,
        ExecutionResumed,
    ),
    "concurrency": (JoinSetCreated, JoinSetSubmitted, JoinSetAwaited),
}
