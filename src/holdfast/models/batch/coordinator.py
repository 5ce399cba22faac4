"""Works on a run's own row: takes items in, dispatches chunks, and commits what has ended, strictly in order.

The row is leased for moments: when it was started or fed, when a chunk has moved or ended, when a cancel was requested.
In between it is parked, and nothing is lost: all it knows is in the store. One commit holds what a look has come to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any, Final

import msgspec

from holdfast.core.codec import encode_error
from holdfast.core.errors import HoldfastError, LedgerError, NotFoundError, PayloadError, StoreError
from holdfast.core.identity import PromiseId
from holdfast.core.retry import GiveUp, RetryPolicy
from holdfast.core.status import Status
from holdfast.engine.lifespan import Resources
from holdfast.engine.runner import Engine
from holdfast.models.batch.chunk_items import ChunkState
from holdfast.models.batch.definition import CHUNK_KIND, KIND, Batch, BatchRegistry, BatchResult
from holdfast.models.batch.orphans import close_items, end_stranded, ended_chunks
from holdfast.models.batch.packing import cancelled
from holdfast.models.batch.sinks import SINK_ITEMS, call_sink, read_run, sink_work
from holdfast.models.batch.sources import source_of
from holdfast.models.batch.spec import read_spec
from holdfast.models.workflow.transaction import WrongStoreError
from holdfast.store.batches import (
    INTAKE,
    BatchView,
    CommitItems,
    Counters,
    DispatchChunks,
    MarkItems,
    TakeIn,
)
from holdfast.store.effects import AdvanceExecution, ConsumeSignals, Effect, SpawnExecutions, strand
from holdfast.store.values import ExecutionClaim, NewExecution, Receipt

CHUNKS_A_COMMIT: Final = 64
READ_ITEMS: Final = 10_000
LANE_CHUNKS: Final = 500
SINK_RETRY: Final = RetryPolicy()
log = logging.getLogger("holdfast.batch")


class RunRunner:
    """Implements `engine.runner.Runner` for the runs of every batch of one app."""

    kind = KIND

    def __init__(self, registry: BatchRegistry) -> None:
        self._registry = registry

    @property
    def handlers(self) -> Collection[int]:
        return self._registry.by_handler.keys()

    def check(self, resources: Resources) -> None:
        """What items need is checked with the chunks."""

    def close(self) -> None:
        """Nothing is kept between two runs."""

    async def run(self, claim: ExecutionClaim, engine: Engine) -> None:
        await _Coordinator(self._registry.by_handler[claim.handler], claim, engine).go()


class _SinkFailed(Exception):  # noqa: N818
    def __init__(self, error: Exception) -> None:
        self.error = error


class _Coordinator:
    """One claim of a run's row."""

    def __init__(self, batch: Batch[Any, Any], claim: ExecutionClaim, engine: Engine) -> None:
        self._batch = batch
        self._claim = claim
        self._engine = engine
        self._store = engine.store
        self._promise = claim.promise
        self._id = PromiseId.from_bytes(claim.promise)
        self._read: tuple[int, ...] = tuple(signal.id for signal in claim.inbox)
        self._orphans = [first for first, _ in ended_chunks(claim, Status.CANCELLED)]
        self._source = source_of(batch, read_spec(claim.state), engine.store)

    async def go(self) -> None:
        try:
            if (broken := self._broken_chunk()) is not None:
                await self._hard_fail(broken)
                return
            while await self._look():
                pass
        except _SinkFailed as failed:
            await self._after_sink_failed(failed.error)
        except LedgerError as error:
            await self._hard_fail(encode_error(error, kind="internal"))
        except (PayloadError, NotFoundError) as error:
            # The source cannot be read as it is: loud, and it goes on where it stopped once that is mended.
            await self._strand(error)

    async def _look(self) -> bool:
        """One look at the run, and the commit of what it has come to. False: the row was released."""
        view = await self._store.batch_status(self._promise)
        effects: list[Effect] = []
        is_cancelling = self._claim.cancel_requested and not _is_over(view)
        is_closed = view is not None and view.closed
        if is_cancelling:
            more = await self._cancel(view, effects)
        else:
            more = await self._intake_and_dispatch(view, effects)
            is_closed |= any(isinstance(effect, TakeIn) and effect.closes for effect in effects)
        for first in self._orphans:
            if (closing := await close_items(self._store, self._promise, first)) is not None:
                effects.append(closing)
                more = True
        if view is not None:
            ready = await self._ready(view.head)
            if ready > view.head and self._batch.sink is not None:
                stop = min(ready, view.head + SINK_ITEMS)
                return await self._commit_to_sink(view, stop, effects)
            if ready > view.head:
                effects.append(CommitItems(view.head, ready))
                view = msgspec.structs.replace(view, head=ready)
                more |= self._source is not None and not is_closed  # there may be room for more of the source
        if is_closed and not effects_add_items(effects) and (view is None or view.head == view.taken):
            await self._end(effects, is_cancelling)
            return False
        if more:
            receipt = await self._commit(AdvanceExecution(status=Status.EXECUTING), effects)
            return receipt.status is Status.EXECUTING
        parked = AdvanceExecution(status=Status.AWAITING_PROMISE, awaits=(INTAKE,), wait_children=1)
        await self._commit(parked, effects)
        return False

    async def _commit(self, advance: AdvanceExecution, effects: list[Effect]) -> Receipt:
        consumed = [ConsumeSignals(self._read)] if self._read else []
        receipt = await self._engine.commit(self._claim, advance, *consumed, *effects)
        if receipt.applied:
            self._read, self._orphans = (), []
        return receipt

    # ------------------------------------------------------------------ intake and dispatch

    async def _intake_and_dispatch(self, view: BatchView | None, effects: list[Effect]) -> bool:
        """Whether there is more to do at once."""
        more = False
        firsts: list[tuple[int, int]] = []
        if self._source is not None and (view is None or not view.closed) and self._has_room(view):
            taken = 0 if view is None else view.taken
            limit = min(READ_ITEMS, self._batch.window - (0 if view is None else view.taken - view.head))
            intake = await self._source.read(taken, None if view is None else view.progress, limit)
            effects.append(TakeIn(chunks=tuple(intake.chunks), progress=intake.progress, closes=intake.is_end))
            firsts = [(chunk.first, chunk.count) for chunk in intake.chunks]
            more = not intake.is_end
        waiting = await self._store.batch_chunks(self._promise, 0, CHUNKS_A_COMMIT, "undispatched")
        more |= len(waiting) == CHUNKS_A_COMMIT
        firsts = [*((chunk.first, chunk.count) for chunk in waiting), *firsts]
        if firsts:
            effects.append(SpawnExecutions(tuple(self._chunk_row(*chunk) for chunk in firsts), barrier=False))
            effects.append(DispatchChunks(tuple(first for first, _ in firsts)))
        return more

    def _has_room(self, view: BatchView | None) -> bool:
        """Below half of the window, so that it is refilled in large pieces (hysteresis)."""
        if view is None:
            return True
        is_few = view.taken - view.head <= self._batch.window // 2
        return is_few and view.open_bytes <= self._batch.window_bytes // 2

    def _chunk_row(self, first: int, count: int) -> NewExecution:
        claim, batch = self._claim, self._batch
        return NewExecution(
            promise=self._id.child(first).to_bytes(),
            kind=CHUNK_KIND,
            name=batch.name,
            version=batch.version,
            handler=batch.chunk_handler,
            step="",
            state=msgspec.json.encode(ChunkState(first, count)).decode(),
            input_hash="",
            queue=claim.queue,
            priority=claim.priority,
            digest=batch.digest,
            reports=True,
            cleans_up=True,
        )

    # ------------------------------------------------------------------ the lane

    async def _ready(self, head: int) -> int:
        """How far everything from the head on is terminal (ruling D7)."""
        at = head
        while True:
            found = await self._store.batch_chunks(self._promise, at, LANE_CHUNKS)
            for chunk in found:
                if chunk.prefix < chunk.count:
                    return max(at, chunk.first + chunk.prefix)
                at = max(at, chunk.stop)
            if len(found) < LANE_CHUNKS:
                return at

    async def _commit_to_sink(self, view: BatchView, stop: int, effects: list[Effect]) -> bool:
        engine, batch = self._engine, self._batch
        items = await read_run(engine, batch, self._promise, view.head, stop)
        commit = CommitItems(view.head, stop, await self._spent(stop))
        advance = AdvanceExecution(status=Status.EXECUTING)
        if not batch.is_transactional:
            assert batch.sink is not None
            try:
                await call_sink(engine, batch.sink, items)
            except Exception as error:
                raise _SinkFailed(error) from error
            receipt = await self._commit(advance, [*effects, commit])
            return receipt.status is Status.EXECUTING
        try:
            work = sink_work(engine, batch, items)
            receipt = await engine.transact(self._claim, work, lambda _: (advance, *effects, commit))
        except (StoreError, LedgerError, asyncio.CancelledError):
            raise  # whether it was committed is not known here: whoever picks the run next finds the head moved, or not
        except Exception as error:
            raise _SinkFailed(error) from error
        return receipt.status is Status.EXECUTING

    async def _spent(self, stop: int) -> tuple[int, ...]:
        """Chunks whose results nobody needs once everything before `stop` is committed."""
        if self._batch.keeps_results:
            return ()
        view = await self._store.batch_status(self._promise)
        head = 0 if view is None else view.head
        found = await self._store.batch_chunks(self._promise, head, LANE_CHUNKS)
        return tuple(chunk.first for chunk in found if chunk.stop <= stop)

    async def _after_sink_failed(self, error: Exception) -> None:
        attempt = self._claim.attempt + 1
        decision = SINK_RETRY.decide(attempt, 0.0, error, self._engine.random())
        if isinstance(decision, GiveUp) or isinstance(error, WrongStoreError):
            await self._strand(error)
            return
        again = AdvanceExecution(
            status=Status.RUNNABLE,
            attempt=attempt,
            delay=decision.delay_seconds,
            error=encode_error(error),
        )
        await self._engine.commit(self._claim, again)  # what it has read was not acted on, and stays in the inbox

    # ------------------------------------------------------------------ ends

    async def _end(self, effects: list[Effect], is_cancelled: bool) -> None:
        view = await self._store.batch_status(self._promise)  # anew: the last chunk may have ended since the look
        counters = Counters() if view is None else view.counters
        result = BatchResult(
            total=0 if view is None else view.taken,
            succeeded=counters.succeeded,
            skipped=counters.skipped,
            failed=counters.failed,
            cancelled=counters.cancelled,
            retries=counters.retries,
        )
        status = Status.CANCELLED if is_cancelled or (view is not None and view.latched) else Status.DONE
        text = msgspec.json.encode(result).decode()
        await self._commit(AdvanceExecution(status=status, result=text, digest=self._batch.digest), effects)

    async def _cancel(self, view: BatchView | None, effects: list[Effect]) -> bool:
        """Latch, and cancel what was not dispatched; the chunks that were are asked, and given their grace."""
        if view is None or not view.latched:
            await self._ask_chunks(view)
            effects.append(TakeIn(closes=True, latches=True))
        waiting = await self._store.batch_chunks(self._promise, 0, CHUNKS_A_COMMIT, "undispatched")
        effects.extend(
            MarkItems(
                first=chunk.first,
                states=cancelled(chunk.count),
                attempts=None,
                prefix=chunk.count,
                changed=Counters(cancelled=chunk.count),  # through DISPATCHED, in one commit (ruling D4)
                is_final=True,
                own_run=True,
            )
            for chunk in waiting
        )
        return bool(effects)

    async def _ask_chunks(self, view: BatchView | None) -> None:
        at = 0 if view is None else view.head
        while True:
            found = await self._store.batch_chunks(self._promise, at, LANE_CHUNKS)
            live = [chunk for chunk in found if chunk.is_dispatched and chunk.ended < chunk.count]
            reason = self._claim.cancel_reason
            asked = [self._id.child(chunk.first).to_bytes() for chunk in live]
            await end_stranded(self._store, asked, await self._store.cancel(asked, reason=reason), reason)
            if len(found) < LANE_CHUNKS:
                return
            at = found[-1].stop

    def _broken_chunk(self) -> str | None:
        """The error of a chunk that hard-failed (ruling D10)."""
        broken = ended_chunks(self._claim, Status.FAILED)
        return bytes(broken[0][1].error).decode() if broken else None

    async def _hard_fail(self, error: str) -> None:
        """Dispatch and commit stop; nothing committed is undone (ruling D10)."""
        await self._ask_chunks(await self._store.batch_status(self._promise))
        await self._commit(AdvanceExecution(status=Status.FAILED, error=error), [])

    async def _strand(self, error: Exception) -> None:
        log.error("%s is stranded: %s", self._id.label(self._claim.name), error)
        kind = "user" if not isinstance(error, HoldfastError) else "internal"
        record = encode_error(error, kind=kind)
        await self._engine.commit(self._claim, strand(self._claim, record))


def effects_add_items(effects: list[Effect]) -> bool:
    """Whether this commit takes in, or moves, items that the view does not know of yet."""
    return any(isinstance(effect, MarkItems) or (isinstance(effect, TakeIn) and effect.chunks) for effect in effects)


def _is_over(view: BatchView | None) -> bool:
    return view is not None and view.closed and not view.latched and view.head == view.taken
