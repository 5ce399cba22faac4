"""Starting batches: from a source and options to a run that takes it in."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, Awaitable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar, Unpack

from holdfast.core.errors import InvalidArgumentError, KeyConflictError
from holdfast.core.identity import PromiseId
from holdfast.models.batch.definition import Batch, BatchResult
from holdfast.models.batch.feeding import Feeder
from holdfast.models.batch.run import BatchRun
from holdfast.models.batch.spec import JSON_SUFFIXES, BatchSpec, write_spec
from holdfast.models.connection import Connection
from holdfast.models.options import Options, StartOptions
from holdfast.models.starting import Starting
from holdfast.models.workflow.callee import session_of_call
from holdfast.models.workflow.promise import CallPromise
from holdfast.models.workflow.start import CallWithOptions
from holdfast.store.values import Inserted

T = TypeVar("T")
R = TypeVar("R", covariant=True)


class BatchStarter(Starting, Generic[T, R]):
    """`resize.options(...)`: the same batch with other options, to start it or to call it in a workflow."""

    begins_calls = True  # see `is_callee`

    def __init__(self, connection: Connection, batch: Batch[T, R], options: Options) -> None:
        super().__init__(connection, batch.name, options)
        self._batch = batch

    def options(self, **options: Unpack[StartOptions]) -> BatchStarter[T, R]:
        return BatchStarter(self._connection, self._batch, self._options.updated(**options))

    def __call__(self, items: Sequence[T]) -> Awaitable[BatchResult]:
        """In a workflow's body: run over these items as a child with these options."""
        session = session_of_call(self._name)
        text = self._batch.encode_items(items)
        callee = CallWithOptions(self._batch, self._options, text)
        return CallPromise(session, session.invoke(callee, text), callee)

    async def start(self, source: Iterable[T] | AsyncIterable[T] | os.PathLike[str]) -> BatchRun[R]:
        """Start a run. A path is a file of lines (.jsonl and .ndjson: of JSON) that the workers read by themselves.

        Anything else is read here: a source that fits into the window is in the ledger when this returns, of a longer
        one the rest follows in the background (`run.fed()` waits for it). The same key over the same source goes on
        where an earlier start stopped.
        """
        if self._options.connection is not None:
            raise InvalidArgumentError(f"{self._name} takes in its items in commits of its own: start it without one")
        if isinstance(source, os.PathLike):
            return await self._start_file(await asyncio.to_thread(self._find_file, source))
        if isinstance(source, str | bytes | Mapping) or not isinstance(source, Iterable | AsyncIterable):
            raise InvalidArgumentError(
                f"{self._name} runs over an iterable of items, or a pathlib.Path of a file, not {source!r:.100}"
            )
        return await self._start_fed(source)

    def _find_file(self, source: os.PathLike[str]) -> Path:
        path = Path(source).expanduser().absolute()
        if not path.is_file():
            raise InvalidArgumentError(f"there is no file {path} for {self._name} to read")
        return path

    async def _start_file(self, path: Path) -> BatchRun[R]:
        spec = BatchSpec(source="file", path=str(path), is_json=path.suffix in JSON_SUFFIXES)
        text = write_spec(spec)
        promise, key = self._promise_for(str(path))
        (inserted,) = await self._insert([self._batch.row(promise, text, self._options_for(str(path)), key)])
        return await self._started(inserted)

    async def _start_fed(self, source: Iterable[T] | AsyncIterable[T]) -> BatchRun[R]:
        promise, key = self._promise_for(source)
        feeder = Feeder(self._batch, source)
        taken = await feeder.first()
        row = self._batch.row(promise, write_spec(BatchSpec(source="feed")), self._options_for(source), key)
        store = await self._connection.store()
        inserted = await store.start_batch(row, taken)
        run = await self._started(inserted)
        feeder.view = await store.batch_status(inserted.promise)
        if not inserted.created:
            feeder.rewind()
            if feeder.view is not None:
                await feeder.catch_up(feeder.view, run.label)
        if not feeder.is_done and not feeder.is_live:
            await feeder.feed(store, inserted.promise, run.label, until_full=True)
        if not feeder.is_done:
            run.feed_in_background(feeder)
        return run

    async def _started(self, inserted: Inserted) -> BatchRun[R]:
        promise = PromiseId.from_bytes(inserted.promise)
        run: BatchRun[R] = BatchRun(
            self._connection, promise, name=self._name, result=self._batch.result.annotation, batch=self._batch
        )
        if inserted.collided:
            raise await self._occupied(inserted.promise)
        if inserted.key_conflict:
            raise KeyConflictError(
                f"{run.label} was started before with the same key and another kind of source. "
                "One key means one run: use a key that names this input"
            )
        return run
