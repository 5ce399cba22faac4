"""The heartbeat of one operation handle: a service whose body is `run_once`, and the phases it drives.

Phase 1 happens inside the beat itself. Phase 2 runs beside the loop, so that a slow cleanup callback does not
stop the heart. Phases 3 and 4 are the coordinator's, each exactly when its window is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from .backups import prune_backups
from .callbook import CallBook
from .data import FrameState, LedgerData, OperationState, StackFrame
from .errors import LedgerStorageError, OperationError
from .files import Transaction
from .heartbeat import HeartbeatResult, beat
from .lifecycle import failure_of, mark_cleaned_up, pop_frame, remove_frames
from .logs import Event, LogLevel
from .participation import Participation
from .timing import MILLISECOND_US

logger = logging.getLogger("holdfast.operation")

USUAL_WAIT_US = 100 * MILLISECOND_US  # for the lock; who waits longer may not have been the only one


class Heart:
    """Beats, watches and coordinates until the operation is over."""

    def __init__(self, part: Participation, book: CallBook) -> None:
        self._part = part
        self._book = book
        self._loop_task: asyncio.Task[None] | None = None
        self._own_cleanup: asyncio.Task[None] | None = None
        self._containing: set[asyncio.Task[None]] = set()
        self._last: LedgerData | None = None
        self._phase: tuple[OperationState, int] | None = None
        self.last_error: Exception | None = None

    def start(self) -> None:
        if self._loop_task is None or self._loop_task.done():
            self._loop_task = asyncio.create_task(self._loop(), name=f"holdfast-heart-{self._part.operation_id}")

    async def stop(self) -> None:
        """Stop beating. Own cleanup that has begun is let through."""
        task, self._loop_task = self._loop_task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @property
    def coordinating(self) -> bool:
        return self._last is not None and self._part.member.coordinates(self._last)

    async def cleaned_up(self) -> None:
        """Wait until this participant's own cleanup has run (phase 2)."""
        if self._own_cleanup is not None:
            await asyncio.wait({self._own_cleanup})

    async def run_once(self) -> HeartbeatResult:
        """One heartbeat and all that follows from it."""
        member, time = self._part.member, self._part.world.time
        asked_us = time.monotonic_us()

        def change(transaction: Transaction) -> HeartbeatResult:
            now_us = time.monotonic_us()
            return beat(transaction, member, now_us, waited_us=max(0, now_us - asked_us - USUAL_WAIT_US))

        try:
            result = await self._part.change(change)
        except LedgerStorageError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            # The whole folder is gone, and the ledger with it; nothing recreates it.
            result = HeartbeatResult(abort_flag=False, ledger_exists=False, heartbeat_updated=False)
        self.last_error = None
        await self.follow(result.data_after, exists=result.ledger_exists)
        return result

    async def follow(self, data: LedgerData | None, *, exists: bool) -> None:
        """Act on what was just read or written under the lock."""
        if not exists:
            if data is None or data.state is not OperationState.COMPLETED:
                self._part.fail(self._part.failure_without_ledger(data))
                self._begin_own_cleanup()
            await self._end()
            return
        assert data is not None
        self._last = data
        if self._phase is None or self._phase[0] is not data.state:
            self._phase = (data.state, self._part.world.time.monotonic_us())
        match data.state:
            case OperationState.RUNNING:
                lost = self._book.take_crashed(self._part.member.lost)
                if lost:  # beside the loop, as phase 2 is
                    task = asyncio.create_task(self._book.contain(lost))
                    self._containing.add(task)
                    task.add_done_callback(self._containing.discard)
                contained = [frame for frame in data.stack if frame.state is FrameState.CRASHED]
                if contained:
                    await self._contain(contained)
            case OperationState.CLEANUP:
                self._part.fail(failure_of(data))
                self._begin_own_cleanup()
                if self.coordinating and self._due_in_us(data) <= 0:
                    await self._remove_frames(data)
            case OperationState.FAILED:
                self._part.fail(failure_of(data))
                self._begin_own_cleanup()
                if self.coordinating and self._due_in_us(data) <= 0:
                    await self._back_up()
            case OperationState.COMPLETED:
                await self._end()

    async def _loop(self) -> None:
        world = self._part.world
        while not self._part.over.is_set():
            await world.time.sleep(self._pause_seconds())
            try:
                await self.run_once()
            except OperationError as error:
                # A full disk or a held lock: go on trying; others will judge by what they see.
                self.last_error = error
                logger.warning("heartbeat of operation %s failed: %s", self._part.operation_id, error)
            except Exception as error:
                # A bug, or a full memory: the next beat may be well, and a heart that ends cannot tell anyone.
                self.last_error = error
                logger.exception("heartbeat of operation %s failed", self._part.operation_id)

    def _pause_seconds(self) -> float:
        timing = self._part.world.timing
        pause_us = MILLISECOND_US * self._part.world.rng.uniform(timing.heartbeat_min_ms, timing.heartbeat_max_ms)
        if self._last is not None and self.coordinating and self.last_error is None:
            # After an error the ordinary pace: a phase that is due must not spin on a full disk.
            pause_us = max(0, min(pause_us, self._due_in_us(self._last)))
        return pause_us / 1_000_000

    def _due_in_us(self, data: LedgerData) -> int:
        """How long until the coordinator's next phase, by the recorded time; another machine's clock that runs
        ahead cannot make it longer than the window since this process first saw the phase."""
        timing, time = self._part.world.timing, self._part.world.time
        if data.state is OperationState.CLEANUP:
            recorded_us, window_ms = data.detection_us, timing.self_cleanup_window_ms
        else:
            recorded_us, window_ms = data.removal_us, timing.deletion_delay_ms
        assert recorded_us is not None
        assert self._phase is not None
        window_us = window_ms * MILLISECOND_US
        since_seen_us = time.monotonic_us() - self._phase[1]
        return min(recorded_us + window_us - time.now_us(), window_us - since_seen_us)

    # --- contained crashes ------------------------------------------------------------------------------

    async def _contain(self, frames: list[StackFrame]) -> None:
        """Only the crashed call is cleaned up; the operation goes on (seed: Contained Crashes)."""
        for frame in frames:
            await self._part.delete(frame.resources)

        def change(transaction: Transaction) -> LedgerData | None:
            data = transaction.data
            if data is None or data.state is not OperationState.RUNNING:
                return data
            for frame in frames:
                if data.frame(frame.call_id) is not None:
                    data = pop_frame(data, frame.call_id)
                    transaction.event(Event.CLEANED_UP, f"callId={frame.call_id} (contained crash)", LogLevel.WARNING)
            transaction.data = data
            return data

        self._last = await self._part.change(change) or self._last

    # --- phase 2 ----------------------------------------------------------------------------------------

    def _begin_own_cleanup(self) -> None:
        if self._own_cleanup is None and not self._part.member.recovering:
            name = f"holdfast-cleanup-{self._part.operation_id}"
            self._own_cleanup = asyncio.create_task(self._clean_up_self(), name=name)

    async def _clean_up_self(self) -> None:
        assert self._part.failure is not None
        await self._book.clean_up(self._part.failure)
        member = self._part.member

        def change(transaction: Transaction) -> None:
            data = transaction.data
            if data is None or data.state is not OperationState.CLEANUP or member.coordinates(data):
                return
            after = mark_cleaned_up(data, member.own)
            if after != data:
                transaction.data = after
                transaction.event(Event.CLEANED_UP, f"participant={member.participant_id}")

        try:
            await self._part.change(change)
        except OperationError as error:
            logger.warning("operation %s: cleanup not recorded: %s", self._part.operation_id, error)
        member.cleaned_up = True

    # --- phases 3 and 4 ---------------------------------------------------------------------------------

    async def _remove_frames(self, data: LedgerData) -> None:
        """Phase 3. Deleting comes first and may repeat; removing the frames is what is recorded."""
        member = self._part.member
        remaining = [frame for frame in data.stack if frame.state is not FrameState.CLEANED_UP]
        for frame in remaining:
            await self._part.delete(frame.resources)
        await self._part.delete(data.temp_resources)

        def change(transaction: Transaction) -> LedgerData | None:
            current = transaction.data
            if current is None or current.state is not OperationState.CLEANUP or not member.coordinates(current):
                return current
            transaction.data = remove_frames(current, transaction.now_us)
            member.closing = True
            reason = f"reason: {current.failure_reason} crashed: {', '.join(current.crashed_call_ids) or 'none'}"
            transaction.event(Event.OPERATION_FAILED, reason, LogLevel.ERROR)
            return transaction.data

        after = await self._part.change(change)
        self._last = after or self._last
        if after is not None and after.state is OperationState.FAILED:
            self._phase = (after.state, self._part.world.time.monotonic_us())

    async def _back_up(self) -> None:
        """Phase 4."""

        def change(transaction: Transaction) -> None:
            if transaction.data is not None and transaction.data.state is OperationState.FAILED:
                transaction.ends = True

        await self._part.change(change)
        await self._end()

    async def _end(self) -> None:
        """The files are in backup: keep the retention limit and stop (phase 4, steps 2 and 3)."""
        await self.cleaned_up()
        if self._part.over.is_set():
            return
        await prune(self._part)
        self._part.finish()


async def prune(part: Participation) -> None:
    """Retention; a backup that cannot be deleted now is tried again with the next operation."""
    world = part.world
    try:
        await part.unlocked(lambda: prune_backups(world.file_system, world.base_path, world.max_backups))
    except OSError as error:
        logger.warning("old backups in %s could not be deleted: %s", world.base_path, error)
