"""A server that falls silent (a firewall forgot the connection, and nobody said so), or lets nobody in any more."""

from __future__ import annotations

import asyncio
import socket

import asyncpg
import pytest
from tests.store.postgres.conftest import Connection

from holdfast.core.errors import ConfigurationError, StoreUnavailableError
from holdfast.store.postgres import PostgresStore, outside
from holdfast.store.postgres.driver import SILENT_SECONDS
from holdfast.testing.postgres import PostgresServer


async def test_a_beat_is_given_up_while_the_lease_leaves_time_for_another(
    ledger: PostgresStore, held: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait a minute for an answer, and the lease runs out in half of that."""
    monkeypatch.setattr(outside, "BEAT_SECONDS_LEAST", 0.05)
    await ledger.register_worker("w", host="h", pid=1, queues=["default"], lease_seconds=0.2)
    await held.execute(f"select from {ledger._schema}.workers for update")  # as silent as a dead connection
    async with asyncio.timeout(10):
        with pytest.raises(StoreUnavailableError, match="extend a lease"):
            await ledger.beat("w", 0.2)
    await held.execute("commit")
    assert await ledger.beat("w", 30)


async def test_with_a_silent_connection_go_those_that_are_idle_and_as_old(ledger: PostgresStore) -> None:
    """Each of them would keep its caller waiting as long."""
    connections = ledger._connections
    async with connections.any("look"), connections.any("look"), connections.flush():
        pass
    old = connections._idle + connections._flush_idle
    young: list[object] = []

    async def wait() -> None:
        async with connections.any("wait"):
            async with connections.any("look"), connections.any("look") as connection:
                young.append(connection)
            raise TimeoutError

    async with connections.flush() as flushing:
        with pytest.raises(StoreUnavailableError):
            await wait()
        assert not flushing.is_closed(), "it is at work, and will see for itself"
    left = [connection for _, connection in old if not connection.is_closed()]
    assert left == [flushing]
    async with connections.any("look") as connection:
        assert connection is young[0]


async def test_the_kernel_watches_over_every_connection(ledger: PostgresStore) -> None:
    async with ledger._connections.any("look") as connection:
        wire = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
    assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == SILENT_SECONDS * 1000


SHUT = ["alter role {0} {no}login", "alter database {0} allow_connections {is_open}"]


@pytest.mark.parametrize("change", SHUT, ids=["role", "database"])
async def test_a_server_that_lets_nobody_in_any_more_is_away_and_not_misconfigured(
    postgres_server: PostgresServer, schema: str, change: str
) -> None:
    """A password is changed, a database is moved: what is at work would be stranded, where it only has to wait."""
    admin = await asyncpg.connect(postgres_server.url())
    await admin.execute(f"create role {schema} login superuser")
    await admin.execute(f"create database {schema}")
    store = PostgresStore(postgres_server.url(schema).replace("postgres@", f"{schema}@"))
    await store.open()
    await admin.execute(change.format(schema, no="no", is_open=False))
    await admin.execute("select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = $1", schema)
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            await store.now_us()
    other = PostgresStore(postgres_server.url(schema).replace("postgres@", f"{schema}@"))
    with pytest.raises((ConfigurationError, StoreUnavailableError), match=r"log in|accepting connections"):
        await other.open()
    await admin.execute(change.format(schema, no="", is_open=True))
    assert await store.now_us()
    await store.close()
    await admin.execute(f"drop database {schema} with (force)")
    await admin.execute(f"drop role {schema}")
    await admin.close()
