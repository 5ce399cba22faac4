"""What tasks in flight say of themselves with `holdfast.current().heartbeat(progress)`, as others read it.

The row of a workflow holds the last progress of each of its calls that run where it does; a task with an execution of
its own, started alone or called on another queue, has it on its own row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from holdfast.core.codec import codec_for
from holdfast.core.identity import PromiseId
from holdfast.core.journal.events import Event, InvokeCompleted, InvokeScheduled, InvokeStarted
from holdfast.core.journal.local_ids import events_of
from holdfast.store.base import Store
from holdfast.store.values import ExecutionView

T = TypeVar("T")

TASK: Final = "task"

_beats = msgspec.json.Decoder(dict[str, Raw]).decode


class CallProgress(Struct, frozen=True):
    """How far one call of a task is: what its last heartbeat said, in this attempt or in the one before."""

    id: PromiseId  # of the call; of a task with an execution of its own, that one's
    name: str
    attempt: int  # from 1
    text: str  # JSON

    @property
    def progress(self) -> Any:
        return codec_for(Any).decode(self.text)

    def progress_as(self, as_type: type[T]) -> T:
        """`progress`, checked against a type."""
        found: T = codec_for(as_type).decode(self.text)
        return found


def told_by(view: ExecutionView) -> dict[str, str]:
    """The last progress of each task in flight on this row as JSON, by the id of its call."""
    if view.beats is None or view.status.is_terminal:
        return {}
    own = str(PromiseId.from_bytes(view.promise))
    if view.kind == TASK:
        found = {own: view.beats}
    else:
        found = {own + number: bytes(beat).decode() for number, beat in _beats(view.beats).items()}
    return {call: text for call, text in found.items() if text != "null"}  # it said that there is none


def progress_of(view: ExecutionView, events: Iterable[Event]) -> list[CallProgress]:
    """`events` are the journal's, which knows the calls by name."""
    told = told_by(view)
    if view.kind == TASK:
        return [CallProgress(PromiseId.parse(id), view.name, view.attempt + 1, text) for id, text in told.items()]
    names: dict[str, str] = {}
    attempts: dict[str, int] = {}
    for event in events:
        if isinstance(event, InvokeScheduled) and event.promise_id in told:
            names[event.promise_id] = event.function_name
        elif isinstance(event, InvokeStarted):
            attempts[event.promise_id] = event.attempt
        elif isinstance(event, InvokeCompleted):
            names.pop(event.promise_id, None)
    return [CallProgress(PromiseId.parse(id), name, attempts.get(id, 1), told[id]) for id, name in names.items()]


async def read_progress(store: Store, view: ExecutionView) -> list[CallProgress]:
    """The same, with the journal read only where somebody said something."""
    events: Iterable[Event] = ()
    if view.kind != TASK and told_by(view):
        own = str(PromiseId.from_bytes(view.promise))
        events = [event for segment in await store.journal(view.promise) for event in events_of(own, segment)]
    return progress_of(view, events)
