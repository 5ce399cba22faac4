"""Connections to PostgreSQL that are kept from one test to the next.

A new one is dear: the server starts a process for it, which reads the catalogue and compiles every routine anew, and
that takes it several times as long as what a test asks of it. Nothing of a test is kept in a session.

- `KeptConnections`: those that nobody uses now, of one event loop.
- `KeepingStore`: a store that takes its connections from there, and gives them back when it is closed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.address import Address
from holdfast.store.postgres.connections import Aged, Connection, Connections, end


class KeptConnections:
    """`open` in the loop that they shall live in, `close` before it ends."""

    def __init__(self) -> None:
        self._idle: defaultdict[str, list[Connection]] = defaultdict(list)
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        self._loop = None
        idle = [connection for kind in self._idle.values() for connection in kind]
        self._idle.clear()
        for connection in idle:
            await end(connection)

    def take(self, kind: str) -> Connection | None:
        """One that was given back as of this kind, in this loop."""
        idle = self._idle[kind] if self._is_here() else []
        while idle:
            connection = idle.pop()
            if not connection.is_closed():
                return connection
        return None

    async def give_back(self, kind: str, connection: Connection) -> None:
        if self._is_here() and not connection.is_closed() and not connection.is_in_transaction():
            self._idle[kind].append(connection)
        else:
            await end(connection)

    def _is_here(self) -> bool:
        """A store may be used in another thread, with a loop of its own."""
        return asyncio.get_running_loop() is self._loop


class KeepingStore(PostgresStore):
    """Its siblings, which work in threads of their own, keep nothing."""

    def __init__(self, url: str, *, schema: str, kept: KeptConnections) -> None:
        self._kept = kept
        super().__init__(url, schema=schema)

    def _make_connections(self) -> Connections:
        return _KeepingConnections(self._address, self._size, self._kept)


class _KeepingConnections(Connections):
    def __init__(self, address: Address, size: int, kept: KeptConnections) -> None:
        super().__init__(address, size)
        self._kept = kept

    async def connect(self) -> Aged:
        connection = None if self._closed else self._kept.take(self.address.dsn)
        if connection is None:
            return await super().connect()
        self._opened += 1
        return self._opened, connection

    async def close(self) -> None:
        left = [connection for _, connection in self._idle + self._flush_idle]
        self._idle.clear()
        self._flush_idle.clear()
        self._closed = True
        for connection in left:
            await self._kept.give_back(self.address.dsn, connection)
