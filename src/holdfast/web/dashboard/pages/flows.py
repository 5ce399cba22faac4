"""Flows: each definition with its graph, and one job of a flow with every ledger decoded."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from holdfast.core.errors import NotFoundError
from holdfast.store.values import ExecutionFilter, ExecutionView
from holdfast.views import reading, shapes
from holdfast.views.flow_job import FlowGraph, FlowPicture, graph_of, picture_of
from holdfast.web.dashboard.diagram import Diagram, Edge, Node, layout
from holdfast.web.dashboard.render import Page

RECENT: Final = 20
LINES: Final = 200

_TONES: Final = {"done": "n-past", "working": "n-now", "waiting": "n-wait", "failed": "n-bad", "dead": "n-bad"}
# Of an activity that stands differently in several dimensions, the one that matters most is drawn.
_URGENCY: Final = ("dead", "failed", "working", "waiting", "done")


async def flows(page: Page) -> Response:
    lines = [line for line in await reading.definitions(page.store) if line.kind == "flow"]
    recent = (await page.store.browse(ExecutionFilter(kind="flow"), RECENT)).items
    return page.render(
        "flows.html", here="/flows", title="Flows", lines=lines, recent=[shapes.summary(view) for view in recent]
    )


async def flow(page: Page) -> Response:
    name = page.request.path_params["name"]
    lines = [line for line in await reading.definitions(page.store) if line.kind == "flow" and line.name == name]
    recent = (await page.store.browse(ExecutionFilter(kind="flow", name=name), RECENT)).items
    if not lines and not recent:
        raise NotFoundError(f"there is no flow {name!r} in this ledger")
    found = page.site.find_flow(name)
    graph = None if found is None else graph_of(found)
    return page.render(
        "flow.html",
        here="/flows",
        title=name,
        name=name,
        lines=lines,
        diagram=None if graph is None else diagram_of(graph, None),
        recent=[shapes.summary(view) for view in recent],
    )


async def job_of(page: Page, view: ExecutionView) -> dict[str, Any]:
    """What the page of an execution shows of a job."""
    records = await page.store.flow_records(view.promise)
    if records is None:
        return {}
    picture = picture_of(records, page.site.find_flow(view.name, view.version))
    messages = (await page.store.browse(ExecutionFilter(kind="message", parent=view.promise), LINES)).items
    return {
        "since": {str(shapes.id_of(found)): found.updated_at for found in messages},
        "awaits": sorted({name for found in messages for name in found.awaits or ()}),
        "picture": picture,
        "diagram": diagram_of(picture.graph, picture) if picture.graph.nodes else None,
        "lines": picture.activities[:LINES],
        "more": max(0, len(picture.activities) - LINES),
        "tones": {
            "done": "done",
            "working": "executing",
            "waiting": "runnable",
            "failed": "failed",
            "dead": "stranded",
        },
    }


def diagram_of(graph: FlowGraph, picture: FlowPicture | None) -> Diagram:
    states: dict[str, str] = {}
    times: dict[str, int] = {}
    if picture is not None:
        found = [(line.activity, line.state) for line in picture.activities]
        found += [(message.activity, "waiting") for message in picture.messages]
        for name, state in found:
            before = states.get(name, state)
            states[name] = min(before, state, key=_URGENCY.index)
        for line in picture.activities:
            times[line.activity] = times.get(line.activity, 0) + max(1, len(line.answers))
    nodes = [
        Node(
            id=node.name,
            label=node.name,
            tone=_TONES.get(states.get(node.name, ""), ""),
            note=node.note or (f"{times[node.name]} times" if times.get(node.name, 0) > 1 else ""),
        )
        for node in graph.nodes
    ]
    edges = [
        Edge(
            source=edge.source,
            target=edge.target,
            label="" if edge.kind == "plain" else edge.kind,
            tone="e-rare" if edge.kind in ("if", "error", "optional") else "",
        )
        for edge in graph.edges
    ]
    return layout(nodes, edges)
