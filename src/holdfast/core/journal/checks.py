"""The one way into a journal: `admit` checks an event against every rule and then takes note of it.

It costs the same however long the journal is. `Journal` calls it at each append, `validate` for each stored event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.core.errors import InvalidArgumentError
from holdfast.core.journal import calls, control, events, join_sets, lifecycle
from holdfast.core.journal.book import Book
from holdfast.core.journal.events import Event, ExecutionStarted, JournalEvent
from holdfast.core.journal.fold import TERMINAL_EVENTS, JournalStatus
from holdfast.core.journal.rules import AWARE_TIME, S_1, S_2, S_3, S_4

# Each check takes its own type of event, which is the key it is found by.
_Check = Callable[[Book, Any], None]

CHECKS: Final[dict[type[JournalEvent], _Check]] = {
    events.ExecutionStarted: lifecycle.execution_started,
    events.ExecutionCompleted: lifecycle.execution_completed,
    events.ExecutionFailed: lifecycle.execution_failed,
    events.CancelRequested: lifecycle.cancel_requested,
    events.ExecutionCancelled: lifecycle.execution_cancelled,
    events.InvokeScheduled: calls.invoke_scheduled,
    events.InvokeStarted: calls.invoke_started,
    events.InvokeCompleted: calls.invoke_completed,
    events.InvokeRetrying: calls.invoke_retrying,
    events.RandomGenerated: calls.random_generated,
    events.TimeRecorded: calls.time_recorded,
    events.TimerScheduled: control.timer_scheduled,
    events.TimerFired: control.timer_fired,
    events.SignalDelivered: control.signal_delivered,
    events.SignalReceived: control.signal_received,
    events.ExecutionAwaiting: control.execution_awaiting,
    events.ExecutionResumed: control.execution_resumed,
    events.JoinSetCreated: join_sets.join_set_created,
    events.JoinSetSubmitted: join_sets.join_set_submitted,
    events.JoinSetAwaited: join_sets.join_set_awaited,
}


def admit(book: Book, event: Event) -> None:
    """Check an event and note it; what `book.refuse` does decides whether a bad one gets through."""
    try:
        check = CHECKS[type(event)]
    except KeyError:
        raise InvalidArgumentError(
            f"{event!r} is no event of a journal: append one of the 20 in holdfast.core.journal.events"
        ) from None
    sequence = event.sequence
    if sequence != book.length:
        _refuse_sequence(book, event)
    if event.timestamp.tzinfo is None:
        book.refuse(AWARE_TIME, sequence, "the timestamp has no time zone")
    if not book.is_open and (book.status is not None or type(event) is not ExecutionStarted):
        _refuse_closed(book, event)
    check(book, event)
    book.length += 1


def _refuse_sequence(book: Book, event: Event) -> None:
    book.refuse(S_1, event.sequence, f"the next sequence number is {book.length}", book.execution_id)
    # An audit goes on from a gap, and past a repetition.
    book.length = max(book.length - 1, event.sequence)


def _refuse_closed(book: Book, event: Event) -> None:
    name = type(event).__name__
    if book.status is None:
        book.refuse(S_2, event.sequence, f"the journal begins with {name}", book.execution_id)
        book.status = JournalStatus.RUNNING
        book.is_open = True
        return
    detail = f"{name} after the execution was {book.status_text()}"
    if type(event) in TERMINAL_EVENTS:
        book.refuse(S_3, event.sequence, detail, book.execution_id)
    book.refuse(S_4, event.sequence, detail, book.execution_id)
