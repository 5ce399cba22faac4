"""Databases and roles whose defaults are others than PostgreSQL's."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from tests.store.postgres.conftest import Connect, Connection
from tests.store.postgres.held import deliver_in, until_it_waits, while_held

from holdfast.core.errors import ConfigurationError, StoreUnavailableError
from holdfast.core.status import Status
from holdfast.store.health import Level
from holdfast.store.postgres import PostgresStore, health
from holdfast.store.values import NewSignal
from holdfast.testing.hand import Hand, done, park, row
from holdfast.testing.postgres import PostgresServer

ISOLATION = "default_transaction_isolation"


async def test_parking_sees_the_signal_that_it_waited_for_whatever_the_default_isolation_is(
    postgres_url: str, schema: str, held: Connection, connect: Connect
) -> None:
    """Ruling E2: at REPEATABLE READ the look after the lock shows the time before it, and the row parks for ever."""
    store = PostgresStore(f"{postgres_url}?{ISOLATION}=repeatable+read", schema=schema)
    await store.open()
    hand = await Hand(store, lease_seconds=3600).start()
    claim = await hand.take(row("a"))
    await deliver_in(held, store, NewSignal(claim.promise, "go", "1"))
    receipt = await while_held(await connect(), held, hand.commit(claim, park("go")))
    assert receipt.status is Status.RUNNABLE
    await store.close()


async def test_user_code_that_resets_its_session_does_not_change_the_isolation_of_the_next(
    postgres_url: str, schema: str
) -> None:
    store = PostgresStore(f"{postgres_url}?{ISOLATION}=serializable", schema=schema)
    await store.open()
    hand = await Hand(store, lease_seconds=3600).start()

    seen: list[str] = []

    async def look(connection: Connection) -> None:
        seen.append(await connection.fetchval("show transaction_isolation"))
        await connection.execute("reset all")

    for name in ("a", "b"):
        claim = await hand.take(row(name))
        assert (await store.transact(hand.name, claim, look, lambda _: (done(),))).applied
    assert seen == ["read committed", "read committed"]
    await store.close()


async def test_user_code_that_leaves_its_transaction_idle_for_too_long_is_told_so(
    ledger: PostgresStore, postgres_url: str, schema: str
) -> None:
    store = PostgresStore(f"{postgres_url}?idle_in_transaction_session_timeout=200", schema=schema)
    await store.open()
    hand = await Hand(store, lease_seconds=3600).start()

    async def dawdle(connection: Connection) -> None:
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        await lost.wait()

    claim = await hand.take(row("a"))
    with pytest.raises(StoreUnavailableError, match="idle_in_transaction_session_timeout"):
        await store.transact(hand.name, claim, dawdle, lambda _: (done(),))
    await store.close()


async def test_behind_a_pooler_another_default_isolation_is_refused(postgres_url: str, schema: str) -> None:
    store = PostgresStore(f"{postgres_url}?{ISOLATION}=repeatable+read", schema=schema, pooled=True)
    with pytest.raises(ConfigurationError, match=r"REPEATABLE READ by default.*alter role"):
        await store.open()


async def test_a_ledger_does_not_care_what_a_backslash_means(postgres_url: str, schema: str, connect: Connect) -> None:
    setting = "standard_conforming_strings"
    store = PostgresStore(f"{postgres_url}?{setting}=off", schema=schema)
    await store.open()
    await store.close()
    connection = await connect()
    await connection.execute(
        f"insert into {schema}.definitions values ('charge', 1, 'task', 1, 'run', 'default', 0, '{{n}}')"
    )
    await connection.execute(f"set {setting} = off")
    assert len(await connection.fetchval(f"select {schema}.start('charge', '{{\"n\": 1}}')")) == 64


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_database_that_cannot_hold_every_text_gets_no_ledger(
    postgres_server: PostgresServer, schema: str, encoding: str
) -> None:
    admin = await asyncpg.connect(postgres_server.url())
    await admin.execute(f"create database {schema} encoding '{encoding}' template template0")
    store = PostgresStore(postgres_server.url(schema))
    with pytest.raises(ConfigurationError, match=f"encoded in {encoding}.*UTF8"):
        await store.open()
    await admin.execute(f"drop database {schema} with (force)")
    await admin.close()


@pytest.mark.parametrize("setting", ["statement_timeout", "lock_timeout", "transaction_timeout"])
async def test_a_migration_takes_longer_than_statements_may(
    postgres_url: str, schema: str, held: Connection, connect: Connect, setting: str
) -> None:
    if await held.fetchval("select current_setting($1, true)", setting) is None:
        return  # the server is older than the setting
    await held.execute("select pg_advisory_xact_lock(hashtextextended($1, 0))", f"holdfast.{schema}")
    store = PostgresStore(f"{postgres_url}?{setting}=400", schema=schema)
    opening = asyncio.create_task(store.open())
    await until_it_waits(await connect(), opening, held)
    await held.execute("select pg_sleep(0.5)")
    await held.execute("commit")
    await opening
    async with store._connections.any("look") as connection:
        assert await connection.fetchval(f"show {setting}") == "400ms"
    await store.close()


async def test_a_transaction_that_is_open_for_long_is_told_of_idle_or_not(
    ledger: PostgresStore, held: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vacuum keeps all that ended since it began, and each pick reads it."""
    busy = asyncio.create_task(held.execute("select pg_sleep(60)"))
    found = {check.name: check for check in await ledger.examine()}
    assert found["transactions"].level is Level.OK
    monkeypatch.setattr(health, "_OPEN_SECONDS", 0.0)
    found = {check.name: check for check in await ledger.examine()}
    assert found["transactions"].level is Level.WARN
    busy.cancel()
    await asyncio.gather(busy, return_exceptions=True)
