"""Machines: each definition with its state diagram, and where its live executions stand."""

from __future__ import annotations

from collections import Counter
from typing import Final

from starlette.responses import Response

from holdfast.core.errors import NotFoundError
from holdfast.core.status import LIVE, Status
from holdfast.store.values import ExecutionFilter, ExecutionView
from holdfast.views import reading, shapes
from holdfast.views.machine_graph import StepGraph, step_graph
from holdfast.web.dashboard.diagram import Diagram, Edge, Node, layout
from holdfast.web.dashboard.render import Page
from holdfast.web.dashboard.words import counted

LOOKED_AT: Final = 500  # live executions whose step is counted
RECENT: Final = 20
HISTORIES: Final = 5


def diagram_of(graph: StepGraph, view: ExecutionView) -> Diagram:
    """Of one execution: what it passed, where it is."""
    passed = {edge.source for edge in graph.edges if edge.times}
    here = {Status.DONE: "done", Status.FAILED: "failed"}.get(view.status, view.step)
    if here not in graph.steps:
        here = view.step
    tones = dict.fromkeys(passed, "n-past")
    tones[here] = _tone(view.status)
    nodes = [Node(id=step, label=step, tone=tones.get(step, "")) for step in graph.steps]
    edges = [
        Edge(
            source=edge.source,
            target=edge.target,
            label=f"{edge.outcome}{f', {edge.times} times' if edge.times > 1 else ''}",
            tone="e-taken" if edge.times else "e-rare" if edge.target == "failed" else "",
        )
        for edge in graph.edges
    ]
    return layout(nodes, edges)


def _tone(status: Status) -> str:
    if status in (Status.FAILED, Status.STRANDED):
        return "n-bad"
    if status.is_parked:
        return "n-wait"
    return "n-past" if status.is_terminal else "n-now"


async def machines(page: Page) -> Response:
    lines = [line for line in await reading.definitions(page.store) if line.kind == "machine"]
    return page.render("machines.html", here="/machines", title="Machines", lines=lines)


async def machine(page: Page) -> Response:
    name = page.request.path_params["name"]
    lines = [line for line in await reading.definitions(page.store) if line.kind == "machine" and line.name == name]
    # Without what merely waits for a worker: of that there may be a million.
    where = ExecutionFilter(kind="machine", name=name, statuses=tuple(sorted(LIVE - {Status.RUNNABLE})))
    live = (await page.store.browse(where, LOOKED_AT, look_at=reading.LOOKED_AT)).items
    recent = (await page.store.browse(ExecutionFilter(kind="machine", name=name), RECENT)).items
    if not lines and not recent:
        raise NotFoundError(f"there is no machine {name!r} in this ledger")
    definition = page.site.find_machine(name)
    # Without the code, the newest runs that keep a history show the way.
    history = (
        [] if definition else [line for view in recent[:HISTORIES] for line in await page.store.history(view.promise)]
    )
    graph = step_graph(definition, history, recent[0].step if recent and not definition else "")
    steps = Counter(view.step for view in live)
    nodes = [
        Node(id=step, label=step, note=counted(steps[step], "here", "here") if steps[step] else "",
             tone="n-now" if steps[step] else "")
        for step in graph.steps
    ]  # fmt: skip
    edges = [Edge(source=edge.source, target=edge.target, label=edge.outcome) for edge in graph.edges]
    return page.render(
        "machine.html",
        here="/machines",
        title=name,
        name=name,
        lines=lines,
        graph=graph,
        diagram=layout(nodes, edges) if graph.steps else None,
        live_count=len(live),
        is_capped=len(live) == LOOKED_AT,
        steps=steps.most_common(),
        recent=[shapes.summary(view) for view in recent],
    )
