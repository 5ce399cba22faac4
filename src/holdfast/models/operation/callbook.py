"""The open calls of one participant: recording them, running spawned work, and cleaning them up once.

A frame is on the disk before its work starts, and gone from it before anyone is told of the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from .call import Call, CallState, SpawnedCall, TrackedCall
from .callbacks import CallCallback, Maybe, run_callback, run_work
from .data import FrameState, LedgerData, OperationState, StackFrame
from .errors import (
    CallCrashedError,
    CallStateError,
    LedgerStorageError,
    OperationEndedError,
    OperationError,
    OperationFailedError,
    OperationFailedInfo,
)
from .files import Transaction
from .lifecycle import failure_of, pop_frame, push_frame, set_resources, touch
from .logs import Event, LogLevel
from .participation import Participation
from .resources import check_resource

T = TypeVar("T")


class CallBook:
    """Every call that this handle has open, by call id, in the order they were started."""

    def __init__(self, part: Participation) -> None:
        self._part = part
        self.open: dict[str, Call[object] | SpawnedCall[object]] = {}

    # --- starting ---------------------------------------------------------------------------------------

    async def start(self, callback: CallCallback[T] | None, description: str | None, fail_on_crash: bool) -> Call[T]:
        call = Call(self, self._part.next_call_id(), callback, description, fail_on_crash)
        try:
            await self._push(call, Event.CALL_STARTED)
        except BaseException:
            await self._forget(call)
            raise
        self.open[call.call_id] = call  # type: ignore[assignment]  # the book asks nothing of T
        return call

    def spawn(
        self,
        work: Callable[[SpawnedCall[T]], Maybe[T]],
        callback: CallCallback[T] | None,
        description: str | None,
        fail_on_crash: bool,
    ) -> SpawnedCall[T]:
        call = SpawnedCall(self, self._part.next_call_id(), callback, description, fail_on_crash)
        self.open[call.call_id] = call  # type: ignore[assignment]  # the book asks nothing of T
        call.task = asyncio.create_task(self._run(call, work), name=f"holdfast-{call.call_id}")
        return call

    async def _push(self, call: TrackedCall[T], event: Event) -> None:
        member = self._part.member

        def change(transaction: Transaction) -> None:
            data = self._require(transaction)
            frame = StackFrame(
                call_id=call.call_id,
                participant_id=member.participant_id,
                pid=member.pid,
                start_us=transaction.now_us,
                last_heartbeat_us=transaction.now_us,
                fail_on_crash=call.fail_on_crash,
                description=call.description,
            )
            transaction.data = push_frame(touch(data, member.own, transaction.now_us), frame)
            transaction.event(event, _describe(call, call.description))
            member.own.add(call.call_id)

        await self._part.change(change)

    async def _forget(self, call: TrackedCall[T]) -> None:
        """A start that was cancelled or failed half-way leaves no frame behind that nobody would end."""
        member = self._part.member
        if call.call_id not in member.own:
            return

        def change(transaction: Transaction) -> None:
            if transaction.data is not None and transaction.data.state is OperationState.RUNNING:
                transaction.data = pop_frame(transaction.data, call.call_id)

        with contextlib.suppress(OperationError):
            await self._part.change(change)
        member.own.discard(call.call_id)

    # --- spawned work -----------------------------------------------------------------------------------

    async def _run(self, call: SpawnedCall[T], work: Callable[[SpawnedCall[T]], Maybe[T]]) -> None:
        try:
            await self._push(call, Event.CALL_SPAWNED)
            value = await run_work(work, call)
        except asyncio.CancelledError:
            if call.state is CallState.OPEN:  # cancelled by leave(): cleanup settles what it stops itself
                await self._fail_spawned(call, asyncio.CancelledError("cancelled"))
        except Exception as error:
            if call.state is CallState.OPEN:
                await self._crashed_work(call, error)
        else:
            if call.state is CallState.OPEN:
                await self._complete(call, value, _Note())

    async def _crashed_work(self, call: SpawnedCall[T], error: Exception) -> None:
        """Work that raised may still have a result (ruling C6)."""
        fallback = None
        if not isinstance(error, OperationFailedError):
            what = f"on_call_crashed of {call.call_id}"
            fallback = await run_callback(what, self._part.report, call.callback.on_call_crashed)
        if fallback is None:
            await self._fail_spawned(call, error)
        else:
            await self._complete(call, fallback, _Note(f"with the fallback after {type(error).__name__}: {error}"))

    async def _complete(self, call: SpawnedCall[T], value: T, note: _Note) -> None:
        if await self._close_spawned(call, Event.CALL_COMPLETED, note):
            call.succeed(value)
            await self._completion(call, value)

    async def _fail_spawned(self, call: SpawnedCall[T], error: BaseException) -> None:
        # A call whose frame was never recorded has none to take away.
        recorded = call.call_id in self._part.member.own
        if recorded and not await self._close_spawned(call, Event.CALL_FAILED, _Note.of(error)):
            return
        self.open.pop(call.call_id, None)
        lost = isinstance(error, OperationFailedError)
        call.settle(CallState.LOST if lost else CallState.FAILED, error)

    async def _close_spawned(self, call: SpawnedCall[T], event: Event, note: _Note) -> bool:
        """Take the frame away; False if the call was settled otherwise in the meantime."""
        call.state = CallState.ENDING
        while True:
            try:
                await self._pop(call, event, note)
                return not call.state.settled
            except LedgerStorageError as error:
                # The work is done and must not be lost to a full disk or a held lock: try at the next beat.
                await self._part.report(f"call {call.call_id} could not be closed yet: {error}")
                await self._part.world.time.sleep(self._part.world.timing.heartbeat_min_ms / 1000)
            except OperationFailedError as error:
                if not call.state.settled:
                    call.settle(CallState.LOST, error)
                return False
            except OperationError as error:
                if not call.state.settled:
                    self.open.pop(call.call_id, None)
                    call.settle(CallState.CRASHED, error)
                return False

    # --- ending -----------------------------------------------------------------------------------------

    async def end(self, call: Call[T], result: T | None) -> None:
        await self._close(call, CallState.SUCCEEDED, Event.CALL_ENDED, _Note())
        await self._completion(call, cast("T", result))  # None is the T of a call without a result

    async def fail(self, call: Call[T], error: BaseException | str, stack_trace: str | None) -> None:
        await self._close(call, CallState.FAILED, Event.CALL_FAILED, _Note.of(error, stack_trace))

    async def fail_quietly(self, call: Call[T], error: BaseException) -> None:
        """Record the failure of a call whose own exception is what the caller must see."""
        with contextlib.suppress(OperationError):
            await self.fail(call, error, None)

    async def _close(self, call: Call[T], state: CallState, event: Event, note: _Note) -> None:
        if call.state is CallState.LOST and self._part.failure is not None:
            raise OperationFailedError(self._part.failure)
        if call.state is CallState.CRASHED:
            raise _crash_of(call)
        if call.state is not CallState.OPEN:
            raise CallStateError(f"call {call.call_id} is already {call.state.value}; end or fail it once")
        call.state = CallState.ENDING
        try:
            await self._pop(call, event, note)
        except BaseException:
            if call.state is CallState.ENDING:
                call.state = CallState.OPEN
            raise
        call.state = state

    async def _pop(self, call: TrackedCall[T], event: Event, note: _Note) -> None:
        # Resources first: if this process dies in between, the frame still names them.
        await self._part.delete(call.resources)
        member = self._part.member

        def change(transaction: Transaction) -> None:
            data = self._require(transaction)
            frame = data.frame(call.call_id)
            if frame is None or frame.state is FrameState.CRASHED:
                raise _crash_of(call)
            transaction.data = touch(pop_frame(data, call.call_id), member.own, transaction.now_us)
            level = LogLevel.ERROR if event is Event.CALL_FAILED else LogLevel.INFO
            transaction.event(event, _describe(call, note.text), level)
            if note.trace is not None:
                transaction.log(note.trace, LogLevel.DEBUG)

        await self._part.change(change)
        member.own.discard(call.call_id)
        self.open.pop(call.call_id, None)

    async def _completion(self, call: TrackedCall[T], result: T) -> None:
        callback = call.callback.on_completion
        if callback is not None:
            what = f"on_completion of {call.call_id}"
            await run_callback(what, self._part.report, lambda: callback(result))

    # --- what others did to them ------------------------------------------------------------------------

    def take_crashed(self, call_ids: frozenset[str]) -> list[Call[object] | SpawnedCall[object]]:
        """Close the book on own frames that were declared crashed while the operation goes on."""
        taken = []
        for call_id in call_ids:
            self._part.member.own.discard(call_id)
            call = self.open.get(call_id)
            if call is not None and call.state is CallState.OPEN:
                call.state = CallState.CRASHED
                taken.append(self.open.pop(call_id))
        return taken

    async def contain(self, calls: list[Call[object] | SpawnedCall[object]]) -> None:
        """A contained crash seen from inside: the hung participant is back and cleans up after itself."""
        for call in calls:
            await self._stop(call)
            await self._clean(call, None)
            what = f"on_call_crashed of {call.call_id}"
            fallback = await run_callback(what, self._part.report, call.callback.on_call_crashed)
            if isinstance(call, SpawnedCall):
                if fallback is None:
                    call.settle(CallState.CRASHED, _crash_of(call))
                else:
                    call.succeed(fallback)
            if fallback is not None:
                await self._completion(call, fallback)

    async def clean_up(self, info: OperationFailedInfo) -> None:
        """Phase 2, steps 1 and 2, for every open call, the innermost first. Each is cleaned up once."""
        calls = list(reversed(self.open.values()))
        for call in calls:
            if isinstance(call, SpawnedCall):
                if not call.state.settled:
                    call.settle(CallState.LOST, OperationFailedError(info))
            else:
                call.state = CallState.LOST
        for call in calls:
            await self._stop(call)
        for call in calls:
            await self._clean(call, info)
        self.open.clear()

    async def cancel_all(self) -> None:
        """Stop every open call for `leave(cancel_pending=True)`."""
        for call in list(reversed(self.open.values())):
            if isinstance(call, SpawnedCall):
                await call.cancel()
                await self._stop(call)
                if call.state is CallState.OPEN:  # cancelled before its first step: nobody else settles it
                    await self._fail_spawned(call, asyncio.CancelledError("cancelled by leaving"))
            else:
                await self.fail_quietly(call, asyncio.CancelledError("cancelled by leaving"))

    async def drop(self) -> None:
        """Stop spawned work without recording anything: the handle is closed under it."""
        gone = OperationEndedError(f"operation {self._part.operation_id} was closed in this process")
        for call in list(self.open.values()):
            if isinstance(call, SpawnedCall):
                if not call.state.settled:
                    call.settle(CallState.LOST, gone)
                await self._stop(call)
        self.open.clear()

    async def _stop(self, call: Call[object] | SpawnedCall[object]) -> None:
        """Stop a spawned call's process (politely, then not) and its work."""
        if not isinstance(call, SpawnedCall) or call.task is None:
            return
        time, timing = self._part.world.time, self._part.world.timing
        call.kill(signal.SIGTERM)
        call.task.cancel()
        grace = asyncio.ensure_future(time.sleep(timing.stop_grace_ms / 1000))
        await asyncio.wait({call.task, grace}, return_when=asyncio.FIRST_COMPLETED)
        grace.cancel()
        if not call.task.done():
            call.kill(signal.SIGKILL)

    async def _clean(self, call: Call[object] | SpawnedCall[object], info: OperationFailedInfo | None) -> None:
        if call.cleanup_begun:
            return
        call.cleanup_begun = True
        callback = call.callback
        await run_callback(f"on_cleanup of {call.call_id}", self._part.report, callback.on_cleanup)
        notify = callback.on_operation_failed
        if info is not None and notify is not None:
            what = f"on_operation_failed of {call.call_id}"
            await run_callback(what, self._part.report, lambda: notify(info))
        await self._part.delete(call.resources)

    # --- resources --------------------------------------------------------------------------------------

    async def add_resource(self, call: TrackedCall[T], path: str | os.PathLike[str]) -> None:
        resource = check_resource(path, self._part.world.base_path, self._part.world.temp_roots)
        await self._set_resources(call, (*call.resources, resource))

    async def remove_resource(self, call: TrackedCall[T], path: str | os.PathLike[str]) -> None:
        resource = check_resource(path, self._part.world.base_path, self._part.world.temp_roots)
        await self._set_resources(call, tuple(kept for kept in call.resources if kept != resource))

    async def _set_resources(self, call: TrackedCall[T], resources: tuple[str, ...]) -> None:
        def change(transaction: Transaction) -> None:
            data = self._require(transaction)
            if data.frame(call.call_id) is None:
                raise CallStateError(f"call {call.call_id} is over; its temp resources are no longer tracked")
            transaction.data = set_resources(data, call.call_id, resources)

        await self._part.change(change)
        call.resources = tuple(dict.fromkeys(resources))

    def _require(self, transaction: Transaction) -> LedgerData:
        data = transaction.data
        if data is None:
            raise self._part.refusal(transaction.final)
        if data.state is not OperationState.RUNNING:
            raise OperationFailedError(failure_of(data))
        return data


def _crash_of(call: TrackedCall[T]) -> CallCrashedError:
    return CallCrashedError(
        f"call {call.call_id} was declared crashed by another participant because its heartbeat stopped; "
        "its result was not taken, start the call again"
    )


def _describe(call: TrackedCall[T], note: str | None) -> str:
    return f"callId={call.call_id}" + (f" {note}" if note else "")


@dataclass(frozen=True, slots=True)
class _Note:
    """What is said of an end: a line for people, the stack trace for the debug log."""

    text: str = ""
    trace: str | None = None

    @classmethod
    def of(cls, error: BaseException | str, stack_trace: str | None = None) -> _Note:
        if isinstance(error, str):
            return cls(error, stack_trace)
        if stack_trace is None and error.__traceback__ is not None:
            stack_trace = "".join(traceback.format_exception(error))
        return cls(f"{type(error).__name__}: {error}", stack_trace)
