"""What is wrong with a value that cannot be written, or that would come back changed.

Only reached once the codec's fast path knows that something is off: clarity counts here, not speed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from holdfast.core.codec_hooks import ENCODER, canonical, encode_hook, fields_of

_MSGSPEC_PATH = re.compile(r" - at `([^`]*)`$", re.DOTALL)
_MSGPACK = msgspec.msgpack.Encoder(enc_hook=encode_hook, order="deterministic")
_SHOWN_CHARS = 60


class Fault(NamedTuple):
    """Where in the value (`$` is the whole of it), and what."""

    path: str
    reason: str


def from_validation(error: BaseException) -> Fault:
    """The two halves of msgspec's message."""
    text = str(error)
    found = _MSGSPEC_PATH.search(text)
    return Fault(found[1] if found else "$", _MSGSPEC_PATH.sub("", text))


def hides_non_finite(value: object, decoded: object) -> bool:
    """Whether NaN may have become null although the two compare equal, as a class with its own `==` can."""
    try:  # MessagePack tells NaN from nil.
        return _MSGPACK.encode(value) != _MSGPACK.encode(decoded)
    except Exception:
        return True


def non_finite(value: object) -> Fault | None:
    """The first NaN or infinity, which JSON does not have and msgspec writes as null."""
    for path, part in _walk(value):
        if isinstance(part, float) and not math.isfinite(part):
            return Fault(path, f"{part} has no JSON form: use None, text or a Decimal")
    return None


def unencodable(value: object) -> Fault | None:
    """The innermost part that has no JSON form."""
    found: Fault | None = None
    broken = "$"
    for path, part in _walk(value):
        if not path.startswith(broken):
            continue  # A sibling of the broken part.
        try:
            _encode_any(part)
        except RecursionError:
            return Fault(path, "the value is nested too deeply, or contains itself")
        except UnicodeEncodeError:
            found, broken = Fault(path, f"{_show(part)} holds half of a surrogate pair, not valid text"), path
        except Exception as error:
            found, broken = Fault(path, _key_fault(part) or str(error)), path
    return found


def difference(value: Any, decoded: Any, path: str = "$") -> Fault | None:
    """The first change that user code could notice; a tuple that comes back as a list is none."""
    if _equal(value, decoded):
        return None
    if isinstance(decoded, Decimal) and _is_same_number(value, decoded):
        return None
    if _is_sequence(value) and _is_sequence(decoded) and len(value) == len(decoded):
        pairs = zip(value, decoded, strict=True)
        return _first(difference(v, d, f"{path}[{i}]") for i, (v, d) in enumerate(pairs))
    if isinstance(value, dict) and isinstance(decoded, dict):
        return _dict_difference(value, decoded, path)
    if type(value) is not type(decoded):
        return Fault(
            path,
            f"{_show(value)} of type {type(value).__qualname__} would come back as "
            f"{_show(decoded)} of type {type(decoded).__qualname__}",
        )
    fields, others = fields_of(value), fields_of(decoded)
    if isinstance(value, tuple) and fields is None:
        pairs = zip(value, decoded, strict=True)
        return _first(difference(v, d, f"{path}[{i}]") for i, (v, d) in enumerate(pairs))
    if fields is not None and others is not None:
        lost = next((name for name in fields if name not in others), None)
        if lost is not None:
            return Fault(f"{path}.{lost}", "this field would be lost")
        return _first(difference(v, others[name], f"{path}.{name}") for name, v in fields.items())
    # Sets of objects without an `==` of their own are the same if they are written the same.
    if isinstance(value, set | frozenset) and canonical(value) == canonical(decoded):
        return None
    return Fault(path, f"{_show(value)} would come back as {_show(decoded)}")


def _key_fault(value: object) -> str | None:
    if isinstance(value, dict):
        for key in value:
            try:
                _encode_any({key: None})
            except Exception:
                return f"the key {_show(key)} of type {type(key).__qualname__} has no JSON text"
    return None


def _dict_difference(value: dict[Any, Any], decoded: dict[Any, Any], path: str) -> Fault | None:
    lost = next((key for key in value if key not in decoded and str(key) not in decoded), None)
    if lost is not None and len(decoded) < len(value):  # a TypedDict's decoder passes over it
        return Fault(path, f"the key {_show(lost)} is not one of its keys and would be lost")
    if len(value) != len(decoded):
        return Fault(path, f"{len(value)} keys would come back as {len(decoded)}: some have the same text")
    for key in value:
        if key not in decoded:
            return Fault(path, f"the key {_show(key)} of type {type(key).__qualname__} would come back as text")
    return _first(difference(v, decoded[k], path + _segment(k)) for k, v in value.items())


def _is_same_number(value: object, decoded: Decimal) -> bool:
    """NaN is not equal to itself; a float given for a Decimal is taken by its digits, as it is written."""
    if isinstance(value, Decimal):
        return value.is_nan() and decoded.is_nan()
    return isinstance(value, float) and repr(float(value)) == repr(float(decoded))


def _is_sequence(value: object) -> bool:
    return isinstance(value, list) or type(value) is tuple


def _first(faults: Iterator[Fault | None]) -> Fault | None:
    return next((fault for fault in faults if fault is not None), None)


def _equal(value: object, decoded: object) -> bool:
    try:
        return bool(value == decoded)
    except Exception:  # The comparison is user code.
        return False


def _encode_any(value: object) -> None:
    try:
        ENCODER.encode(value)
    except TypeError:
        canonical(value)


def _walk(value: object) -> Iterator[tuple[str, object]]:
    """The value and all its parts, outermost first; one that contains itself is not entered twice."""
    yield "$", value
    entered = {id(value)}
    stack = [("$", id(value), _parts(value))]
    while stack:
        path, owner, parts = stack[-1]
        for segment, part in parts:
            yield path + segment, part
            if id(part) not in entered:
                entered.add(id(part))
                stack.append((path + segment, id(part), _parts(part)))
                break
        else:
            stack.pop()
            entered.discard(owner)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield _segment(key), part
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield f"[{index}]", part
    elif isinstance(value, set | frozenset):
        for part in value:
            yield "[...]", part
    else:
        for name, part in (fields_of(value) or {}).items():
            yield f".{name}", part


def _segment(key: object) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{_show(key)}]"


def _show(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # A broken repr must not hide the fault that is being told.
        text = f"<{type(value).__qualname__}>"
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."
