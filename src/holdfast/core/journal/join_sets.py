"""Checks of join sets (JS-1..JS-7, B8, equal results of B3)."""

from __future__ import annotations

from holdfast.core.journal.book import (
    CALL,
    CONSUMED,
    JOIN_SET,
    SETTLED,
    SUBMITTED,
    Book,
    JoinSet,
    digest_of,
)
from holdfast.core.journal.events import JoinSetAwaited, JoinSetCreated, JoinSetSubmitted
from holdfast.core.journal.local_ids import whole_id
from holdfast.core.journal.rules import (
    AWAITED_RESULT,
    JS_1,
    JS_2,
    JS_3,
    JS_4,
    JS_5,
    JS_6,
    JS_7,
    MEMBER,
)
from holdfast.core.journal.rules import JOIN_SET as JOIN_SET_GUARD


def join_set_created(book: Book, event: JoinSetCreated) -> None:
    if book.allocate(event, event.join_set_id, JOIN_SET) >= 0:
        book.join_sets = book.join_sets or {}
        # An audit may have counted members that came too early.
        book.join_sets.setdefault(event.join_set_id, JoinSet(created=True)).created = True


def join_set_submitted(book: Book, event: JoinSetSubmitted) -> None:
    join_set_id, promise_id = event.join_set_id, event.promise_id
    _guard(book, event)
    join_set = book.join_sets.get(join_set_id)
    if join_set is None or not join_set.created:
        # A join set whose results are all taken is forgotten but for its flags.
        if book.kind_of(book.find(join_set_id)) == JOIN_SET:
            book.refuse(JS_2, event.sequence, "its results were all taken", join_set_id, promise_id)
        else:
            book.refuse(JS_1, event.sequence, "there is no such join set", join_set_id, promise_id)
    elif join_set.awaited:
        book.refuse(JS_2, event.sequence, "a result was taken from it", join_set_id, promise_id)
    call = book.calls.get(promise_id)
    index = call.number if call is not None else book.find(promise_id)
    if book.kind_of(index) != CALL:
        book.refuse(MEMBER, event.sequence, "no call with this id was scheduled", join_set_id, promise_id)
    if promise_id in book.members or (index >= 0 and book.flags[index] & SUBMITTED):
        owner = book.members.get(promise_id)
        named = "a join set that gave its result" if owner is None else whole_id(book.execution_id, owner)
        book.refuse(JS_7, event.sequence, f"it was submitted to {named} before", join_set_id, promise_id)
    if join_set is None:
        join_set = _early(book, join_set_id)
    join_set.submitted += 1
    book.members = book.members or {}
    book.members[promise_id] = join_set_id
    if index >= 0:
        book.flags[index] |= SUBMITTED
        join_set.ready += bool(book.flags[index] & SETTLED)


def join_set_awaited(book: Book, event: JoinSetAwaited) -> None:
    join_set_id, promise_id = event.join_set_id, event.promise_id
    _guard(book, event)
    index = book.find(promise_id)
    flags = book.flags[index] if index >= 0 else 0
    is_member = book.members.get(promise_id) == join_set_id
    if book.is_taken(join_set_id, promise_id, index):
        book.refuse(JS_5, event.sequence, "its result was taken before", join_set_id, promise_id)
    elif not is_member:
        book.refuse(JS_3, event.sequence, "it is not a member", join_set_id, promise_id)
    if book.kind_of(index) != CALL or not flags & SETTLED:
        book.refuse(JS_4, event.sequence, "the call has not completed", join_set_id, promise_id)
    elif not flags & CONSUMED and book.words[index] != digest_of(event.result):
        book.refuse(AWAITED_RESULT, event.sequence, "the call completed with another result", join_set_id, promise_id)
    join_set = book.join_sets.get(join_set_id)
    if join_set is None or join_set.awaited >= join_set.submitted:
        book.refuse(JS_6, event.sequence, "no result is left to take", join_set_id, promise_id)
    if is_member:
        del book.members[promise_id]
    book.mark_taken(join_set_id, promise_id, index)
    if join_set is None:
        join_set = _early(book, join_set_id)
    join_set.awaited += 1
    join_set.ready -= is_member and bool(flags & SETTLED)
    if join_set.awaited == join_set.submitted:
        del book.join_sets[join_set_id]


def _early(book: Book, join_set_id: str) -> JoinSet:
    """A join set that no event began; only an audit comes here."""
    book.join_sets = book.join_sets or {}
    join_set = book.join_sets[join_set_id] = JoinSet(created=False)
    return join_set


def _guard(book: Book, event: JoinSetSubmitted | JoinSetAwaited) -> None:
    if not book.may_operate():
        detail = f"the execution is {book.status_text()}"
        book.refuse(JOIN_SET_GUARD, event.sequence, detail, event.join_set_id, event.promise_id)
