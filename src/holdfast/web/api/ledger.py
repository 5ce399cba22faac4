"""The ledger as a whole: overview, workers, definitions."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from holdfast.views import ledger_shapes, reading, shapes
from holdfast.web.requests import NamesQuery, Nothing
from holdfast.web.security import Role
from holdfast.web.table import Call, Route


class WorkerPage(Struct, frozen=True, kw_only=True):
    """Workers that have a lease, or had one and were not cleaned up after yet, by id."""

    workers: list[ledger_shapes.Worker]
    cursor: shapes.NextCursor


class DefinitionPage(Struct, frozen=True, kw_only=True):
    """What can be started by name, by name and version."""

    definitions: list[ledger_shapes.DefinitionLine]
    cursor: shapes.NextCursor


async def overview(call: Call) -> ledger_shapes.Overview:
    return await reading.overview(call.store)


async def workers(call: Call) -> WorkerPage:
    query: NamesQuery = call.query
    found = await reading.workers(call.store)
    page, cursor = reading.page_by(lambda one: one.id, found, query.cursor, query.limit)
    return WorkerPage(workers=page, cursor=cursor)


async def definitions(call: Call) -> DefinitionPage:
    query: NamesQuery = call.query
    found = await reading.definitions(call.store)
    page, cursor = reading.page_by(_name_and_version, found, query.cursor, query.limit)
    return DefinitionPage(definitions=page, cursor=cursor)


def _name_and_version(line: ledger_shapes.DefinitionLine) -> str:
    """In the order of both: a name has no space, and a version at most ten digits."""
    return f"{line.name} {line.version:010d}"


def _read(path: str, name: str, summary: str, handler: Any, answer: type, query: type[Struct] = Nothing) -> Route:
    return Route(
        method="GET",
        path=path,
        name=name,
        tag="ledger",
        role=Role.READ,
        summary=summary,
        handler=handler,
        answer=answer,
        query=query,
    )


ROUTES: Final = (
    _read("/overview", "show_overview", "The ledger at a glance, by bounded counts", overview, ledger_shapes.Overview),
    _read("/workers", "list_workers", "Workers and their leases", workers, WorkerPage, NamesQuery),
    _read("/definitions", "list_definitions", "What can be started by name", definitions, DefinitionPage, NamesQuery),
)
