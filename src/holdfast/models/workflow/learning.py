"""What a stored event teaches the session that replays it: what was asked for, what was answered, what is open.

`take_in` goes through a journal once, a segment at a time: read, checked against every rule, learnt and dropped. The
learner of an event is found by its type; events without one change nothing but the journal itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from holdfast.core.clock import to_us
from holdfast.core.journal import Operation, decode_segment, events, operations_of
from holdfast.core.journal.events import Event
from holdfast.models.workflow.open_call import OpenCall, Settled, is_remote_by

if TYPE_CHECKING:
    from holdfast.models.workflow.past import Past

FIRED: Final = Raw(b"null")
_is_remote: Final = lru_cache(maxsize=256)(is_remote_by)  # few settings, each in many events


def take_in(past: Past, segments: Sequence[str]) -> None:
    journal, learners = past.journal, _LEARNERS
    for text in segments:
        segment = decode_segment(text)
        journal.read(segment)
        for event in segment.events:
            learn = learners.get(type(event))
            if learn is not None:
                learn(past, event)


def _scheduled(past: Past, event: events.InvokeScheduled) -> None:
    promise_id, name, raw = event.promise_id, event.function_name, event.input
    number = len(past.recorded)  # the journal has made sure that it is the next
    past.recorded.append(Operation(promise_id, event.kind, name, event.fingerprint))
    past.inputs[number] = raw
    is_remote = _is_remote(bytes(event.retry_policy))
    past.open_calls[promise_id] = OpenCall(promise_id, name, bytes(raw).decode(), is_remote)


def _started(past: Past, event: events.InvokeStarted) -> None:
    call = past.open_calls[event.promise_id]
    call.attempt, call.started, call.retry_at_us = event.attempt, True, None
    call.first_started_us = call.first_started_us or to_us(event.timestamp)


def _retrying(past: Past, event: events.InvokeRetrying) -> None:
    call = past.open_calls[event.promise_id]
    call.started, call.retry_at_us = False, to_us(event.retry_at)


def _completed(past: Past, event: events.InvokeCompleted) -> None:
    promise_id = event.promise_id
    del past.open_calls[promise_id]
    past.settled[promise_id] = Settled(event.sequence, event.result)


def _random(past: Past, event: events.RandomGenerated) -> None:
    _asked(past, event)
    past.settled[event.promise_id] = Settled(event.sequence, event.value)


def _time(past: Past, event: events.TimeRecorded) -> None:
    _asked(past, event)
    past.settled[event.promise_id] = Settled(event.sequence, event.time)


def _timer(past: Past, event: events.TimerScheduled) -> None:
    _asked(past, event)
    past.timers[event.promise_id] = to_us(event.fire_at)


def _fired(past: Past, event: events.TimerFired) -> None:
    past.timers.pop(event.promise_id, None)
    past.settled[event.promise_id] = Settled(event.sequence, FIRED)


def _awaiting(past: Past, event: events.ExecutionAwaiting) -> None:
    if event.signals:
        _asked(past, event)


def _delivered(past: Past, event: events.SignalDelivered) -> None:
    past.buffered.setdefault(event.signal_name, []).append(event.payload)


def _received(past: Past, event: events.SignalReceived) -> None:
    _asked(past, event)
    past.buffered[event.signal_name].pop(0)
    past.settled[event.promise_id] = Settled(event.sequence, event.payload)


def _submitted(past: Past, event: events.JoinSetSubmitted) -> None:
    past.owners[event.promise_id] = event.join_set_id


def _taken(past: Past, event: events.JoinSetAwaited) -> None:
    past.taken.setdefault(event.join_set_id, []).append(event.promise_id)


def _cancelled(past: Past, event: events.CancelRequested) -> None:
    past.cancel_sequence, past.cancel_reason = event.sequence, event.reason
    past.children_at_cancel = len(past.recorded)


def _asked(past: Past, event: Event) -> None:
    """Note the operations that took a number with this event; a signal may be named again later."""
    for operation in operations_of(event):
        if int(operation.promise_id[len(past.journal.prefix) :]) == len(past.recorded):
            past.recorded.append(operation)


_LEARNERS: Final[dict[type[Any], Callable[[Past, Any], None]]] = {
    events.InvokeScheduled: _scheduled,
    events.InvokeStarted: _started,
    events.InvokeRetrying: _retrying,
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
