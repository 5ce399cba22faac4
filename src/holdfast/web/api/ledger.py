"""The ledger as a whole: overview, workers, definitions."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from holdfast.views import ledger_shapes, reading
from holdfast.web.security import Role
from holdfast.web.table import Call, Route


class Workers(Struct, frozen=True, kw_only=True):
    """Workers that have a lease, or had one and were not cleaned up after yet."""

    workers: list[ledger_shapes.Worker]


class Definitions(Struct, frozen=True, kw_only=True):
    """What can be started by name."""

    definitions: list[ledger_shapes.DefinitionLine]


async def overview(call: Call) -> ledger_shapes.Overview:
    return await reading.overview(call.store)


async def workers(call: Call) -> Workers:
    return Workers(workers=await reading.workers(call.store))


async def definitions(call: Call) -> Definitions:
    return Definitions(definitions=await reading.definitions(call.store))


def _read(path: str, name: str, summary: str, handler: Any, answer: type) -> Route:
    return Route(
        method="GET",
        path=path,
        name=name,
        tag="ledger",
        role=Role.READ,
        summary=summary,
        handler=handler,
        answer=answer,
    )


ROUTES: Final = (
    _read("/overview", "show_overview", "The ledger at a glance, by bounded counts", overview, ledger_shapes.Overview),
    _read("/workers", "list_workers", "Workers and their leases", workers, Workers),
    _read("/definitions", "list_definitions", "What can be started by name", definitions, Definitions),
)
