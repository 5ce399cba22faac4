"""Taking in stored events: the commonest in place, all others by `admit`.

As in `quick`, each branch does what the check of its event does, where a look at the journal tells that it passes;
otherwise the checks in `calls` and `control` alone decide. So a replay, most of which are calls that were awaited where
they were made, does not ask three functions about each event. `read_step` does the same for the commonest segment as a
whole. A property test holds the ways against each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from holdfast.core.journal.book import CALL, ENDED, Book, Call
from holdfast.core.journal.checks import admit
from holdfast.core.journal.events import (
    Event,
    ExecutionAwaiting,
    ExecutionResumed,
    InvokeCompleted,
    InvokeScheduled,
    InvokeStarted,
    Ok,
)
from holdfast.core.journal.fold import JournalStatus

_RUNNING: Final = JournalStatus.RUNNING
_BLOCKED: Final = JournalStatus.BLOCKED
_STEP: Final = [InvokeStarted, InvokeCompleted, ExecutionResumed, InvokeScheduled, ExecutionAwaiting]


def read_events(book: Book, events: Iterable[Event]) -> None:
    """`admit` of each of them."""
    calls, flags, words = book.calls, book.flags, book.words
    event: Any  # its type is looked at once, by identity
    for event in events:
        if event.sequence != book.length or not book.is_open or event.timestamp.tzinfo is None:
            admit(book, event)
            continue
        kind = type(event)
        if kind is InvokeStarted:
            call = calls.get(event.promise_id)
            if call is not None and event.attempt == call.attempt + 1:
                call.attempt = event.attempt
                call.running = True
                book.length += 1
                continue
        elif kind is InvokeCompleted:
            promise_id, result = event.promise_id, event.result
            call = calls.get(promise_id)
            if call is not None and call.attempt == event.attempt > 0 and type(result) is Ok:
                number = call.number
                words[number] = hash(bytes(result.value))
                if flags[number] == CALL:
                    flags[number] = ENDED
                    book.outstanding.discard(promise_id)
                else:
                    book.settle(promise_id, number)
                del calls[promise_id]
                book.length += 1
                continue
        elif kind is ExecutionResumed:
            if book.status is _BLOCKED and book.waiting is not None and not book.outstanding:
                book.status = _RUNNING
                book.waiting = None
                book.length += 1
                continue
        elif kind is InvokeScheduled:
            promise_id, number = event.promise_id, book.next_child
            if book.status is _RUNNING and promise_id == f".{number}":
                book.next_child = number + 1
                flags.append(CALL)
                words.append(0)
                calls[promise_id] = Call(number)
                book.length += 1
                continue
        elif kind is ExecutionAwaiting:
            waiting_on = event.waiting_on
            is_single = event.kind == "Single" and len(waiting_on) == 1 and not event.signals
            if is_single and event.join_set_id is None and book.status is _RUNNING and waiting_on[0] in calls:
                book.status = _BLOCKED
                book.waiting = event
                book.outstanding = set(waiting_on)
                book.length += 1
                continue
        admit(book, event)


def read_step(book: Book, events: Sequence[Any]) -> bool:
    """`read_events` of one segment, if a call ended well in it that was waited for, and the next was begun.

    Otherwise, and where anything of it is not as it should be, nothing is taken in.
    """
    if [*map(type, events)] != _STEP:
        return False
    started, completed, resumed, scheduled, awaiting = events
    promise_id, next_id, attempt, result = started.promise_id, scheduled.promise_id, started.attempt, completed.result
    calls, outstanding, number, length = book.calls, book.outstanding, book.next_child, book.length
    call = calls.get(promise_id)
    if (
        call is None
        or book.flags[call.number] != CALL
        or attempt != call.attempt + 1
        or completed.attempt != attempt
        or completed.promise_id != promise_id
        or type(result) is not Ok
        or book.status is not _BLOCKED
        or not book.is_open
        or book.waiting is None
        or len(outstanding) != 1
        or promise_id not in outstanding
        or next_id != f".{number}"
        or awaiting.waiting_on != (next_id,)
        or awaiting.kind != "Single"
        or awaiting.signals
        or awaiting.join_set_id is not None
        or started.sequence != length
        or completed.sequence != length + 1
        or resumed.sequence != length + 2
        or scheduled.sequence != length + 3
        or awaiting.sequence != length + 4
        or started.timestamp.tzinfo is None
        or completed.timestamp.tzinfo is None
        or resumed.timestamp.tzinfo is None
        or scheduled.timestamp.tzinfo is None
        or awaiting.timestamp.tzinfo is None
    ):
        return False
    flags, words, ended = book.flags, book.words, call.number
    words[ended] = hash(bytes(result.value))
    flags[ended] = ENDED
    flags.append(CALL)
    words.append(0)
    del calls[promise_id]
    calls[next_id] = Call(number)
    book.next_child = number + 1
    book.waiting = awaiting
    book.outstanding = {next_id}
    book.length = length + 5
    return True
