"""What every part of the store stands on: connections, statements, life, and who listens here."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from holdfast.core.errors import ConfigurationError
from holdfast.store.base import Ear
from holdfast.store.postgres.address import SCHEMA_PARAMETER, Address
from holdfast.store.postgres.connections import Connections, check_session
from holdfast.store.postgres.ears import PostgresEar
from holdfast.store.postgres.front import Front
from holdfast.store.postgres.migrate import PACKAGE, check_schema, migrate, read_files
from holdfast.store.sql import load_blocks
from holdfast.store.values import Topic

DEFAULT_SCHEMA: Final = "holdfast"


@lru_cache(maxsize=16)  # not all: tests have a schema each
def _statements(schema: str) -> Mapping[str, str]:
    """Once a process: an app looks at a URL before it opens it, and each heartbeat has a store of its own."""
    topics = ("work", "read", "records", "health", "watch", "batches", "flows")
    blocks = load_blocks(PACKAGE, *(f"sql/{topic}.sql" for topic in topics), schema=schema)
    made = {name: text.replace("{view}", blocks["view"]) for name, text in blocks.items()}
    for name in ("flush_one", "flush_plain", "flush_ends", "flush_flows", "flush"):
        made[name + "_beside"] = _beside(blocks["leave_beside"], blocks[name])
    return made


def _beside(leave: str, flush: str) -> str:
    """The parameters of `leave_2` come after those of what it stands beside."""
    last = max(int(number) for number in re.findall(r"\$(\d+)", flush))
    columns = ", ".join(f"${last + number}" for number in range(1, 8))
    return leave.replace("{flush}", flush).replace("{columns}", columns)


class Ledger:
    """One schema of a PostgreSQL database."""

    def __init__(
        self,
        url: str,
        *,
        schema: str | None = None,
        connections: int = 5,
        pooled: bool = False,
        listen: bool = True,
        listen_url: str | None = None,
    ) -> None:
        self._address = Address(url, pooled=pooled)
        self._listen_address = self._address if listen_url is None else Address(listen_url)
        if listen_url is not None and self._listen_address.pooled:
            raise ConfigurationError(
                f"the listen_url {self._listen_address.shown} says pgbouncer=true, and notifications need a session: "
                "give one past the pooler, or listen=False"
            )
        # A subscription belongs to a session, and a pooler in transaction mode has none to give.
        self._listens = listen and (listen_url is not None or not self._address.pooled)
        self._given_urls = (url, listen_url)
        self._schema = check_schema(self._address.schema or DEFAULT_SCHEMA if schema is None else schema)
        self._size = connections
        self._sql = _statements(self._schema)
        self._connections = self._make_connections()
        self._front = Front()
        self._ears: list[PostgresEar] = []
        self._is_open = False
        self._is_let_in = False  # what it is a sibling of is open

    def _make_connections(self) -> Connections:
        return Connections(self._address, self._size)

    @property
    def url(self) -> str:
        if self._schema == DEFAULT_SCHEMA:
            return self._address.shown
        return f"{self._address.shown}?{SCHEMA_PARAMETER}={self._schema}"

    @property
    def commits_inline(self) -> bool:
        return False  # a commit is a round trip: never on the event loop's thread

    @property
    def flushes_at_once(self) -> int:
        return self._connections.flushes

    @property
    def losses(self) -> int:
        return self._connections.losses

    @property
    def commits_in_thread(self) -> bool:
        return False

    async def open(self) -> None:
        self._leave_to_parent()
        await self._connections.close()
        self._connections = self._make_connections()
        asyncio.get_running_loop().call_soon(read_files, self._schema)  # while the server makes a session
        try:
            async with self._connections.any("open the ledger") as connection:
                await check_session(connection, self._address)
                await migrate(connection, self._schema, self._is_let_in)
        except BaseException:
            await self._connections.close()  # nobody closes what was never open
            raise
        self._is_open = True

    async def close(self) -> None:
        self._leave_to_parent()
        self._is_open = False
        for ear in list(self._ears):
            await ear.close()
        await self._connections.close()

    def _leave_to_parent(self) -> None:
        if self._connections.is_inherited:
            self._ears.clear()

    async def forsake(self) -> None:
        """The transports of a closed loop close their sockets when they are collected."""

    async def now_us(self) -> int:
        async with self._connections.any("tell the time") as connection:
            now: int = await connection.fetchval(self._sql["now_us"])
            return now

    async def open_ear(self, hear: Callable[[Topic], None]) -> Ear:
        ear = PostgresEar(self._connections, self._sql, self._schema, hear, self._ears)
        if self._listens:
            await ear.listen(self._listen_address)
        self._ears.append(ear)
        return ear

    def _tell(self, *topics: Topic) -> None:
        """Who listens in this process hears of its commits at once, without the way around the server."""
        for ear in self._ears:
            for topic in topics:
                ear.hear(topic)
