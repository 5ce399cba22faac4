"""What every part of the store stands on: the file, its life, and how it is written (`writer`) and read (`readers`)."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from time import time_ns
from typing import TypeVar

from holdfast.core.clock import Clock
from holdfast.core.errors import StoreError
from holdfast.store.base import WouldStall
from holdfast.store.nesting import is_nested, refuse_nested
from holdfast.store.own_thread import in_own_thread
from holdfast.store.sqlite.connection import BUSY_SECONDS, check_library
from holdfast.store.sqlite.forks import require_closed_at_fork
from holdfast.store.sqlite.migrate import migrate
from holdfast.store.sqlite.readers import Readers
from holdfast.store.sqlite.wake import Announcer, drop_deaf_ears
from holdfast.store.sqlite.writer import WAIT_INLINE_SECONDS, Tx, Writer

T = TypeVar("T")


class SystemClock:
    """The time of this machine, which all processes on one file share."""

    def now_us(self) -> int:
        return time_ns() // 1_000


class Ledger:
    """One SQLite file."""

    def __init__(self, path: str | Path, *, clock: Clock | None = None, busy_seconds: float = BUSY_SECONDS) -> None:
        """`busy_seconds` is how long a write waits for those of other processes before it gives up."""
        self._path = Path(path).expanduser().absolute()
        self._file = str(self._path.resolve())  # whatever links lead there
        self._clock = clock or SystemClock()
        self._busy_seconds = busy_seconds
        self._is_let_in = False  # what it is a sibling of is open
        self._writer: Writer | None = None
        self._readers: Readers | None = None
        self._announcer: Announcer | None = None

    @property
    def url(self) -> str:
        return f"sqlite:///{self._path}"

    @property
    def commits_inline(self) -> bool:
        return self._writer is not None and self._writer.is_quick

    @property
    def flushes_at_once(self) -> int:
        return 1  # a file has one writer

    @property
    def losses(self) -> int:
        return 0

    @property
    def commits_in_thread(self) -> bool:
        return True

    async def open(self) -> None:
        if self._writer is not None:
            return
        check_library()
        require_closed_at_fork(self._path)
        if not is_nested(self._file):  # else it is open already, and was migrated
            # In a thread: it may have to wait for another process that does the same.
            await in_own_thread(migrate, self._path, self._clock, self._busy_seconds, self._is_let_in)
        self._announcer = Announcer(self._file)
        self._writer = Writer(self._path, self._clock, self._announcer.announce, self._busy_seconds)
        self._readers = Readers(self._path, self._busy_seconds)

    async def close(self) -> None:
        if self._writer is not None and self._readers is not None and self._announcer is not None:
            readers, writer, announcer = self._readers, self._writer, self._announcer
            self._writer = self._readers = self._announcer = None
            await in_own_thread(readers.close)
            await in_own_thread(writer.close)  # after what was handed to it is done
            announcer.close()

    async def forsake(self) -> None:
        drop_deaf_ears(self._file)
        await self.close()

    async def warm(self) -> None:
        """Statements are prepared in microseconds here."""

    async def now_us(self) -> int:
        return self._clock.now_us()

    async def _write(
        self,
        point: str | None,
        work: Callable[[Tx], T],
        *,
        is_small: bool = False,
        may_lag: bool = False,
        gives_way: bool = True,
    ) -> T:
        """One transaction: here if it is small and commits are quick, else in the writer thread."""
        refuse_nested(self._file)
        if is_small and await self._opened().quick():
            with contextlib.suppress(WouldStall):
                result = self._opened().run_now(point, work, may_lag, WAIT_INLINE_SECONDS)
                if gives_way:  # a caller in a loop must not keep others from running
                    await asyncio.sleep(0)
                return result
        return await self._opened().run(point, work, may_lag)

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._opened_readers().run(work)

    def _read_now(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._opened_readers().run_now(work)

    def _opened_readers(self) -> Readers:
        if self._readers is None:
            raise self._closed()
        return self._readers

    def _opened(self) -> Writer:
        if self._writer is None:
            raise self._closed()
        return self._writer

    def _closed(self) -> StoreError:
        return StoreError(f"the store on {self._path} is not open: call `await store.open()` first")
