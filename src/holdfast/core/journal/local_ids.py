"""Ids inside a journal, which name its children alone: `.7`; and the whole ids that everybody else knows them by.

A journal is of one execution, so its own part of an id need not be said in it, nor be rewritten in a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from holdfast.core.journal.events import Event, ExecutionAwaiting
from holdfast.core.journal.format import decode_segment

UNKNOWN: Final = -1
NUMBER_DIGITS: Final = 10


def local_number(local: str) -> int:
    """7 of `.7`; `UNKNOWN` of anything that is no such id, as the id of another execution or `.07`."""
    tail = local[1:]
    if local[:1] != "." or len(tail) > NUMBER_DIGITS or not (tail.isascii() and tail.isdecimal()):
        return UNKNOWN
    return UNKNOWN if tail[0] == "0" and tail != "0" else int(tail)


def whole_id(execution_id: str, local: str) -> str:
    """The id of a child of this execution; what is no local id stays as it is."""
    return local if local_number(local) == UNKNOWN else execution_id + local


def events_of(execution_id: str, segment: bytes | str) -> Iterator[Event]:
    """What a stored segment of this execution's journal holds, as it is shown outside."""
    return (whole(execution_id, event) for event in decode_segment(segment).events)


def whole(execution_id: str, event: Event) -> Event:
    """An event of this execution's journal as it is shown outside: with whole ids."""
    changes: dict[str, Any] = {}
    for name in ("join_set_id", "promise_id"):
        local = getattr(event, name, None)
        if local is not None:
            changes[name] = whole_id(execution_id, local)
    if isinstance(event, ExecutionAwaiting):
        changes["waiting_on"] = tuple(whole_id(execution_id, one) for one in event.waiting_on)
        changes["signals"] = tuple(
            replace(wait, promise_id=whole_id(execution_id, wait.promise_id)) for wait in event.signals
        )
    return replace(event, **changes) if changes else event
