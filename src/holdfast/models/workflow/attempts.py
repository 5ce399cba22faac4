"""One attempt of one call: on the loop, in a thread, or in another process; with its deadlines and heartbeats."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator
from concurrent.futures import BrokenExecutor
from typing import Any

from msgspec import Raw

from holdfast.core.journal.events import FailureKind, Ok
from holdfast.engine.runner import Engine
from holdfast.models.workflow.current import CURRENT_CALL, Current
from holdfast.models.workflow.task import Task, call_by_name


class AttemptTimedOut(TimeoutError):  # noqa: N818  (a kind of timeout, which users catch as one)
    """The attempt took longer than the task's `timeout`; a TimeoutError of the task's own is no such thing."""


class HeartbeatMissed(AttemptTimedOut):
    """The task has a heartbeat timeout and was silent for longer."""


def failure_kind(error: BaseException, task: Task[..., Any]) -> FailureKind:
    """Of a failed attempt. One that was cut off may have taken effect, which matters if it may not be repeated."""
    is_cut_off = isinstance(error, AttemptTimedOut | BrokenExecutor)
    if is_cut_off and task.effects == "at_most_once":
        return "uncertain"
    return "timeout" if isinstance(error, AttemptTimedOut) else "user"


async def run_attempt(task: Task[..., Any], text: str, call: Current, engine: Engine) -> Ok:
    """The encoded result. Whatever the task raised comes out as it is."""
    token = CURRENT_CALL.set(call)
    try:
        if task.timeout_seconds is None and task.heartbeat_seconds is None:
            return await _run(task, text, engine)
        async with _deadlines(task, call):
            return await _run(task, text, engine)
    finally:
        CURRENT_CALL.reset(token)


async def _run(task: Task[..., Any], text: str, engine: Engine) -> Ok:
    resources: dict[str, Any] = {name: engine.resources.need(wanted, task.name) for name, wanted in task.resources}
    if task.is_async:
        value = await task.fn(*task.signature.decode(text), **resources)
    elif task.executor == "process":
        loop = asyncio.get_running_loop()
        where = (task.fn.__module__, task.fn.__qualname__)
        result = await loop.run_in_executor(engine.processes, call_by_name, *where, text)
        return Ok(Raw(result.encode()))
    else:
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        arguments = task.signature.decode(text)
        value = await loop.run_in_executor(engine.threads, lambda: context.run(task.fn, *arguments, **resources))
    encoded = task.signature.result.encode(value, max_bytes=task.payload_limit)
    return Ok(Raw(encoded.encode()))


@contextlib.asynccontextmanager
async def _deadlines(task: Task[..., Any], call: Current) -> AsyncIterator[None]:
    limit, silence = asyncio.timeout(task.timeout_seconds), asyncio.timeout(task.heartbeat_seconds)
    try:
        async with limit, silence:
            if task.heartbeat_seconds is not None:
                call.watch(silence, task.heartbeat_seconds)
            yield
    except TimeoutError as error:
        if limit.expired():
            raise AttemptTimedOut(f"{task.name} took longer than {task.timeout_seconds:g} s") from error
        if silence.expired():
            raise HeartbeatMissed(f"{task.name} gave no heartbeat for {task.heartbeat_seconds:g} s") from error
        raise
