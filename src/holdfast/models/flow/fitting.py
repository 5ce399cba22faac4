"""Whether what one activity answers fits what the next one takes, by their annotations.

Only what is surely wrong is refused: an annotation that is missing or too clever for this fits everything.
"""

from __future__ import annotations

import types
import typing
from typing import Any, Union


def fits(source: Any, target: Any) -> bool:
    """Whether every value of `source` may be one of `target`."""
    source, target = _bare(source), _bare(target)
    if _is_open(source) or _is_open(target) or source == target:
        return True
    if _is_union(source):
        return all(fits(member, target) for member in typing.get_args(source))
    if _is_union(target):
        return any(fits(source, member) for member in typing.get_args(target))
    from_origin, to_origin = typing.get_origin(source) or source, typing.get_origin(target) or target
    if not (isinstance(from_origin, type) and isinstance(to_origin, type)):
        return True
    if not (issubclass(from_origin, to_origin) or (from_origin is int and to_origin is float)):
        return False
    inner, wanted = typing.get_args(source), typing.get_args(target)
    if from_origin is not to_origin or len(inner) != len(wanted):
        return True
    return all(fits(given, expected) for given, expected in zip(inner, wanted, strict=True))


def shown(annotation: Any) -> str:
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__qualname__
    return str(annotation).replace("typing.", "")


def _bare(annotation: Any) -> Any:
    if annotation is None:
        return type(None)
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is typing.Annotated else annotation


def _is_open(annotation: Any) -> bool:
    return annotation is Any or annotation is object or isinstance(annotation, typing.TypeVar) or annotation is ...


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (Union, types.UnionType)
