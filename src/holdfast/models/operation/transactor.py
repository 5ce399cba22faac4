"""Runs the file work of one operation handle: in a thread of its own, or inline for a virtual clock.

The thread waits for the lock in the kernel's queue, which is fair where polling starves; the caller's
timeout cancels work that has not begun, so that a timed-out change never happens later.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Protocol, TypeVar

from .errors import LockTimeoutError
from .files import storage_error
from .filesystem import FileSystem, lock_holder
from .timing import Timing

R = TypeVar("R")


class Transactor(Protocol):
    """Runs blocking work for an async caller, under the operation's lock or without it."""

    async def locked(self, work: Callable[[], R]) -> R: ...

    async def unlocked(self, work: Callable[[], R]) -> R: ...

    def close(self) -> None: ...


class TransactorFactory(Protocol):
    def __call__(self, operation_id: str, lock_path: Path, file_system: FileSystem, timing: Timing) -> Transactor: ...


class ThreadTransactor:
    """One daemon thread an operation handle, started with the first work."""

    def __init__(self, operation_id: str, lock_path: Path, file_system: FileSystem, timing: Timing) -> None:
        self._operation_id = operation_id
        self._lock_path = lock_path
        self._fs = file_system
        self._timeout_seconds = timing.lock_timeout_ms / 1000
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def locked(self, work: Callable[[], R]) -> R:
        return await self._submit(work, self._timeout_seconds)

    async def unlocked(self, work: Callable[[], R]) -> R:
        return await self._submit(work, None)

    def close(self) -> None:
        """Let the thread end once what was handed in is done. Later work gets a thread for itself."""
        self._closed = True
        if self._thread is not None:
            self._jobs.put(None)
            self._thread = None

    async def _submit(self, work: Callable[[], R], lock_timeout_seconds: float | None) -> R:
        future: Future[R] = Future()
        needs_lock = lock_timeout_seconds is not None
        self._jobs.put(lambda: self._perform(future, work, needs_lock))
        if self._thread is None:
            name = f"holdfast-operation-{self._operation_id}"
            self._thread = threading.Thread(target=self._drain, args=(self._jobs,), name=name, daemon=True)
            self._thread.start()
            if self._closed:
                self.close()
        wrapped = asyncio.wrap_future(future)
        try:
            done, _ = await asyncio.wait({wrapped}, timeout=lock_timeout_seconds)
        except asyncio.CancelledError:
            if not future.cancel():
                await _settle(wrapped)  # it has begun: let it end, so that the caller knows where it stands
            raise
        if not done and future.cancel():
            raise LockTimeoutError(
                f"operation {self._operation_id}: the lock {self._lock_path.name} was not free within "
                f"{lock_timeout_seconds} s (last taken by process {lock_holder(self._lock_path)}); "
                "nothing was changed, see what that process is doing and try again"
            )
        return await wrapped

    def _perform(self, future: Future[R], work: Callable[[], R], needs_lock: bool) -> None:
        if future.cancelled():
            return
        try:
            with self._fs.locked(self._lock_path) if needs_lock else nullcontext():
                if not future.set_running_or_notify_cancel():
                    return  # the caller gave up while this thread waited for the lock
                try:
                    result = work()
                except BaseException as error:
                    future.set_exception(error)
                    return
            future.set_result(result)
        except OSError as error:
            if not future.done() and (future.running() or future.set_running_or_notify_cancel()):
                refused = storage_error(self._operation_id, error)
                refused.__cause__ = error
                future.set_exception(refused)

    @staticmethod
    def _drain(jobs: queue.SimpleQueue[Callable[[], None] | None]) -> None:
        while (job := jobs.get()) is not None:
            job()


class InlineTransactor:
    """Runs the work at once, in the caller's own step: no thread can blur a virtual clock."""

    def __init__(self, operation_id: str, lock_path: Path, file_system: FileSystem, timing: Timing) -> None:
        self._operation_id = operation_id
        self._lock_path = lock_path
        self._fs = file_system

    async def locked(self, work: Callable[[], R]) -> R:
        try:
            with self._fs.locked(self._lock_path):
                return work()
        except OSError as error:
            raise storage_error(self._operation_id, error) from error

    async def unlocked(self, work: Callable[[], R]) -> R:
        return work()

    def close(self) -> None:
        return None


async def _settle(future: asyncio.Future[R]) -> None:
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError:
            continue
    if not future.cancelled():
        future.exception()  # seen: the caller is being cancelled and cannot take it
