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
from typing import Final, TypeVar

from holdfast.core.errors import StoreError
from holdfast.store.sqlite.connection import connect, explain

T = TypeVar("T")

READERS_MAX: Final = 4


class Readers:
    def __init__(self, path: Path, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        self._threads = ThreadPoolExecutor(READERS_MAX, thread_name_prefix="holdfast-sqlite-reader")
        self._here = threading.Lock()
        self._here_db = connect(path, busy_seconds, read_only=True)

    def run_now(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read on the calling thread; for one statement about one row."""
        with self._here:
            try:
                return work(self._here_db)
            except sqlite3.Error as error:
                raise explain(self._path, error) from error

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read one snapshot of the file."""
        try:
            future = asyncio.get_running_loop().run_in_executor(self._threads, self._run, work)
        except RuntimeError as error:
            raise StoreError(f"the store on {self._path} is closed: open it again") from error
        return await future

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        db = self._connection()
        try:
            db.execute("begin")
            try:
                return work(db)
            finally:
                db.execute("rollback")
        except sqlite3.Error as error:
            raise explain(self._path, error) from error

    def _connection(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = connect(self._path, self._busy_seconds, read_only=True)
            with self._guard:
                self._connections.append(db)
        return db

    def close(self) -> None:
        self._threads.shutdown(wait=True)
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        with self._here:
            self._here_db.close()
