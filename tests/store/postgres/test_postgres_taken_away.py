"""What a worker could do and is refused for a time is an outage: it waits, and loses nothing once it is mended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg
import pytest
import pytest_asyncio

from holdfast import App, Context
from holdfast.core.errors import ConfigurationError, StoreUnavailableError
from holdfast.store.postgres import PostgresStore
from holdfast.testing.hand import Hand, done, row
from holdfast.testing.postgres import PostgresServer


@dataclass
class Database:
    """One of its own, with a role that workers have."""

    name: str
    url: str
    admin: asyncpg.Connection[asyncpg.Record]

    async def run(self, statements: str) -> None:
        await self.admin.execute(statements.format(role=self.name, database=self.name))


@pytest_asyncio.fixture
async def database(postgres_server: PostgresServer, schema: str) -> AsyncIterator[Database]:
    outside = await asyncpg.connect(postgres_server.url())
    await outside.execute(f"create role {schema} login")
    await outside.execute(f"create database {schema}")
    store = PostgresStore(postgres_server.url(schema))
    await store.open()
    await store.close()
    made = Database(
        schema,
        postgres_server.url(schema).replace("postgres@", f"{schema}@"),
        await asyncpg.connect(postgres_server.url(schema)),
    )
    await made.run("grant usage on schema holdfast to {role}; " + GRANT)
    yield made
    await made.run("drop owned by {role}")
    await made.admin.close()
    await outside.execute(f"drop database {schema} with (force)")
    await outside.execute(f"drop role {schema}")
    await outside.close()


GRANT = (
    "grant select, insert, update, delete on all tables in schema holdfast to {role}; "
    "grant usage on all sequences in schema holdfast to {role}"
)
REVOKE = "revoke all on all tables in schema holdfast from {role}"
HANG_UP = "; select pg_terminate_backend(pid) from pg_stat_activity where usename = '{role}'"


class Heard(logging.Handler):
    """Sets its event when a message holds the text; keeps them all."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self._loop = asyncio.get_running_loop()
        self.event = asyncio.Event()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        if self._text in record.getMessage():
            self._loop.call_soon_threadsafe(self.event.set)


@pytest.mark.parametrize(
    ("take", "give", "told"),
    [
        (REVOKE, GRANT, "permission denied"),
        ("alter schema holdfast rename to gone", "alter schema gone rename to holdfast", "does not exist"),
        (
            "alter role {role} set default_transaction_read_only = on" + HANG_UP,
            "alter role {role} reset default_transaction_read_only" + HANG_UP,
            "read-only transaction",
        ),
        ("alter role {role} nologin" + HANG_UP, "alter role {role} login", "not permitted to log in"),
        ("alter role {role} connection limit 0" + HANG_UP, "alter role {role} connection limit -1", "too many"),
    ],
    ids=["grants", "schema", "read-only", "login", "connections"],
)
async def test_a_worker_waits_until_it_is_mended(database: Database, take: str, give: str, told: str) -> None:
    app = App("orders", store=database.url)
    begun: list[str] = []
    reached, opened = asyncio.Event(), asyncio.Event()

    @app.task
    async def pay(number: int) -> int:
        begun.append(f"pay {number}")
        if len(begun) == 3:
            reached.set()
        await opened.wait()
        return number

    @app.task
    async def pack(number: int) -> int:
        begun.append(f"pack {number}")
        return number

    @app.workflow
    async def order(ctx: Context, number: int) -> int:
        return await pay(number) + await pack(number)

    heard = Heard(told)
    logging.getLogger("holdfast").addHandler(heard)
    try:
        handles = [await order.start(number) for number in range(3)]
        async with app.worker(lease_seconds=3600):
            await reached.wait()
            await database.run(take)
            opened.set()  # what was done is to be written now
            await heard.event.wait()
            await database.run(give)
            assert [await handle.result() for handle in handles] == [0, 2, 4]
    finally:
        logging.getLogger("holdfast").removeHandler(heard)
        await app.close()
    assert sorted(begun) == sorted([f"{what} {number}" for what in ("pay", "pack") for number in range(3)])
    assert [record.getMessage() for record in heard.records if record.levelno > logging.WARNING] == []


async def test_who_only_asks_is_told_that_it_may_not(database: Database) -> None:
    """Nothing waits for it that a pause could save, and a command that hangs would say less."""
    store = PostgresStore(database.url)
    await store.open()
    await database.run(REVOKE)
    with pytest.raises(ConfigurationError, match="permission denied"):
        await store.insert([row("a")])
    await database.run("alter schema holdfast rename to gone")
    with pytest.raises(ConfigurationError, match="restore it, or create it with `holdfast migrate`"):
        await store.insert([row("b")])
    await database.run("alter schema gone rename to holdfast")
    await store.close()


async def test_the_first_transaction_of_a_worker_waits_for_it_too(database: Database) -> None:
    """Its connections are others, and none of them was let in before."""
    store = PostgresStore(database.url)
    await store.open()
    hand = await Hand(store).start()
    claim = await hand.take(row("a"))

    async def look(connection: asyncpg.Connection[asyncpg.Record]) -> None:
        await connection.fetchval("select 1")

    await database.run("alter role {role} nologin")
    with pytest.raises(StoreUnavailableError, match="not permitted to log in"):
        await store.transact(hand.name, claim, look, lambda _: [done()])
    await database.run("alter role {role} login")
    assert (await store.transact(hand.name, claim, look, lambda _: [done()])).applied
    await store.close()
