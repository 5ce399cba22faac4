"""Checks of the five lifecycle events (S-3, S-5 and the guards of B2)."""

from __future__ import annotations

from typing import Final

from holdfast.core.journal.book import Book
from holdfast.core.journal.events import (
    CancelRequested,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionStarted,
)
from holdfast.core.journal.fold import STATUS_AFTER, JournalStatus
from holdfast.core.journal.rules import CANCEL, CANCELLED, COMPLETE, FAIL, S_5, START

_RUNNING: Final = JournalStatus.RUNNING
_BLOCKED: Final = JournalStatus.BLOCKED
_CANCELLING: Final = JournalStatus.CANCELLING


def execution_started(book: Book, event: ExecutionStarted) -> None:
    if book.is_open or book.status is not None:
        book.refuse(START, event.sequence, f"the execution is {book.status_text()}", book.execution_id)
        return
    book.status = STATUS_AFTER[ExecutionStarted]
    book.is_open = True


def execution_completed(book: Book, event: ExecutionCompleted) -> None:
    if not book.may_operate():
        book.refuse(COMPLETE, event.sequence, f"the execution is {book.status_text()}", book.execution_id)
    _end(book, STATUS_AFTER[ExecutionCompleted])


def execution_failed(book: Book, event: ExecutionFailed) -> None:
    if not book.may_operate():
        book.refuse(FAIL, event.sequence, f"the execution is {book.status_text()}", book.execution_id)
    _end(book, STATUS_AFTER[ExecutionFailed])


def cancel_requested(book: Book, event: CancelRequested) -> None:
    if book.status is not _RUNNING and book.status is not _BLOCKED:
        book.refuse(CANCEL, event.sequence, f"the execution is {book.status_text()}", book.execution_id)
    book.cancel_requested = True
    if book.is_open:
        _leave_wait(book, STATUS_AFTER[CancelRequested])


def execution_cancelled(book: Book, event: ExecutionCancelled) -> None:
    if not book.cancel_requested:
        book.refuse(S_5, event.sequence, "no cancel was requested", book.execution_id)
    elif book.status is not _CANCELLING:
        book.refuse(CANCELLED, event.sequence, f"the execution is {book.status_text()}", book.execution_id)
    _end(book, STATUS_AFTER[ExecutionCancelled])


def _end(book: Book, status: JournalStatus) -> None:
    _leave_wait(book, status)
    book.is_open = False


def _leave_wait(book: Book, status: JournalStatus) -> None:
    book.status = status
    book.waiting = None
    book.outstanding = set()
