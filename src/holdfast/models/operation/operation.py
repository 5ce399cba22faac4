"""`Operation`: one participant's handle, for initiator and participant alike.

Starting calls is in `starting`, the heartbeat and its phases in `heart`, waiting in `waiting`; this is the surface over
them, and how an operation ends. An operation is an async context manager: leaving the block completes
it (the initiator) or leaves it (a participant); leaving by an error aborts it, or leaves with calls cancelled.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar, overload

from .call import SpawnedCall
from .callbacks import Maybe
from .data import FrameState, LedgerData, OperationState
from .errors import (
    CallsPendingError,
    NotInitiatorError,
    OperationEndedError,
    OperationError,
    OperationFailedError,
    OperationFailedInfo,
)
from .files import Transaction
from .heart import Heart, prune
from .heartbeat import HeartbeatResult, start_cleanup
from .lifecycle import complete, require_running
from .logs import Event, LogLevel
from .participation import Participation
from .resources import check_resource
from .starting import CallStarter
from .waiting import OnOperationFailed, SyncResult, race_work, sync_calls

T = TypeVar("T")


class Operation(CallStarter):
    """A coordinated activity of several processes. Made by `Ledger.create_operation` and `join_operation`."""

    def __init__(self, part: Participation, *, is_initiator: bool) -> None:
        super().__init__(part)
        self._heart = Heart(part, self._book)
        self.is_initiator = is_initiator

    @property
    def part(self) -> Participation:
        """The files and seams behind this handle, for the modules of this package."""
        return self._part

    @property
    def operation_id(self) -> str:
        return self._part.operation_id

    @property
    def participant_id(self) -> str:
        return self._part.participant_id

    @property
    def pid(self) -> int:
        return self._part.member.pid

    @property
    def failure(self) -> OperationFailedInfo | None:
        """Why the operation failed, as soon as this participant knows."""
        return self._part.failure

    @property
    def is_over(self) -> bool:
        """Whether this handle writes nothing more: completed, left, or cleaned up and backed up."""
        return self._part.over.is_set()

    @property
    def is_coordinator(self) -> bool:
        """Whether this participant coordinates the cleanup."""
        return not self.is_over and self._heart.coordinating

    @property
    def last_heartbeat_error(self) -> Exception | None:
        """What stopped the last heartbeat from being written; None once one is written again."""
        return self._heart.last_error

    # --- heartbeat --------------------------------------------------------------------------------------

    def start_heartbeat(self) -> None:
        """Start beating. Creating and joining do this already; it matters after `stop_heartbeat`."""
        self._heart.start()

    async def stop_heartbeat(self) -> None:
        """Stop beating: after the staleness threshold others take this participant for crashed."""
        await self._heart.stop()

    async def heartbeat(self) -> HeartbeatResult:
        """Beat once, now, besides the automatic heartbeat; returns the state before and after."""
        return await self._heart.run_once()

    # --- waiting ----------------------------------------------------------------------------------------

    async def sync(
        self, calls: Sequence[SpawnedCall[Any]], on_operation_failed: OnOperationFailed | None = None
    ) -> SyncResult:
        """Wait until all calls are over, or the operation fails."""
        return await sync_calls(self._part, calls, on_operation_failed)

    @overload
    async def wait_for_completion(
        self,
        work: Callable[[], Awaitable[T]],
        *,
        on_operation_failed: OnOperationFailed | None = None,
        on_error: Callable[[Exception, str], Maybe[T]] | None = None,
    ) -> T: ...

    @overload
    async def wait_for_completion(
        self,
        work: Callable[[], T],
        *,
        on_operation_failed: OnOperationFailed | None = None,
        on_error: Callable[[Exception, str], Maybe[T]] | None = None,
    ) -> T: ...

    async def wait_for_completion(
        self,
        work: Callable[[], Maybe[T]],
        *,
        on_operation_failed: OnOperationFailed | None = None,
        on_error: Callable[[Exception, str], Maybe[T]] | None = None,
    ) -> T:
        """Run `work` against the operation's failure.

        If the operation fails first: `on_operation_failed` is called and `OperationFailedError` raised. If the
        work raises: `on_error(error, stack_trace)` gives a value instead, without it the error goes on.
        """
        return await race_work(self._part, work, on_operation_failed, on_error)

    async def wait_failed(self) -> OperationFailedInfo:
        """Wait until the operation fails (for ever, if it does not)."""
        await self._part.failed.wait()
        assert self._part.failure is not None
        return self._part.failure

    async def wait_cleaned_up(self) -> None:
        """After a failure: wait until this participant's own cleanup has run."""
        await self._heart.cleaned_up()

    async def wait_over(self) -> None:
        """Wait until the operation is over for this handle: completed, left, or in backup."""
        await self._part.over.wait()

    # --- log and resources ------------------------------------------------------------------------------

    async def log(self, message: str, level: LogLevel = LogLevel.INFO) -> None:
        """Write to the operation's log; debug lines go to the debug log alone."""
        await self._part.log(message, level)

    async def log_message(self, *, depth: int, message: str, level: LogLevel = LogLevel.INFO) -> None:
        """Write a line indented by `depth`, for nested work."""
        await self._part.log(message, level, max(0, depth))

    async def add_temp_resource(self, path: str | os.PathLike[str]) -> None:
        """Have `path` deleted when the operation ends, however it ends."""
        world = self._part.world
        resource = check_resource(path, world.base_path, world.temp_roots)
        await self._change_resources(lambda known: tuple(dict.fromkeys((*known, resource))))

    async def remove_temp_resource(self, path: str | os.PathLike[str]) -> None:
        """Keep `path` after all."""
        world = self._part.world
        resource = check_resource(path, world.base_path, world.temp_roots)
        await self._change_resources(lambda known: tuple(kept for kept in known if kept != resource))

    async def _change_resources(self, change: Callable[[tuple[str, ...]], tuple[str, ...]]) -> None:
        def apply(transaction: Transaction) -> None:
            data = self._running(transaction)
            transaction.data = replace(data, temp_resources=change(data.temp_resources))

        await self._part.change(apply)

    # --- the end ----------------------------------------------------------------------------------------

    async def complete(self) -> None:
        """End the operation successfully; its files move to backup. The initiator's alone (ruling C8)."""
        if not self.is_initiator:
            raise NotInitiatorError(
                f"operation {self.operation_id} is completed by its initiator; {self.participant_id} can leave()"
            )
        self._require_not_over()
        # Checked first without effect: resources must not be deleted for a completion that is refused.
        resources = await self._part.change(lambda transaction: self._completable(transaction).temp_resources)
        deleted: set[str] = set()

        def change(transaction: Transaction) -> tuple[str, ...]:
            data = self._completable(transaction)
            late = tuple(resource for resource in data.temp_resources if resource not in deleted)
            if not late:
                transaction.data = complete(data, transaction.now_us)
                transaction.event(Event.OPERATION_COMPLETED)
                transaction.ends = True
            return late

        while True:
            await self._part.delete(resources)
            deleted.update(resources)
            resources = await self._part.change(change)
            if not resources:
                break
        await self._heart.stop()
        await prune(self._part)
        self._part.finish()

    async def abort(self, reason: str = "aborted") -> None:
        """Fail the operation on purpose: this participant coordinates the cleanup."""
        self._require_not_over()
        member = self._part.member

        def change(transaction: Transaction) -> LedgerData:
            data = transaction.data
            if data is None:
                raise self._part.refusal(transaction.final)
            if data.state is OperationState.COMPLETED:
                require_running(data)
            if data.state is not OperationState.RUNNING:
                return data  # its cleanup is already under way
            transaction.event(Event.OPERATION_ABORTED, f"by={member.participant_id} reason: {reason}")
            transaction.data = start_cleanup(transaction, replace(data, aborted=True), member, reason)
            return transaction.data

        data = await self._part.change(change)
        await self._heart.follow(data, exists=True)
        self._heart.start()  # the phases need a heart, also if it was stopped by hand

    async def leave(self, *, cancel_pending: bool = False) -> None:
        """Take no more part. Open calls are an error unless they are cancelled (ruling C8)."""
        if self.is_over:
            raise OperationEndedError(f"operation {self.operation_id} is already over for {self.participant_id}")
        if self._part.failure is None:
            await self._heart.run_once()  # it may have failed or completed since the last beat
        if self._part.failure is not None:
            await self._heart.cleaned_up()
            return  # it goes on watching until the ledger is disposed: a coordinator may need a successor
        if self._part.over.is_set():
            return
        if cancel_pending:
            await self._book.cancel_all()
        self._require_no_open_calls("left")
        await self._heart.stop()

        def change(transaction: Transaction) -> None:
            if transaction.data is not None:
                transaction.event(Event.PARTICIPANT_LEFT, f"participant={self.participant_id}")

        await self._part.change(change)
        self._part.finish()

    async def detach(self, *, finish_cleanup: bool = True) -> None:
        """Stop without a word, as if the process ended; a coordinator finishes its cleanup first if asked."""
        if finish_cleanup and self._part.failure is not None:
            await self._heart.cleaned_up()
            if self.is_coordinator:
                await self._part.over.wait()
        await self._heart.stop()
        await self._book.drop()
        self._part.finish()

    async def __aenter__(self) -> Operation:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            with contextlib.suppress(OperationError):
                await self._give_up(error)
            return
        if self._part.failure is not None:
            await self._heart.cleaned_up()
            raise OperationFailedError(self._part.failure)
        if not self.is_over:
            await (self.complete() if self.is_initiator else self.leave())

    async def _give_up(self, error: BaseException) -> None:
        if self.is_over:
            return
        if self.is_initiator and self._part.failure is None:
            await self.abort(f"{type(error).__name__}: {error}")
        if self._part.failure is not None:
            await self._heart.cleaned_up()
        else:
            await self.leave(cancel_pending=True)

    def _require_not_over(self) -> None:
        if self.is_over:
            if self._part.failure is not None:
                raise OperationFailedError(self._part.failure)
            raise OperationEndedError(f"operation {self.operation_id} is over; start a new one")

    def _require_no_open_calls(self, what: str) -> None:
        if self._book.open:
            raise CallsPendingError(
                f"operation {self.operation_id} cannot be {what} while calls are open: "
                f"{', '.join(self._book.open)}; end, fail or cancel them first"
            )

    def _running(self, transaction: Transaction) -> LedgerData:
        if transaction.data is None:
            raise self._part.refusal(transaction.final)
        require_running(transaction.data)
        return transaction.data

    def _completable(self, transaction: Transaction) -> LedgerData:
        data = self._running(transaction)
        self._require_no_open_calls("completed")
        open_frames = [frame for frame in data.stack if frame.state is FrameState.ACTIVE]
        if open_frames:
            others = ", ".join(f"{frame.call_id} of {frame.participant_id}" for frame in open_frames)
            raise CallsPendingError(
                f"operation {self.operation_id} cannot be completed while calls are open: {others}; "
                "wait for them, or abort the operation"
            )
        return data
