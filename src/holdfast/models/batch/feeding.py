"""Feeding a run from an iterable of the starter's: in windows, with back-pressure and durable progress.

What was taken in is in the ledger, with a digest over all of it. Whoever starts the same key over the same source again
goes on where the last one stopped: what is there already is read, compared and passed over.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from holdfast.core.errors import KeyConflictError, PayloadError, StoreUnavailableError
from holdfast.engine.service import Backoff
from holdfast.models.batch.definition import Batch
from holdfast.models.batch.spec import CHUNK_BYTES, chunk_items
from holdfast.store.base import Store
from holdfast.store.batches import BatchView, Fed, NewChunk, TakeIn, bytes_of

FEED_CHUNKS: Final = 16
FEED_BYTES: Final = 1024 * 1024
FIRST_READ: Final = 64  # items, before it is known how large they are
MOST_READ: Final = 16_000
LOOK_SECONDS: Final = 0.02
LOOK_MOST_SECONDS: Final = 0.5


class Reader:
    """Groups of up to `limit` items from any iterable; an empty one is the end."""

    def __init__(self, source: Iterable[Any] | AsyncIterable[Any]) -> None:
        self._items: Iterator[Any] | None = iter(source) if isinstance(source, Iterable) else None
        self._source = source
        self._buffer: deque[Any] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._has = asyncio.Event()
        self._wants = asyncio.Event()
        self._most = FIRST_READ

    @property
    def is_live(self) -> bool:
        """An async iterable may make its items as time passes: what is there goes on its way at once."""
        return self._items is None

    def expect(self, item_bytes: float) -> None:
        """Items are about so large: no more of them are held in memory than a feed of them takes."""
        self._most = max(1, min(MOST_READ, int(FEED_BYTES / max(1.0, item_bytes))))

    def give_back(self, items: list[Any]) -> None:
        self._buffer.extendleft(reversed(items))

    async def read(self, limit: int) -> list[Any]:
        limit = min(limit, self._most)
        if self._items is not None:
            group = [self._buffer.popleft() for _ in range(min(limit, len(self._buffer)))]
            group.extend(islice(self._items, limit - len(group)))
            return group
        if self._pump is None:
            self._pump = asyncio.get_running_loop().create_task(self._run_pump())
        while not self._buffer and not self._pump.done():
            self._has.clear()
            await self._has.wait()
        group = [self._buffer.popleft() for _ in range(min(limit, len(self._buffer)))]
        self._wants.set()
        if not group:
            self._pump.result()  # what the source raised
        return group

    async def _run_pump(self) -> None:
        assert not isinstance(self._source, Iterable)
        try:
            async for item in self._source:
                self._buffer.append(item)
                self._has.set()
                if len(self._buffer) >= self._most:
                    self._wants.clear()
                    await self._wants.wait()
        finally:
            self._has.set()

    def close(self) -> None:
        if self._pump is not None:
            self._pump.cancel()


class Feeder:
    """Takes one source into one run."""

    def __init__(self, batch: Batch[Any, Any], source: Iterable[Any] | AsyncIterable[Any]) -> None:
        self._batch = batch
        self._reader = Reader(source)
        self._hash = hashlib.sha256()
        self._seq = 0  # of the next item that is read
        self._sent: list[Any] = []  # the items of the last feed, should it have to be read again
        self._begin = (0, self._hash.copy())
        self.expected = _length(source)
        self.is_done = False
        self.view: BatchView | None = None

    @property
    def is_live(self) -> bool:
        return self._reader.is_live

    def close(self) -> None:
        self._reader.close()

    # ------------------------------------------------------------------ reading

    async def first(self) -> TakeIn:
        """What a run is started with."""
        if self.is_live:
            return TakeIn(expected=self.expected)
        return await self._collect()

    async def _collect(self) -> TakeIn:
        chunks: list[NewChunk] = []
        size = 0
        self._sent = []
        self._begin = (self._seq, self._hash.copy())
        head = self._seq if self.view is None else self.view.head
        while len(chunks) < FEED_CHUNKS and size < min(FEED_BYTES, self._batch.window_bytes):
            room = head + self._batch.window - self._seq
            if room <= 0:
                break
            chunk = await self._chunk(min(room, chunk_items(self._seq, self._batch.chunk)))
            if chunk is None:
                self.is_done = True
                break
            chunks.append(chunk)
            size += chunk.size
            if self.is_live:
                break
        digest = self._hash.hexdigest()
        return TakeIn(chunks=tuple(chunks), closes=self.is_done, digest=digest, expected=self.expected)

    async def _chunk(self, limit: int) -> NewChunk | None:
        items = await self._reader.read(limit)
        if not items:
            return None
        while True:
            text = self._encode(items)
            size = bytes_of(text)
            if size <= CHUNK_BYTES or len(items) == 1:
                break
            half = len(items) // 2
            self._reader.give_back(items[half:])
            items = items[:half]
        self._reader.expect(size / len(items))
        self._sent += items
        self._hash.update(text[1:-1].encode())
        self._hash.update(b",")
        chunk = NewChunk(self._seq, len(items), text)
        self._seq += len(items)
        return chunk

    def _encode(self, items: list[Any]) -> str:
        batch = self._batch
        try:
            text = batch.list_codec.encode(items, max_bytes=None)
        except PayloadError:
            for place, item in enumerate(items):
                self._encode_one(item, self._seq + place)
            raise
        if len(items) == 1:
            self._encode_one(items[0], self._seq)  # alone it may be over the limit of a payload
        return text

    def _encode_one(self, item: Any, seq: int) -> None:
        try:
            self._batch.codec.encode(item, max_bytes=self._batch.payload_limit)
        except PayloadError as error:
            raise type(error)(f"item {seq} of {self._batch.name} cannot be taken in: {error}") from error

    # ------------------------------------------------------------------ a run that was there before

    def rewind(self) -> None:
        """To before the last feed, which the run has not taken, or not as it was."""
        self._reader.give_back(self._sent)
        self._sent = []
        self._seq, self._hash = self._begin
        self.is_done = False

    async def catch_up(self, view: BatchView, label: str) -> None:
        """Pass over what the run has; `KeyConflictError` where it has something else."""
        while self._seq < view.taken:
            self._sent = []
            if await self._chunk(min(chunk_items(self._seq, self._batch.chunk), view.taken - self._seq)) is None:
                raise self._conflict(label, f"has {view.taken} items, this source {self._seq}")
        if self._seq == view.taken and view.digest is not None and view.digest != self._hash.hexdigest():
            raise self._conflict(label, f"has other items among its first {view.taken}")
        if view.closed:
            if not view.latched and await self._reader.read(1):
                raise self._conflict(label, f"ended after {view.taken} items, and this source goes on")
            self.is_done = True
        self.view = view

    def _conflict(self, label: str, what: str) -> KeyConflictError:
        return KeyConflictError(
            f"{label} was started before with the same key and {what}. One key means one run: use a key that names "
            "this input, or give it the source it began with"
        )

    # ------------------------------------------------------------------ feeding

    async def feed(self, store: Store, promise: bytes, label: str, *, until_full: bool) -> None:
        """Take in until the source ends; with `until_full` only until the window is full."""
        while not self.is_done:
            if self._is_full():
                if until_full:
                    return
                await self._wait_for_room(store, promise)
                continue
            begin = self._seq
            taken = await self._collect()
            if not taken.chunks and not taken.closes:
                continue
            fed = await self._send(store, promise, begin, taken)
            view = fed.view
            if fed.accepted:
                self.view = view
            elif view is None or view.closed or view.latched or view.has_ended:
                self.is_done = True  # all of it arrived, it was cancelled or failed, or somebody closed its intake
            else:
                # The reply of this very feed was lost, or another process feeds the same run.
                self.rewind()
                if view.taken < begin:
                    raise self._conflict(label, f"has {view.taken} items, of {begin} that were fed")
                await self.catch_up(view, label)

    async def _send(self, store: Store, promise: bytes, begin: int, taken: TakeIn) -> Fed:
        backoff = Backoff()
        while True:
            try:
                return await store.feed_batch(promise, begin, taken)
            except StoreUnavailableError:
                # Should it have been applied, the next try finds the seq moved, and says so.
                await asyncio.sleep(backoff.take())

    def _is_full(self) -> bool:
        view = self.view
        if view is None:
            return False
        return view.taken - view.head >= self._batch.window or view.open_bytes >= self._batch.window_bytes

    async def _wait_for_room(self, store: Store, promise: bytes) -> None:
        """Until half of the window is free again (hysteresis)."""
        pause = LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = min(LOOK_MOST_SECONDS, pause * 1.5)
            try:
                self.view = view = await store.batch_status(promise)
            except StoreUnavailableError:
                continue
            if view is None or view.latched or view.has_ended:
                self.is_done = True  # no room comes any more
                return
            few = view.taken - view.head <= self._batch.window // 2
            if few and view.open_bytes <= self._batch.window_bytes // 2:
                return


def _length(source: object) -> int | None:
    try:
        return len(source)  # type: ignore[arg-type]
    except TypeError:
        return None
