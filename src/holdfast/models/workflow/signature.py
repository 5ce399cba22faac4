"""How a function's arguments become JSON and back: an object with one field a parameter, by its annotation."""

from __future__ import annotations

import copy
import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Never, NoReturn

import msgspec
from msgspec.structs import astuple

from holdfast.core.codec import SURE_TYPES, Codec, codec_for
from holdfast.core.codec_hooks import shape_of
from holdfast.core.errors import DefinitionError, InvalidArgumentError
from holdfast.engine.lifespan import RESOURCE

_PLAIN_DEFAULTS = (type(None), bool, int, float, str, bytes, tuple)


class Signature:
    """The parameters of one function after the first `skip` (`ctx`), and its result.

    `call` is the function, to be called with what `decode` gives.
    """

    __slots__ = (
        "_make",
        "_names",
        "_sure_types",
        "annotations",
        "call",
        "codec",
        "resources",
        "result",
        "shape",
        "where",
    )

    def __init__(self, function: Callable[..., Any], where: str, *, skip: int = 0) -> None:
        self.where = where
        hints = _hints(function, where, skip)
        fields: list[Any] = []
        named: list[Any] = []  # those that are given by keyword alone; Python has them last
        resources: list[tuple[str, type]] = []
        for parameter in _parameters(function, where, skip):
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise DefinitionError(
                    f"{where} takes *{parameter.name}: what is called is written into the ledger by parameter; "
                    "use a list or a dict instead"
                )
            if parameter.default is RESOURCE:
                resources.append((parameter.name, _resource_type(hints.get(parameter.name), where, parameter.name)))
            else:
                chosen = named if parameter.kind is parameter.KEYWORD_ONLY else fields
                chosen.append(_field(parameter, hints.get(parameter.name, Any)))
        self.resources = tuple(resources)
        self._names = tuple(field[0] for field in fields + named)
        self.call = _by_position(function, self._names, skip)
        made = msgspec.defstruct("Input", fields)
        self._make: Callable[..., Any] = (
            msgspec.defstruct("Input", named, bases=(made,), kw_only=True) if named else made
        )
        self.codec: Codec[Any] = Codec(self._make, of=where)
        hinted = [field[1] for field in fields + named]
        self.annotations: dict[str, Any] = dict(zip(self._names, hinted, strict=True))
        # Arguments of exactly these types are read as they were written; None if one of them may not be.
        self._sure_types = hinted if all(each in SURE_TYPES for each in hinted) else None
        result = hints.get("return", Any)
        if result in (NoReturn, Never):
            result = None  # it never has one
        self.result: Codec[Any] = codec_for(result)
        self.shape = shape_of(self._make) + b"\n" + shape_of(result)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parameters that are input, in their order."""
        return self._names

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> str:
        """The input as canonical JSON; a clear error where an argument does not fit."""
        return self.write(args, kwargs, limit)[0]

    def write(self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> tuple[str, tuple[Any, ...]]:
        """The input as canonical JSON, and the arguments as `decode` reads them from it."""
        try:
            made = self._make(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgumentError(f"{self.where} cannot be called like this: {error}") from None
        if not kwargs and [*map(type, args)] == self._sure_types:
            return self.codec.write_sure(made, max_bytes=limit).decode(), args
        raw, read = self.codec.write(made, max_bytes=limit)
        return raw.decode(), astuple(read)

    def decode(self, text: str | bytes) -> tuple[Any, ...]:
        """The arguments in order, as every run of the function gets them (ruling B11)."""
        return astuple(self.codec.decode(text))


def _hints(function: Callable[..., Any], where: str, skip: int) -> dict[str, Any]:
    """Annotations as types, but of the first `skip` parameters: what only type checkers know may stand there."""
    given = list(inspect.signature(function).parameters)[:skip]
    try:
        kept = {name: hint for name, hint in getattr(function, "__annotations__", {}).items() if name not in given}
        # Read as the function's own: `get_type_hints` takes globals of what is wrapped, but no type parameters.
        own = getattr(function, "__type_params__", ())
        shown = types.SimpleNamespace(__annotations__=kept, __wrapped__=function, __type_params__=own)
        return typing.get_type_hints(shown, include_extras=True)
    except Exception as error:
        raise DefinitionError(
            f"the annotations of {where} cannot be read: {error}; import the names they use, or define them, at the "
            "top of the module: neither in a function, nor under `if TYPE_CHECKING`"
        ) from error


def _parameters(function: Callable[..., Any], where: str, skip: int) -> list[inspect.Parameter]:
    """Those after the first `skip`, which are given by position."""
    parameters = list(inspect.signature(function).parameters.values())
    if parameters and parameters[0].name in ("self", "cls") and _is_in_class(function):
        raise DefinitionError(
            f"{where} is a method, and no process but this one has its {parameters[0].name!r}: declare a function, or "
            "write @staticmethod above this decorator, and give it what it needs as arguments or resources"
        )
    for first in parameters[:skip]:
        if first.kind is first.KEYWORD_ONLY:
            raise DefinitionError(f"{where} is given {first.name!r} by position: write it before the `*`")
    return parameters[skip:]


def _by_position(function: Callable[..., Any], names: tuple[str, ...], skip: int) -> Callable[..., Any]:
    """The function, to be called with all its input in order, also where it takes some of it by keyword alone."""
    parameters = list(inspect.signature(function).parameters.values())[skip:]
    count = 0
    while count < len(names) and parameters[count].name == names[count] and _is_positional(parameters[count]):
        count += 1
    named = names[count:]  # after a `*`, or behind a resource
    if not named:
        return function

    @functools.wraps(function)
    def call(*arguments: Any, **resources: Any) -> Any:
        at = skip + count
        return function(*arguments[:at], **dict(zip(named, arguments[at:], strict=True)), **resources)

    return call


def _is_in_class(function: Callable[..., Any]) -> bool:
    within = getattr(function, "__qualname__", "").rpartition(".")[0]
    return bool(within) and not within.endswith("<locals>")


def _is_positional(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)


def _resource_type(annotation: object, where: str, name: str) -> type:
    if not isinstance(annotation, type):
        raise DefinitionError(
            f"{where} has {name!r} = resource() without a class as its annotation; it is found by type"
        )
    return annotation


def _field(parameter: inspect.Parameter, annotation: Any) -> Any:
    default = parameter.default
    if default is parameter.empty:
        return (parameter.name, annotation)
    if isinstance(default, _PLAIN_DEFAULTS):
        return (parameter.name, annotation, default)
    return (parameter.name, annotation, msgspec.field(default_factory=lambda: copy.deepcopy(default)))
