"""Exceptions as values: how an error is written into the ledger and read back (rulings B4, B11)."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeVar

import msgspec

from holdfast.core.codec_faults import difference
from holdfast.core.codec_hooks import ENCODER
from holdfast.core.errors import DecodeError
from holdfast.core.searchable import is_text

MESSAGE_MAX_CHARS = 4_000
TRACEBACK_MAX_FRAMES = 20
FIELD_MAX_BYTES = 4_000
FIELDS_MAX = 50  # of its arguments, and of its attributes
CAUSES_MAX = 5
NOTES = "__notes__"  # where `add_note` keeps them
NOTES_MAX = 10

_ARGS: Any = BaseException.__dict__["args"]  # as no class of the user's reads or refuses it
_MADE_IN_PYTHON = 1 << 9  # of `__flags__`
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
    own = _own(error)
    causes, frames = own.get(_ORIGIN) or (tuple(islice(_causes(error), CAUSES_MAX)), _frames(error))
    notes = _notes(own)
    names = [name for name in sorted(own) if not name.startswith("_")][:FIELDS_MAX]
    fields = {name: _plain(own[name]) for name in names}
    return ErrorRecord(
        type=type_name(type(error)),
        message=_clip("\n".join([_message(error), *notes]), MESSAGE_MAX_CHARS),
        kind=kind,
        args=tuple(_plain(argument) for argument in _ARGS.__get__(error)[:FIELDS_MAX]),
        fields={**fields, NOTES: notes} if notes else fields,
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

    It calls no `__new__`, `__init__` or `__setattr__` of the user's, whose parameters need not be the arguments that
    were kept. TypeError or ValueError where the type cannot be made of what is kept, as a group of exceptions.
    """
    built_in: Any = cls
    while built_in.__flags__ & _MADE_IN_PYTHON:
        built_in = built_in.__base__  # of several bases the one that it is laid out as: no other may make it
    error: E = built_in.__new__(cls, *record.args)
    with contextlib.suppress(Exception):  # an argument that was kept as its repr is of another type
        built_in.__init__(error, *record.args)  # where the number of an OSError is taken from
    _ARGS.__set__(error, record.args)
    slots = set(_slots(cls))
    for name, value in record.fields.items():
        if name in slots:
            object.__setattr__(error, name, value)
        else:
            error.__dict__[name] = value
    return error


def _own(error: BaseException) -> dict[str, Any]:
    """What it holds by name, in slots too."""
    try:
        slots = {name: getattr(error, name) for name in _slots(type(error)) if hasattr(error, name)}
        return {name: value for name, value in {**slots, **vars(error)}.items() if is_text(name)}
    except Exception:  # A `__dict__` of the class's own is user code.
        return {}


def _slots(cls: type) -> Iterator[str]:
    for base in cls.__mro__:
        names = vars(base).get("__slots__", ())
        yield from (names,) if isinstance(names, str) else names


def _notes(own: dict[str, Any]) -> list[str]:
    notes = own.get(NOTES)
    given = notes[:NOTES_MAX] if isinstance(notes, list) else []
    return [_clip(_valid_text(note), FIELD_MAX_BYTES) for note in given if isinstance(note, str)]


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
        if type(value) is str:
            return _clip(value, FIELD_MAX_BYTES)
        plain = _PLAIN.decode(raw)
        if len(raw) <= FIELD_MAX_BYTES and difference(value, plain) is None:
            return plain
    except Exception:
        pass  # No JSON form.
    try:
        return _clip(_valid_text(repr(value)), FIELD_MAX_BYTES)
    except Exception:  # The value's own __repr__ is user code.
        return f"<{type(value).__qualname__}>"


def _causes(error: BaseException) -> Iterator[str]:
    """What it was raised from, nearest first; what a group holds, and where that was raised."""
    if isinstance(error, BaseExceptionGroup):
        for member in _members(error):
            yield " at ".join([_line(member), *_frames(member)[-1:]])
    cause = _cause(error)
    if cause is not None:
        yield _line(cause)
        yield from _causes(cause)


def _members(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    left: list[BaseException] = [group]  # task groups in task groups may be deeper than Python's stack
    while left:
        member = left.pop()
        if isinstance(member, BaseExceptionGroup):
            left.extend(reversed(member.exceptions))
        else:
            yield member


def _line(error: BaseException) -> str:
    return f"{type_name(type(error))}: {_message(error)}"


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
