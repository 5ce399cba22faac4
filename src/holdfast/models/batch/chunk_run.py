"""Works on a leased chunk: begins its items, and marks in the store what became of them (`chunk_items.py`).

A mark is one commit: what was begun and what has ended since the last one. An item runs only after the commit that says
that it is in flight; so whoever takes the chunk over after a crash knows which items may have run, and no others lose
an attempt (ruling D3). About a quarter of a second of work is begun ahead, and marked at least twice a second.

A chunk of which nothing is left but items that wait for a retry is given back until the first of them is due: waiting
takes no worker's room. Every mark holds their times, so whoever goes on tries none of them too early.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Any, Final

from holdfast.core.codec import encode_error
from holdfast.core.errors import LedgerError
from holdfast.core.identity import PromiseId
from holdfast.core.sequence import State
from holdfast.core.sequence.states import CANCEL
from holdfast.core.status import Status
from holdfast.engine.runner import Engine
from holdfast.models.batch.chunk_items import ChunkItems
from holdfast.models.batch.definition import Batch
from holdfast.models.batch.items import Note, keep_inputs, write_notes, write_results
from holdfast.models.batch.packing import pack, write_ready
from holdfast.models.batch.pool import Pool
from holdfast.store.batches import INTAKE, ChunkView, MarkItems
from holdfast.store.effects import AdvanceExecution, DeliverSignal, Effect
from holdfast.store.values import ExecutionClaim, NewSignal

MARK_SECONDS: Final = 0.5
NAP_SECONDS: Final = 0.1  # a retry that is due so soon is waited for; giving the chunk back would cost more
PATIENCE_SECONDS: Final = 2.0  # a chunk that has had no turn here for so long is given to others, if there are any
LEAVE_SECONDS: Final = 0.1  # and for so long they alone may take it


class ChunkRun(ChunkItems):
    """One claim of a chunk. `values`, `resources` and `threads` are what the lanes of the pool need."""

    def __init__(
        self,
        batch: Batch[Any, Any],
        pool: Pool,
        claim: ExecutionClaim,
        engine: Engine,
        background: set[asyncio.Task[Any]],
    ) -> None:
        super().__init__(batch, claim, engine)
        self._background = background
        self._pool = pool
        assert claim.parent is not None, "a chunk is the child of its run"
        self._run = claim.parent
        self.run_text = str(PromiseId.from_bytes(claim.parent))
        self.resources = engine.resources.given(batch.resources, by=batch.name)
        self.rank = (claim.priority, claim.row)  # chunks are spawned in the order of their items
        self._marked_at = self._time_base
        self._prefix = 0
        self._is_latched = False
        self._force_at: float | None = None
        self._broken: Exception | None = None
        self._has_begun = False
        self._asked_at = self._time_base

    @property
    def threads(self) -> Executor:
        return self._engine.threads

    def break_down(self, error: Exception) -> None:
        self._broken = error
        self._changed.set()

    def stir(self) -> None:
        """There is room in the pool."""
        self._changed.set()

    # ------------------------------------------------------------------ one claim

    async def go(self) -> None:
        self._pool.expect(self, True)
        try:
            found = await self._engine.store.batch_chunks(self._run, self.first, 1, "whole")
        finally:
            self._pool.expect(self, False)
        if not found or found[0].first != self.first:  # its run was deleted
            await self._engine.commit(self._claim, AdvanceExecution(status=Status.CANCELLED))
            return
        self._engine.watch(self._claim, self._on_stir)
        try:
            self._open(found[0])
            await self._work()
        except LedgerError as error:
            # D10: the chunk fails with the report, and its run with it.
            self._pool.forget(self)
            record = encode_error(error, kind="internal")
            await self._engine.commit(self._claim, AdvanceExecution(status=Status.FAILED, error=record))
        finally:
            self._engine.watch(self._claim, None)
            self._pool.forget(self)

    def _open(self, chunk: ChunkView) -> None:
        self._chunk = chunk
        self._load(chunk)
        self._marked = self._counters()
        self._prefix = chunk.prefix
        if self._claim.cancel_requested:
            self._latch()

    async def _work(self) -> None:
        ledger = self._ledger
        if reclaimed := ledger.reclaim(self._now_ms()):
            for decision in reclaimed:
                if decision.state is State.TERMINAL_FAIL:
                    self._notes[decision.seq - self.first] = Note("its worker was lost", "LeaseLostError")
            if not await self._mark(Status.EXECUTING, progress=True):
                return
        while True:
            if self._broken is not None:
                raise self._broken
            self._settle()
            if self._is_latched:
                self._cancel_rest()
            counted = ledger.counters()
            if counted.unseen + counted.dispatched + counted.in_flight == 0:
                await self._mark(Status.DONE)
                return
            may_begin = not self._is_latched and self._engine.may_keep(self._claim, 0, self._engine.now())
            places = self._take() if may_begin else []
            idle_seconds = 0.0 if self._unfinished else self._idle_seconds()
            if idle_seconds > (NAP_SECONDS if may_begin else 0.0):
                await self._mark(Status.RUNNABLE, delay=idle_seconds)
                return
            if places or self._is_mark_due():
                if not await self._mark(Status.EXECUTING):
                    return
                self._pool.push(self, places)
            elif self._unfinished == 0 and (not may_begin or await self._is_for_others()):
                await self._mark(Status.RUNNABLE)
                return
            else:
                await self._wait(may_begin)

    def _take(self) -> list[int]:
        """Begin what there is room for: the places, in flight from now on."""
        room = self._pool.room(self)
        begun = self._begin(room) if room else []
        if begun:
            self._has_begun = True
            self._pool.reserve(self, len(begun))
        return begun

    # ------------------------------------------------------------------ the store

    def _is_mark_due(self) -> bool:
        if not self._is_dirty:
            return False
        return self._unfinished == 0 or self._engine.now() - self._marked_at >= MARK_SECONDS

    async def _mark(self, status: Status, *, progress: bool = False, delay: float = 0.0) -> bool:
        """Commit where the items are. False: the lease is gone, or was given up."""
        counters = self._counters()
        segment = self._ledger.export(self.first, self.first + self._count)
        states, attempts = pack(segment)
        prefix = self._ledger.lane.ready().stop - self.first
        is_final = status is Status.DONE
        mark = MarkItems(
            first=self.first,
            states=states,
            attempts=attempts,
            prefix=prefix,
            changed=counters.minus(self._marked),
            notes=write_notes(self._notes),
            ready_ms=write_ready(self.first, self._ledger.waiting()),
            results=write_results(self._results) if self._batch.needs_results else None,
            inputs=keep_inputs(self._chunk.inputs, states) if is_final else None,
            is_final=is_final,
        )
        # Marks on the way are no progress to the store: so a pause waits until what was begun has ended.
        has_progress = progress or status is not Status.EXECUTING
        advance = AdvanceExecution(status=status, attempt=self._claim.attempt, progress=has_progress, delay=delay)
        effects: list[Effect] = [advance, mark]
        if prefix > self._prefix and not is_final:  # the lane may move; the end of a chunk is reported anyway
            effects.append(DeliverSignal(NewSignal(self._run, INTAKE, "null")))
        receipt = await self._engine.commit(self._claim, *effects)
        if not receipt.applied:
            return False
        self._marked, self._prefix = counters, prefix
        self._is_dirty, self._marked_at = False, self._engine.now()
        if receipt.cancel_requested:
            self._latch()
        return receipt.status is Status.EXECUTING

    async def _is_for_others(self) -> bool:
        """Whether this chunk only waits for its turn here, while another worker may have room for it."""
        now = self._engine.now()
        if self._has_begun or now - self._asked_at < PATIENCE_SECONDS:
            return False
        self._asked_at = now
        if sum(not worker.is_expired for worker in await self._engine.store.workers()) < 2:
            return False
        self._engine.leave_to_others(LEAVE_SECONDS)
        return True

    async def _wait(self, may_begin: bool) -> None:
        """Until something has changed, or a time has come."""
        loop, now = asyncio.get_running_loop(), self._engine.now()
        self._changed.clear()
        due = [self._marked_at + MARK_SECONDS] if self._is_dirty else []
        ready_ms, now_ms = self._ledger.next_ready_ms, self._now_ms()
        has_room = not (may_begin and self._has_more(now_ms)) or self._pool.room(self) > 0
        if not has_room:
            self._pool.want(self)
        if ready_ms is not None and (has_room or ready_ms > now_ms):
            due.append(now + max(0.001, (ready_ms - now_ms) / 1000))
        if self._force_at is not None:
            due.append(self._force_at)
        # What ends meanwhile is marked soon; and draining, and urgent work that waits, nobody tells of.
        timer = loop.call_later(max(0.0, min([*due, now + MARK_SECONDS]) - now), self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()

    # ------------------------------------------------------------------ cancelling

    def _latch(self) -> None:
        if not self._is_latched:
            self._is_latched = True
            self._claim.cancel_requested = True
            self._force_at = self._engine.now() + self._batch.grace_seconds
            self._changed.set()

    def _cancel_rest(self) -> None:
        """What has not begun at once; what runs after its grace (rules 6 and 7)."""
        now_ms = self._now_ms()
        if not self._ledger.latched:
            self._is_dirty |= self._ledger.cancel(self._owner, now_ms) > 0
        ended = self._pool.withdraw(self)
        if self._force_at is not None and self._engine.now() >= self._force_at:
            ended += self._pool.cut(self)
            self._force_at = None
        for place in ended:
            self._ledger.finish(self.first + place, self._owner, now_ms, CANCEL)
            self._unfinished -= 1
            self._is_dirty = True

    def _on_stir(self) -> None:
        task = asyncio.get_running_loop().create_task(self._latch_if_cancelled())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _latch_if_cancelled(self) -> None:
        view = await self._engine.store.get(self._claim.promise)
        if view is not None and view.cancel_requested:
            self._latch()
