"""Queues and their limits."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

from holdfast.models.options import check_queue
from holdfast.store.values import QueueChange
from holdfast.views import ledger_shapes, reading, shapes
from holdfast.web.requests import NamesQuery, QueueRequest
from holdfast.web.security import Role
from holdfast.web.table import Call, Route


class QueuePage(Struct, frozen=True, kw_only=True):
    """Queues that have settings or live executions, by name."""

    queues: list[ledger_shapes.Queue]
    cursor: shapes.NextCursor


async def list_queues(call: Call) -> QueuePage:
    query: NamesQuery = call.query
    found = await reading.queues(call.store, query.cursor or "", query.limit + 1)
    page = found[: query.limit]
    return QueuePage(queues=page, cursor=page[-1].name if len(found) > query.limit else None)


async def change(call: Call) -> ledger_shapes.QueueLimits:
    body: QueueRequest = call.body
    return await _set(call, QueueChange(**asdict(body)))


async def pause(call: Call) -> ledger_shapes.QueueLimits:
    return await _set(call, QueueChange(paused=True))


async def resume(call: Call) -> ledger_shapes.QueueLimits:
    return await _set(call, QueueChange(paused=False))


async def _set(call: Call, change: QueueChange) -> ledger_shapes.QueueLimits:
    return ledger_shapes.queue_limits(await call.store.change_queue(check_queue(call.part("name")), change))


ROUTES: Final = (
    Route(
        method="GET",
        path="/queues",
        name="list_queues",
        tag="queues",
        role=Role.READ,
        summary="Queues by name, their settings and what is in them",
        handler=list_queues,
        query=NamesQuery,
        answer=QueuePage,
    ),
    Route(
        method="PATCH",
        path="/queues/{name}",
        name="change_queue",
        tag="queues",
        role=Role.ADMIN,
        summary="Change the settings of a queue",
        handler=change,
        body=QueueRequest,
        answer=ledger_shapes.QueueLimits,
    ),
    Route(
        method="POST",
        path="/queues/{name}/pause",
        name="pause_queue",
        tag="queues",
        role=Role.OPERATE,
        summary="Let no worker take anything from a queue",
        handler=pause,
        answer=ledger_shapes.QueueLimits,
    ),
    Route(
        method="POST",
        path="/queues/{name}/resume",
        name="resume_queue",
        tag="queues",
        role=Role.OPERATE,
        summary="Open a paused queue again",
        handler=resume,
        answer=ledger_shapes.QueueLimits,
    ),
)
