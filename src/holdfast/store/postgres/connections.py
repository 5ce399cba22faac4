"""Connections: some kept for flushes, a few for everything else, and the store's word for what can go wrong.

Nothing here keeps state in a session, so all of it works behind a pooler in transaction mode (`pooled`). Of a
connection that is found dead only the call that met it fails; the next one connects again.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from holdfast.core.errors import ConfigurationError, StoreUnavailableError
from holdfast.store.outages import GivenBackLater
from holdfast.store.postgres.address import Address
from holdfast.store.postgres.driver import DriverConnection
from holdfast.store.sql import load_blocks

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection  # generic in its stubs alone

Aged: TypeAlias = tuple[int, Connection]  # as which it was opened, and the connection

COMMAND_SECONDS = 60.0
OPENING_SECONDS = 0.01  # what it takes to open another one, and to plan what it is asked
CLOSE_SECONDS = 2.0

# The session has not the prepared statements that it should have: somebody else's, or cleared by user code.
_STATEMENTS = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
# What a caller may simply try again (store/base.py), on a new connection: the old one is in doubt. Of transactions, one
# that took too long, or is read-only on a primary that has just lost its role. Not what the server calls its own fault
# (XX000): it may be this row's, and would then hold up all others for ever.
_PASSING = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.LockNotAvailableError,
    asyncpg.InvalidTransactionStateError,
    asyncpg.PostgresSystemError,
    *_STATEMENTS,
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
# The schema is not there: never migrated, or dropped, perhaps to be restored.
_MISSING = (asyncpg.InvalidSchemaNameError, asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError)
# What the server says to a parameter of the URL that is none of its settings, or has no such value.
_UNKNOWN = (asyncpg.UndefinedObjectError, asyncpg.InvalidParameterValueError, asyncpg.CantChangeRuntimeParamError)


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
    except ssl.SSLCertVerificationError as error:
        raise ConfigurationError(
            f"the certificate of PostgreSQL at {address.server} does not hold: {error.verify_message.rstrip('.')}. The "
            f"host must be named as in it; sslrootcert is whose signature it has, or `system` ({address.shown})"
        ) from error
    except _MISSING as error:
        raise ConfigurationError(
            f"PostgreSQL at {address.server} could not {doing}: {error}. The ledger in {address.shown} is not whole: "
            "restore it, or create it with `holdfast migrate`"
        ) from error
    except _PASSING as error:
        raise _unavailable(address, doing, error) from error
    except asyncpg.InterfaceError as error:
        # The driver has one class for "connection is closed" and for wrong use; only the first passes.
        if "clos" not in str(error) and "released" not in str(error):
            raise
        raise _unavailable(address, doing, error) from error


def _unavailable(address: Address, doing: str, error: BaseException) -> StoreUnavailableError:
    said, advice = str(error) or type(error).__name__, "check that the server runs and accepts connections"
    if isinstance(error, _STATEMENTS):
        said = said.partition("\n")[0]  # the driver adds a page of advice, to use its own pool
        advice = "if a pooler in transaction mode is in between, add pgbouncer=true to the URL"
    elif "unsupported startup parameter" in said:  # PgBouncer has one code for all that it refuses
        advice = "the pooler passes no settings on: take them out of the URL and give them to the role"
    elif "statement pooling mode" in said:
        advice = "give the pooler pool_mode = transaction, or session"
    elif isinstance(error, asyncpg.InternalClientError):
        said = "the server ended the connection"  # the driver was between two of its states, and names those
    elif isinstance(error, asyncpg.TooManyConnectionsError):
        advice = "raise max_connections, run fewer workers with fewer `connections`, or put a pooler in between"
    elif isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        advice = "it is a replica, or default_transaction_read_only is on: connect to one that can be written to"
    return StoreUnavailableError(
        f"PostgreSQL at {address.server} could not {doing}: {said}. Nothing is lost; {advice} "
        f"({address.shown}), and try again"
    )


async def connect(address: Address, application: str = "holdfast") -> Connection:
    """To the first of its servers that will have us."""
    servers = address.servers()
    for server in servers[:-1]:
        try:
            return await _connect_to(server, address, application)
        except _PASSING as error:
            if isinstance(error, TimeoutError):
                address.note_silence(server)
    return await _connect_to(servers[-1], address, application)


async def _connect_to(server: str, address: Address, application: str) -> Connection:
    try:
        connection: Connection = await asyncpg.connect(
            server,
            connection_class=DriverConnection,
            timeout=address.connect_seconds,
            command_timeout=COMMAND_SECONDS,
            statement_cache_size=0 if address.pooled else 100,
            ssl=address.trusts_system or None,
            # Nothing else: a pooler refuses what it does not know. The routines bring their own settings.
            server_settings={"application_name": application},
        )
    except _UNKNOWN as error:
        raise ConfigurationError(
            f"PostgreSQL at {address.server} refused the connection: {error}. Parameters of the URL that are not the "
            f"driver's are settings of the session: take out what is neither ({address.shown})"
        ) from error
    except (FileNotFoundError, PermissionError) as error:
        if not (unreadable := address.unreadable_files()):
            raise
        raise ConfigurationError(
            f"{', '.join(unreadable)} cannot be read: encryption to {address.server} needs it ({address.shown})"
        ) from error
    except asyncpg.PostgresError as error:
        if isinstance(error, (*_PASSING, *_SETUP)):
            raise
        raise _unavailable(address, "connect", error) from error  # as a database that takes none now
    try:
        await _settle(connection, address)
    except BaseException:
        connection.terminate()
        raise
    return connection


@cache
def _statements() -> Mapping[str, str]:
    return load_blocks("holdfast.store.postgres", "sql/connect.sql")


async def _settle(connection: Connection, address: Address) -> None:
    """READ COMMITTED, whatever the server, the database or the role has as its default."""
    if not address.pooled:
        await connection.execute(_statements()["connect_isolation"])
        return
    found = await connection.fetchval(_statements()["connect_default_isolation"])
    if found != "read committed":
        raise ConfigurationError(
            f"transactions of {address.shown} are {found.upper()} by default, Holdfast needs READ COMMITTED and cannot "
            "ask for it behind a pooler: `alter role ... set default_transaction_isolation = 'read committed'`"
        )


async def check_session(connection: Connection, address: Address) -> None:
    """That it has a session for as long as it needs one: for itself, or, if the URL says so, for a transaction.

    A pooler gives its clients numbers of its own, so it can be told that one is there; and in transaction mode the next
    client has the session that this one had.
    """
    if address.pooled:
        async with connection.transaction():
            return
    session = await connection.fetchval(_statements()["connect_session"])
    if session == connection.get_server_pid():
        return
    other = await connect(address)
    try:
        is_shared = await other.fetchval(_statements()["connect_session"]) == session
    except _STATEMENTS:
        is_shared = True
    finally:
        await end(other)
    if is_shared:
        raise ConfigurationError(
            f"the pooler at {address.server} is in transaction mode, where a connection has no session of its own: add "
            f"pgbouncer=true to {address.shown}; notifications need a URL past it (`listen_url`)"
        )


class Connections:
    """`flush()` is one of two that keep their prepared statements; `any()` is one of the others."""

    def __init__(self, address: Address, size: int, *, flushes: int | None = None, is_at_work: bool = False) -> None:
        self.address = address
        self.is_at_work = is_at_work  # for a worker, which could register: then it may work, until that is taken away
        self.flushes = (2 if size >= 4 else 1) if flushes is None else flushes
        self._process = os.getpid()
        self._opened = 0
        self._idle: list[Aged] = []
        self._coming_back = ComingBack()
        self._slots = asyncio.Semaphore(max(1, size - self.flushes))
        self._flush_idle: list[Aged] = []
        self._flush_slots = asyncio.Semaphore(self.flushes)
        self._has_flushed = False
        self._closed = False
        self.losses = 0  # connections that broke

    @property
    def is_inherited(self) -> bool:
        """Whether they are those of the process that forked this one."""
        return self._process != os.getpid()

    @property
    def has_idle(self) -> bool:
        return bool(self._idle)

    @property
    def has_flushed(self) -> bool:
        return self._has_flushed

    def any(self, doing: str) -> Lent:
        return Lent(self, doing, self._idle, self._slots, self._coming_back)

    def flush(self) -> Lent:
        if not self._has_flushed and self._idle:
            # The first flush of a worker that found work as it started: to connect takes longer than to plan.
            self._flush_idle.append(self._idle.pop())
        self._has_flushed = True
        return Lent(self, "flush", self._flush_idle, self._flush_slots)

    @asynccontextmanager
    async def only_flush(self) -> AsyncIterator[Connection]:
        """One of its own for flushes, while nobody opens a second: whoever wants to flush meanwhile waits for it."""
        self._has_flushed = True
        async with AsyncExitStack() as stack:
            for _ in range(self.flushes - 1):
                await stack.enter_async_context(self._flush_slots)
            yield await stack.enter_async_context(self.flush())

    async def close(self) -> None:
        self._closed = True
        left = self._idle + self._flush_idle
        self._idle.clear()
        self._flush_idle.clear()
        if self.is_inherited:
            return
        await asyncio.gather(*(end(connection) for _, connection in left))

    async def connect(self) -> Aged:
        if self._closed:
            raise StoreUnavailableError(f"the store {self.address.shown} is closed: open it before use")
        connection = await connect(self.address)
        connection.add_termination_listener(self.note_loss)
        self._opened += 1
        return self._opened, connection

    def cut(self, connection: Connection) -> None:
        """End one that is in the middle of something, of our own will."""
        connection.remove_termination_listener(self.note_loss)
        connection.terminate()

    def distrust(self, newest: int) -> None:
        """One fell silent: those as old that are idle may be as dead, and each would cost its caller as long."""
        for idle in (self._idle, self._flush_idle):
            for _, connection in [aged for aged in idle if aged[0] <= newest]:
                connection.terminate()

    @property
    def newest(self) -> int:
        return self._opened

    def note_loss(self, _: object = None) -> None:
        """One broke. Its driver says so a little later than a call may find it out: that both count does no harm."""
        if not self._closed:
            self.losses += 1

    async def give_back(self, aged: Aged, idle: list[Aged]) -> None:
        if self._closed:
            await end(aged[1])
        elif not aged[1].is_closed():
            idle.append(aged)
            idle.sort(reverse=True)


class ComingBack:
    """One that is at work and comes back soon is worth more than another one, which has planned nothing yet."""

    def __init__(self) -> None:
        self.lent = 0
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._promised = 0  # those that are back, and whose next user has not had its turn of the loop yet

    def is_wanted(self, idle: int) -> bool:
        """Whether so many that are idle are all for those who have waited."""
        return idle <= self._promised

    async def wait(self) -> None:
        """For one of those that are lent, but no longer than it takes to open another."""
        if self.lent + self._promised <= len(self._waiting):
            return
        loop = asyncio.get_running_loop()
        back: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(back)
        timer = loop.call_later(OPENING_SECONDS, self._give_up, back)
        try:
            await back
        finally:
            timer.cancel()
            self._give_up(back)
            if not back.cancelled() and back.result():
                self._promised -= 1

    def note(self) -> None:
        """One is back: it is for the first who still waits, not for who has just been cancelled."""
        self.lent -= 1
        while self._waiting:
            back = self._waiting.popleft()
            if not back.done():
                self._promised += 1
                back.set_result(True)
                break

    def _give_up(self, back: asyncio.Future[bool]) -> None:
        if back in self._waiting:
            self._waiting.remove(back)
        if not back.done():
            back.set_result(False)


class Lent:
    """A connection for the time of an `async with`; a class, because a generator costs a tenth of a small flush."""

    __slots__ = ("_aged", "_coming_back", "_connections", "_doing", "_idle", "_newest", "_slots")

    def __init__(
        self,
        connections: Connections,
        doing: str,
        idle: list[Aged],
        slots: asyncio.Semaphore,
        coming_back: ComingBack | None = None,
    ) -> None:
        self._connections = connections
        self._coming_back = coming_back
        self._doing = doing
        self._idle = idle
        self._slots = slots

    async def __aenter__(self) -> Connection:
        if self._connections.is_inherited:
            raise ConfigurationError(
                f"this process was forked from one that has {self._connections.address.shown} open, whose connections "
                "stay its own: open the store here, before it is used"
            )
        await self._slots.acquire()
        self._newest = self._connections.newest
        try:
            if self._coming_back is not None:
                if self._coming_back.is_wanted(len(self._idle)):
                    await self._coming_back.wait()
                self._aged = self._kept() or await self._another()
                self._coming_back.lent += 1
            else:
                self._aged = self._kept() or await self._another()
        except BaseException:
            self._slots.release()
            raise
        return self._aged[1]

    def _kept(self) -> Aged | None:
        """The oldest knows the most routines, and the younger ones are there for when it is taken."""
        while self._idle:
            aged = self._idle.pop()
            if not aged[1].is_closed():
                return aged
            self._connections.note_loss()
        return None

    async def _another(self) -> Aged:
        connections = self._connections
        was_let_in = connections.is_at_work or connections.newest > 0
        with GivenBackLater(was_let_in), errors_of(connections.address, self._doing):
            return await connections.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Cut off, it may be in a transaction that nobody ends: with its locks, and with what the next call would write.
        if isinstance(error, _PASSING):
            self._aged[1].terminate()
            self._connections.note_loss()
            if isinstance(error, OSError):  # a timeout is one; who hung up is told by another error
                self._connections.distrust(self._newest)
        elif error is not None and not isinstance(error, Exception):
            self._connections.cut(self._aged[1])
        try:
            await self._connections.give_back(self._aged, self._idle)
        finally:
            self._slots.release()
            if self._coming_back is not None:
                self._coming_back.note()
        if isinstance(error, Exception):
            connections = self._connections
            with GivenBackLater(connections.is_at_work), errors_of(connections.address, self._doing):
                raise error


async def end(connection: Connection) -> None:
    """Close a connection, whatever state it is in."""
    try:
        await connection.close(timeout=CLOSE_SECONDS)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()
