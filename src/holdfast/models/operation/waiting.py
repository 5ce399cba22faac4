"""Waiting with an eye on the operation: `sync` over spawned calls, and work raced against failure."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .call import CallState, SpawnedCall
from .callbacks import Maybe, resolve, run_work
from .errors import OperationFailedError, OperationFailedInfo
from .participation import Participation

T = TypeVar("T")
OnOperationFailed = Callable[[OperationFailedInfo], Maybe[None]]


@dataclass(frozen=True, slots=True)
class SyncResult:
    """How the calls given to `sync` stand. Unknown: still running when the operation failed."""

    successful_calls: tuple[SpawnedCall[Any], ...] = ()
    failed_calls: tuple[SpawnedCall[Any], ...] = ()
    unknown_calls: tuple[SpawnedCall[Any], ...] = ()
    operation_failed: bool = False

    @property
    def all_succeeded(self) -> bool:
        return not self.failed_calls and not self.unknown_calls

    @property
    def has_failed(self) -> bool:
        return bool(self.failed_calls)

    @property
    def all_resolved(self) -> bool:
        return not self.unknown_calls


async def sync_calls(
    part: Participation, calls: Sequence[SpawnedCall[Any]], on_operation_failed: OnOperationFailed | None
) -> SyncResult:
    """Wait until every call is over or the operation fails. Nothing to wait for returns at once (ruling C8)."""
    waiting = [asyncio.ensure_future(call.settled()) for call in calls if not call.is_completed]
    failure = asyncio.ensure_future(part.failed.wait())
    try:
        pending: set[asyncio.Future[Any]] = set(waiting)
        while pending and not failure.done():
            _, left = await asyncio.wait({*pending, failure}, return_when=asyncio.FIRST_COMPLETED)
            pending = left - {failure}
    finally:
        for future in (*waiting, failure):
            future.cancel()
    unknown = tuple(call for call in calls if not call.is_completed or call.state is CallState.LOST)
    failed = part.failure is not None
    if part.failure is not None and on_operation_failed is not None:
        await resolve(on_operation_failed(part.failure))
    return SyncResult(
        successful_calls=tuple(call for call in calls if call.is_success),
        failed_calls=tuple(call for call in calls if call.is_failed and call not in unknown),
        unknown_calls=unknown,
        operation_failed=failed,
    )


async def race_work(
    part: Participation,
    work: Callable[[], Maybe[T]],
    on_operation_failed: OnOperationFailed | None,
    on_error: Callable[[Exception, str], Maybe[T]] | None,
) -> T:
    """Run `work` against the failure of the operation (seed: waitForCompletion)."""
    task: asyncio.Task[T] = asyncio.create_task(run_work(work))
    failure = asyncio.ensure_future(part.failed.wait())
    try:
        await asyncio.wait({task, failure}, return_when=asyncio.FIRST_COMPLETED)
        if task.done() and not task.cancelled():
            error = task.exception()
            if error is None:
                return task.result()
            # Work that fell because the operation fell is the operation's failure.
            if part.failure is None and not isinstance(error, OperationFailedError):
                if on_error is None or not isinstance(error, Exception):
                    raise error
                return await resolve(on_error(error, "".join(traceback.format_exception(error))))
    finally:
        failure.cancel()
        await _drop(task)
    info = part.failure
    if info is None:
        error = None if task.cancelled() else task.exception()
        if not isinstance(error, OperationFailedError):
            raise asyncio.CancelledError("the work was cancelled")
        info = error.info
    if on_operation_failed is not None:
        await resolve(on_operation_failed(info))
    raise OperationFailedError(info)


async def _drop(task: asyncio.Task[T]) -> None:
    if not task.done():
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
