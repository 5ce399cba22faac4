"""What an operation file holds: frozen values and their JSON form.

Field names are the seed's camelCase, so that programs in other languages can take part. Missing fields get
the seed's defaults, unknown ones are kept and written back, wrong types are corruption. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import TypeVar

import msgspec

from holdfast.core.clock import to_datetime, to_us

E = TypeVar("E", bound=Enum)
V = TypeVar("V")


class OperationState(Enum):
    RUNNING = "running"
    CLEANUP = "cleanup"
    FAILED = "failed"
    COMPLETED = "completed"


class FrameState(Enum):
    ACTIVE = "active"
    CRASHED = "crashed"
    CLEANING_UP = "cleaningUp"
    CLEANED_UP = "cleanedUp"


class MalformedError(ValueError):
    """The bytes are not an operation's JSON; the text says where."""


@dataclass(frozen=True, slots=True)
class StackFrame:
    """A record of an active call. Times are microseconds since 1970."""

    call_id: str
    participant_id: str
    pid: int
    start_us: int
    last_heartbeat_us: int
    state: FrameState = FrameState.ACTIVE
    fail_on_crash: bool = True
    description: str | None = None
    resources: tuple[str, ...] = ()
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LedgerData:
    """The whole of one operation file."""

    operation_id: str
    initiator_id: str
    start_us: int
    last_heartbeat_us: int
    state: OperationState = OperationState.RUNNING
    detection_us: int | None = None
    removal_us: int | None = None
    aborted: bool = False
    stack: tuple[StackFrame, ...] = ()
    temp_resources: tuple[str, ...] = ()
    description: str | None = None
    failure_reason: str | None = None
    crashed_call_ids: tuple[str, ...] = ()
    extra: Mapping[str, object] = field(default_factory=dict)

    def frame(self, call_id: str) -> StackFrame | None:
        return next((frame for frame in self.stack if frame.call_id == call_id), None)


def encode(data: LedgerData) -> bytes:
    """Indented JSON: people read and edit these files."""
    document: dict[str, object] = {
        "operationId": data.operation_id,
        "initiatorId": data.initiator_id,
        "startTime": format_time(data.start_us),
        "operationState": data.state.value,
        "lastHeartbeat": format_time(data.last_heartbeat_us),
        "detectionTimestamp": None if data.detection_us is None else format_time(data.detection_us),
        "removalTimestamp": None if data.removal_us is None else format_time(data.removal_us),
        "aborted": data.aborted,
        "stack": [_encode_frame(frame) for frame in data.stack],
        "tempResources": list(data.temp_resources),
    }
    # Fields beyond the seed's appear only when they say something.
    if data.description is not None:
        document["description"] = _unicode(data.description)
    if data.failure_reason is not None:
        document["failureReason"] = _unicode(data.failure_reason)
    if data.crashed_call_ids:
        document["crashedCallIds"] = list(data.crashed_call_ids)
    document.update({key: value for key, value in data.extra.items() if key not in document})
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def decode(content: bytes, operation_id: str) -> LedgerData:
    """The data in `content`; raises `MalformedError` where it cannot be this operation's."""
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedError(f"not JSON ({error})") from None
    fields = _Fields(document, "the document")
    found = fields.text("operationId", operation_id)
    if found != operation_id:
        raise MalformedError(f"operationId is {found!r}, not {operation_id!r}")
    start = fields.time("startTime")
    beat = fields.time("lastHeartbeat")
    known = [moment for moment in (start, beat) if moment is not None]
    start_us = start if start is not None else min(known, default=0)
    beat_us = beat if beat is not None else start_us
    state = fields.member("operationState", OperationState, OperationState.RUNNING)
    detection_us, removal_us = fields.time("detectionTimestamp"), fields.time("removalTimestamp")
    if detection_us is None and state in (OperationState.CLEANUP, OperationState.FAILED):
        detection_us = beat_us  # a phase without its timestamp is dated by the last sign of life
    if removal_us is None and state is OperationState.FAILED:
        removal_us = beat_us
    data = LedgerData(
        operation_id=operation_id,
        initiator_id=fields.text("initiatorId", ""),
        start_us=start_us,
        last_heartbeat_us=beat_us,
        state=state,
        detection_us=detection_us,
        removal_us=removal_us,
        aborted=fields.flag("aborted", False),
        stack=tuple(
            _decode_frame(item, f"stack[{index}]", start_us) for index, item in enumerate(fields.items("stack"))
        ),
        temp_resources=fields.texts("tempResources"),
        description=fields.optional_text("description"),
        failure_reason=fields.optional_text("failureReason"),
        crashed_call_ids=fields.texts("crashedCallIds"),
        extra=fields.rest(),
    )
    if len({frame.call_id for frame in data.stack}) != len(data.stack):
        raise MalformedError("two frames of the stack have the same callId")
    return data


def format_time(us: int) -> str:
    """ISO 8601 in UTC; microseconds, because an unchanged heartbeat is told by comparing them (ruling C9)."""
    moment = to_datetime(us)
    fraction = f".{moment.microsecond:06d}" if moment.microsecond else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def parse_time(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return to_us(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _unicode(text: str) -> str:
    """Python names bytes that are no UTF-8 (in file names) by lone surrogates, which JSON cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def _encode_frame(frame: StackFrame) -> dict[str, object]:
    document: dict[str, object] = {
        "callId": frame.call_id,
        "participantId": frame.participant_id,
        "pid": frame.pid,
        "startTime": format_time(frame.start_us),
        "lastHeartbeat": format_time(frame.last_heartbeat_us),
        "state": frame.state.value,
        "failOnCrash": frame.fail_on_crash,
        "description": None if frame.description is None else _unicode(frame.description),
        "resources": list(frame.resources),
    }
    document.update({key: value for key, value in frame.extra.items() if key not in document})
    return document


def _decode_frame(item: object, where: str, operation_start_us: int) -> StackFrame:
    fields = _Fields(item, where)
    call_id = fields.text("callId", "")
    if not call_id:
        raise MalformedError(f"{where} has no callId")
    start = fields.time("startTime")
    start_us = operation_start_us if start is None else start
    beat = fields.time("lastHeartbeat")
    return StackFrame(
        call_id=call_id,
        participant_id=fields.text("participantId", ""),
        pid=fields.number("pid", 0),
        start_us=start_us,
        last_heartbeat_us=start_us if beat is None else beat,
        state=fields.member("state", FrameState, FrameState.ACTIVE),
        fail_on_crash=fields.flag("failOnCrash", True),
        description=fields.optional_text("description"),
        resources=fields.texts("resources"),
        extra=fields.rest(),
    )


class _Fields:
    """Takes fields out of a JSON object one by one; null counts as missing; what is left is `rest()`."""

    def __init__(self, document: object, where: str) -> None:
        if not isinstance(document, dict):
            raise MalformedError(f"{where} is no JSON object")
        self._left: dict[str, object] = dict(document)
        self._where = where

    def _take(self, name: str, kind: type[V], default: V) -> V:
        value = self._left.pop(name, None)
        if value is None:
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise MalformedError(f"{name} of {self._where} is {value!r}, not a {kind.__name__}")
        return value

    def text(self, name: str, default: str) -> str:
        return self._take(name, str, default)

    def optional_text(self, name: str) -> str | None:
        return self._take(name, str, "") or None

    def flag(self, name: str, default: bool) -> bool:
        return self._take(name, bool, default)

    def number(self, name: str, default: int) -> int:
        return self._take(name, int, default)

    def items(self, name: str) -> list[object]:
        return self._take(name, list, [])

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(_Fields({"item": item}, f"{name} of {self._where}").text("item", "") for item in self.items(name))

    def time(self, name: str) -> int | None:
        return self._parsed(name, parse_time)

    def member(self, name: str, kind: type[E], default: E) -> E:
        found = self._parsed(name, kind)
        return default if found is None else found

    def _parsed(self, name: str, parse: Callable[[str], V]) -> V | None:
        value = self.text(name, "")
        if not value:
            return None
        try:
            return parse(value)
        except (ValueError, OverflowError):
            raise MalformedError(f"{name} of {self._where} is {value!r}") from None

    def rest(self) -> Mapping[str, object]:
        return self._left
