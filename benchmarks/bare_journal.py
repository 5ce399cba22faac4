"""A journal without an engine: coroutines whose records share commits. What an engine adds comes off its figures.

`Journal` groups records into commits; `SqliteLog` and `PostgresLog` make a commit durable; `opened` gives a journal on
the store of a URL, in a file or table of its own. What is done with it is in `bare_shapes`. There are no leases, no
fences, no retries and no queries here: a record is durable before the coroutine that wrote it goes on, and that is all.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from asyncpg import Connection
    from asyncpg import Record as Row
    from asyncpg.prepared_stmt import PreparedStatement

Settled = Callable[[BaseException | None], None]


class Record(msgspec.Struct):
    """One event of one run, about 50 bytes as JSON."""

    id: str
    seq: int
    kind: str
    value: object = None


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Record).decode


class Log(Protocol):
    """Where records go: `write` makes all of them durable in one commit and says so."""

    def write(self, records: Sequence[Record], settled: Settled) -> None: ...

    async def read(self, run_id: str) -> list[Record]: ...


class SqliteLog:
    """Commits inline: with one record waiting, handing it to a thread costs more than the commit."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute("create table bare (id text, seq int, body blob, primary key (id, seq)) without rowid")

    def write(self, records: Sequence[Record], settled: Settled) -> None:
        self._connection.execute("begin immediate")
        rows = [(record.id, record.seq, encode(record)) for record in records]
        self._connection.executemany("insert into bare values (?, ?, ?)", rows)
        self._connection.execute("commit")
        settled(None)

    async def read(self, run_id: str) -> list[Record]:
        rows = self._connection.execute("select body from bare where id = ? order by seq", (run_id,))
        return [decode(body) for (body,) in rows]


class PostgresLog:
    """One statement with many rows is one commit; it is under way while the coroutines go on."""

    def __init__(self, connection: Connection[Row], insert: PreparedStatement[Row]) -> None:
        self._connection = connection
        self._insert = insert
        self._writing: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, connection: Connection[Row]) -> PostgresLog:
        await connection.execute("drop table if exists bare")
        await connection.execute("create table bare (id text, seq int, body bytea, primary key (id, seq))")
        insert = await connection.prepare("insert into bare select * from unnest($1::text[], $2::int[], $3::bytea[])")
        return cls(connection, insert)

    def write(self, records: Sequence[Record], settled: Settled) -> None:
        self._writing = asyncio.get_running_loop().create_task(self._write(records, settled))

    async def _write(self, records: Sequence[Record], settled: Settled) -> None:
        try:
            await self._insert.fetch(
                [record.id for record in records], [record.seq for record in records], [*map(encode, records)]
            )
        except Exception as error:
            settled(error)
        else:
            settled(None)

    async def read(self, run_id: str) -> list[Record]:
        rows = await self._connection.fetch("select body from bare where id = $1 order by seq", run_id)
        return [decode(row[0]) for row in rows]


class Journal:
    """What waits goes out together; one commit is under way at a time."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[Sequence[Record], asyncio.Future[None]]] = []
        self._busy = False

    def append(self, *records: Record) -> asyncio.Future[None]:
        """Done when the records are durable."""
        durable: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((records, durable))
        if not self._busy:
            self._go_on()
        return durable

    def _go_on(self) -> None:
        self._busy = True
        self._loop.call_soon(self._commit)  # after all that can run now, so that it shares this commit

    def _commit(self) -> None:
        batch, self._waiting = self._waiting, []

        def settled(error: BaseException | None) -> None:
            for _, durable in batch:
                if durable.done():
                    continue
                if error is None:
                    durable.set_result(None)
                else:
                    durable.set_exception(error)
            self._busy = False
            if self._waiting:
                self._go_on()

        try:
            self.log.write([record for records, _ in batch for record in records], settled)
        except Exception as error:
            settled(error)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Journal]:
    """An empty journal on the server, or on the disk, that a ledger's URL names; gone afterwards."""
    if not url.startswith("postgres"):
        folder = Path(url.removeprefix("sqlite:///")).parent
        with (
            tempfile.TemporaryDirectory(prefix="holdfast-bare-", dir=folder) as beside,
            closing(sqlite3.connect(Path(beside) / "bare.db", isolation_level=None)) as file,
        ):
            yield Journal(SqliteLog(file))
        return
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        yield Journal(await PostgresLog.open(connection))
        await connection.execute("drop table bare")
    finally:
        await connection.close()
