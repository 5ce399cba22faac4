"""The four callbacks of a call, and how user code is called: plain or async, its errors never lost.

A callback that raises changes no outcome: the error goes to the operation's log and to Python's.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from .errors import OperationFailedInfo

T = TypeVar("T")
logger = logging.getLogger("holdfast.operation")

Maybe: TypeAlias = Awaitable[T] | T


@dataclass(frozen=True)  # no slots: `CallCallback[int](...)` sets an attribute on the way
class CallCallback(Generic[T]):
    """What to do when a call meets its end; each may be a plain or an async function.

    on_cleanup: the operation is being cleaned up, or this call was declared crashed: release resources.
    on_completion: the call ended with this result.
    on_call_crashed: the call's work crashed; a value becomes its result, None leaves it failed (ruling C6).
    on_operation_failed: the operation failed while the call was open.
    """

    on_cleanup: Callable[[], Maybe[None]] | None = None
    on_completion: Callable[[T], Maybe[None]] | None = None
    on_call_crashed: Callable[[], Maybe[T | None]] | None = None
    on_operation_failed: Callable[[OperationFailedInfo], Maybe[None]] | None = None


async def resolve(value: Maybe[T]) -> T:
    """The value, awaited if need be."""
    if inspect.isawaitable(value):
        awaited: T = await value
        return awaited
    return value


async def run_work(work: Callable[..., Maybe[T]], *arguments: object) -> T:
    """Run user work: async functions on the loop, plain ones in a thread so that the heartbeat goes on."""
    if inspect.iscoroutinefunction(work):
        return await resolve(work(*arguments))
    return await resolve(await asyncio.to_thread(work, *arguments))


Report = Callable[[str], Awaitable[None]]


async def run_callback(what: str, report: Report, callback: Callable[[], Maybe[T]] | None) -> T | None:
    """Run a callback; an error is reported and None is returned."""
    if callback is None:
        return None
    try:
        return await resolve(callback())
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # Not this task was cancelled but one that the callback waited for: the callbacks after it must run.
        await report(f"callback {what} raised {type(error).__name__}: {error}")
        return None
    except Exception as error:
        logger.exception("callback %s raised", what)
        await report(f"callback {what} raised {type(error).__name__}: {error}")
        return None
