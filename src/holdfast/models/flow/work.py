"""User code: what an activity is given, and one attempt of it."""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import Any, Final

import msgspec
from msgspec import Raw

from holdfast.core.errors import EncodeError, HoldfastError, PayloadTooLargeError
from holdfast.core.retry import Retry
from holdfast.engine.runner import Engine
from holdfast.models.flow.graph import Node
from holdfast.models.flow.message import GUID_PATH_BYTES, Message
from holdfast.models.workflow.attempts import run_attempt
from holdfast.models.workflow.current import Current
from holdfast.models.workflow.task import Task
from holdfast.store.values import ExecutionClaim

_NULL: Final = Raw(b"null")
_PATH: Final = Struct(">4I")


class ActivityStopped(HoldfastError):  # noqa: N818
    """An activity cancelled itself, or called sys.exit: that ends the activity, and not the worker."""


async def inputs_of(node: Node, message: Message, claim: ExecutionClaim, engine: Engine) -> list[Raw]:
    """The answers of what it comes after, in the order of its parameters."""
    if message.inputs or len(node.sources) < 2:
        return message.inputs
    assert claim.parent_row is not None, "a message belongs to a job"
    arrived = await engine.store.flow_arrived(claim.parent_row, node.name, message.dimension)
    return [_raw(arrived.get(source.name)) for source in node.sources]


def _raw(value: str | None) -> Raw:
    return _NULL if value is None else Raw(value.encode())


def arguments(task: Task[..., Any], inputs: list[Raw], *, is_whole: bool) -> str:
    """The inputs as the object that the task's signature reads; an entry is given it whole."""
    if is_whole:
        return bytes(inputs[0]).decode()
    return msgspec.json.encode(dict(zip(task.signature.names, inputs, strict=False))).decode()


def current_of(claim: ExecutionClaim, job: str) -> Current:
    """What user code may know of its attempt; the id of a message begins with that of its `job`."""
    promise = claim.promise
    one, two, three, four = _PATH.unpack_from(promise, len(promise) - GUID_PATH_BYTES)
    return Current(job, f"{job}.{one}.{two}.{three}.{four}", claim.attempt + 1)


async def run_once(task: Task[..., Any], text: str, call: Current, engine: Engine) -> str:
    """One attempt. Whatever went wrong comes out as an Exception; a worker that drains cancels it."""
    try:
        returned = await run_attempt(task, text, call, engine)
    except asyncio.CancelledError as error:
        running = asyncio.current_task()
        if running is not None and running.cancelling():
            raise
        raise ActivityStopped(f"{task.name} was cancelled from within") from error
    except SystemExit as error:
        raise ActivityStopped(f"{task.name} called sys.exit({error.code!r})") from error
    return returned.raw.decode()


def retry_delay(task: Task[..., Any], claim: ExecutionClaim, error: Exception, engine: Engine) -> float | None:
    """For how long to wait before the next attempt; None: there is none."""
    if isinstance(error, EncodeError | PayloadTooLargeError):
        return None  # what it answers cannot be kept: to do the work again would not help
    decision = task.retry.decide(claim.attempt + 1, 0.0, error, engine.random())
    return decision.delay_seconds if isinstance(decision, Retry) else None
