"""Live events by SSE: of the whole ledger, and of one execution."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from holdfast.views import finding
from holdfast.web.requests import StreamQuery
from holdfast.web.security import Role
from holdfast.web.streams import is_finished, stream_response
from holdfast.web.table import EVENT_STREAM, Call, Route


async def ledger_events(call: Call) -> Response:
    query: StreamQuery = call.query
    after = call.request.headers.get("last-event-id") or None
    events = call.streams.ledger(
        call.store,
        after,
        statuses=tuple(query.status),
        name=query.name,
        starts=query.starts,
        with_overview=query.overview,
        reader=call.reader,
    )
    return await stream_response(events)


async def execution_events(call: Call) -> Response:
    view = await finding.find(call.store, call.part("id"))
    after = call.request.headers.get("last-event-id") or None
    if is_finished(view, after):
        return Response(status_code=204)
    return await stream_response(call.streams.execution(call.store, view.promise, after, reader=call.reader))


ROUTES: Final = (
    Route(
        method="GET",
        path="/events",
        name="watch_ledger",
        tag="events",
        role=Role.READ,
        summary="Every end, stranding and, if asked, start, by server-sent events; goes on after `Last-Event-ID`",
        handler=ledger_events,
        query=StreamQuery,
        answer=str,
        media=EVENT_STREAM,
        problems=(429, 503),
    ),
    Route(
        method="GET",
        path="/executions/{id}/events",
        name="watch_execution",
        tag="events",
        role=Role.READ,
        summary="What an execution does, by server-sent events, from its beginning or after `Last-Event-ID`",
        handler=execution_events,
        answer=str,
        media=EVENT_STREAM,
        problems=(404, 409, 429, 503),
        extra_statuses={204: "It has ended and all of it was read: a client stops here"},
    ),
)
