"""Checks of side effects (SE-1..SE-4, attempts of B3) and of captured values (nondeterminism)."""

from __future__ import annotations

from holdfast.core.journal.book import CALL, CONSUMED, SETTLED, VALUE, Book, Call, digest_of
from holdfast.core.journal.events import (
    InvokeCompleted,
    InvokeRetrying,
    InvokeScheduled,
    InvokeStarted,
    RandomGenerated,
    TimeRecorded,
)
from holdfast.core.journal.rules import (
    ATTEMPT_LAST,
    ATTEMPT_NEXT,
    COMPLETED_ONCE,
    SE_1,
    SE_2,
    SE_3,
    SE_4,
)


def invoke_scheduled(book: Book, event: InvokeScheduled) -> None:
    number = book.allocate(event, event.promise_id, CALL)
    if number >= 0:
        book.calls[event.promise_id] = Call(number)


def invoke_started(book: Book, event: InvokeStarted) -> None:
    call = book.calls.get(event.promise_id)
    if call is None:
        if _is_completed(book, event.promise_id):
            book.refuse(SE_4, event.sequence, "the call has completed", event.promise_id)
            return
        book.refuse(SE_1, event.sequence, "the call was never scheduled", event.promise_id)
        call = _adopt(book, event.promise_id)
    elif not call.scheduled:
        book.refuse(SE_1, event.sequence, "the call was never scheduled", event.promise_id)
    # An attempt whose worker died leaves no Retrying behind: the next Started follows it directly.
    elif event.attempt != call.attempt + 1:
        book.refuse(
            ATTEMPT_NEXT,
            event.sequence,
            f"attempt {event.attempt} follows attempt {call.attempt}",
            event.promise_id,
        )
    call.attempt = max(call.attempt, event.attempt)  # Only an audit sees it fall.
    call.running = True


def invoke_completed(book: Book, event: InvokeCompleted) -> None:
    call = book.calls.get(event.promise_id)
    if call is None:
        if _is_completed(book, event.promise_id):
            book.refuse(COMPLETED_ONCE, event.sequence, "the call has completed before", event.promise_id)
            return
        book.refuse(SE_2, event.sequence, "the call was never scheduled or started", event.promise_id)
        call = _adopt(book, event.promise_id)
    elif not call.attempt:
        book.refuse(SE_2, event.sequence, "no attempt has started", event.promise_id)
    elif event.attempt != call.attempt:
        book.refuse(
            ATTEMPT_LAST,
            event.sequence,
            f"attempt {event.attempt} ended, attempt {call.attempt} was the last to start",
            event.promise_id,
        )
    number = call.number
    if not book.flags[number] & CONSUMED:
        book.words[number] = digest_of(event.result)
    del book.calls[event.promise_id]
    book.settle(event.promise_id, number)


def invoke_retrying(book: Book, event: InvokeRetrying) -> None:
    book.check_time(event, event.retry_at, "retry_at")
    call = book.calls.get(event.promise_id)
    if call is None:
        if _is_completed(book, event.promise_id):
            book.refuse(SE_4, event.sequence, "the call has completed", event.promise_id)
        else:
            book.refuse(SE_3, event.sequence, "the call never started", event.promise_id)
        return
    if not 1 <= event.failed_attempt <= call.attempt:
        book.refuse(SE_3, event.sequence, f"attempt {event.failed_attempt} never started", event.promise_id)
    elif event.failed_attempt != call.attempt or not call.running:
        book.refuse(
            ATTEMPT_LAST,
            event.sequence,
            f"attempt {event.failed_attempt} is not in flight, the last to start was {call.attempt}",
            event.promise_id,
        )
    call.running = False


def random_generated(book: Book, event: RandomGenerated) -> None:
    book.allocate(event, event.promise_id, VALUE)


def time_recorded(book: Book, event: TimeRecorded) -> None:
    book.check_time(event, event.time, "time")
    book.allocate(event, event.promise_id, VALUE)


def _is_completed(book: Book, promise_id: str) -> bool:
    index = book.find(promise_id)
    return book.kind_of(index) == CALL and bool(book.flags[index] & SETTLED)


def _adopt(book: Book, promise_id: str) -> Call:
    """An audit takes note of the call, though it was never scheduled, to find what else is wrong with it."""
    call = book.calls[promise_id] = Call(book.adopt(promise_id, CALL))
    call.scheduled = False
    return call
