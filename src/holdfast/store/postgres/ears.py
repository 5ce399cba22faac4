"""Being woken: one LISTEN connection an ear, and a row in `listeners` that says it is idle.

A lost connection is made again with growing pauses; then everything may have been missed, so every topic is heard.
Where a pooler in transaction mode is in between, LISTEN needs a way past it (`listen_url`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import asyncpg

from holdfast.core.errors import HoldfastError, StoreUnavailableError
from holdfast.store.base import ARMED_SECONDS
from holdfast.store.postgres.address import Address
from holdfast.store.postgres.connections import CLOSE_SECONDS, Connections, check_session, connect, end, errors_of
from holdfast.store.values import Topic

if TYPE_CHECKING:
    from holdfast.store.postgres.connections import Connection

log = logging.getLogger("holdfast.engine")

RETRY_SECONDS_FIRST = 0.1
RETRY_SECONDS_LONGEST = 5.0
# Said again at half the time: a row in `listeners` holds for ARMED_SECONDS.
_REARM_SECONDS = ARMED_SECONDS / 2


class PostgresEar:
    """Calls `hear` on this loop."""

    def __init__(
        self,
        connections: Connections,
        sql: Mapping[str, str],
        channel: str,
        hear: Callable[[Topic], None],
        ears: list[PostgresEar],
    ) -> None:
        self.hear = hear
        self._id = secrets.token_hex(8)
        self._connections = connections
        self._sql = sql
        self._channel = channel
        self._armed: dict[Topic, float] = {}
        self._ears = ears
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._lost = asyncio.Event()

    async def listen(self, address: Address) -> None:
        """Subscribe, and keep subscribed until closed."""
        try:
            self._connection = await self._subscribe(address)
        except StoreUnavailableError as error:
            # A hint is all that is missing. On a replica nobody can listen until it is promoted, which is no news.
            if not isinstance(error.__cause__, asyncpg.ReadOnlySQLTransactionError):
                log.warning("commits of others are found by polling until listening works: %s", error)
            self._lost.set()
        self._task = asyncio.create_task(self._stay(address), name="holdfast-listen")

    async def arm(self, topic: Topic) -> None:
        # The row is written again only when half its time is over, so that an idle worker does not write at each poll.
        now = asyncio.get_running_loop().time()
        if self._task is None or now - self._armed.get(topic, -ARMED_SECONDS) < _REARM_SECONDS:
            return
        async with self._connections.any("arm a listener") as connection:
            # Who may only read looks now and then: nobody is asked to tell.
            with contextlib.suppress(asyncpg.ReadOnlySQLTransactionError, asyncpg.InsufficientPrivilegeError):
                await connection.execute(self._sql["listener_arm"], self._id, topic.value, ARMED_SECONDS)
        self._armed[topic] = now

    async def close(self) -> None:
        if self in self._ears:
            self._ears.remove(self)
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        connection, self._connection = self._connection, None
        await asyncio.gather(self._disarm(), *([] if connection is None else [end(connection)]))

    async def _disarm(self) -> None:
        if self._armed:
            # The row expires by itself.
            with contextlib.suppress(HoldfastError, asyncpg.PostgresError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS), self._connections.any("disarm a listener") as connection:
                    await connection.execute(self._sql["listener_remove"], self._id)

    async def _subscribe(self, address: Address) -> Connection:
        self._lost.clear()
        with errors_of(address, "listen"):
            connection = await connect(address, "holdfast listener")
            try:
                await check_session(connection, address)
                connection.add_termination_listener(lambda _: self._lost.set())
                await connection.add_listener(self._channel, self._heard)
            except BaseException:
                await end(connection)
                raise
            return connection

    async def _stay(self, address: Address) -> None:
        pause = RETRY_SECONDS_FIRST
        while True:
            await self._lost.wait()
            self._connection = None
            try:
                self._connection = await self._subscribe(address)
            except HoldfastError:
                self._lost.set()
                await asyncio.sleep(pause)
                pause = min(pause * 2, RETRY_SECONDS_LONGEST)
                continue
            pause = RETRY_SECONDS_FIRST
            self._armed.clear()
            for topic in Topic:
                self.hear(topic)

    def _heard(self, connection: object, process_id: int, channel: str, payload: object) -> None:
        if payload in tuple(Topic):
            self.hear(Topic(str(payload)))
