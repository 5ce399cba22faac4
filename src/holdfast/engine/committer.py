"""Group commit: what is ready while a commit is under way goes out together in the next one.

No timer anywhere: the natural queue is the batch. A single outcome with nothing under way is committed at once, on
the loop's own thread where the store allows it. Each runner goes on only after the commit that holds its outcome.

When a reply is lost, nobody knows what was applied. The rows are leased anew, which fences the old connection, and
their revision tells (DESIGN section 6). No pick may come in between: it could lease the very rows in question.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final

from holdfast.core.errors import StoreUnavailableError
from holdfast.core.status import Status
from holdfast.engine.active import ActiveClaims
from holdfast.engine.observer import Observer
from holdfast.engine.service import Backoff
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution, Commit, Effect
from holdfast.store.values import ExecutionClaim, Flushed, Receipt

log = logging.getLogger("holdfast.engine")

FENCED: Final = Receipt(applied=False)
LAST_COMMIT_SECONDS: Final = 1.0
AT_ONCE_MOST: Final = 16  # commits in a row without a turn of the loop: others must have theirs

Waiting = tuple[Commit, "asyncio.Future[Receipt]"]


class Committer:
    """`on_applied` hears of each applied commit; `on_woke` of flushes that made something runnable."""

    def __init__(
        self,
        store: Store,
        active: ActiveClaims,
        gate: asyncio.Lock,
        worker_id: Callable[[], str],
        *,
        flush_most: int,
        on_applied: Callable[[ExecutionClaim, AdvanceExecution, Receipt], None],
        on_woke: Callable[[], None],
        observer: Observer | None = None,
    ) -> None:
        self._store = store
        self._active = active
        self._gate = gate
        self._worker_id = worker_id
        self._flush_most = flush_most
        self._on_applied = on_applied
        self._on_woke = on_woke
        self._observer = observer
        self._began = 0.0  # of the flush under way, where it is observed
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Waiting] = []
        self._armed = False
        self._at_once = 0
        self._flushing: asyncio.Task[None] | None = None
        self.flushes = 0
        self.commits = 0

    def commit(self, claim: ExecutionClaim, effects: tuple[Effect, ...]) -> asyncio.Future[Receipt]:
        future: asyncio.Future[Receipt] = self._loop.create_future()
        self._waiting.append((Commit(claim, effects), future))
        if self._armed or self._flushing is not None:
            return future  # it goes with what is waiting already
        if self._at_once < AT_ONCE_MOST and len(self._active) == 1:
            # Nobody else is at work who could share it.
            self._at_once += 1
            self._kick()
        else:
            self._arm()
        return future

    async def idle(self) -> None:
        """Wait until nothing is waiting or under way."""
        while self._waiting or self._flushing is not None:
            if self._flushing is not None:
                await asyncio.wait([self._flushing])
            await asyncio.sleep(0)

    async def abandon(self) -> None:
        """Forget what waits, and ask no further: for a worker that leaves as if it were killed."""
        self._waiting.clear()
        if self._flushing is not None:
            # What was sent may still land, as the last commit of a killed process does; nobody here hears of it.
            await asyncio.wait([self._flushing], timeout=LAST_COMMIT_SECONDS)
        while self._flushing is not None:
            self._flushing.cancel()
            await asyncio.wait([self._flushing])
            await asyncio.sleep(0)

    # ------------------------------------------------------------------ one flush

    def _arm(self) -> None:
        # One turn of the loop later: what other runners have ready in this turn shares the commit.
        if not self._armed and self._flushing is None:
            self._at_once = 0
            self._armed = True
            self._loop.call_soon(self._kick)

    def _kick(self) -> None:
        self._armed = False
        if self._flushing is not None or not self._waiting:
            return
        batch = self._take()
        if not batch:
            return
        if self._observer is not None:
            self._began = perf_counter()
        if not self._store.commits_inline:
            self._flushing = self._loop.create_task(self._flush(batch), name="holdfast-flush")
            self._flushing.add_done_callback(self._flushed)
            return
        try:
            flushed = self._store.flush_now(self._worker_id(), [commit for commit, _ in batch])
        except Exception as error:
            self._flushing = self._loop.create_task(self._recover(batch, error), name="holdfast-recover")
            self._flushing.add_done_callback(self._flushed)
            return
        self._settle(batch, flushed)
        if self._waiting:
            self._arm()

    def _take(self) -> list[Waiting]:
        """The next batch, without commits whose lease this worker knows to be lost."""
        batch: list[Waiting] = []
        taken = self._waiting[: self._flush_most]
        self._waiting = self._waiting[self._flush_most :]
        living = self._active.living
        for waiting in taken:
            claim = waiting[0].claim
            if living.get(claim.row) is claim:
                batch.append(waiting)
            elif not waiting[1].done():
                waiting[1].set_result(FENCED)
        if self._waiting:
            self._arm()
        return batch

    async def _flush(self, batch: list[Waiting]) -> None:
        try:
            flushed = await self._store.flush(self._worker_id(), [commit for commit, _ in batch])
        except Exception as error:
            await self._recover(batch, error)
        else:
            self._settle(batch, flushed)

    def _flushed(self, task: asyncio.Task[None]) -> None:
        self._flushing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a flush ended badly", exc_info=error)
        if self._waiting:
            self._arm()

    def _settle(self, batch: Sequence[Waiting], flushed: Flushed) -> None:
        self.flushes += 1
        self.commits += len(batch)
        if self._observer is not None:
            self._observer.flushed(len(batch), perf_counter() - self._began)
        on_applied = self._on_applied
        for (commit, future), receipt in zip(batch, flushed.receipts, strict=True):
            if receipt.applied:
                claim = commit.claim
                claim.revision += 1
                receipt.at_us = flushed.at_us
                advance = commit.effects[0]
                if type(advance) is AdvanceExecution:
                    on_applied(claim, advance, receipt)
            if not future.done():  # its runner may have been cancelled
                future.set_result(receipt)
        if flushed.woke:
            self._on_woke()

    # ------------------------------------------------------------------ when it went wrong

    async def _recover(self, batch: list[Waiting], error: Exception) -> None:
        if isinstance(error, StoreUnavailableError):
            log.warning("a commit of %d outcomes has an unknown fate, asking the store: %s", len(batch), error)
            try:
                await self._resolve_unknown(batch)
            except Exception as unexpected:  # their runners must not wait for ever for an answer
                for _, future in batch:
                    if not future.done():
                        future.set_exception(unexpected)
        elif len(batch) == 1:
            _, future = batch[0]
            if not future.done():
                future.set_exception(error)
        else:
            # One commit that the store cannot take must not bring down the others of its flush.
            for waiting in batch:
                await self._flush([waiting])

    async def _resolve_unknown(self, batch: list[Waiting]) -> None:
        backoff = Backoff()
        async with self._gate:
            while True:
                known = [waiting for waiting in batch if self._active.is_alive(waiting[0].claim)]
                if not known:  # nobody waits for the answer any more: a worker that stops does not wait for the store
                    rows: list[ExecutionClaim | None] = []
                    break
                try:
                    rows = await self._store.reclaim(self._worker_id(), [commit.claim for commit, _ in known])
                    break
                except StoreUnavailableError:
                    await asyncio.sleep(backoff.take())
        held = {id(commit): row for (commit, _), row in zip(known, rows, strict=True)}
        again: list[Waiting] = []
        for commit, future in batch:
            row = held.get(id(commit))
            if row is None:  # released by this very commit, or lost: either way it is no longer ours
                if not future.done():
                    future.set_result(FENCED)
                continue
            commit.claim.epoch = row.epoch
            if row.revision == commit.claim.revision:
                again.append((commit, future))
            else:
                commit.claim.revision = row.revision
                if not future.done():
                    future.set_result(
                        Receipt(
                            applied=True,
                            status=Status.EXECUTING,
                            cancel_requested=row.cancel_requested,
                            inbox_count=len(row.inbox),
                        )
                    )
        self._waiting[:0] = again
        self._on_woke()
