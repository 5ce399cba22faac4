"""Sources that the workers read themselves, with durable progress: items in the row, a file, another run's failures.

`read` gives the next chunks and where it goes on; the commit that takes them in writes down both.
"""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import Raw

from holdfast.core.errors import DecodeError, EncodeError, NotFoundError, PayloadError
from holdfast.core.identity import PromiseId
from holdfast.models.batch.definition import Batch
from holdfast.models.batch.items import kept_inputs
from holdfast.models.batch.spec import CHUNK_BYTES, JSON_SUFFIXES, BatchSpec, chunk_items
from holdfast.store.base import Store
from holdfast.store.batches import NewChunk, bytes_of

READ_BYTES: Final = 8 * 1024 * 1024  # at a time, of items of whatever size


class Intake(NamedTuple):
    chunks: list[NewChunk]
    progress: str
    is_end: bool


class OwnSource(Protocol):
    async def read(self, first: int, progress: str | None, limit: int) -> Intake:
        """About `limit` items from where `progress` says, the first of which gets the seq `first`."""


def source_of(batch: Batch[Any, Any], spec: BatchSpec, store: Store) -> OwnSource | None:
    """None: it is fed from outside."""
    if spec.source == "feed":
        return None
    if spec.source == "file":
        return _FileSource(batch, spec)
    if spec.source == "failed":
        return _FailedSource(batch, spec, store)
    return _ItemsSource(batch, spec)


def cut(texts: list[str], first: int, most: int) -> list[NewChunk]:
    """Encoded items as chunks."""
    chunks: list[NewChunk] = []
    at = 0
    while at < len(texts):
        want, size = chunk_items(first + at, most), 0
        stop = at
        while stop < len(texts) and stop - at < want:
            size += bytes_of(texts[stop]) + 1
            if stop > at and size > CHUNK_BYTES:
                break
            stop += 1
        chunks.append(NewChunk(first + at, stop - at, f"[{','.join(texts[at:stop])}]"))
        at = stop
    return chunks


class _ItemsSource:
    def __init__(self, batch: Batch[Any, Any], spec: BatchSpec) -> None:
        self._batch = batch
        self._items = spec.items

    async def read(self, first: int, progress: str | None, limit: int) -> Intake:
        try:
            raws = msgspec.json.decode(self._items, type=list[Raw])
        except msgspec.MsgspecError as error:
            raise DecodeError(
                f"the items that {self._batch.name} was started with are no list ({error}); cancel this run, and start "
                "one with a list"
            ) from error
        stop = min(len(raws), first + limit)
        texts = [bytes(raw).decode() for raw in raws[first:stop]]
        return Intake(cut(texts, first, self._batch.chunk), str(stop), stop == len(raws))


class _FileSource:
    """Progress is the offset in bytes; a line number is counted for messages alone."""

    def __init__(self, batch: Batch[Any, Any], spec: BatchSpec) -> None:
        self._batch = batch
        self._path = Path(spec.path)
        self._is_json = spec.is_json

    async def read(self, first: int, progress: str | None, limit: int) -> Intake:
        offset, number = map(int, (progress or "0:0").split(":"))
        try:
            longest = 2 * self._batch.payload_limit  # JSON may have spaces
            lines, offset, is_end = await asyncio.to_thread(_read_lines, self._path, offset, limit, longest)
        except OSError as error:
            raise NotFoundError(
                f"the input {self._path} cannot be read here ({error}); put it where every worker finds it"
            ) from error
        texts = []
        for line in lines:
            number += 1
            if len(line) > longest:
                raise EncodeError(
                    f"line {number} of {self._path} is longer than {longest} bytes, which no item may be. Mend the "
                    "file, then go on"
                )
            if line:
                texts.append(self._encode(line, number))
        return Intake(cut(texts, first, self._batch.chunk), f"{offset}:{number}", is_end)

    def _encode(self, line: bytes, number: int) -> str:
        where = f"line {number} of {self._path}"
        return encode_line(self._batch, line, where, is_json=self._is_json)


def encode_line(batch: Batch[Any, Any], line: bytes, where: str, *, is_json: bool) -> str:
    """A line of a file as an item of this batch; `PayloadError` names the line that is none."""
    try:
        text = line.decode()
        value = batch.codec.decode(text if is_json else msgspec.json.encode(text))
        return batch.codec.encode(value, max_bytes=batch.payload_limit)
    except UnicodeDecodeError as error:
        raise EncodeError(f"{where} is not UTF-8: {error}. Mend the file, then go on") from error
    except PayloadError as error:
        advice = "Mend the file, then go on" if is_json or not _is_item(batch, text) else _NAME_IT
        # What a DecodeError advises is about what was written by earlier code; the cause is what is wrong here.
        fault = error.__cause__ if isinstance(error, DecodeError) and error.__cause__ is not None else error
        raise EncodeError(f"{where} is no item of {batch.name}: {fault}. {advice}") from error


_NAME_IT: Final = (
    f"Read as JSON it is one: give a file of JSON Lines a name that ends in {' or '.join(JSON_SUFFIXES)}, and start a "
    "run over that"
)


def _is_item(batch: Batch[Any, Any], text: str) -> bool:
    try:
        batch.codec.decode(text)
    except PayloadError:
        return False
    return True


def _read_lines(path: Path, offset: int, limit: int, longest: int) -> tuple[list[bytes], int, bool]:
    """A line that is longer than that is the last one here, and not whole."""
    lines: list[bytes] = []
    with path.open("rb") as file:
        if offset == 0 and file.read(len(BOM_UTF8)) != BOM_UTF8:
            file.seek(0)
        elif offset:
            file.seek(offset)
        most = file.tell() + READ_BYTES
        while len(lines) < limit and file.tell() < most:
            line = file.readline(longest + 3)
            if not line:
                return lines, file.tell(), True
            lines.append(line.strip(b"\r\n"))
            if len(lines[-1]) > longest:
                break
        return lines, file.tell(), False


class _FailedSource:
    """Progress is the seq in the other run where it goes on."""

    def __init__(self, batch: Batch[Any, Any], spec: BatchSpec, store: Store) -> None:
        self._batch = batch
        self._run = PromiseId.parse(spec.run).to_bytes()
        self._store = store

    async def read(self, first: int, progress: str | None, limit: int) -> Intake:
        at = int(progress or "0")
        texts: list[str] = []
        size = 0
        if await self._store.batch_status(self._run) is None:
            raise NotFoundError("the run whose failed items were to be run again is gone: its retention is over")
        while len(texts) < limit and size < READ_BYTES:
            found = [chunk for chunk in await self._store.batch_chunks(self._run, at, 16, "failed") if chunk.stop > at]
            if not found:
                return Intake(cut(texts, first, self._batch.chunk), str(at), True)
            for chunk in found:
                for place, raw in sorted(kept_inputs(chunk).items()):
                    if chunk.first + place >= at:
                        texts.append(bytes(raw).decode())
                        size += bytes_of(texts[-1])
                at = chunk.stop
        return Intake(cut(texts, first, self._batch.chunk), str(at), False)
