"""The threads that plain functions run in."""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import itertools
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

log = logging.getLogger("holdfast.engine")

P = ParamSpec("P")
T = TypeVar("T")

_PACKAGE: Final = str(Path(__file__).parent.parent)
GIVEN_UP_MOST: Final = 1_000  # beyond that threads are not replaced: each costs memory


class StepThreads(Executor):
    """Up to `count` threads, made when calls need them.

    Whatever a function raises in them is an error for whoever awaits it, and for nobody else. One that was given up, by
    a timeout or a cancel, cannot be stopped: its thread is replaced, so that hung calls do not take one after the other
    until no function runs in this worker any more. Should it return after all, its thread ends.
    """

    def __init__(self, count: int, thread_name_prefix: str) -> None:
        self._prefix = thread_name_prefix
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()  # None: there will be no more
        self._is_shut = False
        self._may_make = count
        self._free = 0  # threads that wait for a call, less calls that wait for a thread
        self._busy: dict[Future[Any], int] = {}  # in which thread
        self._given_up: set[Future[Any]] = set()
        self._tell_at = count

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        job: _Job[T] = _Job(self)
        with self._lock:
            if self._is_shut:
                raise RuntimeError(f"the threads {self._prefix} are shut down: they take no more calls")
            if self._free <= 0:
                self._make_thread()
            self._free -= 1
            self._calls.put((job, fn, args, kwargs))
        return job

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            self._is_shut = True
        if cancel_futures:
            with contextlib.suppress(Empty):
                while True:
                    if (call := self._calls.get_nowait()) is not None:
                        call[0].cancel()
        self._calls.put(None)
        if wait:
            for thread in _living():
                if thread.threads is self:
                    thread.join()

    def give_up(self, job: Future[Any]) -> None:
        """Nobody waits for this call any more: another thread takes the place of the one that it goes on in."""
        with self._lock:
            if self._is_shut or job not in self._busy or job in self._given_up or len(self._given_up) >= GIVEN_UP_MOST:
                return
            self._given_up.add(job)
            self._may_make += 1
            if self._free < 0:
                self._make_thread()
            hung = len(self._given_up)
        if hung >= self._tell_at:
            self._tell_at = 2 * hung
            log.warning(
                "%d functions that were given up go on in their threads, which cannot be stopped: let what they call "
                'have a timeout of its own, or run them with executor="process". At work in threads: %s',
                hung,
                ", ".join(self.at_work()[:5]),
            )

    def at_work(self) -> list[str]:
        """Which functions have not returned, and where they are."""
        frames = sys._current_frames()
        stacks = [frames[thread] for thread in list(self._busy.values()) if thread in frames]
        found = [_whereabouts(traceback.extract_stack(stack)) for stack in stacks]
        return [where for where in found if where is not None]

    def work(self) -> None:
        """One call after the other, in one of the threads."""
        for job, fn, args, kwargs in iter(self._calls.get, None):
            self._busy[job] = threading.get_ident()
            job.run(fn, *args, **kwargs)
            with self._lock:
                del self._busy[job]
                if job in self._given_up:
                    self._given_up.remove(job)
                    return
                self._free += 1
            del job, fn, args, kwargs  # else they are kept until the next call comes
        self._calls.put(None)  # for the next thread

    def _make_thread(self) -> None:
        if self._may_make > 0:
            thread = StepThread(self, f"{self._prefix}_{next(self._numbers)}")
            contextvars.Context().run(thread.start)  # a Python without GIL gives it a copy of the starter's context
            self._may_make -= 1
            self._free += 1


class _Job(Future[T]):
    """What becomes of a call. Its threads hear that nobody waits for it any more though it goes on."""

    def __init__(self, threads: StepThreads) -> None:
        super().__init__()
        self._threads = threads

    def cancel(self) -> bool:
        is_cancelled = super().cancel()
        if not is_cancelled and self.running():
            self._threads.give_up(self)
        return is_cancelled

    def run(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> None:
        if not self.set_running_or_notify_cancel():
            return
        try:
            result = contain(fn, *args, **kwargs)
        except BaseException as error:
            self.set_exception(error)
            del self  # whose error knows this frame: in a circle, they would wait for the garbage collector
        else:
            self.set_result(result)


_Call: TypeAlias = tuple[_Job[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class StepThread(threading.Thread):
    """Python ends while it is idle, and waits for its call (`_wait_for_calls`)."""

    def __init__(self, threads: StepThreads, name: str) -> None:
        super().__init__(target=threads.work, name=name, daemon=True)
        self.threads = threads


def calls_at_work() -> list[str]:
    """Which functions have not returned, in the threads of any worker, and where they are."""
    return [where for threads in {thread.threads for thread in _living()} for where in threads.at_work()]


def _living() -> list[StepThread]:
    return [thread for thread in threading.enumerate() if isinstance(thread, StepThread)]


@atexit.register
def _wait_for_calls() -> None:
    for thread in _living():
        thread.threads.shutdown()


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
