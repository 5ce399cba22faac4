"""A pooler as PgBouncer is one: its clients have sessions of the server for a transaction each, as `mode` says.

    async with Pooler(url) as pooler:
        store = PostgresStore(pooler.url + "?pgbouncer=true")

What it cannot do it refuses in PgBouncer's words. Whoever asks next is given the session that was left last, with the
statements that were prepared there; their names differ within a process.
"""

from __future__ import annotations

import asyncio
import struct
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

_PASSED_ON: Final = {"user", "database", "application_name", "client_encoding"}


class Pooler:
    def __init__(self, url: str, *, mode: str = "transaction") -> None:
        self._parts = urlsplit(url)
        self.mode = mode
        self.idle: list[_Session] = []
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        port = self._server.sockets[0].getsockname()[1]
        return self._parts._replace(netloc=f"{self._parts.username}@127.0.0.1:{port}").geturl()

    async def session(self, startup: bytes) -> _Session:
        if self.idle:
            return self.idle.pop()
        reader, writer = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        writer.write(startup)
        greeting = b""
        while not greeting.endswith(b"Z\0\0\0\x05I"):
            greeting += await _message(reader)
        return _Session(reader, writer, greeting)

    def keep(self, task: asyncio.Task[None]) -> None:
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            lambda reader, writer: self.keep(asyncio.create_task(_Client(self, reader, writer).serve())), "127.0.0.1", 0
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for session in self.idle:
            session.writer.close()


class _Session:
    """One of the server's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, greeting: bytes) -> None:
        self.reader = reader
        self.writer = writer
        self.greeting = greeting


class _Client:
    def __init__(self, pooler: Pooler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._pooler = pooler
        self._reader = reader
        self._writer = writer
        self._session: _Session | None = None

    async def serve(self) -> None:
        try:
            await self._serve()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writer.close()
            if self._session is not None:
                self._session.writer.close()

    async def _serve(self) -> None:
        startup = await self._startup()
        unknown = {name.decode() for name in startup[8:-2].split(b"\0")[::2]} - _PASSED_ON
        if unknown:
            self._refuse(f"unsupported startup parameter: {unknown.pop()}")
            return
        session = await self._pooler.session(startup)
        self._pooler.idle.append(session)
        # Its clients have numbers of the pooler's own.
        number = struct.pack(">cIII", b"K", 12, id(self) & 0x7FFFFFFF, 0)
        place = session.greeting.index(b"K\0\0\0\x0c")
        self._writer.write(session.greeting[:place] + number + session.greeting[place + len(number) :])
        while (message := await _message(self._reader))[:1] != b"X":
            if self._session is None:
                self._session = await self._pooler.session(startup)
                self._pooler.keep(asyncio.create_task(self._answer(self._session)))
            self._session.writer.write(message)

    async def _startup(self) -> bytes:
        while True:
            head = await self._reader.readexactly(8)
            length, code = struct.unpack(">II", head)
            startup = head + await self._reader.readexactly(length - 8)
            if code == 196_608:
                return startup
            self._writer.write(b"N")  # it asked for encryption

    async def _answer(self, session: _Session) -> None:
        """Until the transaction is over."""
        while True:
            message = await _message(session.reader)
            if message[:1] == b"Z":
                if message[5:] == b"I" and self._pooler.mode != "session":
                    self._session = None
                    self._pooler.idle.append(session)
                    self._writer.write(message)
                    return
                if self._pooler.mode == "statement":
                    session.writer.close()
                    self._refuse("transaction blocks not allowed in statement pooling mode")
                    return
            self._writer.write(message)

    def _refuse(self, why: str) -> None:
        body = b"SFATAL\0C08P01\0M" + why.encode() + b"\0\0"
        self._writer.write(b"E" + struct.pack(">I", len(body) + 4) + body)
        self._writer.close()


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)
