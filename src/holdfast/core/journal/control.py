"""Checks of timers, signals and waits (CF-1..CF-4, FIFO and waits of B3, B10, await and resume of B2)."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from holdfast.core.journal.book import CALL, JOIN_SET, SETTLED, SIGNAL, TIMER, Book, Inbox
from holdfast.core.journal.events import (
    ExecutionAwaiting,
    ExecutionResumed,
    SignalDelivered,
    SignalReceived,
    SignalWait,
    TimerFired,
    TimerScheduled,
)
from holdfast.core.journal.fold import STATUS_AFTER, JournalStatus
from holdfast.core.journal.local_ids import UNKNOWN
from holdfast.core.journal.rules import (
    AWAIT,
    CF_1,
    CF_2,
    CF_3,
    CF_4,
    CHILD_NUMBER,
    DELIVERY_ID,
    FIRED_ONCE,
    RECEIVED_ONCE,
    RESUME,
    SATISFIED,
    SIGNAL_FIFO,
    SIGNAL_NAMED,
    WAIT_KNOWN,
    WAIT_SHAPE,
    WAIT_UNIQUE,
)

_RUNNING: Final = JournalStatus.RUNNING
_BLOCKED: Final = JournalStatus.BLOCKED


def timer_scheduled(book: Book, event: TimerScheduled) -> None:
    book.check_time(event, event.fire_at, "fire_at")
    book.allocate(event, event.promise_id, TIMER)


def timer_fired(book: Book, event: TimerFired) -> None:
    index = book.find(event.promise_id)
    if book.kind_of(index) != TIMER:
        book.refuse(CF_1, event.sequence, "no such timer was scheduled", event.promise_id)
        return
    if book.flags[index] & SETTLED:
        book.refuse(FIRED_ONCE, event.sequence, "the timer has fired before", event.promise_id)
    book.settle(event.promise_id, index)


def signal_delivered(book: Book, event: SignalDelivered) -> None:
    inbox = book.inboxes.get(event.signal_name)
    last = 0 if inbox is None else inbox.last
    delivery_id = event.delivery_id
    if delivery_id <= last:
        detail = f"delivery {delivery_id} follows delivery {last}"
        book.refuse(DELIVERY_ID, event.sequence, detail, name=event.signal_name)
        _deliver_late(inbox, event)
        return
    if inbox is None:
        inbox = _new_inbox(book, event.signal_name)
    if delivery_id > last + 1:
        inbox.skipped.append(range(last + 1, delivery_id))
    if delivery_id not in inbox.early:
        inbox.unconsumed.append((delivery_id, hash(bytes(event.payload))))
    inbox.last = delivery_id


def _new_inbox(book: Book, signal_name: str) -> Inbox:
    book.inboxes = book.inboxes or {}
    inbox = book.inboxes[signal_name] = Inbox()
    return inbox


def _deliver_late(inbox: Inbox | None, event: SignalDelivered) -> None:
    """An audit takes a delivery in, though it came out of order, unless there was one of the same id."""
    if inbox is None:
        return
    for place, skipped in enumerate(inbox.skipped):
        if event.delivery_id in skipped:
            inbox.skipped[place] = range(skipped.start, event.delivery_id)
            inbox.skipped.append(range(event.delivery_id + 1, skipped.stop))
            if event.delivery_id not in inbox.early:
                delivery = (event.delivery_id, hash(bytes(event.payload)))
                inbox.unconsumed = deque(sorted((*inbox.unconsumed, delivery)))
            return


def signal_received(book: Book, event: SignalReceived) -> None:
    delivery = _matching_delivery(book, event)
    promise_id = event.promise_id
    index = book.find(promise_id)
    if index == UNKNOWN:
        book.allocate(event, promise_id, SIGNAL | SETTLED)
    elif book.kind_of(index) != SIGNAL:
        book.refuse(CHILD_NUMBER, event.sequence, "the id belongs to another operation", promise_id)
    elif book.flags[index] & SETTLED:
        book.refuse(RECEIVED_ONCE, event.sequence, "the promise has its signal already", promise_id)
    else:
        awaited = book.signal_names[promise_id]
        if awaited != event.signal_name:
            detail = f"{awaited!r} was awaited, {event.signal_name!r} received"
            book.refuse(SIGNAL_NAMED, event.sequence, detail, promise_id)
        del book.signal_names[promise_id]
        book.settle(promise_id, index)
    if delivery is not None:
        book.inboxes[event.signal_name].unconsumed.remove(delivery)  # The head, unless an audit saw SIGNAL_FIFO.


def _matching_delivery(book: Book, event: SignalReceived) -> tuple[int, int] | None:
    """The delivery that is consumed: it must be the oldest of its name and carry the same payload."""
    name, wanted = event.signal_name, event.delivery_id
    inbox = book.inboxes.get(name)
    if inbox is None:
        book.refuse(CF_2, event.sequence, "no signal of this name was delivered", event.promise_id, name=name)
        _new_inbox(book, name).early = {wanted}
        return None
    for place, delivery in enumerate(inbox.unconsumed):
        if delivery[0] == wanted:
            if place:
                detail = f"delivery {inbox.unconsumed[0][0]} is older than {wanted}"
                book.refuse(SIGNAL_FIFO, event.sequence, detail, event.promise_id, name=name)
            if delivery[1] != hash(bytes(event.payload)):
                detail = f"delivery {wanted} carried another payload"
                book.refuse(CF_2, event.sequence, detail, event.promise_id, name=name)
            return delivery
        if delivery[0] > wanted:
            break
    if 1 <= wanted <= inbox.last and not any(wanted in skipped for skipped in inbox.skipped):
        detail = f"delivery {wanted} was consumed before"
        book.refuse(CF_3, event.sequence, detail, event.promise_id, name=name)
    else:
        detail = f"delivery {wanted} never happened"
        book.refuse(CF_2, event.sequence, detail, event.promise_id, name=name)
        inbox.early = {*inbox.early, wanted}
    return None


def execution_awaiting(book: Book, event: ExecutionAwaiting) -> None:
    if book.status is not _RUNNING:
        book.refuse(AWAIT, event.sequence, f"the execution is {book.status_text()}", *event.waiting_on)
    _check_shape(book, event)
    fresh = _fresh_signals(book, event) if event.signals else ()
    outstanding = _outstanding(book, event, fresh)
    for wait in fresh:
        if book.enter(wait.promise_id, SIGNAL) >= 0:
            book.signal_names = book.signal_names or {}
            book.signal_names[wait.promise_id] = wait.signal_name
    if book.is_open:
        book.status = STATUS_AFTER[ExecutionAwaiting]
        book.waiting = event
        book.outstanding = outstanding


def _check_shape(book: Book, event: ExecutionAwaiting) -> None:
    waiting_on = event.waiting_on
    count = len(waiting_on)
    if event.join_set_id is not None:
        _check_join_set(book, event, event.join_set_id)
    if event.kind == "Signal":
        if len(event.signals) != 1 or waiting_on != (event.signals[0].promise_id,):
            book.refuse(CF_4, event.sequence, "the wait and its signal name different promises", *waiting_on)
    elif count != 1 and (count == 0 or event.kind == "Single") and event.join_set_id is None:
        book.refuse(WAIT_SHAPE, event.sequence, f"{event.kind} waits on {count} promises", *waiting_on)
    if count > 1 and len(set(waiting_on)) != count:
        twice = sorted(promise_id for promise_id, times in Counter(waiting_on).items() if times > 1)
        book.refuse(WAIT_UNIQUE, event.sequence, "a promise is named twice", *twice)


def _check_join_set(book: Book, event: ExecutionAwaiting, join_set_id: str) -> None:
    """A join set stands for those of its members whose results are left: with none it stands for nothing."""
    if event.kind != "Any" or event.signals:
        detail = "a join set is waited for by Any, without signals"
        book.refuse(WAIT_SHAPE, event.sequence, detail, join_set_id, *event.waiting_on)
    if book.kind_of(book.find(join_set_id)) != JOIN_SET:
        book.refuse(WAIT_KNOWN, event.sequence, "no join set has this id", join_set_id)
        return
    join_set = book.join_sets.get(join_set_id)
    if join_set is None or join_set.submitted <= join_set.awaited:
        book.refuse(WAIT_SHAPE, event.sequence, "the join set has no result left to give", join_set_id)


def _fresh_signals(book: Book, event: ExecutionAwaiting) -> tuple[SignalWait, ...]:
    """The signals that get their promise id with this event; others were waited for before."""
    fresh: list[SignalWait] = []
    waiting_on = set(event.waiting_on)
    for wait in event.signals:
        promise_id = wait.promise_id
        if promise_id not in waiting_on and event.kind != "Signal":
            book.refuse(SIGNAL_NAMED, event.sequence, "the signal is not waited for", promise_id)
        index = book.find(promise_id)
        if index == UNKNOWN:
            expected = book.next_child + len(fresh)
            if promise_id != f".{expected}":
                book.refuse_number(event, promise_id, SIGNAL, expected)
            fresh.append(wait)
        elif book.kind_of(index) != SIGNAL:
            book.refuse(CHILD_NUMBER, event.sequence, "the id belongs to another operation", promise_id)
        elif book.signal_names.get(promise_id, wait.signal_name) != wait.signal_name:
            detail = f"it was awaited as {book.signal_names[promise_id]!r} before"
            book.refuse(SIGNAL_NAMED, event.sequence, detail, promise_id)
    return tuple(fresh)


def _outstanding(book: Book, event: ExecutionAwaiting, fresh: tuple[SignalWait, ...]) -> set[str]:
    """The promises of the wait that have no outcome yet, and its join set if that has no result to give yet."""
    outstanding = set()
    if event.join_set_id is not None:
        join_set = book.join_sets.get(event.join_set_id)
        if join_set is None or not join_set.ready:
            outstanding.add(event.join_set_id)
    named = {wait.promise_id for wait in event.signals} if event.signals else ()
    new = {wait.promise_id for wait in fresh} if fresh else ()
    for promise_id in event.waiting_on:
        if promise_id in book.calls or promise_id in new:
            outstanding.add(promise_id)
            continue
        index = book.find(promise_id)
        kind = book.kind_of(index)
        if kind not in (CALL, TIMER, SIGNAL):
            book.refuse(WAIT_KNOWN, event.sequence, "no call, timer or signal has this id", promise_id)
        elif not book.flags[index] & SETTLED:
            if kind == SIGNAL and promise_id not in named:
                book.refuse(SIGNAL_NAMED, event.sequence, "the wait does not name its signal", promise_id)
            outstanding.add(promise_id)
    return outstanding


def execution_resumed(book: Book, event: ExecutionResumed) -> None:
    waiting = book.waiting
    if book.status is not _BLOCKED or waiting is None:
        book.refuse(RESUME, event.sequence, f"the execution is {book.status_text()}", book.execution_id)
        return
    if not book.is_wait_satisfied:
        book.refuse(SATISFIED, event.sequence, "the wait goes on", *sorted(book.outstanding))
    book.status = STATUS_AFTER[ExecutionResumed]
    book.waiting = None
    book.outstanding = set()
