"""Live events (SSE), derived from the ledger and never from memory: a reconnect with `Last-Event-ID` loses nothing.

- `Streams.execution`: the journal by sequence, the history by revision, and the row's standing whenever it differs. The
  id of an event says how far each of the three was told.
- `Streams.ledger`: the store's feed of ends and starts (`store.watching`); the id of an event is a place in the feed.

A stream is pulled: it reads a bounded page, hands it to the connection, and reads on when that has taken it. So a slow
client costs nothing but its own delay. While nothing happens it looks again ever more rarely, and sends a comment
now and then, so that proxies and clients know that it lives.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from msgspec import Struct
from starlette.responses import Response, StreamingResponse

from holdfast.core.errors import InvalidArgumentError, StoreUnavailableError
from holdfast.core.identity import PromiseId
from holdfast.core.journal.local_ids import events_of
from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.values import ExecutionView
from holdfast.store.watching import FEED_STATUSES, Feed
from holdfast.views import ledger_shapes, reading, shapes
from holdfast.web.problems import Problem

PAGE: Final = 200
FIRST_POLL_SECONDS: Final = 0.1
LAST_POLL_SECONDS: Final = 1.0
BEAT_SECONDS: Final = 15.0
STREAMS_MAX: Final = 200
READER_STREAMS_MAX: Final = 50  # so that one reader cannot take them all
RETRY_MILLISECONDS: Final = 1_000
OVERVIEW_SECONDS: Final = 2.0

BEAT: Final = b": beat\n\n"


def event(name: str, data: object, id: str | None = None) -> bytes:
    """One event in the notation of SSE; JSON holds no line break."""
    head = "" if id is None else f"id: {id}\n"
    return f"{head}event: {name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


class EndEvent(Struct, frozen=True, kw_only=True):
    """The last event of a stream of one execution."""

    id: str
    status: Status
    successor: str | None


class Told(Struct):
    """How far an execution was told: its journal, its history, and how its row stood."""

    sequence: int = -1
    revision: int = -1
    standing: str = ""

    @classmethod
    def parse(cls, text: str | None) -> Told:
        if not text:
            return cls()
        parts = text.split("/")
        if len(parts) != 3 or len(text) > 200 or not all(_is_number(part) for part in parts[:2]):
            raise InvalidArgumentError(f"{text[:80]!r} is no id of an event of this stream")
        return cls(int(parts[0]), int(parts[1]), parts[2])

    def __str__(self) -> str:
        return f"{self.sequence}/{self.revision}/{self.standing}"


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 19


def standing_of(view: ExecutionView) -> str:
    """Changes when something of the row does that people see."""
    flags = ("p" if view.paused else "") + ("c" if view.cancel_requested else "") + ("s" if view.successor else "")
    return f"{view.revision}.{view.lease_epoch}.{view.status.value}.{flags}"


def _standing_of_all(found: ledger_shapes.Overview) -> bytes:
    """Changes when something does that people see; time alone moves the picture of what ended, once a minute."""
    minute = found.at.replace(second=0, microsecond=0)
    counts = (found.statuses, found.queues, found.workers, found.workers_expired, found.pace.buckets)
    return msgspec.json.encode((minute, counts))


def _events_of(feed: Feed, name: str | None) -> Iterator[bytes]:
    for start in feed.started:
        if name is None or start.view.name == name:
            yield event("started", shapes.summary(start.view), start.position)
    for item in feed.items:
        if name is None or item.view.name == name:
            kind = "stranded" if item.status is Status.STRANDED else "ended"
            yield event(kind, shapes.summary(item.view), item.position)


class Streams:
    """The open streams of one server; `close` ends them all."""

    def __init__(
        self,
        *,
        most: int = STREAMS_MAX,
        reader_most: int = READER_STREAMS_MAX,
        first_poll_seconds: float = FIRST_POLL_SECONDS,
        last_poll_seconds: float = LAST_POLL_SECONDS,
        beat_seconds: float = BEAT_SECONDS,
        overview_seconds: float = OVERVIEW_SECONDS,
    ) -> None:
        self._most = most
        self._reader_most = reader_most
        self._readers: Counter[str] = Counter()
        self._polls = (first_poll_seconds, last_poll_seconds)
        self._beat_seconds = beat_seconds
        self._closing = asyncio.Event()
        self._overview_seconds = overview_seconds
        self._overview_at = float("-inf")
        self._overview: tuple[bytes, bytes] = (b"", b"")
        self.open = 0

    def close(self) -> None:
        self._closing.set()

    # ------------------------------------------------------------------ one execution

    async def execution(
        self, store: Store, promise: bytes, after: str | None, *, reader: str = ""
    ) -> AsyncGenerator[bytes, None]:
        told = Told.parse(after)
        idle = _Idle(self)
        with self._counted(reader):
            yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
            while not self._closing.is_set():
                view = await store.get(promise)
                if view is None:
                    yield event("gone", {})
                    return
                moved = False
                async for text in self._news(store, view, told):
                    moved = True
                    yield text
                if view.status.is_terminal and _is_all_told(view, told):
                    successor = None if view.successor is None else str(PromiseId.from_bytes(view.successor))
                    end = EndEvent(id=str(shapes.id_of(view)), status=view.status, successor=successor)
                    yield event("end", end, str(told))
                    return
                if moved:
                    idle.reset()
                elif await idle.wait():
                    yield BEAT

    async def _news(self, store: Store, view: ExecutionView, told: Told) -> AsyncIterator[bytes]:
        """What was not told yet, at most about a page of each."""
        if view.journal_length > told.sequence + 1:
            own = str(shapes.id_of(view))
            for segment in await store.journal_since(view.promise, told.sequence + 1):
                for found in events_of(own, segment):
                    if found.sequence > told.sequence:
                        told.sequence = found.sequence
                        yield event("journal", found, str(told))
        if view.kind == "machine" and view.revision > told.revision:
            for line in await store.history_since(view.promise, told.revision):
                told.revision = line.revision
                yield event("transition", shapes.transition(line), str(told))
        if standing_of(view) != told.standing and view.journal_length <= told.sequence + 1:
            told.standing = standing_of(view)
            yield event("status", shapes.summary(view), str(told))

    # ------------------------------------------------------------------ the whole ledger

    async def ledger(
        self,
        store: Store,
        after: str | None,
        *,
        statuses: Sequence[Status] = (),
        name: str | None = None,
        starts: bool = False,
        with_overview: bool = False,
        reader: str = "",
    ) -> AsyncGenerator[bytes, None]:
        wanted = tuple(status for status in FEED_STATUSES if not statuses or status in statuses)
        feed = await store.ends(after, 0, (), starts=starts)
        idle = _Idle(self)
        shown = b""
        with self._counted(reader):
            if not feed.is_settled:
                yield BEAT  # the client is answered; where starts begin is known once open transactions are over
            while not feed.is_settled:
                if self._closing.is_set():
                    return
                if await idle.wait():
                    yield BEAT
                feed = await store.ends(feed.position, 0, (), starts=starts)
            position = feed.position
            idle.reset()
            # The place is told at once: who loses the connection before the first event goes on from here.
            yield f"retry: {RETRY_MILLISECONDS}\nid: {position}\nevent: ready\ndata: {{}}\n\n".encode()
            while not self._closing.is_set():
                feed = await store.ends(position, PAGE, wanted, starts=starts)
                for text in _events_of(feed, name):
                    yield text
                moved, position = feed.position != position, feed.position
                if with_overview:
                    standing, found = await self._current_overview(store)
                    if standing != shown:
                        shown = standing
                        yield b"event: overview\ndata: " + found + b"\n\n"
                if moved:
                    idle.reset()
                elif await idle.wait():
                    yield BEAT

    async def _current_overview(self, store: Store) -> tuple[bytes, bytes]:
        """What it says apart from the time, and all of it; read at most every other second, whoever watches."""
        now = asyncio.get_running_loop().time()
        if now - self._overview_at >= self._overview_seconds:
            self._overview_at = now
            found = await reading.overview(store)
            self._overview = (_standing_of_all(found), msgspec.json.encode(found))
        return self._overview

    # ------------------------------------------------------------------ waiting

    @contextmanager
    def _counted(self, reader: str) -> Any:
        if self._readers[reader] >= self._reader_most:
            raise Problem(
                429, "too-many", f"you have {self._reader_most} open streams already; close one, then try again"
            )
        if self.open >= self._most:
            raise Problem(503, "unavailable", f"there are {self._most} open streams already; try again later")
        self.open += 1
        self._readers[reader] += 1
        try:
            yield
        finally:
            self.open -= 1
            self._readers[reader] -= 1
            if not self._readers[reader]:
                del self._readers[reader]

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            pass


class _Idle:
    """Waits ever longer while nothing happens, and says when a sign of life is due."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._quiet_seconds = 0.0
        self.reset()

    def reset(self) -> None:
        self._next, self._quiet_seconds = self._streams._polls[0], 0.0

    async def wait(self) -> bool:
        delay = self._next
        self._next = min(self._streams._polls[1], delay * 2)
        await self._streams._sleep(delay)
        self._quiet_seconds += delay
        if self._quiet_seconds < self._streams._beat_seconds:
            return False
        self._quiet_seconds = 0.0
        return True


def is_finished(view: ExecutionView, after: str | None) -> bool:
    """Whether a client that comes again has had everything."""
    return view.status.is_terminal and _is_all_told(view, Told.parse(after))


def _is_all_told(view: ExecutionView, told: Told) -> bool:
    return told.standing == standing_of(view) and view.journal_length <= told.sequence + 1


async def stream_response(events: AsyncGenerator[bytes, None]) -> Response:
    """The first event is awaited here, so that an error before it is answered as one."""
    first = await anext(events)

    async def all_events() -> AsyncIterator[bytes]:
        try:
            yield first
            async for text in events:
                yield text
        except StoreUnavailableError:
            return  # the client comes again, with the id of what it had last
        finally:
            await events.aclose()

    return StreamingResponse(
        all_events(), media_type="text/event-stream", headers={"cache-control": "no-store", "x-accel-buffering": "no"}
    )
