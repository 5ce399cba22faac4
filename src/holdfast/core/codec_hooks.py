"""What the codec adds to msgspec: more types, and one order for what has none.

- `encode_hook` and `decode_hook`: paths, pydantic models, subclasses of standard types, and `object`.
- `check_annotation`: refuses, when a codec is built, what neither msgspec nor the hooks can read back.
- `takes_other_numbers`: whether the text of what was given is not yet that of its value.
- `canonical`: the deterministic text of values that msgspec's own ordering cannot sort.
- `shape_of`: what an annotation reads, as a text that is another one when it reads something else.

What is said about a value that does not fit lives in `codec_faults`; pydantic is only used if the user did.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from pathlib import PurePath
from typing import Any, cast, get_origin
from uuid import UUID

import msgspec
from msgspec import inspect as mi

from holdfast.core.codec_defaults import type_infos

_KEY_TYPES = (
    mi.AnyType,
    mi.StrType,
    mi.IntType,
    mi.FloatType,
    mi.EnumType,
    mi.LiteralType,
    mi.DateTimeType,
    mi.DateType,
    mi.TimeType,
    mi.TimeDeltaType,
    mi.UUIDType,
    mi.DecimalType,
    mi.BytesType,
)
# Sets of these are totally ordered by `<`; enums have no order, and that of frozensets is only partial.
_SORTABLE_TYPES = (
    mi.StrType,
    mi.IntType,
    mi.FloatType,
    mi.BoolType,
    mi.DateTimeType,
    mi.DateType,
    mi.TimeType,
    mi.TimeDeltaType,
    mi.UUIDType,
    mi.DecimalType,
    mi.BytesType,
)


# What libraries make subclasses of, which msgspec does not know. A datetime is a date too.
SUBCLASSED = (datetime, date, time, timedelta, Decimal, bytes, UUID)


def encode_hook(value: Any) -> Any:
    """The JSON-native form of a value that msgspec does not know."""
    if isinstance(value, PurePath):
        return str(value)
    if is_model(value):
        return _dump_model(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, SUBCLASSED):
        return _as_base(value)
    raise TypeError(f"a value of type {type(value).__qualname__} has no JSON form")


def _as_base(value: Any) -> Any:
    """A value of a subclass, as of pandas, pendulum or freezegun, as one of the class that msgspec knows."""
    if isinstance(value, datetime):
        day = value.year, value.month, value.day
        clock = value.hour, value.minute, value.second, value.microsecond
        return datetime(*day, *clock, tzinfo=value.tzinfo, fold=value.fold)
    if isinstance(value, date):
        return date(value.year, value.month, value.day)
    if isinstance(value, time):
        return time(value.hour, value.minute, value.second, value.microsecond, value.tzinfo, fold=value.fold)
    if isinstance(value, timedelta):
        return timedelta(value.days, value.seconds, value.microseconds)
    if isinstance(value, UUID):
        return UUID(int=value.int)
    return Decimal(value) if isinstance(value, Decimal) else bytes(value)


def decode_hook(annotation: type, plain: Any) -> Any:
    """The inverse of `encode_hook`, by annotation."""
    if annotation is object:
        return plain
    if issubclass(annotation, PurePath):
        if not isinstance(plain, str):
            raise TypeError(f"Expected `{annotation.__name__}` as text, got `{type(plain).__name__}`")
        return annotation(plain)
    # Through JSON again: a strict model takes a date from JSON text, but not from a Python string.
    return cast(Any, annotation).model_validate_json(ENCODER.encode(plain), **_model_names()[1])


ENCODER = msgspec.json.Encoder(enc_hook=encode_hook, order="deterministic")
_UNORDERED = msgspec.json.Encoder(enc_hook=encode_hook)
_PLAIN = msgspec.json.Decoder()
_CONTAINERS = (list, dict)


def check_annotation(annotation: Any) -> bool:
    """Raises TypeError for what cannot be read back; tells whether `canonical` must write its values."""
    needs_canonical = False
    for info in type_infos(mi.type_info(annotation)):
        if isinstance(info, mi.CustomType) and not _is_hooked(info.cls):
            raise TypeError(f"{info.cls.__qualname__} is neither a dataclass nor another type with a JSON form")
        if isinstance(info, mi.DictType):
            if not isinstance(info.key_type, (*_KEY_TYPES, mi.UnionType)):
                raise TypeError(f"{type(info.key_type).__name__.removesuffix('Type').lower()} as a dict's key")
            needs_canonical |= not isinstance(info.key_type, mi.StrType | mi.AnyType)
        if isinstance(info, mi.SetType | mi.FrozenSetType):
            needs_canonical |= not isinstance(info.item_type, _SORTABLE_TYPES)
    return needs_canonical


def takes_other_numbers(annotation: Any) -> bool:
    """Whether one value may be given as several: 3 for a float, 0.5 for a Decimal, which are written otherwise."""
    return any(isinstance(info, mi.FloatType | mi.DecimalType) for info in type_infos(mi.type_info(annotation)))


def shape_of(annotation: Any) -> bytes:
    """The same in every process, and without the defaults themselves: whether there is one is what a reader minds."""
    return "\n".join(map(_told, type_infos(mi.type_info(annotation)))).encode(errors="backslashreplace")


def _told(info: mi.Type) -> str:
    facts: list[object] = [type(info).__name__]
    for name in info.__struct_fields__:
        value = getattr(info, name)
        if name == "fields":
            facts.append([(field.encode_name, field.required) for field in value])
        elif name == "cls":
            cls = get_origin(value) or value  # of a generic one; what it is of is told by its fields
            members = [repr(one.value) for one in cls] if issubclass(cls, Enum) else []
            facts.append([cls.__qualname__, *members])
            with contextlib.suppress(Exception):  # not every model has one
                facts.append(ENCODER.encode(cls.model_json_schema()))
        elif name == "values" or isinstance(value, str | int | float):
            facts.append((name, value))
    return repr(facts)


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and sorted sets, for values whose keys or members `<` cannot order."""
    plain = _PLAIN.decode(_UNORDERED.encode(value))
    return ENCODER.encode(_sort_sets(value, plain, inside_model=False))


def fields_of(value: Any) -> dict[str, Any] | None:
    """Names and values of an object with fields, None for anything else."""
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if is_model(value):
        return {**vars(value), **(value.__pydantic_extra__ or {})}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
    attributes = getattr(type(value), "__attrs_attrs__", None)
    return (
        None if attributes is None else {a.name: getattr(value, a.name) for a in attributes if hasattr(value, a.name)}
    )


def is_model(value: object) -> bool:
    """Whether it is an instance of a pydantic model, without importing pydantic."""
    return _is_model_class(type(value))


def _is_model_class(cls: type) -> bool:
    # Every model has this attribute; `issubclass` runs pydantic's own Python code and is ten times slower.
    return hasattr(cls, "__pydantic_root_model__")


def _is_hooked(cls: type) -> bool:
    return cls is object or (isinstance(cls, type) and issubclass(cls, PurePath)) or _is_model_class(cls)


@lru_cache(maxsize=1)
def _model_names() -> tuple[dict[str, bool], dict[str, bool]]:
    """How models are dumped and validated: by field name, or by alias before pydantic 2.11."""
    version = tuple(int(part) for part in sys.modules["pydantic"].VERSION.split(".")[:2])
    if version >= (2, 11):
        return {"by_alias": False}, {"by_alias": True, "by_name": True}
    return {"by_alias": True}, {}


def _dump_model(model: Any) -> Any:
    # Warnings about values that break their model's own types are ours to give: they do not validate again.
    plain = model.model_dump(mode="json", round_trip=True, warnings=False, **_model_names()[0])
    return _sort_sets(model, plain, inside_model=True)


def _sort_sets(value: Any, plain: Any, *, inside_model: bool) -> Any:
    """`plain` with every list that was a set in `value` sorted by its members' JSON.

    Both are walked side by side: their shape is the same, and an unchanged set is walked in one order.
    """
    if not isinstance(plain, _CONTAINERS):
        return plain
    if is_model(value):
        if not inside_model:  # Its own dump is sorted already.
            return plain
        if type(value).__pydantic_root_model__:
            return _sort_sets(value.root, plain, inside_model=True)
    if isinstance(plain, list):
        return _sort_list(value, plain, inside_model)
    if isinstance(value, dict):
        if len(value) != len(plain):  # Two keys with the same text: reported as a change of the value.
            return plain
        parts = dict(zip(plain, value.values(), strict=True))
    else:
        parts = fields_of(value) or {}
        if isinstance(value, msgspec.Struct):
            parts = dict(zip(value.__struct_encode_fields__, parts.values(), strict=True))
    return {
        key: _sort_sets(parts[key], item, inside_model=inside_model) if key in parts else item
        for key, item in plain.items()
    }


def _sort_list(value: Any, plain: list[Any], inside_model: bool) -> list[Any]:
    if isinstance(value, msgspec.Struct):  # array_like, with its tag first
        parts = [None] * (value.__struct_config__.tag is not None) + list((fields_of(value) or {}).values())
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = list(value)
    else:
        return plain
    if len(parts) != len(plain):
        return plain
    items = [_sort_sets(v, p, inside_model=inside_model) for v, p in zip(parts, plain, strict=True)]
    return sorted(items, key=ENCODER.encode) if isinstance(value, (set, frozenset)) else items
