"""A call that a workflow made and that has no result yet."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw

from holdfast.models.workflow.callee import Callee


class Settled(NamedTuple):
    sequence: int
    value: Any  # Result of a call, Raw payload of a signal, FIRED


class OpenCall:
    """A call without a result."""

    __slots__ = (
        "arguments",
        "attempt",
        "callee",
        "first_started_us",
        "function_name",
        "input",
        "is_remote",
        "promise_id",
        "retry_at_us",
        "started",
        "value",
    )

    def __init__(self, promise_id: str, function_name: str, text: str, is_remote: bool) -> None:
        self.promise_id = promise_id
        self.function_name = function_name
        self.input = text
        # As it was scheduled: a task that has got, or lost, its queue since must neither hang nor run twice.
        self.is_remote = is_remote
        self.arguments: Any = None  # the input as it was read back when it was written, for the first attempt
        self.attempt = 0
        self.first_started_us = 0
        self.retry_at_us: int | None = None
        self.started = False  # an attempt is recorded as in flight
        self.callee: Callee | None = None  # once the body has asked for it
        self.value: Any = UNSET  # the result as it was read back when it was written


class _Place(msgspec.Struct):
    queue: str | None = None
    effects: str | None = None  # only tasks have it


_place = msgspec.json.Decoder(_Place).decode


def is_remote_by(settings: Raw) -> bool:
    """Whether a call with these recorded settings has an execution of its own: all but tasks without a queue."""
    place = _place(settings)
    return place.effects is None or place.queue is not None
