"""Exceptions of calls as the journal holds them, and back again (rulings B4, B11)."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.core.codec import ErrorRecord, decode_error, rebuild_error, record_error
from holdfast.core.error_record import type_name
from holdfast.core.errors import DefinitionError, TaskCancelled, TaskFailed, TaskTimedOut, Uncertain
from holdfast.core.journal.events import Failure, FailureKind

Raises: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]

_encode = msgspec.json.Encoder().encode
_TYPES = {"timeout": TaskTimedOut, "cancelled": TaskCancelled, "uncertain": Uncertain}


class _Fields(msgspec.Struct):
    args: tuple[Any, ...] = ()
    fields: dict[str, Any] = {}
    causes: tuple[str, ...] | UnsetType = UNSET  # what it was raised from, where there is such


_decode_fields = msgspec.json.Decoder(_Fields).decode


def failure_of(error: BaseException, kind: FailureKind = "user") -> Failure:
    """What the journal keeps of an exception."""
    return failure_of_record(record_error(error, kind=kind))


def cancelled(call: str, reason: str | None) -> Failure:
    """Of a call whose execution was cancelled."""
    if reason is None:
        return Failure("cancelled", "Cancelled", f"{call} was cancelled")
    fields = Raw(_encode(_Fields(fields={"reason": reason})))
    return Failure("cancelled", "Cancelled", f"{call} was cancelled: {reason}", fields)


def failure_of_record(record: ErrorRecord) -> Failure:
    kind: FailureKind = record.kind if record.kind in _KINDS else "user"  # type: ignore[assignment]
    fields = Raw(_encode(_Fields(record.args, record.fields, record.causes or UNSET)))
    return Failure(kind, record.type, record.message, fields, "\n".join(record.traceback) or None)


def failure_of_text(text: bytes | str) -> Failure:
    """Of an error as a row holds it."""
    return failure_of_record(decode_error(text if isinstance(text, str) else text.decode()))


def record_of(failure: Failure) -> ErrorRecord:
    """The same as a row's error column has it."""
    known = _fields_of(failure)
    trace = tuple(failure.traceback.split("\n")) if failure.traceback else ()
    return ErrorRecord(
        type=failure.type,
        message=failure.message,
        kind=failure.kind,
        args=known.args,
        fields=known.fields,
        causes=known.causes or (),
        traceback=trace,
    )


def causes_of(failure: Failure) -> tuple[str, ...]:
    """What it was raised from, nearest first: `type: message`."""
    return _fields_of(failure).causes or ()


def encode_failure(failure: Failure) -> str:
    return _encode(record_of(failure)).decode()


def check_raises(raises: object, name: str) -> tuple[type[BaseException], ...]:
    """What a definition was given as `raises`: one class or several, as a retry policy takes them."""
    listed = tuple(raises) if isinstance(raises, tuple | list) else (raises,)
    for cls in listed:
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            raise DefinitionError(
                f"raises of {name} holds {cls!r:.100}: give exception classes themselves, as in "
                "raises=(ValueError, KeyError)"
            )
    return listed


def exception_of(failure: Failure, raises: tuple[type[BaseException], ...], call: str) -> BaseException:
    """What the body sees: the registered type where it was named in `raises`, else `TaskFailed`."""
    if failure.kind == "user":
        for cls in raises:
            if type_name(cls) == failure.type:
                known = _fields_of(failure)
                record = ErrorRecord(type=failure.type, message=failure.message, args=known.args, fields=known.fields)
                try:
                    rebuilt = rebuild_error(record, cls)
                except Exception as error:
                    text = f"{call} failed: {failure.type}: {failure.message} (it cannot be raised again: {error})"
                    return TaskFailed(text, record_of(failure))
                if isinstance(rebuilt, TaskFailed):  # its record was kept as text, like any field that is no data
                    rebuilt.record = record_of(failure)
                return rebuilt
    return _TYPES.get(failure.kind, TaskFailed)(f"{call} failed: {failure.type}: {failure.message}", record_of(failure))


def _fields_of(failure: Failure) -> _Fields:
    return _Fields() if bytes(failure.fields) == b"null" else _decode_fields(failure.fields)


_KINDS = ("user", "timeout", "cancelled", "uncertain", "nondeterminism", "internal")
