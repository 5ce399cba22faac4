"""Readers beside the writer: a few threads, each with a connection of its own. WAL keeps them out of its way.

A look at one row is done on the caller's thread: it takes a tenth of the time of handing it to another.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Final, TypeVar

from holdfast.core.errors import StoreError
from holdfast.store.outages import GivenBackLater
from holdfast.store.sqlite.connection import connect, explain
from holdfast.store.sqlite.forks import close_at_fork
from holdfast.store.sqlite.ledger_file import LedgerFile

T = TypeVar("T")

READERS_MAX: Final = 4


class _Reader:
    """A connection that is opened when it is used; `busy` is held meanwhile."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._db: sqlite3.Connection | None = None
        self.busy = threading.Lock()

    def opened(self, *, is_first: bool = False) -> sqlite3.Connection:
        if self._db is None:
            with GivenBackLater(not is_first):
                self._db = connect(self._path, self._busy_seconds, read_only=True)
        return self._db

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


class Readers:
    def __init__(self, path: Path, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._file = LedgerFile(path)
        self._local = threading.local()
        self._guard = threading.Lock()
        self._threads = ThreadPoolExecutor(READERS_MAX, thread_name_prefix="holdfast-sqlite-reader")
        self._is_closed = False
        self._here = _Reader(path, busy_seconds)
        self._all = [self._here]
        self._here.opened(is_first=True)
        close_at_fork(self, path)

    def run_now(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read on the calling thread; for one statement about one row."""
        with self._here.busy:
            if self._is_closed:
                raise self._closed()
            self._file.require_same()
            try:
                return work(self._here.opened())
            except sqlite3.Error as error:
                raise explain(self._path, error) from error

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read one snapshot of the file."""
        try:
            future = asyncio.get_running_loop().run_in_executor(self._threads, self._run, work)
        except RuntimeError as error:
            raise self._closed() from error
        return await future

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        reader = self._reader()
        with reader.busy:
            self._file.require_same()
            db = reader.opened()
            try:
                db.execute("begin")
                try:
                    return work(db)
                finally:
                    db.execute("rollback")
            except sqlite3.Error as error:
                raise explain(self._path, error) from error

    def _reader(self) -> _Reader:
        """That of this thread."""
        reader: _Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = _Reader(self._path, self._busy_seconds)
            with self._guard:
                self._all.append(reader)
        return reader

    def _closed(self) -> StoreError:
        return StoreError(f"the store on {self._path} is closed: open it again")

    def close(self) -> None:
        self._threads.shutdown(wait=True)
        with self._here.busy:
            self._is_closed = True
            for reader in self._all:
                reader.close()

    # ------------------------------------------------------------------ around a fork

    def pause(self, seconds: float) -> bool:
        until = monotonic() + seconds
        held: list[_Reader] = []
        self._guard.acquire()
        for reader in self._all:
            if not reader.busy.acquire(timeout=max(0.0, until - monotonic())):
                self._let_go(held)
                return False
            held.append(reader)
        for reader in held:
            reader.close()
        return True

    def resume(self) -> None:
        self._let_go(self._all)

    def leave_to_parent(self) -> None:
        self._let_go(self._all)

    def _let_go(self, held: list[_Reader]) -> None:
        for reader in held:
            reader.busy.release()
        self._guard.release()
