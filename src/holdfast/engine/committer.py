"""Group commit: what is ready while a commit is under way goes out together in the next one.

No timer anywhere: the natural queue is the batch. A single outcome with nothing under way is committed at once, on
the loop's own thread where the store allows it. Each runner goes on only after the commit that holds its outcome.

A store on a server takes two flushes at once (`flushes_at_once`): while it writes one, the runners of the other are
at work here. Runners that hear of their commit in one turn of the loop would all be ready in one turn again, and the
server idle until then; so of a large flush with none beside it, one half hears a few turns after the other.

When a reply is lost, nobody knows what was applied. The rows are leased anew, which fences the old connection, and
their revision tells (DESIGN section 6). No pick may come in between: it could lease the very rows in question.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final, Protocol

from holdfast.core.errors import StoreUnavailableError
from holdfast.core.status import Status
from holdfast.engine.active import ActiveClaims
from holdfast.engine.observer import Observer
from holdfast.engine.service import Backoff
from holdfast.store.base import Store, WouldStall
from holdfast.store.effects import AdvanceExecution, AppendJournal, Commit, Effect
from holdfast.store.values import ExecutionClaim, Flushed, Receipt

log = logging.getLogger("holdfast.engine")

_Future: Final = asyncio.Future
FENCED: Final = Receipt(applied=False)
_EXECUTING: Final = Status.EXECUTING
LAST_COMMIT_SECONDS: Final = 1.0
BACKOFF_SECONDS_MOST: Final = 2.0
AT_ONCE_MOST: Final = 16  # commits in a row without a turn of the loop: others must have theirs
SPLIT_LEAST: Final = 16  # the flush whose runners are worth two halves
SPLIT_TURNS: Final = 3  # of the loop, until what the first half commits is on its way: its kick, its task, its write


class Reply(Protocol):
    """Who is told what became of a commit: the future of a runner, or whoever saw to a last commit."""

    def done(self) -> bool: ...
    def set_result(self, receipt: Receipt, /) -> None: ...
    def set_exception(self, error: Exception, /) -> None: ...


class Sent(Commit, frozen=True, gc=True):
    """A commit on its way, and who waits for it."""

    reply: Reply


Answer = tuple[Reply, Receipt]


class Committer:
    """`on_released` hears of each applied commit after which the row is no longer held, `on_fenced` of each whose row,
    if ours, is so by another lease; `on_woke` of flushes that made something runnable."""

    def __init__(
        self,
        store: Store,
        active: ActiveClaims,
        gate: asyncio.Lock,
        worker_id: Callable[[], str],
        *,
        flush_most: int,
        on_released: Callable[[ExecutionClaim, AdvanceExecution, Receipt], None],
        on_fenced: Callable[[ExecutionClaim], None],
        on_woke: Callable[[], None],
        observer: Observer | None = None,
    ) -> None:
        self._store = store
        self._active = active
        self._gate = gate
        self._worker_id = worker_id
        self._flush_most = flush_most
        self._on_released = on_released
        self._on_fenced = on_fenced
        self._on_woke = on_woke
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._living = active.living
        self._waiting: list[Sent] = []
        self._armed = False
        self._at_once = 0
        self._flushing: dict[asyncio.Future[Any], int] = {}  # the flushes under way, with the number of their commits
        self._here: asyncio.Task[Any] | None = None  # the run that sees to its flush itself
        self._flushes_most = store.flushes_at_once
        self._asking = 0  # flushes of unknown fate: until it is known, nothing is sent beside them
        self._failures = 0  # of flushes, since the last that went well
        self._backoff = Backoff(most=BACKOFF_SECONDS_MOST)
        self._rows: set[int] = set()  # under way: of two commits of one claim the second waits for the first
        self.flushes = 0
        self.commits = 0

    def commit(self, claim: ExecutionClaim, effects: tuple[Effect, ...]) -> asyncio.Future[Receipt]:
        future: asyncio.Future[Receipt] = self._loop.create_future()
        self.send(claim, effects, future)
        return future

    def send(self, claim: ExecutionClaim, effects: tuple[Effect, ...], reply: Reply) -> None:
        """A commit whose answer goes to `reply`."""
        sent = Sent(claim, effects, reply)
        if self._at_once < AT_ONCE_MOST and self._is_alone(claim):
            self._at_once += 1
            self._write([sent])
        else:
            self._waiting.append(sent)
            self._arm()

    def step(
        self, claim: ExecutionClaim, advance: AdvanceExecution, segment: AppendJournal
    ) -> int | Awaitable[Receipt]:
        """`commit` of these. If nobody could share it, and all went well, it is written by now: the store's time."""
        if self._observer is not None or not self._is_alone(claim):
            return self.commit(claim, (advance, segment))
        if self._at_once < AT_ONCE_MOST:
            try:
                at_us = self._store.step_now(self._worker_id(), claim, advance, segment)
            except Exception as error:
                return self._ask(claim, (advance, segment), error)
            if at_us:
                self._at_once += 1
                self.flushes += 1
                self.commits += 1
                if self._failures:
                    self._recovered()
                claim.stepped(segment.count, advance.step)
                return at_us
        if self._store.commits_inline:
            return self.commit(claim, (advance, segment))
        return self._step_here(claim, (advance, segment))

    def _is_alone(self, claim: ExecutionClaim) -> bool:
        """Whether nobody is at work who could share its commit."""
        living = self._living
        return len(living) == 1 and living.get(claim.row) is claim and not (self._waiting or self._flushing)

    def is_under_way(self, row: int) -> bool:
        """Whether a commit of this row was sent, and its answer has not come."""
        return row in self._rows

    async def idle(self) -> None:
        """Wait until nothing is waiting or under way."""
        while self._waiting or self._flushing:
            if self._flushing:
                await asyncio.wait(self._flushing)
            await asyncio.sleep(0)

    async def abandon(self) -> None:
        """Forget what waits, and ask no further: for a worker that leaves as if it were killed."""
        self._waiting.clear()
        if self._flushing:
            # What was sent may still land, as the last commit of a killed process does; nobody here hears of it.
            await asyncio.wait(self._flushing, timeout=LAST_COMMIT_SECONDS)
        while self._flushing:
            for flush in self._flushing:
                flush.cancel()
            if self._here is not None:
                self._here.cancel()
            await asyncio.wait(self._flushing)
            await asyncio.sleep(0)

    # ------------------------------------------------------------------ one flush

    def _arm(self) -> None:
        # One turn of the loop later: what other runners have ready in this turn shares the commit.
        if not self._armed and (not self._flushing or self._may_join()):
            self._at_once = 0
            self._armed = True
            self._loop.call_soon(self._kick)

    def _may_join(self) -> bool:
        """Whether what waits is worth a flush beside the one under way; a much smaller one would only cost more."""
        flushing = self._flushing
        if self._asking or len(flushing) >= self._flushes_most:
            return False
        return 2 * len(self._waiting) >= min(flushing.values())

    def _kick(self) -> None:
        self._armed = False
        if self._waiting and (not self._flushing or self._may_join()):
            batch = self._take()
            if batch:
                self._write(batch)

    def _take(self) -> list[Sent]:
        """The next batch, without commits whose lease this worker knows to be lost."""
        taken, self._waiting = self._waiting[: self._flush_most], self._waiting[self._flush_most :]
        rest = bool(self._waiting)
        batch = []
        left: list[Sent] = []
        living, rows = self._living, self._rows.copy()
        for sent in taken:
            claim = sent.claim
            row = claim.row
            if living.get(row) is not claim:
                if not sent.reply.done():
                    sent.reply.set_result(FENCED)
            elif row in rows:
                left.append(sent)
            else:
                batch.append(sent)
                rows.add(row)
        if left:
            self._waiting[:0] = left
        if rest:
            self._arm()
        return batch

    def _write(self, batch: list[Sent]) -> None:
        if not self._store.commits_inline:
            self._start(self._flush(batch), batch)
            return
        began = perf_counter()
        try:
            flushed = self._store.flush_now(self._worker_id(), batch)
        except WouldStall:
            self._start(self._flush(batch), batch)
            return
        except Exception as error:
            self._start(self._recover(batch, error), batch)
            return
        self._settle(batch, flushed, began)
        if self._waiting:
            self._arm()

    def _start(self, work: Coroutine[None, None, None], batch: list[Sent]) -> None:
        flush = self._loop.create_task(work, name="holdfast-flush")
        self._flushing[flush] = len(batch)
        rows = [sent.claim.row for sent in batch]
        self._rows.update(rows)
        flush.add_done_callback(partial(self._flushed, rows))

    async def _flush(self, batch: list[Sent]) -> None:
        began = perf_counter()
        try:
            flushed = await self._store.flush(self._worker_id(), batch)
        except Exception as error:
            await self._recover(batch, error)
        else:
            self._land(batch)
            self._settle(batch, flushed, began)

    async def _step_here(self, claim: ExecutionClaim, effects: tuple[Effect, ...]) -> Receipt:
        """A flush of a step that nobody could share, in the task of its own run: no other has to be told of it.

        A run that is cancelled meanwhile drops it, of unknown fate: it has no use for the answer.
        """
        under_way: asyncio.Future[Any] = self._loop.create_future()
        self._flushing[under_way] = 1
        self._rows.add(claim.row)
        self._here = asyncio.current_task()
        self._at_once = 0  # others have their turn meanwhile
        began = perf_counter()
        flushed: Flushed | Exception
        try:
            flushed = await self._store.flush(self._worker_id(), (Commit(claim, effects),))
        except Exception as error:
            flushed = error
        finally:
            self._here = None
            del self._flushing[under_way]
            self._rows.discard(claim.row)
            under_way.cancel()  # it is over, as whoever waits for that hears
            if self._waiting:
                self._arm()
        if isinstance(flushed, Exception):
            return await self._ask(claim, effects, flushed)
        (receipt,) = flushed.receipts
        self._note_flush(1, began)
        self._note(claim, effects, receipt, flushed.at_us)
        if flushed.woke:
            self._on_woke()
        return receipt

    def _land(self, batch: list[Sent]) -> None:
        """A flush is no longer under way when its runners hear of it: one that is alone may commit again at once."""
        flush = asyncio.current_task()
        assert flush is not None, "a flush is a task"
        if self._flushing.get(flush) == len(batch):  # else these are a part of it
            del self._flushing[flush]
            self._rows.difference_update([sent.claim.row for sent in batch])

    def _flushed(self, rows: list[int], flush: asyncio.Task[None]) -> None:
        if self._flushing.pop(flush, None) is not None:
            self._rows.difference_update(rows)
        if not flush.cancelled() and (error := flush.exception()) is not None:
            log.error("a flush ended badly", exc_info=error)
        if self._waiting:
            self._arm()

    def _settle(self, batch: Sequence[Sent], flushed: Flushed, began: float) -> None:
        self._note_flush(len(batch), began)
        at_us = flushed.at_us
        may_split = self._flushes_most > 1 and not self._flushing
        answers: list[Answer] = []  # of runners that go on, where some may have to wait for theirs
        for sent, receipt in zip(batch, flushed.receipts, strict=True):
            reply = sent.reply
            self._note(sent.claim, sent.effects, receipt, at_us)
            if may_split and isinstance(reply, _Future):
                answers.append((reply, receipt))
            elif not reply.done():  # its runner may have been cancelled
                reply.set_result(receipt)
        if answers:
            if len(answers) >= SPLIT_LEAST:
                half = len(answers) // 2
                self._tell_later(answers[half:], SPLIT_TURNS)
                del answers[half:]
            _tell(answers)
        if flushed.woke:
            self._on_woke()

    def _note_flush(self, commits: int, began: float) -> None:
        """It went well."""
        self.flushes += 1
        self.commits += commits
        if self._failures:
            self._recovered()
        if self._observer is not None:
            self._observer.flushed(commits, perf_counter() - began)

    def _note(self, claim: ExecutionClaim, effects: tuple[Effect, ...], receipt: Receipt, at_us: int) -> None:
        """What became of a commit, before its runner hears of it."""
        if not receipt.applied:
            self._on_fenced(claim)
            return
        receipt.at_us = at_us
        advance: AdvanceExecution = effects[0]  # type: ignore[assignment]  # see `Commit`
        claim.went_on(advance, receipt)
        observer, is_over = self._observer, receipt.status is not _EXECUTING
        if is_over or observer is not None:
            try:
                if observer is not None:
                    observer.advanced(claim, advance, receipt)
                if is_over:
                    self._on_released(claim, advance, receipt)
            except Exception:  # whoever waits for the commit must hear of it whatever becomes of this
                log.exception("a commit holds, and taking note of it failed; this is a bug")

    def _tell_later(self, answers: Sequence[Answer], turns: int) -> None:
        if turns:
            self._loop.call_soon(self._tell_later, answers, turns - 1)
        else:
            _tell(answers)

    # ------------------------------------------------------------------ when it went wrong

    def _ask(self, claim: ExecutionClaim, effects: tuple[Effect, ...], error: Exception) -> asyncio.Future[Receipt]:
        """What became of a commit that was sent apart from the others, and failed."""
        reply: asyncio.Future[Receipt] = self._loop.create_future()
        batch = [Sent(claim, effects, reply)]
        self._start(self._recover(batch, error), batch)
        return reply

    async def _recover(self, batch: list[Sent], error: Exception) -> None:
        if isinstance(error, StoreUnavailableError):
            self._failures += 1
            self._asking += 1
            try:
                if self._failures == 1:
                    log.warning("a commit of %d outcomes has an unknown fate, asking the store: %s", len(batch), error)
                else:  # a store that can be asked, and takes nothing (its disk is full): it has enough to do
                    await asyncio.sleep(self._backoff.take())
                await self._resolve_unknown(batch)
            except Exception as unexpected:  # their runners must not wait for ever for an answer
                for sent in batch:
                    if not sent.reply.done():
                        sent.reply.set_exception(unexpected)
            finally:
                self._asking -= 1
        elif len(batch) == 1:
            reply = batch[0].reply
            if not reply.done():
                reply.set_exception(error)
        else:
            # One commit that the store cannot take must not bring down the others of its flush.
            for sent in batch:
                await self._flush([sent])

    def _recovered(self) -> None:
        if self._failures > 1:
            log.warning("commits go on; the store took none %d times in a row", self._failures)
        self._failures = 0
        self._backoff.reset()

    async def _resolve_unknown(self, batch: list[Sent]) -> None:
        backoff = Backoff()
        async with self._gate:
            while True:
                known = [sent for sent in batch if self._active.is_alive(sent.claim)]
                if not known:  # nobody waits for the answer any more: a worker that stops does not wait for the store
                    rows: list[ExecutionClaim | None] = []
                    break
                try:
                    rows = await self._store.reclaim(self._worker_id(), [sent.claim for sent in known])
                    break
                except StoreUnavailableError:
                    await asyncio.sleep(backoff.take())
        held = {id(sent): row for sent, row in zip(known, rows, strict=True)}
        again: list[Sent] = []
        for sent in batch:
            claim, reply, row = sent.claim, sent.reply, held.get(id(sent))
            # Released by this very commit, or lost: no longer ours. Or the store has lost commits that it had
            # acknowledged (a failover): what the runner goes by is not in the ledger.
            if row is None or row.revision < claim.revision:
                if row is not None:
                    self._on_fenced(claim)
                if not reply.done():
                    reply.set_result(FENCED)
                continue
            is_applied = row.revision > claim.revision
            claim.renewed_as(row)
            if not is_applied:
                again.append(sent)
            elif not reply.done():
                reply.set_result(
                    Receipt(
                        applied=True,
                        status=Status.EXECUTING,
                        cancel_requested=row.cancel_requested,
                        has_inbox=bool(row.inbox),
                    )
                )
        self._waiting[:0] = again
        self._on_woke()


def _tell(answers: Sequence[Answer]) -> None:
    for reply, receipt in answers:
        if not reply.done():  # its runner may have been cancelled
            reply.set_result(receipt)
