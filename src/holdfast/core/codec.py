"""Values in and out of the ledger: JSON by type annotation, never pickle.

- `Codec` / `codec_for`: one annotation's encoder and decoder. What is written is read back at once: results
  reach user code only through the codec (ruling B11), and what would not survive is refused where it enters.
- `annotation_of`: what a value is written by that nobody annotated.
- `fingerprint`: the short hash of a canonical text that replay compares (rulings B5, B17).
- `encode_error`, `decode_error`, `ErrorRecord`: exceptions (re-exported from `error_record`).

What holds: the same value gives the same text, whatever the insertion order of its dicts and sets. A list or
tuple comes back as the annotation has it; without an annotation (or with `Any` or `object`) only JSON's own
values are taken, and a tuple comes back as a list. A time zone comes back as its offset. Whether anything
else changed is judged by `==`, and field by field where `==` says no.
"""

from __future__ import annotations

import inspect
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from holdfast.core import codec_faults
from holdfast.core.codec_defaults import filler_for
from holdfast.core.codec_hooks import (
    ENCODER,
    SUBCLASSED,
    canonical,
    check_annotation,
    decode_hook,
    takes_other_numbers,
)
from holdfast.core.error_record import ErrorRecord, decode_error, encode_error, rebuild_error, record_error
from holdfast.core.errors import ConfigurationError, DecodeError, EncodeError, PayloadTooLargeError

__all__ = [
    "DEFAULT_MAX_BYTES",
    "SURE_TYPES",
    "Codec",
    "ErrorRecord",
    "annotation_of",
    "codec_for",
    "decode_error",
    "encode_error",
    "fingerprint",
    "rebuild_error",
    "record_error",
]

DEFAULT_MAX_BYTES = 2 * 1024 * 1024

T = TypeVar("T")
# What is written of a value of exactly these is read as an equal value of the same type, whatever the value.
SURE_TYPES = (int, bool, str, type(None))


class Codec(Generic[T]):
    """Writes and reads values of one annotation. Thread-safe; build it once (`codec_for` does)."""

    __slots__ = (
        "_decode",
        "_encode",
        "_fill",
        "_of",
        "_sure_type",
        "_takes_other_numbers",
        "annotation",
        "type_name",
    )

    def __init__(self, annotation: Any, *, of: str | None = None) -> None:
        """`of`: the function whose parameters these are, for errors to name it rather than a type."""
        if annotation is inspect.Parameter.empty:
            annotation = Any
        self.annotation = annotation
        self._of = of
        self.type_name = _annotation_name(annotation) if of is None else "its parameters"
        self._sure_type: type | None = annotation if annotation in SURE_TYPES else None
        try:
            self._encode = canonical if check_annotation(annotation) else ENCODER.encode
            self._decode = msgspec.json.Decoder(annotation, dec_hook=decode_hook).decode
            self._fill = filler_for(annotation)
            self._takes_other_numbers = takes_other_numbers(annotation)
        except Exception as error:  # msgspec refuses with TypeError, forward references with NameError.
            subject = f"the type {self.type_name}" if of is None else f"the input of {of}"
            raise ConfigurationError(
                f"{subject} has no JSON form that can be read back: {error}. "
                "Use a dataclass, msgspec.Struct, pydantic model or standard type; the classes of a union are "
                "msgspec.Structs with tag=True, or fields of one pydantic model"
            ) from error

    def encode(self, value: T, *, max_bytes: int | None = DEFAULT_MAX_BYTES) -> str:
        """The canonical JSON text of a value that fits the annotation."""
        return self.round_trip(value, max_bytes=max_bytes)[0]

    def round_trip(self, value: T, *, max_bytes: int | None = DEFAULT_MAX_BYTES) -> tuple[str, T]:
        """The text, and the value as it will be read from it: both for the price of writing with a check."""
        raw, decoded = self.write(value, max_bytes=max_bytes)
        return raw.decode(), decoded

    def write(self, value: T, *, max_bytes: int | None = DEFAULT_MAX_BYTES) -> tuple[bytes, T]:
        """`round_trip` with the text as bytes."""
        raw = self.write_sure(value, max_bytes=max_bytes)
        if type(value) is self._sure_type:
            return raw, value
        try:
            decoded: T = self._decode(raw)
        except Exception as error:
            self._refuse_misfit(value, error)
        try:
            same = bool(decoded == value)
        except Exception:  # The comparison is user code.
            same = False
        if not same or (b"null" in raw and codec_faults.hides_non_finite(value, decoded)):
            self._refuse_change(value, decoded)
        try:
            is_filled = self._fill is not None and self._fill(decoded)
        except RecursionError as error:
            raise EncodeError(
                f"{self._subject(value)} is nested too deeply to be read back as {self.type_name}: "
                "pass a flatter one, such as a list"
            ) from error
        if is_filled or self._takes_other_numbers:
            raw = self._canonical(decoded)
        return raw, decoded

    def write_sure(self, value: T, *, max_bytes: int | None = DEFAULT_MAX_BYTES) -> bytes:
        """The text of a value that is known to survive."""
        try:
            raw = self._encode(value)
        except Exception:
            raw = self._encode_carefully(value)
        if max_bytes is not None and len(raw) > max_bytes:
            subject = f"a value of type {self.type_name}" if self._of is None else self._subject(value)
            raise PayloadTooLargeError(
                f"{subject} takes {len(raw):,} bytes as JSON, over the limit of "
                f"{max_bytes:,}: store the data elsewhere and pass a reference to it, or raise the limit"
            )
        return raw

    def decode(self, text: str | bytes, *, signal: str | None = None) -> T:
        """The value of a stored text; `signal` is the name of the signal that brought it."""
        try:
            value: T = self._decode(text)
            if self._fill is not None:
                self._fill(value)
        except Exception as error:
            fault = codec_faults.from_validation(error)
            if signal is not None:
                raise DecodeError(
                    f"the signal {signal!r} does not fit {self.type_name} at {fault.path}: {fault.reason}. "
                    "Its sender must send what is read here; catch DecodeError where it is read to go on without it"
                ) from error
            stored = "stored JSON" if self._of is None else f"the stored input of {self._of}"
            raise DecodeError(
                f"{stored} does not fit {self.type_name} at {fault.path}: {fault.reason}. Give new fields "
                "a default and keep old ones readable, or run the code that wrote it"
            ) from error
        return value

    def rewrite(self, text: str) -> str:
        """A stored text as today's annotation writes it; a new field's default is no change (ruling B17)."""
        return self._canonical(self.decode(text)).decode()

    def _subject(self, value: T) -> str:
        return f"a value of type {type(value).__qualname__}" if self._of is None else f"the input of {self._of}"

    def _canonical(self, value: T) -> bytes:
        try:
            return self._encode(value)
        except Exception:
            return self._encode_carefully(value)

    def _encode_carefully(self, value: T) -> bytes:
        """A second try for what msgspec cannot put in order; then the error that says where and why."""
        try:
            return canonical(value)
        except Exception as error:
            fault = codec_faults.unencodable(value) or codec_faults.from_validation(error)
            raise EncodeError(
                f"{self._subject(value)} cannot be written as {self.type_name}: "
                f"{fault.reason} (at {fault.path}). Pass data: a dataclass, a model, or JSON's own values"
            ) from error

    def _refuse_misfit(self, value: T, error: Exception) -> NoReturn:
        fault = codec_faults.non_finite(value) or codec_faults.from_validation(error)
        raise EncodeError(
            f"{self._subject(value)} does not fit {self.type_name}: {fault.reason} "
            f"(at {fault.path}). Pass what the annotation says, or correct it"
        ) from error

    def _refuse_change(self, value: T, decoded: T) -> None:
        try:
            fault = codec_faults.non_finite(value) or codec_faults.difference(value, decoded)
        except RecursionError:
            fault = codec_faults.Fault("$", "the value is nested too deeply to be compared")
        if fault is not None:
            raise EncodeError(
                f"{self._subject(value)} would not survive as {self.type_name}: "
                f"{fault.reason} (at {fault.path}). Pass what the annotation says, or annotate what is meant"
            )


def codec_for(annotation: Any) -> Codec[Any]:
    """The codec of an annotation, built once."""
    try:
        return _cached_codec(annotation)
    except TypeError:  # An annotation that cannot be hashed, such as one with a list in its metadata.
        return Codec(annotation)


@lru_cache(maxsize=4096)
def _cached_codec(annotation: Any) -> Codec[Any]:
    return Codec(annotation)


def annotation_of(value: object) -> Any:
    """What a value that nobody annotated is written by: its own type, unless it is one of JSON's own values.

    A list of objects, or a dict of them, is one of their type, if they have one.
    """
    try:
        return _annotation_of(value)
    except RecursionError:  # what is written by it says that it is nested too deeply
        return Any


def _annotation_of(value: object) -> Any:
    if isinstance(value, list | dict):
        parts = iter(value.values() if isinstance(value, dict) else value)
        kind: Any = _annotation_of(next(parts, None))
        if kind is Any or any(_annotation_of(part) != kind for part in parts):
            return Any
        return dict[str, kind] if isinstance(value, dict) else list[kind]
    if value is None:
        return Any
    if isinstance(value, Enum):
        return type(value)
    if isinstance(value, str | int | float):
        return Any
    return next((base for base in SUBCLASSED if isinstance(value, base)), type(value))


def fingerprint(text: str) -> str:
    """Sixteen hex digits that stand for a canonical text."""
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _annotation_name(annotation: Any) -> str:
    if isinstance(annotation, type) and not hasattr(annotation, "__origin__"):
        return annotation.__qualname__
    return str(annotation).replace("typing.", "")
