"""One attempt of one call: on the loop, in a thread, or in another process; with its deadlines and heartbeats."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import BrokenExecutor
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import UNSET

from holdfast.core.journal.events import FailureKind
from holdfast.engine.observer import STEPS
from holdfast.engine.runner import Engine
from holdfast.models.own_context import InContext
from holdfast.models.workflow.current import CURRENT_CALL, Current
from holdfast.models.workflow.task import Task, call_by_name

T = TypeVar("T")

# What a task raises is its failure, `sys.exit()` too, as in a thread: it is to end no more than the task.
# But these are for its process, or come from a loop that is gone.
NOT_OWN: Final = (KeyboardInterrupt, GeneratorExit)


class AttemptTimedOut(TimeoutError):  # noqa: N818  (a kind of timeout, which users catch as one)
    """The attempt took longer than the task's `timeout`; a TimeoutError of the task's own is no such thing."""


class HeartbeatMissed(AttemptTimedOut):
    """The task has a heartbeat timeout and was silent for longer."""


class Returned(NamedTuple):
    """What a task returned, as JSON; and as it is read from that, where this process has done so (ruling B11)."""

    raw: bytes
    value: Any = UNSET


def failure_kind(error: BaseException, task: Task[..., Any]) -> FailureKind:
    """Of a failed attempt. One that was cut off may have taken effect, which matters if it may not be repeated."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    is_cut_off = isinstance(error, AttemptTimedOut | BrokenExecutor)
    if is_cut_off and task.effects == "at_most_once":
        return "uncertain"
    return "timeout" if isinstance(error, AttemptTimedOut) else "user"


async def run_attempt(
    task: Task[..., Any], text: str, call: Current, engine: Engine, arguments: tuple[Any, ...] | None = None
) -> Returned:
    """The result. Whatever the task raised comes out as it is. `arguments`, if given, are what `text` says."""
    return await traced(task.name, call.attempt, _attempt(task, text, call, engine, arguments))


def traced(name: str, attempt: int, running: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """An attempt as it is, or inside a span where somebody traces."""
    tracer = STEPS.tracer
    return running if tracer is None else tracer.around("attempt", name, attempt, running)


async def _attempt(
    task: Task[..., Any], text: str, call: Current, engine: Engine, arguments: tuple[Any, ...] | None
) -> Returned:
    context = contextvars.copy_context()
    context.run(CURRENT_CALL.set, call)
    if task.timeout_seconds is None and task.heartbeat_seconds is None:
        return await _run(task, text, call, context, engine, arguments, None)
    async with _deadlines(task, call) as begin:
        return await _run(task, text, call, context, engine, arguments, begin)


async def _run(
    task: Task[..., Any],
    text: str,
    call: Current,
    context: contextvars.Context,
    engine: Engine,
    arguments: tuple[Any, ...] | None,
    begin: Callable[[], None] | None,
) -> Returned:
    """`begin` starts the clock of its deadlines."""
    if task.executor == "process":
        where = (task.fn.__module__, task.fn.__qualname__)
        result = await engine.processes.call(begin or _no_deadline, call.hear, call_by_name, call.facts, *where, text)
        return Returned(result.encode())
    if arguments is None:
        arguments = task.signature.decode(text)
    resources = engine.resources.given(task.resources, by=task.name)
    if task.is_async:
        if begin is not None:
            begin()
        function = task.call
        value = await InContext(context, context.run(function, *arguments, **resources))
    else:
        value = await _in_thread(partial(context.run, task.call, *arguments, **resources), engine, begin)
    return Returned(*task.signature.result.write(value, max_bytes=task.payload_limit))


def _no_deadline() -> None:
    """There is no clock to start."""


async def _in_thread(work: Callable[[], Any], engine: Engine, begin: Callable[[], None] | None) -> Any:
    loop = asyncio.get_running_loop()
    if begin is None:
        return await loop.run_in_executor(engine.threads, work)

    def begun() -> None:  # the time that it waited for a free thread is not the task's
        if not running.done():
            begin()

    def run() -> Any:
        loop.call_soon_threadsafe(begun)
        return work()

    running = loop.run_in_executor(engine.threads, run)
    return await running


@contextlib.asynccontextmanager
async def _deadlines(task: Task[..., Any], call: Current) -> AsyncIterator[Callable[[], None]]:
    """Gives what begins the time of the attempt."""
    now = asyncio.get_running_loop().time
    limit, silence = asyncio.timeout(None), asyncio.timeout(None)

    def begin() -> None:
        if task.timeout_seconds is not None:
            limit.reschedule(now() + task.timeout_seconds)
        if task.heartbeat_seconds is not None:
            silence.reschedule(now() + task.heartbeat_seconds)
            call.watch(silence, task.heartbeat_seconds)

    try:
        async with limit, silence:
            yield begin
    except TimeoutError as error:
        if limit.expired():
            raise AttemptTimedOut(f"{task.name} took longer than {task.timeout_seconds:g} s") from error
        if silence.expired():
            raise HeartbeatMissed(f"{task.name} gave no heartbeat for {task.heartbeat_seconds:g} s") from error
        raise
