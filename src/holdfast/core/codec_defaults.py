"""Defaults that a decoded dataclass lacks.

msgspec does not store the default of a field that the text leaves out: the class attribute shows through, and the
field is missing when the value is written again. Equal values would then have different texts, and a text of
before a deploy could never equal today's (ruling B17). So decoded dataclasses get what they lack.

`filler_for` compiles an annotation into a function that visits only the parts where such dataclasses can be.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, get_origin

from msgspec import inspect as mi

# Fills what the value lacks, in place, and tells whether it lacked anything.
Filler: TypeAlias = Callable[[Any], bool]

_SEQUENCES = {mi.ListType: list, mi.SetType: set, mi.FrozenSetType: frozenset, mi.VarTupleType: tuple}


def filler_for(annotation: Any) -> Filler | None:
    """The filler of an annotation; None if its values never lack anything."""
    info = mi.type_info(annotation)
    return _compile(info, {}) if _may_lack(info) else None


def type_infos(root: mi.Type) -> Iterator[mi.Type]:
    """The node and all below it, each once: types may be recursive."""
    seen: set[int] = set()
    pending: list[object] = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending.extend(node)
        elif isinstance(node, mi.Type | mi.Field) and id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, mi.Type):
                yield node
            pending.extend(getattr(node, name) for name in node.__struct_fields__)


def _may_lack(info: mi.Type) -> bool:
    return any(_own_defaults(part) for part in type_infos(info))


def _own_defaults(info: mi.Type) -> dict[str, Any]:
    cls = _class(info) if isinstance(info, mi.DataclassType) else None
    if cls is None or not dataclasses.is_dataclass(cls) or not cls.__dictoffset__:
        return {}  # With slots there is no class attribute to show through.
    return {f.name: f.default for f in dataclasses.fields(cls) if f.default is not dataclasses.MISSING}


def _compile(info: mi.Type, done: dict[int, list[Filler]]) -> Filler:
    if id(info) in done:  # A recursive type, maybe still being compiled: looked up when it runs.
        cell = done[id(info)]
        return lambda value: cell[0](value)
    cell = done[id(info)] = []
    filler = _FILLERS[type(info)](info, lambda part: _compile(part, done) if _may_lack(part) else None)
    cell.append(filler)
    return filler


_Compile: TypeAlias = Callable[[mi.Type], Filler | None]


def _object(info: Any, compiled: _Compile) -> Filler:
    """Dataclasses and structs."""
    defaults = _own_defaults(info)
    parts = [(field.name, fill) for field in info.fields if (fill := compiled(field.type))]

    def fill_object(value: Any) -> bool:
        filled = False
        if defaults:
            own = vars(value)
            if not own.keys() >= defaults.keys():
                filled = True
                for name, default in defaults.items():
                    own.setdefault(name, default)
        for name, fill in parts:
            filled |= fill(getattr(value, name))
        return filled

    return fill_object


def _typed_dict(info: Any, compiled: _Compile) -> Filler:
    parts = [(field.encode_name, fill) for field in info.fields if (fill := compiled(field.type))]
    return lambda value: _any(fill(value[key]) for key, fill in parts if key in value)


def _fixed_tuple(info: Any, compiled: _Compile) -> Filler:
    types = info.item_types if isinstance(info, mi.TupleType) else [field.type for field in info.fields]
    parts = [(index, fill) for index, part in enumerate(types) if (fill := compiled(part))]
    return lambda value: _any(fill(value[index]) for index, fill in parts)


def _items(info: Any, compiled: _Compile) -> Filler:
    fill = compiled(info.item_type) or _nothing
    return lambda value: _any(map(fill, value))


def _dict(info: Any, compiled: _Compile) -> Filler:
    fill = compiled(info.value_type) or _nothing
    return lambda value: _any(map(fill, value.values()))


def _union(info: Any, compiled: _Compile) -> Filler:
    """At most one member fits: msgspec allows one array and one object, or structs told apart by class."""
    parts = [(_class(part), fill) for part in info.types if (fill := compiled(part))]

    def fill_union(value: Any) -> bool:
        return any(fill(value) for cls, fill in parts if isinstance(value, cls))

    return fill_union


_FILLERS: dict[type[mi.Type], Callable[[Any, _Compile], Filler]] = {
    mi.DataclassType: _object,
    mi.StructType: _object,
    mi.TypedDictType: _typed_dict,
    mi.NamedTupleType: _fixed_tuple,
    mi.TupleType: _fixed_tuple,
    mi.ListType: _items,
    mi.SetType: _items,
    mi.FrozenSetType: _items,
    mi.VarTupleType: _items,
    mi.DictType: _dict,
    mi.UnionType: _union,
}


def _class(info: Any) -> type:
    """The Python class of decoded values."""
    if isinstance(info, mi.TypedDictType | mi.DictType):
        return dict
    if isinstance(info, mi.TupleType):
        return tuple
    cls: Any = _SEQUENCES.get(type(info)) or info.cls
    return get_origin(cls) or cls  # type: ignore[no-any-return]


def _any(results: Iterator[bool]) -> bool:
    """Like `any`, but visits every part: each must be filled."""
    return sum(results) > 0


def _nothing(value: object) -> bool:
    return False
