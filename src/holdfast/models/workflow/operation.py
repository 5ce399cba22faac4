"""`ctx.operation(...)`: a workflow that owns an operation of several processes.

The owner is the worker process that runs the workflow. Three calls, all inline and so in that process: `hold` is in
flight for as long as the block lasts, which also keeps the run in its worker; `ready` waits until others can join;
`release` hands over the verdict and brings back how the operation ended. A hold that was lost with its worker is never
begun again: the operation has failed, the others know, and the resumed run hears of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Awaitable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.core.codec import DEFAULT_MAX_BYTES
from holdfast.core.errors import CallNotAllowedError, InvalidArgumentError, TaskFailed
from holdfast.core.retry import RetryPolicy
from holdfast.models.operation.errors import (
    CallsPendingError,
    CorruptLedgerError,
    InvalidIdError,
    LedgerStorageError,
    LockTimeoutError,
    OperationExistsError,
    OperationFailedError,
    OperationFailedInfo,
    UnsafePathError,
)
from holdfast.models.operation.holding import Holding, find_holding, see_to_its_end
from holdfast.models.operation.ids import check_id, operation_id_of
from holdfast.models.operation.ledger import Ledger
from holdfast.models.operation.timing import Timing
from holdfast.models.workflow.control_flow import ContinueAsNew
from holdfast.models.workflow.promise import CallPromise, Combination
from holdfast.models.workflow.session import Session
from holdfast.models.workflow.task import Effects, Task

if TYPE_CHECKING:
    from holdfast.models.workflow.context import Context

T = TypeVar("T")

LOST: Final = "the worker that owned it was lost"
GIVEN_UP: Final = "the worker that owned it gave up the run: it was cancelled, paused or moved"
_NOT_IN_AN_ID: Final = re.compile(r"[^A-Za-z0-9_-]")
_PARTICIPANT_MAX_CHARS: Final = 60
_CANNOT_OPEN: Final = (
    CorruptLedgerError,
    InvalidIdError,
    LedgerStorageError,
    LockTimeoutError,
    OperationExistsError,
    UnsafePathError,
)


async def _hold(
    folder: str, operation_id: str, participant_id: str, description: str | None, timing: Timing, max_backups: int
) -> OperationFailedInfo | None:
    ledger = Ledger(folder, participant_id=participant_id, timing=timing, max_backups=max_backups)
    holding = Holding(ledger, operation_id, description)
    try:
        return await holding.ended()
    except asyncio.CancelledError:
        await holding.give_up(GIVEN_UP)
        raise


async def _ready(operation_id: str) -> bool:
    """False if this process does not hold it: the worker that did is gone."""
    holding = find_holding(operation_id)
    if holding is None:
        return False
    await holding.wait_opened()
    return True


async def _release(
    folder: str, operation_id: str, participant_id: str, timing: Timing, max_backups: int, reason: str | None
) -> OperationFailedInfo | None:
    holding = find_holding(operation_id)
    if holding is not None:
        holding.decide(reason)
        return await holding.ended()
    ledger = Ledger(folder, participant_id=participant_id, timing=timing, max_backups=max_backups)
    return await see_to_its_end(ledger, operation_id, reason or LOST)


def _refuse(_definition: object) -> Any:
    raise CallNotAllowedError("the calls behind ctx.operation() cannot be started alone; use holdfast.operation.Ledger")


def _built_in(
    function: Any, name: str, raises: tuple[type[BaseException], ...], retry: RetryPolicy, effects: Effects
) -> Task[..., Any]:
    """A task that needs no app: it is only ever called inline, by the body that names it."""
    return Task(
        function,
        make_starter=_refuse,
        payload_limit=DEFAULT_MAX_BYTES,
        name=f"holdfast.operation.{name}",
        raises=raises,
        retry=retry,
        effects=effects,
    )


_ONCE: Final = RetryPolicy(max_attempts=1)
HOLD: Final = _built_in(_hold, "hold", (), _ONCE, "at_most_once")
READY: Final = _built_in(_ready, "ready", _CANNOT_OPEN, _ONCE, "at_least_once")
RELEASE: Final = _built_in(
    _release, "release", (CallsPendingError,), RetryPolicy(no_retry_on=(CallsPendingError,)), "at_least_once"
)


class OwnedOperation:
    """An operation that a workflow owns: `async with ctx.operation(folder) as operation`. Hand `id` to the calls that
    take part. Leaving the block completes it; leaving by an error, or a cancel, aborts it."""

    def __init__(
        self,
        session: Session,
        context: Context,
        folder: str | os.PathLike[str],
        participant_id: str | None,
        description: str | None,
        timing: Timing | None,
        max_backups: int,
    ) -> None:
        self.folder = os.fspath(folder)
        if not Path(self.folder).is_absolute():
            raise InvalidArgumentError(
                f"the ledger folder {self.folder!r} is relative: another worker may go on with this run from another "
                "place; give its whole path"
            )
        name = _NOT_IN_AN_ID.sub("_", context.info.name)[:_PARTICIPANT_MAX_CHARS]
        self.participant_id = check_id("participant id", participant_id or name)
        self.description = description
        self._session = session
        self._context = context
        self._timing = timing or Timing()
        self._max_backups = max_backups
        self._id = ""
        self._held: CallPromise[OperationFailedInfo | None] | None = None

    @property
    def id(self) -> str:
        """The operation's id, in the format of every operation; the same in every replay."""
        if not self._id:
            raise CallNotAllowedError(
                "the operation has no id before its block is entered: async with ctx.operation(...)"
            )
        return self._id

    async def wait_for_completion(self, call: Awaitable[T]) -> T:
        """Await `call`, but no longer than the operation lives: `OperationFailedError` as soon as it has failed."""
        if self._held is None:
            raise CallNotAllowedError("this operation is not open: async with ctx.operation(...)")
        first = await Combination[Any](self._session, "Any", (call, self._held))
        if first.promise is not self._held:
            result: T = first.result()
            return result
        try:
            info = first.result()
        except TaskFailed:
            info = None
        raise OperationFailedError(info or self._lost())

    async def __aenter__(self) -> OwnedOperation:
        if self._id:
            raise CallNotAllowedError(f"operation {self._id} was entered before; make another with ctx.operation()")
        context = self._context
        self._id = operation_id_of(context.now(), self.participant_id, context.uuid().int >> 96)
        self._held = self._call(
            HOLD, self.folder, self._id, self.participant_id, self.description, self._timing, self._max_backups
        )
        try:
            is_ready = await self._call(READY, self._id)
        except _CANNOT_OPEN:
            await self._hold_ended()
            raise
        except BaseException as error:
            await self._leave(error)
            raise
        if not is_ready:
            raise OperationFailedError(await self._release(LOST) or self._lost())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(error)

    async def _leave(self, error: BaseException | None) -> None:
        if self._session.is_evicting:
            return  # the run goes on elsewhere or later, and its hold is given up with it
        if error is None or isinstance(error, ContinueAsNew):
            info = await self._release(None)
            if info is not None:
                raise OperationFailedError(info)
        else:
            # The name alone: a message may hold an address or a time, and would differ in a replay.
            await self._release(f"its owner left by {type(error).__name__}")

    async def _release(self, reason: str | None) -> OperationFailedInfo | None:
        try:
            info: OperationFailedInfo | None = await self._call(
                RELEASE, self.folder, self._id, self.participant_id, self._timing, self._max_backups, reason
            )
        finally:
            await self._hold_ended()
        return info

    async def _hold_ended(self) -> None:
        assert self._held is not None
        with contextlib.suppress(TaskFailed):  # how the operation ended is what `release` says
            await self._held

    def _call(self, task: Task[..., Any], *arguments: object) -> CallPromise[Any]:
        promise = task(*arguments)
        assert isinstance(promise, CallPromise)
        return promise

    def _lost(self) -> OperationFailedInfo:
        return OperationFailedInfo(self._id, LOST, self._context.now(), aborted=True)


__all__ = ["HOLD", "READY", "RELEASE", "OwnedOperation"]
