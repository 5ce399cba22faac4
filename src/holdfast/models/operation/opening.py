"""`await thing()` or `async with thing() as x`: one call that can be used both ways."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Generic, Protocol, TypeVar


class Managed(Protocol):
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


M = TypeVar("M", bound=Managed)


class Opening(Generic[M]):
    """Something about to be opened; nothing happens until it is awaited or entered."""

    def __init__(self, start: Callable[[], Coroutine[object, None, M]]) -> None:
        self._start = start
        self._opened: M | None = None

    def __await__(self) -> Generator[object, None, M]:
        return self._start().__await__()

    async def __aenter__(self) -> M:
        self._opened = await self._start()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._opened is not None
        await self._opened.__aexit__(kind, error, trace)
