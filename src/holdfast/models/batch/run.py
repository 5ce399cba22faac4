"""A started run, as its starter and its operators hold it: counters, committed items in order, failures."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from holdfast.core.codec import fingerprint
from holdfast.core.durations import Duration
from holdfast.core.errors import HoldfastError, InvalidArgumentError, StoreUnavailableError
from holdfast.core.identity import IdQuery, PromiseId
from holdfast.core.status import Status
from holdfast.models.batch.definition import KIND, BatchResult
from holdfast.models.batch.items import BatchItem, items_of
from holdfast.models.batch.spec import BatchSpec, write_spec
from holdfast.models.batch.status import BatchStatus, HeatCell, find_head, heat_of, rate_of, status_of
from holdfast.models.connection import Connection
from holdfast.models.handle import Handle
from holdfast.store.base import Store, handler_of
from holdfast.store.batches import TakeIn
from holdfast.store.values import ExecutionView, NewExecution

if TYPE_CHECKING:
    from holdfast.models.batch.definition import Batch
    from holdfast.models.batch.feeding import Feeder

R = TypeVar("R", covariant=True)

log = logging.getLogger("holdfast.batch")

LOOK_SECONDS: Final = 0.02
LOOK_MOST_SECONDS: Final = 0.5
CHUNKS_A_READ: Final = 8
RETRY_KEY: Final = "retry-failed"


class BatchRun(Generic[R]):
    """Made by `start`, or by `app.batch_run` from an id, a prefix of one, or a key."""

    def __init__(
        self,
        connection: Connection,
        target: PromiseId | IdQuery,
        *,
        name: str = "",
        result: object = Any,
        batch: Batch[Any, R] | None = None,
    ) -> None:
        self._connection = connection
        self.handle: Handle[BatchResult] = Handle(connection, target, name=name, result=BatchResult)
        self._value_type = result
        self._batch = batch
        self._feeding: asyncio.Task[None] | None = None
        self._feeder: Feeder | None = None
        self._last_look: tuple[float, int] | None = None

    @property
    def id(self) -> PromiseId:
        return self.handle.id

    @property
    def label(self) -> str:
        return self.handle.label

    def __repr__(self) -> str:
        return f"<BatchRun {self.handle!r}>"

    # ------------------------------------------------------------------ looking

    async def describe(self) -> ExecutionView:
        """Everything the ledger says of the run's own row."""
        view = await self.handle.describe()
        if view.kind != KIND:
            raise InvalidArgumentError(f"{self.label} is a {view.kind}, not a run of a batch; use app.handle")
        return view

    async def status(self) -> BatchStatus:
        """Counters, rate, time left, and what the head of the lane waits for.

        The rate is of the time since the last look through this object; at the first one, of the whole run.
        """
        row = await self.describe()
        store = await self._connection.store()
        view = await store.batch_status(row.promise)
        head = None if row.status in (Status.DONE, Status.CANCELLED) else await find_head(store, row, view)
        return status_of(row, view, head, self._rate(row, view.counters.ended if view else 0, rate_of(row, view)))

    def _rate(self, row: ExecutionView, ended: int, whole: float) -> float:
        now = asyncio.get_running_loop().time()
        before, self._last_look = self._last_look, (now, ended)
        if before is None or row.status.is_terminal or now - before[0] < 0.05:
            return whole
        return (ended - before[1]) / (now - before[0])

    async def heat(self, cells: int = 200) -> list[HeatCell]:
        """The run as at most so many stretches of items: how many of each have ended, failed, are committed."""
        row = await self.describe()
        store = await self._connection.store()
        view = await store.batch_status(row.promise)
        return await heat_of(store, row.promise, 0 if view is None else view.head, cells)

    async def committed(self, start: int = 0) -> AsyncIterator[BatchItem[R]]:
        """The committed items from the seq `start` on, in order, each once, as they are committed; until the run ends.

        Resumable: begin again with the seq after the last one that was seen. A run that has failed, or is stranded,
        commits no more of them: after the last one the error is raised, as by `result`.
        """
        if start < 0:
            raise InvalidArgumentError(f"seqs are counted from 0, not from {start}")
        promise = (await self.handle.resolve()).to_bytes()
        await self.describe()
        at, pause = start, LOOK_SECONDS
        while True:
            store = await self._connection.store()
            row = await self.describe()  # before the head: what ends in between has committed everything
            view = await store.batch_status(promise)
            head = 0 if view is None else view.head
            while at < head:
                found = await store.batch_chunks(promise, at, CHUNKS_A_READ, "whole")
                if not found:
                    break  # its retention is over: the next look says so
                for chunk in found:
                    for item in items_of(chunk, at, head, self._value_type):
                        yield item
                    at = max(at, min(head, chunk.stop))
                pause = LOOK_SECONDS
            if at < head:
                continue
            if row.status in (Status.FAILED, Status.STRANDED):
                await self.handle.result()  # raises; should it have been resumed meanwhile, waits for the rest
                continue
            if row.status.is_terminal:
                self._raise_if_feeding_failed()
                return
            self._raise_if_feeding_failed()
            await asyncio.sleep(pause)
            pause = min(LOOK_MOST_SECONDS, pause * 1.5)

    async def failed(self, after: int = -1, limit: int = 100) -> list[BatchItem[R]]:
        """Up to `limit` failed items with seqs above `after`, in order: pass the last seq on for the next page."""
        promise = (await self.describe()).promise
        store = await self._connection.store()
        found: list[BatchItem[R]] = []
        at = after + 1
        while len(found) < limit:
            chunks = await store.batch_chunks(promise, at, CHUNKS_A_READ, "failed")
            chunks = [chunk for chunk in chunks if chunk.stop > at]
            if not chunks:
                break
            for chunk in chunks:
                found += [item for item in items_of(chunk, at, chunk.stop, self._value_type) if item.outcome == "fail"]
                at = chunk.stop
        return found[:limit]

    # ------------------------------------------------------------------ results and control

    async def result(self, *, timeout: Duration | None = None) -> BatchResult:
        """Wait until the run has ended: how many items ended how. Failed items do not fail it."""
        feeding = self._feeding
        waiting = asyncio.ensure_future(self.handle.result(timeout=timeout))
        try:
            if feeding is not None:
                await asyncio.wait([feeding, waiting], return_when=asyncio.FIRST_COMPLETED)
                if feeding.done() and not waiting.done():
                    self._raise_if_feeding_failed()
            return await waiting
        finally:
            waiting.cancel()

    async def cancel(self, *, reason: str | None = None, force: bool = False) -> Status:
        """Nothing more is dispatched; what runs has its grace; every item ends, and is committed.

        `force` ends it as it stands: for a run whose code is gone, or that was moved.
        """
        return await self.handle.cancel(reason=reason, force=force)

    async def pause(self) -> None:
        """Take in, dispatch and commit nothing until `resume`; a chunk that is being worked on is finished first."""
        await self.handle.pause()

    async def resume(self) -> None:
        """Let a paused or stranded run go on, its chunks as well."""
        await self.handle.resume()

    async def close_intake(self) -> int:
        """Take in nothing more, though the source had not ended; how many items there are."""
        store = await self._connection.store()
        promise = (await self.describe()).promise
        self._stop_feeding()
        while True:
            view = await store.batch_status(promise)
            taken = 0 if view is None else view.taken
            if view is not None and view.closed:
                return taken
            fed = await store.feed_batch(promise, taken, TakeIn(closes=True))
            if fed.accepted:
                return taken
            if fed.view is None or fed.view.taken == taken:
                raise InvalidArgumentError(f"{self.label} has ended, and takes in nothing anyway")

    async def retry_failed(self) -> BatchRun[R]:
        """Run over the failed items again, as another run that names this one (ruling D11); the same one each time."""
        row = await self.describe()
        if not row.status.is_terminal:
            raise InvalidArgumentError(f"{self.label} has not ended; its failed items are tried again when it has")
        store = await self._connection.store()
        promise = PromiseId.of(row.name, f"{RETRY_KEY}:{self.id}")
        await store.insert([retry_row(row, promise, str(self.id))])
        return BatchRun(self._connection, promise, name=row.name, result=self._value_type, batch=self._batch)

    # ------------------------------------------------------------------ feeding

    def feed_in_background(self, feeder: Feeder) -> None:
        self._feeder = feeder
        self._feeding = asyncio.get_running_loop().create_task(self._feed(feeder))
        self._feeding.add_done_callback(_log_failure)

    async def _feed(self, feeder: Feeder) -> None:
        store: Store = await self._connection.store()
        try:
            await feeder.feed(store, self.id.to_bytes(), self.label, until_full=False)
        finally:
            feeder.close()

    async def fed(self) -> None:
        """Wait until everything of the source is taken in, or its intake is closed; raises what reading it raised."""
        if self._feeding is not None:
            await asyncio.wait([self._feeding])
            self._raise_if_feeding_failed()

    def _raise_if_feeding_failed(self) -> None:
        feeding = self._feeding
        if feeding is not None and feeding.done() and not feeding.cancelled():
            feeding.result()

    def _stop_feeding(self) -> None:
        if self._feeding is not None:
            self._feeding.cancel()


def _log_failure(task: asyncio.Task[None]) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        error = task.exception()
        if error is not None and not isinstance(error, StoreUnavailableError):
            # What is wrong with the source is told by the error; where it was raised matters for other people's code.
            trace = None if isinstance(error, HoldfastError) else error
            log.error(
                "the intake of a batch stopped (%s); start it again with the same key to go on", error, exc_info=trace
            )


def retry_row(row: ExecutionView, promise: PromiseId, run: str) -> NewExecution:
    """The row of a run over another one's failed items."""
    text = write_spec(BatchSpec(source="failed", run=run))
    return NewExecution(
        promise=promise.to_bytes(),
        kind=KIND,
        name=row.name,
        version=row.version,
        handler=handler_of(KIND, row.name, row.version),
        step="",
        state=text,
        input_hash=fingerprint(text),
        queue=row.queue,
        priority=row.priority,
        attributes=msgspec.json.encode({"retry_of": run}).decode(),
        idempotency_key=f"{RETRY_KEY}:{run}",
        cleans_up=True,
    )
