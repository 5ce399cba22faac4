"""Forks: a new execution that begins with a copy of another one's past.

- `fork_at`: the events up to and including one; what came after has not happened in the fork.
- `retry_of`: of a failed execution, all that was good: a workflow without the calls that failed it (ruling B13), a
  machine at the step that failed, a task from its input.

The copy is the fork's own, ids and all: a journal names its children locally. Calls that are open in it begin anew
there, so their attempts are left out; `fork_once` has those that may not. Nothing here touches what was forked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw

from holdfast.core.codec import fingerprint
from holdfast.core.errors import InvalidArgumentError
from holdfast.core.identity import PromiseId, id_text
from holdfast.core.journal import decode_segment
from holdfast.core.journal.events import (
    NULL,
    CancelRequested,
    Err,
    Event,
    ExecutionFailed,
    ExecutionStarted,
    Failure,
    InvokeCompleted,
    InvokeRetrying,
    InvokeScheduled,
    InvokeStarted,
    Ok,
    SignalDelivered,
    TimerFired,
)
from holdfast.core.journal.fold import TERMINAL_EVENTS
from holdfast.core.journal.format import Segment, encode_segment
from holdfast.core.status import Status
from holdfast.models.workflow.failures import causes_of
from holdfast.models.workflow.fork_once import Rows, brought, may_repeat, settled
from holdfast.models.workflow.open_call import settings_of
from holdfast.store.base import handler_of
from holdfast.store.values import ExecutionView, JournalCopy, NewExecution

FORKED: Final = "forked"  # the step of a fork until its first commit: its open remote calls have still to be spawned
RETRY: Final = "retry"
_COMPARED_CHARS: Final = 1_000  # of messages, which are clipped when they are recorded
_ATTEMPTS: Final = (InvokeStarted, InvokeRetrying)
_OF_OTHERS: Final = (*_ATTEMPTS, InvokeCompleted, TimerFired, SignalDelivered)  # what happens without the body


def fork_at(
    view: ExecutionView, segments: Sequence[str], at: int, promise: PromiseId, once: Rows
) -> tuple[NewExecution, JournalCopy]:
    """The fork of a workflow after the event with sequence `at`."""
    label = PromiseId.from_bytes(view.promise).label(view.name)
    if view.kind != "workflow":
        raise InvalidArgumentError(f"{label} is a {view.kind} and has no journal to fork from; retry() it if it failed")
    events = [event for text in segments for event in decode_segment(text).events]
    if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < len(events):
        has = f"it has the events 0 to {len(events) - 1}" if events else "it has not begun, and has no events yet"
        raise InvalidArgumentError(f"{label} cannot be forked at {at!r}: {has}")
    if type(events[at]) in TERMINAL_EVENTS:
        raise InvalidArgumentError(f"{label} cannot be forked at {at}, where it ended: fork it at {at - 1} or before")
    past = events[: at + 1]
    past = _known_by(past + settled(past, once, is_retry=False), None)
    row = msgspec.structs.replace(_row(view, promise), attributes=_attributes_at_start(events[0]))
    return row, _copy(view, segments, past, at)


def retry_of(
    view: ExecutionView,
    segments: Sequence[str],
    promise: PromiseId,
    once: Rows,
    kin: Mapping[str, ExecutionView],
    parent: PromiseId | None = None,
) -> tuple[NewExecution, JournalCopy | None]:
    """What a failed execution is tried again as.

    `kin` are the newest runs of the children whose calls would begin anew: what one that is done has brought is taken.
    """
    label = PromiseId.from_bytes(view.promise).label(view.name)
    if view.status is Status.STRANDED:
        raise InvalidArgumentError(f"{label} is stranded, not failed: mend the cause, then resume() it")
    if view.status is not Status.FAILED:
        way_on = _way_back(view, segments) if view.status is Status.CANCELLED else ""
        raise InvalidArgumentError(f"{label} is {view.status}; only a failed execution can be retried{way_on}")
    row = _row(view, promise)
    if view.kind == "machine":
        return msgspec.structs.replace(row, step=view.step, state=view.state, cleans_up=False), None
    if view.kind == "task":
        state = msgspec.json.decode(view.state, type=dict[str, Raw])
        key = state.get("key") or Raw(msgspec.json.encode(id_text(view.promise)))
        text = msgspec.json.encode({"input": state["input"], "key": key}).decode()
        return msgspec.structs.replace(row, step="", state=text, cleans_up=False), None
    if view.kind != "workflow":
        raise InvalidArgumentError(f"{label} is a {view.kind}, which is not retried as a whole")
    events = [event for text in segments for event in decode_segment(text).events]
    if not events:  # it failed before it wrote anything
        return msgspec.structs.replace(row, step=""), None
    past, last, cause = _good(events)
    others = {call: known for call, known in once.items() if call != cause}
    past = past + settled(past, others, is_retry=True)
    past = _known_by(past + brought(past, kin), id_text(view.promise))
    return row, _copy(view, segments, past, last, parent)


def begun_anew(segments: Sequence[str]) -> tuple[list[InvokeScheduled], set[str]]:
    """The calls that a retry of this journal makes anew, and which of them had ended."""
    events = [event for text in segments for event in decode_segment(text).events]
    if not events:
        return [], set()
    past, _, _ = _good(events)
    ended = {event.promise_id for event in past if isinstance(event, InvokeCompleted)}
    anew = [event for event in past if isinstance(event, InvokeScheduled) and event.promise_id not in ended]
    had_ended = {event.promise_id for event in events if isinstance(event, InvokeCompleted)}
    return anew, had_ended & {call.promise_id for call in anew}


def _way_back(view: ExecutionView, segments: Sequence[str]) -> str:
    """What whoever wants to take a cancel back is told."""
    events = [event for text in segments for event in decode_segment(text).events] if view.kind == "workflow" else []
    asked = next((at for at, event in enumerate(events) if isinstance(event, CancelRequested)), 0)
    if asked:
        return f": to go on as if it had not been cancelled, fork it at {asked - 1}"
    return ": to do it after all, start it anew, under another key if it has one"


def _good(events: list[Event]) -> tuple[list[Event], int, str | None]:
    """Without the end, and without the call that failed it: that one is to be tried again. And how far the body comes.

    Of what came after that call's end, only this does not follow from it: what calls begun before it have brought,
    which is not to be run again, and signals.
    """
    failed = events[-1]
    if not isinstance(failed, ExecutionFailed):
        return events, failed.sequence, None
    at = _at_cause(events, failed.error)
    if at is None:
        return events[:-1], failed.sequence - 1, None
    begun = {event.promise_id: event for event in events[:at] if isinstance(event, InvokeScheduled)}
    cause = _promise_of(events[at])
    anew = {cause} | _failed_beside(events, at, begun)
    past = [event for event in events[:at] if _promise_of(event) not in anew]
    brought = {
        event.promise_id for event in events[at:] if isinstance(event, InvokeCompleted) and isinstance(event.result, Ok)
    } & begun.keys()
    later = [event for event in events[at:] if isinstance(event, SignalDelivered) or _promise_of(event) in brought]
    return past + later, at - 1, cause


def _failed_beside(events: list[Event], at: int, begun: dict[str, InvokeScheduled]) -> set[str]:
    """Calls that failed as well, and from whose end nothing follows that the body did before `at`.

    One outage fails many calls that run beside each other: one retry is to try all of them again. One that may not be
    repeated does so only if it failed by itself: what it did before it was cut off is not known.
    """
    since = at
    while isinstance(events[since - 1], _OF_OTHERS):
        since -= 1
    return {
        event.promise_id
        for event in events[since:]
        if isinstance(event, InvokeCompleted)
        and isinstance(event.result, Err)
        and event.promise_id in begun
        and (event.result.error.kind == "user" or may_repeat(begun[event.promise_id]))
    }


def _at_cause(events: list[Event], end: Failure) -> int | None:
    """Where the call ended that the body failed by: what it raised names it, or was raised from it.

    A message alone may be found by chance. It counts only if nothing that was begun after it has ended well: a retry
    runs nothing of that again.
    """
    names, begun_at = {}, {}
    for at, event in enumerate(events):
        if isinstance(event, InvokeScheduled):
            names[event.promise_id], begun_at[event.promise_id] = event.function_name, at
    told = (f"{end.type}: {end.message}", *causes_of(end))
    alike: int | None = None
    latest_begun = 0  # of those that ended well after where the loop is
    for at in range(len(events) - 1, -1, -1):
        event = events[at]
        if not isinstance(event, InvokeCompleted):
            continue
        if not isinstance(event.result, Err):
            latest_begun = max(latest_begun, begun_at[event.promise_id])
            continue
        error = event.result.error
        own = f"{error.type}: {error.message}"
        if own in told or any(f"{names[event.promise_id]} failed: {own}"[:_COMPARED_CHARS] in text for text in told):
            return at
        if alike is None and latest_begun < at and error.message and error.message in end.message:
            alike = at
    return alike


def _promise_of(event: Event) -> str | None:
    """The call that an event of an attempt is of."""
    return event.promise_id if isinstance(event, (*_ATTEMPTS, InvokeCompleted)) else None


def _begun_anew(events: list[Event]) -> list[Event]:
    """Without the attempts of calls that are open; one that may not be repeated keeps the mark that it was begun."""
    ended = {event.promise_id for event in events if isinstance(event, InvokeCompleted)}
    anew = {
        event.promise_id
        for event in events
        if isinstance(event, InvokeScheduled) and event.promise_id not in ended and may_repeat(event)
    }
    return [event for event in events if not (isinstance(event, _ATTEMPTS) and event.promise_id in anew)]


def _attributes_at_start(event: Event) -> str | None:
    """What the body has set since, up to where the fork begins, it sets again in the replay."""
    given = event.attributes if isinstance(event, ExecutionStarted) else NULL
    return None if bytes(given) == b"null" else bytes(given).decode()


def _known_by(events: list[Event], source: str | None) -> list[Event]:
    """With what the outside knows those calls of tasks by that are still open: in a retry, as what `source` or a run
    before it has called them. What a retry calls beyond that is new; a fork is another run, and so are its calls."""
    ended = {event.promise_id for event in events if isinstance(event, InvokeCompleted)}
    return [
        _called(event, source)
        if isinstance(event, InvokeScheduled) and event.kind == "Function" and event.promise_id not in ended
        else event
        for event in events
    ]


def _called(call: InvokeScheduled, source: str | None) -> InvokeScheduled:
    settings = settings_of(call.retry_policy)
    key = None if source is None else settings.key or source + call.promise_id
    if key == settings.key:
        return call
    return msgspec.structs.replace(call, retry_policy=msgspec.structs.replace(settings, key=key).text())


def _row(view: ExecutionView, promise: PromiseId) -> NewExecution:
    return NewExecution(
        promise=promise.to_bytes(),
        kind=view.kind,
        name=view.name,
        version=view.version,
        handler=handler_of(view.kind, view.name, view.version),
        step=FORKED,
        state=view.state,
        input_hash=fingerprint(view.state),
        queue=view.queue,
        priority=view.priority,
        partition_key=view.partition_key,
        digest=view.digest,
        attributes=view.attributes,
        idempotency_key=view.idempotency_key,  # the body may have asked for it
        cleans_up=True,
    )


def _copy(
    view: ExecutionView, segments: Sequence[str], events: list[Event], last: int, parent: PromiseId | None = None
) -> JournalCopy:
    """`last` is the sequence up to which the body comes with it."""
    patches: dict[str, bool] = {}
    for text in segments:
        segment = decode_segment(text)
        if not segment.events or segment.events[0].sequence <= last:
            patches |= segment.patches
    source = id_text(view.promise)
    copied = [_moved(event, number, source, parent) for number, event in enumerate(_begun_anew(events))]
    return JournalCopy(len(copied), encode_segment(Segment(patches=patches, events=copied)).decode())


def _moved(event: Event, sequence: int, source: str, parent: PromiseId | None) -> Event:
    """The event as the fork has it: at its place, and of nobody's child, or of the fork of its caller."""
    if isinstance(event, ExecutionStarted):
        earlier, caller = (*event.copied_from, source), None if parent is None else str(parent)
        return msgspec.structs.replace(event, sequence=sequence, parent_id=caller, copied_from=earlier)
    return msgspec.structs.replace(event, sequence=sequence)
