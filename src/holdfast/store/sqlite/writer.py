"""The one writer of a store: its connection, its thread, and the transaction around every write.

A write runs inline on the caller's thread where commits are fast enough, or in the writer thread; a gate keeps the two
apart. Inline is the rule: a loop and a thread that both want Python's lock take turns, so that the thread brings little
but its own cost. Across processes the writers queue on `lock.WriterLock`.

A commit is on the disk when it returns, unless its caller lets it come there later (`may_lag`). The log is synced as a
whole, so the next commit that waits takes it along.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, Final, TypeVar

from msgspec import Struct

from holdfast.core.clock import Clock
from holdfast.core.crashpoints import reach
from holdfast.core.errors import ConfigurationError, StoreError
from holdfast.store.base import WouldStall
from holdfast.store.outages import GivenBackLater
from holdfast.store.sqlite.connection import connect, explain, is_busy
from holdfast.store.sqlite.forks import close_at_fork
from holdfast.store.sqlite.ledger_file import LedgerFile
from holdfast.store.sqlite.lock import WriterLock

T = TypeVar("T")

# How long a commit may stall the event loop: a moment, and for each row that it writes a part of what the loop's own
# work on that row takes anyway.
INLINE_SECONDS: Final = 0.001
INLINE_ROW_SECONDS: Final = 0.00001
WAIT_INLINE_SECONDS: Final = 0.02  # for others who write, until the loop's thread leaves it to the writer's
KNOCK_CHANGES_MOST: Final = 50  # of a commit that others may wait for from before it is made
_SWITCH_SECONDS: Final = 0.0002
_SMOOTHING: Final = 0.2
_STALL_MOST: Final = 10.0  # one slow commit must not banish inline commits for long


class Tx(Struct, eq=False, gc=False):
    """An open write transaction: the connection, the store's time, and whom to wake once it is committed."""

    db: sqlite3.Connection
    now: int  # microseconds; one moment for the whole transaction
    lags: bool = False  # its commit does not wait for the disk
    work: bool = False  # an execution became runnable, or its holder has something to look at
    stirred: bool = False  # the latter
    ended: bool = False  # an execution ended or was stranded
    published: bool = False  # an execution shows another value of itself


class _OftenSwitching:
    """While it is entered, threads hand Python's lock over often.

    A thread that comes back from the database waits for the lock, and a loop that makes thousands of rows ready lets go
    of it after five milliseconds, at each statement anew: the two would take turns where they can work side by side.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._entered = 0
        self._usual_seconds = 0.0

    def __enter__(self) -> None:
        with self._guard:
            if not self._entered:
                self._usual_seconds = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual_seconds, _SWITCH_SECONDS))
            self._entered += 1

    def __exit__(self, *_: object) -> None:
        with self._guard:
            self._entered -= 1
            if not self._entered:
                sys.setswitchinterval(self._usual_seconds)


often_switching: Final = _OftenSwitching()


class Writer:
    def __init__(
        self,
        path: Path,
        clock: Clock,
        announce: Callable[[Tx, bool], Callable[[], None]],
        busy_seconds: float,
    ) -> None:
        self._path = path
        self._clock = clock
        self._announce = announce
        self._gate = threading.Lock()
        self._queued: set[Future[Any]] = set()  # what was handed to the thread and is not done
        self._last: asyncio.Future[Any] | None = None  # of these the last
        self._stall = 0.0  # how long commits have taken of late, as a share of how long they may
        self._busy_seconds = busy_seconds
        self._is_closed = False
        self._has_written = False
        self._lags = False  # how the connection is set: commits on it do not wait for the disk
        self._lock = WriterLock(path, busy_seconds)
        try:
            self._db: sqlite3.Connection | None = self._connected()
        except BaseException:
            self._lock.close()
            raise
        self._file = LedgerFile(path)
        close_at_fork(self, path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-sqlite-writer")

    @property
    def db(self) -> sqlite3.Connection:
        """For whoever has the gate."""
        if self._db is None:
            if self._is_closed:
                raise self._closed()
            self._db = self._connected()
        return self._db

    def _connected(self) -> sqlite3.Connection:
        """It waits as long as it may for a process that has the file to itself, as the last to close it has."""
        db = connect(self._path, self._busy_seconds)
        self._lags = False
        db.execute(f"pragma busy_timeout = {round(min(self._busy_seconds, WAIT_INLINE_SECONDS) * 1000)}")
        return db

    @property
    def is_quick(self) -> bool:
        """Whether a write may run on the event loop's thread just now."""
        return self._stall < 1.0 and not self._queued and not self._gate.locked()

    def is_free_soon(self) -> None:
        """Another process is about to commit what this one will look for."""
        self._lock.is_free_soon()

    async def quick(self) -> bool:
        """The same after what was handed to the thread so far: whatever followed into the thread would keep it busy."""
        last = self._last
        if self._stall < 1.0 and last is not None and not last.done():
            await asyncio.wait((last,))
        return self.is_quick

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        with self._gate:
            self._is_closed = True
            self._close_connection()
            self._lock.close()

    def pause(self, seconds: float) -> bool:
        if not self._gate.acquire(timeout=seconds):
            return False
        self._close_connection()
        return True

    def resume(self) -> None:
        self._gate.release()

    def leave_to_parent(self) -> None:
        self._lock.leave_to_parent()
        self._gate.release()

    def _close_connection(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
        self._file.forget_log()

    async def run(self, point: str | None, work: Callable[[Tx], T], may_lag: bool = False) -> T:
        """One write transaction in the writer thread. Cancelling the caller does not undo it."""
        try:
            queued = self._thread.submit(self.run_now, point, work, may_lag)
        except RuntimeError as error:
            raise self._closed() from error
        self._queued.add(queued)
        queued.add_done_callback(self._queued.discard)  # also of one that is cancelled before its turn
        future: asyncio.Future[T] = asyncio.wrap_future(queued)
        self._last = future
        return await future

    def _closed(self) -> StoreError:
        return StoreError(f"the store on {self._path} is closed: open it again")

    def run_now(
        self,
        point: str | None,
        work: Callable[[Tx], T],
        may_lag: bool = False,
        wait_seconds: float | None = None,
    ) -> T:
        """One write transaction on the calling thread. It waits for others as long as it may; or as long as given,
        until `WouldStall`."""
        with self._gate:
            try:
                waited = self._lock.acquire(wait_seconds)
                try:
                    result, wake = self._transact(point, work, may_lag, wait_seconds, waited)
                except sqlite3.Error as error:
                    raise self._explained(error) from error
                finally:
                    self._lock.release()
            except WouldStall:
                self._note_stall(_STALL_MOST)
                raise
            except ConfigurationError:
                with GivenBackLater(self._has_written):
                    raise
        if point is not None:
            reach(point + ".after")
        if wake is not None:
            wake()
        return result

    def write_one(self, point: str, statement: str, values: tuple[Any, ...]) -> bool:
        """One statement as a transaction of its own, on the calling thread: whether it wrote something.

        If not, nothing was done, and `run_now` sees why: others write, the file is to be looked after, or there was
        nothing to write.
        """
        db, file, lock = self._db, self._file, self._lock
        if db is None or self._lags or self._queued or self._stall >= 1.0 or file.log is None:
            return False
        if not self._gate.acquire(False):
            return False
        try:
            if not lock.take():
                return False
            try:
                file.require_same_of_late()
                reach(point + ".before")
                began = perf_counter()
                written = db.execute(statement, values).rowcount
                took = perf_counter() - began
            except sqlite3.Error as error:
                if is_busy(error):
                    self._note_stall(_STALL_MOST)  # it has waited for a moment already
                    return False
                with GivenBackLater(self._has_written):
                    raise self._explained(error) from error
            finally:
                lock.release()
        finally:
            self._gate.release()
        if not written:
            return False
        self._has_written = True
        self._note_stall(took / (INLINE_SECONDS + INLINE_ROW_SECONDS))
        reach(point + ".after")
        return True

    def _transact(
        self,
        point: str | None,
        work: Callable[[Tx], T],
        lags: bool,
        wait_seconds: float | None,
        waited: float,
    ) -> tuple[T, Callable[[], None] | None]:
        """For whoever has the gate and the lock. `waited` is how long the latter took."""
        file = self._file
        file.require_same()
        db = self._db or self.db  # which opens it again after a fork
        if lags is not self._lags:
            db.execute(f"pragma synchronous = {'normal' if lags else 'full'}")
            self._lags = lags
        try:
            try:
                db.execute("begin immediate")
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                waited += self._begin_late(db, wait_seconds)
            if file.log is None:
                file.note_log()
            changes = db.total_changes
            tx = Tx(db, self._clock.now_us(), lags)
            result = work(tx)
            wake = None
            if tx.work or tx.ended or tx.published:
                wake = self._announce(tx, self._lock.queues and db.total_changes - changes <= KNOCK_CHANGES_MOST)
            if point is not None:
                reach(point + ".before")
            committing = perf_counter()
            db.execute("commit")
        except BaseException:
            if db.in_transaction:
                db.execute("rollback")
            raise
        changes = db.total_changes - changes
        if changes:
            self._has_written = True
            if not lags:
                took, may_take = perf_counter() - committing, INLINE_SECONDS + changes * INLINE_ROW_SECONDS
                self._note_stall(waited / INLINE_SECONDS + took / may_take)
        return result, wake

    def _begin_late(self, db: sqlite3.Connection, wait_seconds: float | None) -> float:
        """How long it took until no other program writes. The connection has waited itself, but only for a moment."""
        if wait_seconds is not None:
            raise WouldStall(f"another program writes to {self._path}")
        began = monotonic()
        while True:
            try:
                db.execute("begin immediate")
                return monotonic() - began
            except sqlite3.OperationalError as error:
                if not is_busy(error) or monotonic() - began >= self._busy_seconds:
                    raise

    def _note_stall(self, sample: float) -> None:
        self._stall += _SMOOTHING * (min(sample, _STALL_MOST) - self._stall)

    def _explained(self, error: sqlite3.Error) -> StoreError | ConfigurationError:
        explained = explain(self._path, error)
        if isinstance(explained, ConfigurationError):
            self._close_connection()  # one that was opened while the file could only be read stays like that
        return explained
