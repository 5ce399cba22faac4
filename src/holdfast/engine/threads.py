"""The threads that plain functions run in."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class StepThreads(ThreadPoolExecutor):
    """A StopIteration comes out as a RuntimeError, as from any coroutine.

    asyncio cannot raise one into a future: whoever awaited the thread would wait for ever.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return super().submit(without_stop_iteration, fn, *args, **kwargs)


def without_stop_iteration(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return fn(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError(f"{getattr(fn, '__qualname__', 'the function')} raised StopIteration") from error
