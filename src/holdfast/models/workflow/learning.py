"""What a stored event teaches the session that replays it: what was asked for, what was answered, what is open.

`take_in` goes through a journal once, a segment at a time: read, checked against every rule, learnt and dropped. The
learner of an event is found by its type; events without one change nothing but the journal itself. Most calls of a past
have ended, so an `OpenCall` is made only of what is open at its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from holdfast.core.clock import to_us
from holdfast.core.journal import decode_segment, events, operations_of
from holdfast.core.journal.events import Event, InvokeRetrying, InvokeScheduled, InvokeStarted
from holdfast.models.workflow.open_call import OpenCall, Settled, settings_of

if TYPE_CHECKING:
    from holdfast.models.workflow.past import Past

FIRED: Final = Raw(b"null")


class _Reading:
    """Calls by their id: those without a result, and the first and the last that was recorded of their attempts."""

    __slots__ = ("first", "last", "past", "recorded", "scheduled", "settled")

    def __init__(self, past: Past) -> None:
        self.past = past
        self.recorded = past.recorded
        self.settled = past.settled
        self.scheduled: dict[str, InvokeScheduled] = {}
        self.first: dict[str, InvokeStarted] = {}
        self.last: dict[str, InvokeStarted | InvokeRetrying] = {}


def take_in(past: Past, segments: Sequence[str]) -> None:
    reading, journal, learners = _Reading(past), past.journal, _LEARNERS
    for text in segments:
        segment = decode_segment(text)
        if journal.read_step(segment):
            _, ended, _, begun, _ = segment.events
            _completed(reading, ended)  # type: ignore[arg-type]  # what `read_step` has found to be there
            _scheduled(reading, begun)  # type: ignore[arg-type]
            continue
        journal.read(segment)
        for event in segment.events:
            learn = learners.get(type(event))
            if learn is not None:
                learn(reading, event)
    for promise_id, scheduled in reading.scheduled.items():
        past.open_calls[promise_id] = _open_call(reading, scheduled)


def _open_call(reading: _Reading, scheduled: InvokeScheduled) -> OpenCall:
    promise_id, text = scheduled.promise_id, bytes(scheduled.input).decode()
    settings = settings_of(scheduled.retry_policy)
    call = OpenCall(promise_id, scheduled.function_name, text, settings.is_remote, key=settings.key)
    last = reading.last.get(promise_id)
    if last is not None:
        call.first_started_us = to_us(reading.first[promise_id].timestamp)
        if isinstance(last, InvokeStarted):
            call.attempt, call.started = last.attempt, True
        else:
            call.attempt, call.retry_at_us = last.failed_attempt, to_us(last.retry_at)
    return call


def _began(reading: _Reading, event: events.ExecutionStarted) -> None:
    reading.past.copied_from = event.copied_from


def _scheduled(reading: _Reading, event: InvokeScheduled) -> None:
    reading.recorded.append(event)  # the journal has made sure that its number is the next
    reading.scheduled[event.promise_id] = event


def _started(reading: _Reading, event: InvokeStarted) -> None:
    reading.first.setdefault(event.promise_id, event)
    reading.last[event.promise_id] = event


def _retrying(reading: _Reading, event: InvokeRetrying) -> None:
    reading.last[event.promise_id] = event


def _completed(reading: _Reading, event: events.InvokeCompleted) -> None:
    promise_id = event.promise_id
    del reading.scheduled[promise_id]
    reading.settled[promise_id] = Settled(event.sequence, event.result)


def _random(reading: _Reading, event: events.RandomGenerated) -> None:
    _asked(reading, event)
    reading.settled[event.promise_id] = Settled(event.sequence, event.value)


def _time(reading: _Reading, event: events.TimeRecorded) -> None:
    _asked(reading, event)
    reading.settled[event.promise_id] = Settled(event.sequence, event.time)


def _timer(reading: _Reading, event: events.TimerScheduled) -> None:
    _asked(reading, event)
    reading.past.timers[event.promise_id] = to_us(event.fire_at)


def _fired(reading: _Reading, event: events.TimerFired) -> None:
    reading.past.timers.pop(event.promise_id, None)
    reading.settled[event.promise_id] = Settled(event.sequence, FIRED)


def _awaiting(reading: _Reading, event: events.ExecutionAwaiting) -> None:
    if event.signals:
        _asked(reading, event)


def _delivered(reading: _Reading, event: events.SignalDelivered) -> None:
    reading.past.buffered.setdefault(event.signal_name, deque()).append((event.sequence, event.payload))


def _received(reading: _Reading, event: events.SignalReceived) -> None:
    _asked(reading, event)
    reading.past.buffered[event.signal_name].popleft()
    reading.settled[event.promise_id] = Settled(event.sequence, event.payload)


def _submitted(reading: _Reading, event: events.JoinSetSubmitted) -> None:
    reading.past.owners[event.promise_id] = event.join_set_id


def _taken(reading: _Reading, event: events.JoinSetAwaited) -> None:
    reading.past.taken.setdefault(event.join_set_id, deque()).append(event.promise_id)


def _cancelled(reading: _Reading, event: events.CancelRequested) -> None:
    past = reading.past
    past.cancel_sequence, past.cancel_reason = event.sequence, event.reason
    past.children_at_cancel = len(reading.recorded)


def _asked(reading: _Reading, event: Event) -> None:
    """Note the operations that took a number with this event; a signal may be named again later."""
    for operation in operations_of(event):
        if int(operation.promise_id[1:]) == len(reading.recorded):
            reading.recorded.append(operation)


_LEARNERS: Final[dict[type[Any], Callable[[_Reading, Any], None]]] = {
    events.ExecutionStarted: _began,
    InvokeScheduled: _scheduled,
    InvokeStarted: _started,
    InvokeRetrying: _retrying,
    events.InvokeCompleted: _completed,
    events.RandomGenerated: _random,
    events.TimeRecorded: _time,
    events.TimerScheduled: _timer,
    events.TimerFired: _fired,
    events.ExecutionAwaiting: _awaiting,
    events.SignalDelivered: _delivered,
    events.SignalReceived: _received,
    events.JoinSetCreated: _asked,
    events.JoinSetSubmitted: _submitted,
    events.JoinSetAwaited: _taken,
    events.CancelRequested: _cancelled,
}
