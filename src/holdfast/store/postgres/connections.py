"""Connections: a few for everything, one kept for flushes, and the store's word for what can go wrong.

Nothing here keeps state in a session, so all of it works behind a pooler in transaction mode (`pooled`). Of a
connection that is found dead only the call that met it fails; the next one connects again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import asyncpg

from holdfast.core.errors import ConfigurationError, StoreUnavailableError

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection  # generic in its stubs alone

CONNECT_SECONDS = 10.0
COMMAND_SECONDS = 60.0

# What a caller may simply try again (store/base.py), on a new connection: the old one is in doubt. A read-only server
# is a primary that has just lost its role.
_PASSING = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.LockNotAvailableError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InternalClientError,  # a statement met the server's goodbye half-way
    OSError,
    TimeoutError,
)
_SETUP = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.ClientConfigurationError,
)


class Address:
    """A database URL, taken apart: what asyncpg connects to, and what may be shown."""

    def __init__(self, url: str, *, pooled: bool = False) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:  # which quotes a part of a password that is not percent-encoded
            raise ConfigurationError(
                f"the PostgreSQL URL cannot be read: {_EXAMPLE}, with :, /, @, ? and # of a password percent-encoded"
            ) from None
        if parts.scheme not in ("postgresql", "postgres"):
            raise ConfigurationError(f"{parts.scheme!r} is no scheme of a PostgreSQL URL: {_EXAMPLE}")
        options = dict(parse_qsl(parts.query))
        # `pgbouncer=true` is how other tools' URLs say that a pooler in transaction mode is in between.
        self.pooled = options.pop("pgbouncer", "false").lower() in ("true", "1") or pooled
        self.dsn = urlunsplit(parts._replace(query=urlencode(options)))
        where = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
        user = f"{quote(unquote(parts.username))}@" if parts.username else ""
        self.shown = f"postgresql://{user}{where}{parts.path}"
        self.server = f"{where or options.get('host', 'localhost')}"


_EXAMPLE = "write it as postgresql://user:password@host:5432/database"


@contextmanager
def errors_of(address: Address, doing: str) -> Iterator[None]:
    """Turns what the driver raises into the store's errors; the cause stays chained."""
    try:
        yield
    except _SETUP as error:
        raise ConfigurationError(
            f"PostgreSQL at {address.server} refused to {doing}: {error}. Check user, password, database and "
            f"privileges of {address.shown}"
        ) from error
    except _PASSING as error:
        raise _unavailable(address, doing, error) from error
    except asyncpg.InterfaceError as error:
        # The driver has one class for "connection is closed" and for wrong use; only the first passes.
        if "clos" not in str(error) and "released" not in str(error):
            raise
        raise _unavailable(address, doing, error) from error


def _unavailable(address: Address, doing: str, error: BaseException) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"PostgreSQL at {address.server} could not {doing}: {str(error) or type(error).__name__}. Nothing is lost; "
        f"check that the server runs and accepts connections ({address.shown}), and try again"
    )


async def connect(address: Address, application: str = "holdfast") -> Connection:
    connection: Connection = await asyncpg.connect(
        address.dsn,
        timeout=CONNECT_SECONDS,
        command_timeout=COMMAND_SECONDS,
        statement_cache_size=0 if address.pooled else 100,
        # Nothing else: a pooler refuses what it does not know. The routines bring their own settings.
        server_settings={"application_name": application},
    )
    return connection


class Connections:
    """`flush()` is one connection that keeps its prepared statements; `any()` is one of up to `size` others."""

    def __init__(self, address: Address, size: int) -> None:
        self.address = address
        self._idle: list[Connection] = []
        self._slots = asyncio.Semaphore(size)
        self._flush: Connection | None = None
        self._flush_turn = asyncio.Lock()
        self._closed = False

    @asynccontextmanager
    async def any(self, doing: str) -> AsyncIterator[Connection]:
        with errors_of(self.address, doing):
            async with self._slots:
                connection = await self._take()
                try:
                    yield connection
                except _PASSING:
                    connection.terminate()
                    raise
                finally:
                    await self._give_back(connection)

    @asynccontextmanager
    async def flush(self) -> AsyncIterator[Connection]:
        with errors_of(self.address, "flush"):
            async with self._flush_turn:
                if self._flush is None or self._flush.is_closed():
                    self._check_open()
                    self._flush = await connect(self.address)
                try:
                    yield self._flush
                except _PASSING:
                    self._flush.terminate()
                    raise

    async def close(self) -> None:
        self._closed = True
        left = [*self._idle, *([self._flush] if self._flush is not None else [])]
        self._idle.clear()
        self._flush = None
        for connection in left:
            await end(connection)

    async def _take(self) -> Connection:
        # The one used last is the warmest.
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        self._check_open()
        return await connect(self.address)

    async def _give_back(self, connection: Connection) -> None:
        if self._closed:
            await end(connection)
        elif not connection.is_closed():
            self._idle.append(connection)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailableError(f"the store {self.address.shown} is closed: open it before use")


async def end(connection: Connection) -> None:
    """Close a connection, whatever state it is in."""
    try:
        await connection.close(timeout=2)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()
