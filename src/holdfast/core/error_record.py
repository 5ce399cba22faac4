"""Exceptions as values: how an error is written into the ledger and read back (rulings B4, B11)."""

from __future__ import annotations

import traceback
from typing import Any, TypeVar

import msgspec

from holdfast.core.codec_faults import difference
from holdfast.core.codec_hooks import ENCODER
from holdfast.core.errors import DecodeError

MESSAGE_MAX_CHARS = 4_000
TRACEBACK_MAX_FRAMES = 20
FIELD_MAX_BYTES = 4_000
CAUSES_MAX = 5

_ORIGIN = "_holdfast_origin"  # on an error that came from another process: what it was raised from, and its frames

E = TypeVar("E", bound=BaseException)


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of an exception: `type` as `type_name` gives it, the innermost frame last."""

    type: str
    message: str
    kind: str = "user"
    args: tuple[Any, ...] = ()
    fields: dict[str, Any] = {}
    causes: tuple[str, ...] = ()
    traceback: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


_DECODER = msgspec.json.Decoder(ErrorRecord)
_PLAIN = msgspec.json.Decoder()


def type_name(cls: type[BaseException]) -> str:
    """The name an exception type is recorded under: `ValueError`, `shop.payments.Declined`."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def record_error(error: BaseException, *, kind: str = "user") -> ErrorRecord:
    """What is worth keeping of an exception; never fails, whatever the exception's own methods do."""
    causes, frames = getattr(error, "__dict__", {}).get(_ORIGIN) or (_causes(error), _frames(error))
    return ErrorRecord(
        type=type_name(type(error)),
        message=_message(error),
        kind=kind,
        args=tuple(_plain(argument) for argument in error.args),
        fields={
            name: _plain(value)
            for name, value in sorted(getattr(error, "__dict__", {}).items())
            if not name.startswith("_")
        },
        causes=causes,
        traceback=frames,
    )


def keep_origin(error: E, record: ErrorRecord) -> E:
    """The error, which is sent to another process, or was: pickle leaves out what it was raised from, and where."""
    error.__dict__[_ORIGIN] = record.causes, record.traceback
    return error


def encode_error(error: BaseException, *, kind: str = "user") -> str:
    """The JSON text of an exception."""
    return ENCODER.encode(record_error(error, kind=kind)).decode()


def decode_error(text: str) -> ErrorRecord:
    """The record that `encode_error` wrote."""
    try:
        return _DECODER.decode(text)
    except msgspec.DecodeError as error:
        raise DecodeError(
            f"a stored error cannot be read: {error}. It was not written by this version: {text[:200]!r}"
        ) from error


def rebuild_error(record: ErrorRecord, cls: type[E]) -> E:
    """An exception of a registered type with the recorded arguments and fields.

    Like unpickling, it does not call `__init__`, whose parameters need not be the arguments that were kept.
    """
    error = cls.__new__(cls, *record.args)
    error.args = record.args
    for name, value in record.fields.items():
        setattr(error, name, value)
    return error


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as broken:  # The exception's own __str__ is user code.
        text = f"<the message could not be read: {type(broken).__name__}>"
    return _clip(_valid_text(text), MESSAGE_MAX_CHARS)


def _plain(value: object) -> Any:
    """The value if JSON keeps it as it is, otherwise its repr: an error must be recordable in any case."""
    try:
        raw = ENCODER.encode(value)
        plain = _PLAIN.decode(raw)
        if len(raw) <= FIELD_MAX_BYTES and difference(value, plain) is None:
            return plain
    except Exception:
        pass  # No JSON form.
    try:
        return _clip(_valid_text(repr(value)), FIELD_MAX_BYTES)
    except Exception:  # The value's own __repr__ is user code.
        return f"<{type(value).__qualname__}>"


def _causes(error: BaseException) -> tuple[str, ...]:
    """What it was raised from, nearest first."""
    causes: list[str] = []
    cause = _cause(error)
    while cause is not None and len(causes) < CAUSES_MAX:
        causes.append(f"{type_name(type(cause))}: {_message(cause)}")
        cause = _cause(cause)
    return tuple(causes)


def _cause(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _frames(error: BaseException) -> tuple[str, ...]:
    """The innermost frames, without source lines: reading files is no business of the core."""
    frames = traceback.StackSummary.extract(
        traceback.walk_tb(error.__traceback__), limit=-TRACEBACK_MAX_FRAMES, lookup_lines=False
    )
    return tuple(_valid_text(f"{frame.filename}:{frame.lineno} in {frame.name}") for frame in frames)


def _valid_text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
