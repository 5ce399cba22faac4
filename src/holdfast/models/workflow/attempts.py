"""One attempt of one call: on the loop, in a thread, or in another process; with its deadlines and heartbeats."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator
from typing import Any

from msgspec import Raw

from holdfast.core.journal.events import Ok
from holdfast.engine.runner import Engine
from holdfast.models.workflow.current import CURRENT_CALL, Current
from holdfast.models.workflow.task import Task, call_by_name


class HeartbeatMissed(TimeoutError):  # noqa: N818  (a kind of timeout, which users catch as one)
    """The task has a heartbeat timeout and was silent for longer."""


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
    async with contextlib.AsyncExitStack() as stack:
        if task.timeout_seconds is not None:
            await stack.enter_async_context(asyncio.timeout(task.timeout_seconds))
        if task.heartbeat_seconds is None:
            yield
            return
        try:
            async with asyncio.timeout(task.heartbeat_seconds) as scope:
                call.watch(scope, task.heartbeat_seconds)
                yield
        except TimeoutError as error:
            if scope.expired():
                raise HeartbeatMissed(f"{task.name} gave no heartbeat for {task.heartbeat_seconds:g} s") from error
            raise
