"""Looking at executions: lists, one, its journal, history, children and inbox."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final, get_args

from msgspec import Meta, Struct

from holdfast.core.journal.events import Event
from holdfast.core.journal.local_ids import events_of
from holdfast.store.values import ExecutionFilter
from holdfast.views import finding, reading, shapes
from holdfast.web.requests import JournalQuery, ListQuery, PageQuery, attributes_of
from holdfast.web.security import Role
from holdfast.web.table import Call, on_executions

CHILDREN_SHOWN: Final = 100
EVENT_NAMES: Final = [kind.__name__ for kind in get_args(Event)]


class JournalEntry(Struct, frozen=True, kw_only=True):
    """An event of a journal. What more it has depends on `event`; a field that has its default is left out."""

    v: int
    event: Annotated[str, Meta(extra_json_schema={"enum": EVENT_NAMES})]
    sequence: int
    timestamp: datetime


class JournalPage(Struct, frozen=True, kw_only=True):
    """Events of a workflow in their order; of everything else there are none."""

    id: str
    label: str
    events: list[JournalEntry]
    more: bool


class Inbox(Struct, frozen=True, kw_only=True):
    """What was delivered and not read yet, oldest first."""

    id: str
    label: str
    inbox: list[shapes.InboxSignal]


async def list_executions(call: Call) -> shapes.ExecutionPage:
    query: ListQuery = call.query
    where = await reading.filter_of(
        call.store,
        kind=query.kind,
        name=query.name,
        queue=query.queue,
        statuses=query.status,
        parent=query.parent,
        attributes=attributes_of(query.where),
    )
    return await reading.executions(call.store, where, query.cursor, query.limit, before=query.before)


async def show(call: Call) -> shapes.Details:
    return await reading.execution(call.store, call.part("id"), children_most=CHILDREN_SHOWN)


async def journal(call: Call) -> dict[str, Any]:
    query: JournalQuery = call.query
    view = await finding.find(call.store, call.part("id"))
    names, first = _names(view), query.after + 1
    events: list[Event] = []
    if view.journal_length > first:
        for text in await call.store.journal_since(view.promise, first):
            events += [event for event in events_of(names["id"], text) if event.sequence >= first]
    page = events[: query.limit]
    return {**names, "events": page, "more": len(events) > len(page)}


async def history(call: Call) -> shapes.History:
    return await reading.history(call.store, call.part("id"))


async def children(call: Call) -> shapes.ExecutionPage:
    query: PageQuery = call.query
    view = await finding.find(call.store, call.part("id"))
    return await reading.executions(call.store, ExecutionFilter(parent=view.promise), query.cursor, query.limit)


async def inbox(call: Call) -> Inbox:
    view = await finding.find(call.store, call.part("id"))
    return Inbox(**_names(view), inbox=[shapes.signal(found) for found in await call.store.inbox(view.promise)])


def _names(view: Any) -> dict[str, str]:
    return {"id": str(shapes.id_of(view)), "label": shapes.label_of(view)}


_read = partial(on_executions, "GET", "executions", Role.READ)

ROUTES: Final = (
    _read(
        *("", "list_executions", "List and search executions, newest first", list_executions, shapes.ExecutionPage),
        query=ListQuery,
    ),
    _read("/{id}", "show_execution", "One execution, with its inbox and its newest 100 children", show, shapes.Details),
    _read("/{id}/journal", "show_journal", "The events of a workflow", journal, JournalPage, query=JournalQuery),
    _read("/{id}/history", "show_history", "The committed steps of a machine with history", history, shapes.History),
    _read("/{id}/children", "list_children", "Its children", children, shapes.ExecutionPage, query=PageQuery),
    _read("/{id}/inbox", "show_inbox", "Signals that it has not read yet", inbox, Inbox),
)
