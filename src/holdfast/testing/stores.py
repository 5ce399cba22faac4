"""Stores for tests: on a virtual clock, guarded, and quickly made.

- `Stores`: one ledger with its clock; `store` is open, `another()` opens a second store object on the same ledger.
- `SqliteStores` (a file in a given folder) and `PostgresStores` (a schema of this process, emptied by `reset`).

Every ledger made here has the *transition guard*: a trigger, generated from `core.status.LEGAL`, that raises on an
illegal change of status, and guards of the ledgers of flows. So every test of the project checks every statement that
it reaches.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.status import Status, is_legal
from holdfast.store.base import Store
from holdfast.testing.clock import VirtualClock

if TYPE_CHECKING:
    import asyncpg

    from holdfast.testing.kept import KeptConnections

_BESIDE = "beside the store"  # the connection that moves the clock and empties the ledger


def legal_pairs() -> str:
    """`core.status.LEGAL` as a list of SQL rows."""
    pairs = [(before, after) for before in Status for after in Status if is_legal(before, after)]
    return ", ".join(f"('{before}', '{after}')" for before, after in pairs)


def ledger_tables() -> str:
    """Those of a ledger on SQLite, as a list of SQL values."""
    schema = files("holdfast.store.sqlite").joinpath("schema.sql").read_text(encoding="utf-8")
    return ", ".join(f"'{name}'" for name in re.findall(r"^create table (\w+)", schema, re.MULTILINE))


@cache
def _sql(dialect: str, name: str, schema: str = "") -> str:
    text = files("holdfast.testing").joinpath("sql", dialect, f"{name}.sql").read_text(encoding="utf-8")
    for name, value in (("schema", schema), ("legal", legal_pairs()), ("tables", ledger_tables())):
        text = text.replace(f"{{{name}}}", value)
    return text


class Stores(ABC):
    """One ledger on a virtual clock. `open` before use, `close` after."""

    backend: str

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = self._make()
        self._others: list[Store] = []

    @abstractmethod
    def _make(self) -> Store: ...

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def reset(self) -> None:
        """Empty the ledger; the clock goes on."""

    @abstractmethod
    async def _clock_moved(self) -> None: ...

    async def advance(self, seconds: float) -> None:
        """Move the time of the ledger forward."""
        self.clock.advance(seconds)
        await self._clock_moved()

    @abstractmethod
    async def settle(self) -> None:
        """Until nothing is under way that a dead process began."""

    def unopened(self) -> Store:
        """A store object on the same ledger, as another process would have it; opening and closing are the caller's."""
        return self._make()

    async def another(self) -> Store:
        """The same, opened, and closed with this."""
        store = self._make()
        await store.open()
        self._others.append(store)
        return store

    async def close(self) -> None:
        for other in self._others:
            await other.close()
        self._others.clear()
        await self.store.close()


class SqliteStores(Stores):
    """A ledger in a new file of `folder`: a copy of the first one that this process made, still empty."""

    backend = "sqlite"
    _empty: bytes = b""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger.db"
        self._connection: sqlite3.Connection | None = None  # once it is emptied
        super().__init__()

    def _make(self) -> Store:
        from holdfast.store.sqlite import SqliteStore

        return SqliteStore(self.path, clock=self.clock)

    async def open(self) -> None:
        is_new = not self.path.exists()
        if is_new and self._empty:
            self.path.write_bytes(self._empty)
            await self.store.open()
            return
        await self.store.open()
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(f"begin; {_sql('sqlite', 'guard')} commit; pragma wal_checkpoint(truncate)")
        if is_new:
            SqliteStores._empty = self.path.read_bytes()

    async def reset(self) -> None:
        """Deleting a few rows is some ten times faster than opening a new file."""
        if self._connection is None:
            self._connection = sqlite3.connect(self.path, isolation_level=None)
        (deletes,) = self._connection.execute(_sql("sqlite", "reset")).fetchone()
        self._connection.executescript(f"begin immediate; {deletes} commit")

    async def settle(self) -> None:
        """A store is closed only after what was handed to it is done."""

    async def close(self) -> None:
        await super().close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _clock_moved(self) -> None:
        """The store reads the clock itself."""


class PostgresStores(Stores):
    """A ledger in a schema that this process makes once and empties for each use."""

    backend = "postgres"
    _prepared: set[tuple[str, str]] = set()  # noqa: RUF012 - what this process has made, whoever asks

    def __init__(self, url: str, schema: str | None = None, *, kept: KeptConnections | None = None) -> None:
        """`kept`: connections that outlive this; they are those of others to open and close."""
        from holdfast.testing.kept import KeptConnections

        self.url = url
        self.schema = schema or f"holdfast_test_{os.getpid()}"
        self._kept = kept or KeptConnections()
        self._ends_kept = kept is None
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        super().__init__()

    def _make(self) -> Store:
        from holdfast.testing.kept import KeepingStore

        return KeepingStore(self.url, schema=self.schema, kept=self._kept)

    async def open(self) -> None:
        import asyncpg

        if self._ends_kept:
            self._kept.open()
        self._connection = self._kept.take(_BESIDE)
        if self._connection is None:
            # A lock that a failed test left behind should be an error, not a hang.
            self._connection = await asyncpg.connect(self.url, server_settings={"statement_timeout": "30s"})
        if (self.url, self.schema) not in self._prepared:
            await self._execute("drop")
            await self.store.open()
            await self._execute("clock")
            await self._execute("guard")
            self._prepared.add((self.url, self.schema))
        else:
            await self._execute("reset")
            await self.store.open()
        await self._clock_moved()

    async def reset(self) -> None:
        await self._execute("reset")

    async def settle(self) -> None:
        """The server learns late that a client has gone, and rolls back then."""
        assert self._connection is not None, "open() these stores first"
        while await self._connection.fetchval(_sql("postgres", "under_way", self.schema)):  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        await super().close()
        if self._connection is not None:
            await self._kept.give_back(_BESIDE, self._connection)
            self._connection = None
        if self._ends_kept:
            await self._kept.close()

    @classmethod
    async def drop_all(cls) -> None:
        """Drop every schema that this process made; at the end of a test run on a server that outlives it."""
        import asyncpg

        while cls._prepared:
            url, schema = cls._prepared.pop()
            connection = await asyncpg.connect(url)
            try:
                await connection.execute(_sql("postgres", "drop", schema))
            finally:
                await connection.close()

    async def _execute(self, name: str, *arguments: object) -> None:
        assert self._connection is not None, "open() these stores first"
        await self._connection.execute(_sql("postgres", name, self.schema), *arguments)

    async def _clock_moved(self) -> None:
        await self._execute("clock_set", self.clock.now)
