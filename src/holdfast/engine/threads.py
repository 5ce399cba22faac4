"""The threads that plain functions run in."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

log = logging.getLogger("holdfast.engine")

P = ParamSpec("P")
T = TypeVar("T")

_PACKAGE: Final = str(Path(__file__).parent.parent)
GIVEN_UP_MOST: Final = 1_000  # beyond that threads are not replaced: each costs memory


class _Job(Future[T]):
    """A call, whose threads hear that nobody waits for it any more though it goes on."""

    threads: StepThreads

    def cancel(self) -> bool:
        is_cancelled = super().cancel()
        if not is_cancelled and self.running():
            self.threads.give_up(self)
        return is_cancelled


class StepThreads(ThreadPoolExecutor):
    """Whatever a function raises in them is an error for whoever awaits it, and for nobody else.

    One that was given up, by a timeout or a cancel, cannot be stopped: its thread is replaced, so that hung calls do
    not take one after the other until no function runs in this worker any more.
    """

    def __init__(self, count: int, thread_name_prefix: str) -> None:
        super().__init__(count, thread_name_prefix)
        self._busy: set[int] = set()
        self._given_up: set[Future[Any]] = set()
        self._tell_at = count

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        job = super().submit(self._run, fn, *args, **kwargs)
        job.__class__ = _Job
        job.threads = self  # type: ignore[attr-defined]
        return job

    def give_up(self, job: Future[Any]) -> None:
        with self._shutdown_lock:
            if self._shutdown or job in self._given_up or len(self._given_up) >= GIVEN_UP_MOST:
                return
            self._given_up.add(job)
            self._max_workers += 1
            if not self._work_queue.empty():
                self._adjust_thread_count()
            hung = len(self._given_up)
        job.add_done_callback(self._came_back)
        if hung >= self._tell_at:
            self._tell_at = 2 * hung
            log.warning(
                "%d functions that were given up go on in their threads, which cannot be stopped: let what they call "
                'have a timeout of its own, or run them with executor="process". At work in threads: %s',
                hung,
                ", ".join(self.at_work()[:5]),
            )

    def _came_back(self, job: Future[Any]) -> None:
        with self._shutdown_lock:
            self._given_up.discard(job)
            self._max_workers -= 1

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
        found = [_whereabouts(traceback.extract_stack(frames[one])) for one in list(self._busy) if one in frames]
        return [where for where in found if where is not None]


def _whereabouts(stack: traceback.StackSummary) -> str | None:
    """The first of the frames that is the function's own; None: it returned while its stack was read."""
    entered = max((number for number, frame in enumerate(stack) if frame.name == contain.__name__), default=None)
    if entered is None:
        return None
    own = next((frame for frame in stack[entered:] if not frame.filename.startswith(_PACKAGE)), stack[-1])
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
