"""The threads that plain functions run in."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class StepThreads(ThreadPoolExecutor):
    """Whatever a function raises in them is an error for whoever awaits it, and for nobody else."""

    def __init__(self, count: int, thread_name_prefix: str) -> None:
        super().__init__(count, thread_name_prefix)
        self._busy: set[int] = set()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return super().submit(self._run, fn, *args, **kwargs)

    def _run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        me = threading.get_ident()
        self._busy.add(me)
        try:
            return contain(fn, *args, **kwargs)
        finally:
            self._busy.discard(me)

    def at_work(self) -> list[str]:
        """Which functions have not returned, and where they are."""
        frames = sys._current_frames()
        return [_whereabouts(traceback.extract_stack(frames[one])) for one in list(self._busy) if one in frames]


def _whereabouts(stack: traceback.StackSummary) -> str:
    entered = max(number for number, frame in enumerate(stack) if frame.name == contain.__name__)
    own = stack[min(entered + 1, len(stack) - 1)]
    return f"{own.name} ({own.filename}:{own.lineno})"


def contain(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call it, with a RuntimeError for what no future can carry.

    asyncio cannot raise a StopIteration into one: whoever awaited the thread would wait for ever. A SystemExit would
    end the worker, where `sys.exit()` in a thread is to end no more than what runs there. No KeyboardInterrupt in a
    thread comes from a keyboard, and no GeneratorExit from a loop that is gone.
    """
    try:
        return fn(*args, **kwargs)
    except (StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        name = getattr(fn, "__qualname__", "the function")
        raise RuntimeError(f"{name} raised {type(error).__name__}: {error}") from error


def exit_of(error: BaseException) -> SystemExit | None:
    """The exit that `contain` made an error of, if it is one."""
    return error.__cause__ if isinstance(error.__cause__, SystemExit) else None
