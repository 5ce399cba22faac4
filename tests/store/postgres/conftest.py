"""A ledger in a schema of its own, and raw connections to the same server, for what is particular to PostgreSQL."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import asyncpg
import pytest_asyncio

from holdfast.store.postgres import PostgresStore
from holdfast.testing.hand import Hand

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Connect: TypeAlias = Callable[[], Awaitable[Connection]]

_numbers = itertools.count()


@pytest_asyncio.fixture
async def schema(postgres_url: str) -> AsyncIterator[str]:
    """The name of a schema that does not exist yet, and will not afterwards."""
    name = f"holdfast_pg_{os.getpid()}_{next(_numbers)}"
    yield name
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(f"drop schema if exists {name} cascade")
    await connection.close()


@pytest_asyncio.fixture
async def ledger(postgres_url: str, schema: str) -> AsyncIterator[PostgresStore]:
    """An open store on the server's own clock."""
    store = PostgresStore(postgres_url, schema=schema)
    await store.open()
    yield store
    await store.close()


@pytest_asyncio.fixture
async def connect(postgres_url: str) -> AsyncIterator[Connect]:
    """Opens raw connections; they are closed, and so rolled back, with the test."""
    opened: list[Connection] = []

    async def open_one() -> Connection:
        # A statement that waits for ever is a failure, not a hang.
        settings = {"statement_timeout": "30s"}
        connection: Connection = await asyncpg.connect(postgres_url, server_settings=settings)
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        await connection.close(timeout=5)


@pytest_asyncio.fixture
async def hand(ledger: PostgresStore) -> Hand:
    return await Hand(ledger, "w1", lease_seconds=3600).start()


@pytest_asyncio.fixture
async def held(connect: Connect) -> AsyncIterator[Connection]:
    """A connection inside a transaction; the test commits it."""
    connection = await connect()
    await connection.execute("begin")
    yield connection
    await connection.execute("rollback")
