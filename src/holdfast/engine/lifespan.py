"""Resources that a worker opens once and hands to steps and tasks by type.

A lifespan is an (async) generator function that yields one value: what comes before `yield` opens it, what comes
after closes it. A step that has a parameter of that type is given the value.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias, TypeVar

from holdfast.core.errors import ConfigurationError

T = TypeVar("T")

Lifespan: TypeAlias = Callable[[], AsyncIterator[Any] | Iterator[Any]]


class ResourceMark:
    """The default value of a task's parameter that the worker fills in."""

    def __repr__(self) -> str:
        return "resource()"


RESOURCE: Final = ResourceMark()


def resource() -> Any:
    """`db: Pool = resource()` in a task: not an input, but what a lifespan of the worker yields of that type."""
    return RESOURCE


class Resources:
    """What the lifespans of one worker yielded, found by type."""

    def __init__(self, values: tuple[object, ...] = ()) -> None:
        self._values = values

    def find(self, wanted: type[T]) -> T | None:
        exact = [value for value in self._values if type(value) is wanted]
        fitting = exact or [value for value in self._values if isinstance(value, wanted)]
        if len(fitting) > 1:
            raise ConfigurationError(
                f"{len(fitting)} resources fit the type {wanted.__qualname__}; ask for a more exact type"
            )
        return fitting[0] if fitting else None

    def need(self, wanted: type[T], by: str) -> T:
        found = self.find(wanted)
        if found is None:
            raise ConfigurationError(
                f"{by} asks for a {wanted.__qualname__}, but no lifespan of this app yields one; "
                "add `@app.lifespan` with a generator that does"
            )
        return found

    def given(self, wanted: Iterable[tuple[str, type]], by: str) -> dict[str, Any]:
        """What these parameters of user code are filled with."""
        return {name: self.need(kind, by) for name, kind in wanted}


@contextlib.asynccontextmanager
async def open_resources(lifespans: tuple[Lifespan, ...]) -> AsyncIterator[Resources]:
    """Open all in order; close in reverse order, also when opening a later one fails.

    Closing always resumes a generator after its `yield`: no error is thrown into it, so it needs no `try`.
    """
    stack = contextlib.AsyncExitStack()
    try:
        values = [await _open(lifespan, stack) for lifespan in lifespans]
        yield Resources(tuple(values))
    finally:
        await stack.aclose()


async def _open(lifespan: Lifespan, stack: contextlib.AsyncExitStack) -> object:
    if inspect.isasyncgenfunction(lifespan):
        return await stack.enter_async_context(contextlib.asynccontextmanager(lifespan)())
    if inspect.isgeneratorfunction(lifespan):
        return stack.enter_context(contextlib.contextmanager(lifespan)())
    raise ConfigurationError(
        f"the lifespan {getattr(lifespan, '__qualname__', lifespan)!r} is no generator function; "
        "write `async def` with one `yield` of the resource"
    )
