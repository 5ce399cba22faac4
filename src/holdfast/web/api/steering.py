"""Steering executions: start, signal, cancel, pause, resume, retry, fork."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from holdfast.core.errors import InvalidArgumentError
from holdfast.core.outcomes import Unique
from holdfast.models.handle import Handle
from holdfast.models.options import StartOptions
from holdfast.views import finding, shapes
from holdfast.web.problems import Problem
from holdfast.web.requests import CancelRequest, ForkRequest, SignalRequest, StartRequest
from holdfast.web.security import Role, require
from holdfast.web.table import Call, on_executions


async def start(call: Call) -> shapes.StartedByName:
    body: StartRequest = call.body
    options = StartOptions(
        key=body.key,
        queue=body.queue,
        priority=body.priority,
        partition_key=body.partition_key,
        delay=body.delay,
        at=body.at,
        attributes=body.attributes,
        deadline=body.deadline,
        unique=None if body.unique_key is None else Unique(key=body.unique_key),
    )
    if body.signal is None:
        handle, existing = await call.app._start_or_find(body.name, body.input, **options)
        return shapes.StartedByName(id=str(handle.id), label=handle.label, existing=existing)
    options["dedup_key"] = body.signal.dedup_key
    handle, existing, delivery = await call.app._signal_with_start(
        body.name, body.signal.name, body.signal.payload, body.input, **options
    )
    return shapes.StartedByName(id=str(handle.id), label=handle.label, existing=existing, delivery=delivery)


async def signal(call: Call) -> shapes.Delivered:
    body: SignalRequest = call.body
    handle = await _handle(call)
    delivery = await handle.signal(body.name, body.payload, dedup_key=body.dedup_key)
    return shapes.Delivered(id=str(handle.id), label=handle.label, signal=body.name, delivery=delivery)


async def cancel(call: Call) -> shapes.Standing:
    body: CancelRequest = call.body
    if body.force:  # what its author wrote to be undone is not
        require(call.request, Role.ADMIN)
    handle = await _handle(call)
    await handle.cancel(cascade=body.cascade, reason=body.reason, force=body.force)
    return await _standing(call, handle)


async def pause(call: Call) -> shapes.Standing:
    return await _changed(call, "pause")


async def resume(call: Call) -> shapes.Standing:
    return await _changed(call, "resume")


async def retry(call: Call) -> shapes.Started:
    handle = await _handle(call)
    try:
        return _started(await handle.retry())
    except InvalidArgumentError as error:  # it did not fail
        raise Problem(409, "refused", str(error)) from error


async def fork(call: Call) -> shapes.Started:
    body: ForkRequest = call.body
    handle = await _handle(call)
    try:
        return _started(await handle.fork(body.at))
    except InvalidArgumentError as error:  # it is no workflow, or has no such event
        raise Problem(409, "refused", str(error)) from error


async def _handle(call: Call) -> Handle[Any]:
    view = await finding.find(call.store, call.part("id"))
    return Handle(call.app._connection, shapes.id_of(view), name=view.name)


async def _changed(call: Call, action: str) -> shapes.Standing:
    handle = await _handle(call)
    try:
        await getattr(handle, action)()
    except InvalidArgumentError as error:  # it has ended
        raise Problem(409, "refused", str(error)) from error
    return await _standing(call, handle)


async def _standing(call: Call, handle: Handle[Any]) -> shapes.Standing:
    """Of the run that was reached: of one that was retried, or continued, the last."""
    view = await finding.find(call.store, await handle.newest())
    return shapes.Standing(
        id=str(shapes.id_of(view)), label=shapes.label_of(view), status=view.status, paused=view.paused
    )


def _started(handle: Handle[Any]) -> shapes.Started:
    return shapes.Started(id=str(handle.id), label=handle.label)


_steer = partial(on_executions, "POST", "steering", Role.OPERATE)

ROUTES: Final = (
    _steer(
        *("", "start_execution", "Start a definition by its name; with a key, once", start, shapes.StartedByName),
        body=StartRequest,
        status=201,
    ),
    _steer("/{id}/signals", "send_signal", "Put a signal into its inbox", signal, shapes.Delivered, body=SignalRequest),
    _steer("/{id}/cancel", "cancel_execution", "Cancel it", cancel, shapes.Standing, body=CancelRequest),
    _steer("/{id}/pause", "pause_execution", "Keep it from being worked on", pause, shapes.Standing),
    _steer("/{id}/resume", "resume_execution", "Let a paused or stranded one go on", resume, shapes.Standing),
    _steer(
        *("/{id}/retry", "retry_execution", "Try a failed one again, under a new id", retry, shapes.Started),
        status=201,
    ),
    _steer(
        *("/{id}/fork", "fork_execution", "A new one with its past up to an event", fork, shapes.Started),
        body=ForkRequest,
        status=201,
    ),
)
