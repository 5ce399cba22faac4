"""The one writer of a store: its connection, its thread, and the transaction around every write.

A write runs in the writer thread, or inline on the caller's thread where commits are fast enough; a gate keeps the
two apart. Across processes the writers queue on `lock.WriterLock`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Final, TypeVar

from holdfast.core.clock import Clock
from holdfast.core.crashpoints import reach
from holdfast.core.errors import StoreError
from holdfast.store.sqlite.connection import connect, explain
from holdfast.store.sqlite.lock import WriterLock

T = TypeVar("T")

INLINE_SECONDS: Final = 0.001  # a commit that takes longer than this would stall the event loop
_SMOOTHING: Final = 0.2
_SAMPLE_MAX_SECONDS: Final = 0.010  # one slow commit must not banish inline commits for long


class Tx:
    """An open write transaction: the connection, the store's time, and whom to wake once it is committed."""

    __slots__ = ("db", "ended", "now", "stirred", "work")

    def __init__(self, db: sqlite3.Connection, now: int) -> None:
        self.db = db
        self.now = now  # microseconds; one moment for the whole transaction
        self.work = False  # an execution became runnable, or its holder has something to look at
        self.stirred = False  # the latter
        self.ended = False  # an execution ended or was stranded


class Writer:
    def __init__(
        self,
        path: Path,
        clock: Clock,
        announce: Callable[[Tx], Callable[[], None] | None],
        busy_seconds: float,
    ) -> None:
        self._path = path
        self._clock = clock
        self._announce = announce
        self._gate = threading.Lock()
        self._submitted = 0  # counted by the loop's thread alone
        self._finished = 0  # counted by the writer thread alone
        self._commit_seconds = 0.0
        self._lock = WriterLock(path, busy_seconds)
        try:
            self.db = connect(path, busy_seconds)
        except BaseException:
            self._lock.close()
            raise
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-sqlite-writer")

    @property
    def is_quick(self) -> bool:
        """Whether a write may run on the event loop's thread just now."""
        return self._commit_seconds < INLINE_SECONDS and self._submitted == self._finished and not self._gate.locked()

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        with self._gate:
            self.db.close()
            self._lock.close()

    async def run(self, point: str | None, work: Callable[[Tx], T]) -> T:
        """One write transaction in the writer thread. Cancelling the caller does not undo it."""
        loop = asyncio.get_running_loop()
        try:
            future = loop.run_in_executor(self._thread, self._run_queued, point, work)
        except RuntimeError as error:
            raise StoreError(f"the store on {self._path} is closed: open it again") from error
        self._submitted += 1
        return await future

    def _run_queued(self, point: str | None, work: Callable[[Tx], T]) -> T:
        try:
            return self.run_now(point, work)
        finally:
            self._finished += 1

    def run_now(self, point: str | None, work: Callable[[Tx], T]) -> T:
        """One write transaction on the calling thread."""
        begun = perf_counter()
        with self._gate:
            self._lock.acquire()
            try:
                result, wake = self._transact(begun, point, work)
            except sqlite3.Error as error:
                raise explain(self._path, error) from error
            finally:
                self._lock.release()
        if point is not None:
            reach(point + ".after")
        if wake is not None:
            wake()
        return result

    def _transact(
        self, begun: float, point: str | None, work: Callable[[Tx], T]
    ) -> tuple[T, Callable[[], None] | None]:
        db = self.db
        db.execute("begin immediate")
        try:
            changes = db.total_changes
            waited = perf_counter() - begun
            tx = Tx(db, self._clock.now_us())
            result = work(tx)
            wake = self._announce(tx) if tx.work or tx.ended else None
            if point is not None:
                reach(point + ".before")
            committing = perf_counter()
            db.execute("commit")
        except BaseException:
            if db.in_transaction:
                db.execute("rollback")
            raise
        if db.total_changes != changes:
            sample = min(waited + perf_counter() - committing, _SAMPLE_MAX_SECONDS)
            self._commit_seconds += _SMOOTHING * (sample - self._commit_seconds)
        return result, wake
