"""The threads that plain functions run in."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class StepThreads(ThreadPoolExecutor):
    """Whatever a function raises in them is an error for whoever awaits it, and for nobody else."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return super().submit(contain, fn, *args, **kwargs)


def contain(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call it, with a RuntimeError for what no future can carry.

    asyncio cannot raise a StopIteration into one: whoever awaited the thread would wait for ever. A SystemExit would
    end the worker, where `sys.exit()` in a thread is to end no more than what runs there.
    """
    try:
        return fn(*args, **kwargs)
    except (StopIteration, SystemExit) as error:
        name = getattr(fn, "__qualname__", "the function")
        raise RuntimeError(f"{name} raised {type(error).__name__}: {error}") from error


def exit_of(error: BaseException) -> SystemExit | None:
    """The exit that `contain` made an error of, if it is one."""
    return error.__cause__ if isinstance(error.__cause__, SystemExit) else None
