"""A TCP proxy in front of PostgreSQL that cuts a connection at the worst moment.

    async with PostgresProxy(url) as proxy:
        proxy.judge = lambda statement: Cut.REPLY if "flush" in statement else None
        store = PostgresStore(proxy.url)

It reads enough of the protocol to know which statement a message runs, prepared ones included. `judge` is asked at
each run of a statement and says what becomes of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from enum import Enum, auto
from types import TracebackType
from typing import Final, Self, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from holdfast.core.errors import InvalidArgumentError

Judge: TypeAlias = Callable[[str], "Cut | None"]

_STARTUP: Final = 196_608
_CANCEL: Final = 80_877_102
_NO_ENCRYPTION: Final = b"N"
_TYPED_HEADER: Final = 5
_DEFAULT_PORT: Final = 5432


class Cut(Enum):
    """When the connection dies."""

    REQUEST = auto()  # before the server hears of the statement
    REPLY = auto()  # after the server carried it out and committed, before the client hears of it


class PostgresProxy:
    """Listens on a port of its own on 127.0.0.1 and forwards to the server of `url`, which has no encryption."""

    def __init__(self, url: str, judge: Judge = lambda statement: None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("postgresql", "postgres") or not parts.hostname:
            raise InvalidArgumentError(f"{url!r} is no URL of a PostgreSQL server with a host: a proxy needs one")
        self._parts = parts
        self._target = (parts.hostname, parts.port or _DEFAULT_PORT)
        self._server: asyncio.Server | None = None
        self._sessions: set[asyncio.Task[None]] = set()
        self.judge = judge
        self.cuts: list[tuple[Cut, str]] = []

    @property
    def url(self) -> str:
        """The given URL, by way of this proxy."""
        if self._server is None:
            raise InvalidArgumentError("this proxy does not listen yet: enter its `async with` first")
        port = self._server.sockets[0].getsockname()[1]
        user = f"{self._parts.username}@" if self._parts.username else ""
        return urlunsplit(self._parts._replace(netloc=f"{user}127.0.0.1:{port}"))

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for session in list(self._sessions):
            session.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = asyncio.ensure_future(self._serve(reader, writer))
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
        except OSError:  # the server is down: so is the way to it
            writer.transport.abort()
            return
        session = _Session(self, reader, writer, server_reader, server_writer)
        try:
            await session.run()
        finally:
            writer.transport.abort()
            server_writer.transport.abort()


class _Session:
    """One connection of a client."""

    def __init__(
        self,
        proxy: PostgresProxy,
        client_reader: asyncio.StreamReader,
        client_writer: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter,
    ) -> None:
        self._proxy = proxy
        self._client_reader = client_reader
        self._client_writer = client_writer
        self._server_reader = server_reader
        self._server_writer = server_writer
        self._statements: dict[bytes, str] = {}
        self._doomed = False  # the next reply is the last thing that happens here

    async def run(self) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await self._greet()
            directions = [asyncio.ensure_future(self._upstream()), asyncio.ensure_future(self._downstream())]
            try:
                await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for direction in directions:
                    direction.cancel()
                await asyncio.gather(*directions, return_exceptions=True)

    async def _greet(self) -> None:
        """Messages before the session have no type; a client may first ask for encryption."""
        while True:
            head = await self._client_reader.readexactly(8)
            length, code = struct.unpack(">II", head)
            rest = await self._client_reader.readexactly(length - 8)
            if code in (_STARTUP, _CANCEL):
                self._server_writer.write(head + rest)
                return
            self._client_writer.write(_NO_ENCRYPTION)

    async def _upstream(self) -> None:
        while True:
            kind, message = await _message(self._client_reader)
            statement = self._statement_run_by(kind, message[_TYPED_HEADER:])
            cut = None if statement is None else self._proxy.judge(statement)
            if cut is not None and statement is not None:
                self._proxy.cuts.append((cut, statement))
                if cut is Cut.REQUEST:
                    return
                self._doomed = True
            self._server_writer.write(message)
            await self._server_writer.drain()

    def _statement_run_by(self, kind: bytes, body: bytes) -> str | None:
        """The text of the statement that this message runs; None if it runs none."""
        if kind == b"P":  # Parse: a name, then the text
            name, _, rest = body.partition(b"\0")
            self._statements[name] = rest.partition(b"\0")[0].decode(errors="replace")
        elif kind == b"B":  # Bind: a portal, then the name
            name = body.split(b"\0", 2)[1]
            return self._statements.get(name, "")
        elif kind == b"Q":  # Query: the text itself
            return body.rstrip(b"\0").decode(errors="replace")
        return None

    async def _downstream(self) -> None:
        while True:
            kind, message = await _message(self._server_reader)
            if not self._doomed:
                self._client_writer.write(message)
                await self._client_writer.drain()
            elif kind == b"Z":  # ReadyForQuery: the server has committed and waits for more
                return


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(_TYPED_HEADER)
    length = int.from_bytes(head[1:], "big")
    return head[:1], head + await reader.readexactly(length - 4)
