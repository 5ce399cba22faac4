"""A server that falls silent: a firewall forgot the connection, a machine is gone, and nobody said so."""

from __future__ import annotations

import asyncio
import socket

import pytest
from tests.store.postgres.conftest import Connection

from holdfast.core.errors import StoreUnavailableError
from holdfast.store.postgres import PostgresStore, outside
from holdfast.store.postgres.driver import SILENT_SECONDS


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
