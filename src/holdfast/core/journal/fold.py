"""The state of a journal, folded from its events.

- `STATUS_AFTER`: the seven events that change the status, and to what.
- `fold`: the state after a sequence of events (or a prefix of it, to look at the past).
- `is_satisfied`: when a blocked execution may resume.

The status here is the journal's own. The status of the execution's row says who may claim it and is another
thing (DESIGN section 5).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

from msgspec import Struct

from holdfast.core.journal.events import (
    AwaitKind,
    CancelRequested,
    Event,
    ExecutionAwaiting,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionResumed,
    ExecutionStarted,
    JournalEvent,
)


class JournalStatus(Enum):
    """Where an execution stands by its journal."""

    RUNNING = "Running"
    BLOCKED = "Blocked"
    CANCELLING = "Cancelling"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def is_terminal(self) -> bool:
        return self in (JournalStatus.COMPLETED, JournalStatus.FAILED, JournalStatus.CANCELLED)


class JournalState(Struct, frozen=True):
    """A status and, while Blocked, what is waited for."""

    status: JournalStatus
    waiting_on: tuple[str, ...] = ()
    kind: AwaitKind | None = None
    join_set_id: str | None = None


STATUS_AFTER: Final[dict[type[JournalEvent], JournalStatus]] = {
    ExecutionStarted: JournalStatus.RUNNING,
    CancelRequested: JournalStatus.CANCELLING,
    ExecutionAwaiting: JournalStatus.BLOCKED,
    ExecutionResumed: JournalStatus.RUNNING,
    ExecutionCompleted: JournalStatus.COMPLETED,
    ExecutionFailed: JournalStatus.FAILED,
    ExecutionCancelled: JournalStatus.CANCELLED,
}

TERMINAL_EVENTS: Final = frozenset(kind for kind, status in STATUS_AFTER.items() if status.is_terminal)


def fold(events: Iterable[Event]) -> JournalState | None:
    """The state after these events; `None` if there are none, since nothing was started (S-2)."""
    last: Event | None = None
    for event in events:
        if type(event) in STATUS_AFTER:
            last = event
    if last is None:
        return None
    if isinstance(last, ExecutionAwaiting):
        return JournalState(JournalStatus.BLOCKED, last.waiting_on, last.kind, last.join_set_id)
    return JournalState(STATUS_AFTER[type(last)])


def is_satisfied(kind: AwaitKind, outstanding: int, total: int) -> bool:
    """Whether a wait on `total` promises, `outstanding` of which are open, lets the execution resume.

    A join set that is waited for counts as one promise, open until it has a result to give.
    """
    if kind == "Any":
        return outstanding < total
    return outstanding == 0
