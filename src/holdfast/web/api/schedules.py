"""Schedules: what is started when."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from holdfast.core.errors import NotFoundError
from holdfast.views import ledger_shapes, reading, shapes
from holdfast.web.requests import NamesQuery, ScheduleRequest
from holdfast.web.security import Role
from holdfast.web.table import Call, Route


class SchedulePage(Struct, frozen=True, kw_only=True):
    """Schedules, by name."""

    schedules: list[ledger_shapes.Schedule]
    cursor: shapes.NextCursor


class Deleted(Struct, frozen=True, kw_only=True):
    """What is gone now."""

    schedule: str


async def list_schedules(call: Call) -> SchedulePage:
    query: NamesQuery = call.query
    found, cursor = reading.page_by_name(await call.store.schedules(), query.cursor, query.limit)
    return SchedulePage(schedules=[ledger_shapes.schedule(one) for one in found], cursor=cursor)


async def show(call: Call) -> ledger_shapes.Schedule:
    found = await call.store.schedules(call.part("name"))
    if not found:
        raise NotFoundError(f"there is no schedule {call.part('name')!r}")
    return ledger_shapes.schedule(found[0])


async def put(call: Call) -> ledger_shapes.Schedule:
    body: ScheduleRequest = call.body
    await call.app.schedules.create(
        call.part("name"),
        body.cron,
        body.definition,
        timezone=body.timezone,
        args=body.input,
        queue=body.queue,
        overlap=body.overlap,
        catch_up=body.catch_up,
        window=body.window_seconds,
    )
    return await show(call)


async def pause(call: Call) -> ledger_shapes.Schedule:
    await call.app.schedules.pause(call.part("name"))
    return await show(call)


async def resume(call: Call) -> ledger_shapes.Schedule:
    await call.app.schedules.resume(call.part("name"))
    return await show(call)


async def trigger(call: Call) -> shapes.Started:
    handle = await call.app.schedules.trigger(call.part("name"))
    return shapes.Started(id=str(handle.id), label=handle.label)


async def delete(call: Call) -> Deleted:
    await call.app.schedules.delete(call.part("name"))
    return Deleted(schedule=call.part("name"))


def _route(
    method: Any, path: str, name: str, role: Role, summary: str, handler: Any, answer: type, **more: Any
) -> Route:
    return Route(
        method=method,
        path=f"/schedules{path}",
        name=name,
        tag="schedules",
        role=role,
        summary=summary,
        handler=handler,
        answer=answer,
        **more,
    )


_MISSING: Final = (404,)

ROUTES: Final = (
    _route(
        *("GET", "", "list_schedules", Role.READ, "Schedules by name", list_schedules, SchedulePage), query=NamesQuery
    ),
    _route(
        "GET", "/{name}", "show_schedule", Role.READ, "One schedule", show, ledger_shapes.Schedule, problems=_MISSING
    ),
    _route(
        *("PUT", "/{name}", "put_schedule", Role.ADMIN, "Create it, or change it; a paused one stays so", put),
        answer=ledger_shapes.Schedule,
        body=ScheduleRequest,
    ),
    _route(
        *("POST", "/{name}/pause", "pause_schedule", Role.OPERATE, "No ticks until it is resumed", pause),
        answer=ledger_shapes.Schedule,
        problems=_MISSING,
    ),
    _route(
        *("POST", "/{name}/resume", "resume_schedule", Role.OPERATE, "Let it tick again", resume),
        answer=ledger_shapes.Schedule,
        problems=_MISSING,
    ),
    _route(
        *("POST", "/{name}/trigger", "trigger_schedule", Role.OPERATE, "Start it once, now", trigger),
        answer=shapes.Started,
        status=201,
        problems=(404, 409),
    ),
    _route(
        *("DELETE", "/{name}", "delete_schedule", Role.ADMIN, "Forget it; what it has started goes on", delete),
        answer=Deleted,
        problems=_MISSING,
    ),
)
