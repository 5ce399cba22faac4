"""One execution: its timeline, what it was given and gave, its tree, its events, and what can be done with it."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from msgspec import Raw, Struct
from starlette.responses import RedirectResponse, Response

from holdfast.core.identity import PromiseId
from holdfast.core.journal.events import Event, ExecutionAwaiting, InvokeScheduled
from holdfast.core.status import Status
from holdfast.store.values import SIGNAL, ExecutionFilter, ExecutionView
from holdfast.views import finding, reading, shapes
from holdfast.views.machine_graph import step_graph
from holdfast.views.timeline import Timeline, journal_timeline
from holdfast.views.timeline_steps import row_timeline, steps_timeline, task_timeline
from holdfast.web.dashboard.gantt import ROWS_A_PAGE, draw
from holdfast.web.dashboard.pages.batches import run_of
from holdfast.web.dashboard.pages.flows import job_of
from holdfast.web.dashboard.pages.machines import diagram_of
from holdfast.web.dashboard.render import Page

EVENTS_A_PAGE: Final = 100
POLL_SECONDS: Final = 5  # what is open grows, though nothing is committed
SIGNALS_SHOWN: Final = 50
TREE_NODES: Final = 60
TREE_DEPTH: Final = 3
DELEGATING: Final = ("flow", "batch")


class Branch(Struct):
    item: shapes.Summary
    branches: list[Branch]
    more: int = 0
    is_here: bool = False


class EventLine(Struct, frozen=True):
    event: Event
    kind: str
    subject: str


async def execution(page: Page) -> Response:
    asked = page.request.path_params["id"]
    view = await finding.find(page.store, asked)
    found = shapes.id_of(view)
    if asked != str(found):
        return RedirectResponse(f"/executions/{found}", 307)
    # Ends of children travel through the inbox too; people mean what was sent.
    sent = [signal for signal in await page.store.inbox(view.promise) if signal.kind == SIGNAL]
    # Its children are in the tree, and what its tasks in flight say on the timeline.
    item = shapes.details(view, sent[:SIGNALS_SHOWN], [], await finding.newest(page.store, view), [])
    events: list[Event] = []
    if view.journal_length:
        events = (await reading.journal(page.store, found)).events
    timeline = await timeline_of(page, view, events)
    first = _whole(page.query("rows"))
    is_to_scale = page.query("scale") == "true"
    event_from = _whole(page.query("events"))
    machine = await _machine(page, view) if view.kind == "machine" else {}
    job = await job_of(page, view) if view.kind == "flow" else {}
    run = await run_of(page, view) if view.kind == "batch" else {}
    return page.render(
        "execution.html",
        here="/executions",
        title=item.label,
        item=item,
        more_signals=max(0, len(sent) - SIGNALS_SHOWN),
        given=_given(view),
        view=view,
        id=str(found),
        gantt=draw(timeline, fold=not is_to_scale, first=first),
        rows_a_page=ROWS_A_PAGE,
        is_to_scale=is_to_scale,
        query=_queries(page),
        events=[event_line(event) for event in events[event_from : event_from + EVENTS_A_PAGE]],
        event_from=event_from,
        is_journal_open="events" in page.request.query_params,
        events_a_page=EVENTS_A_PAGE,
        event_count=len(events),
        tree=await tree_of(page, view),
        can=_possible(view),
        events_url=f"/api/v1/executions/{found}/events" if not view.status.is_terminal else "",
        live_words="ended" if view.status.is_terminal else "connecting",
        poll_seconds=0 if view.status.is_terminal else POLL_SECONDS,
        newest=item.newest,
        newest_short=item.newest and PromiseId.parse(item.newest.id).short,
        machine=machine,
        job=job,
        run=run,
        **await _links(page, view),
    )


async def timeline_of(page: Page, view: ExecutionView, events: list[Event]) -> Timeline:
    if view.kind == "workflow":
        calls = [event.promise_id for event in events if isinstance(event, InvokeScheduled)]
        views = await page.store.get_many([PromiseId.parse(call).to_bytes() for call in calls]) if calls else []
        children = {call: child for call, child in zip(calls, views, strict=True) if child is not None}
        return journal_timeline(view, events, children, page.now_us)
    if view.kind == "machine":
        return steps_timeline(view, await page.store.history(view.promise), page.now_us)
    if view.kind == "task":
        return task_timeline(view, page.now_us)
    return row_timeline(view, page.now_us)


async def tree_of(page: Page, view: ExecutionView) -> Branch | None:
    """From its parent down, as far as is readable; None where it stands alone.

    The chunks of a batch and the messages of a flow are no business of a tree: their pages show them.
    """
    budget = [TREE_NODES]
    here = Branch(shapes.summary(view), [], is_here=True)
    if view.kind not in DELEGATING:
        await _grow(page, here, view.promise, 1, budget)
    if view.parent is None:
        return here if here.branches else None
    parent = await page.store.get(view.parent)
    return here if parent is None else Branch(shapes.summary(parent), [here])


async def _grow(page: Page, branch: Branch, promise: bytes, depth: int, budget: list[int]) -> None:
    if depth > TREE_DEPTH or budget[0] <= 0:
        return
    found = await page.store.browse(ExecutionFilter(parent=promise), budget[0])
    budget[0] -= len(found.items)
    branch.more = int(found.cursor is not None)
    for child in reversed(found.items):
        leaf = Branch(shapes.summary(child), [])
        branch.branches.append(leaf)
        if child.kind not in ("task", *DELEGATING):
            await _grow(page, leaf, child.promise, depth + 1, budget)


async def _machine(page: Page, view: ExecutionView) -> dict[str, Any]:
    history = await page.store.history(view.promise)
    graph = step_graph(page.site.find_machine(view.name, view.version), history, view.step)
    return {"graph": graph, "diagram": diagram_of(graph, view), "has_history": bool(history)}


async def _links(page: Page, view: ExecutionView) -> dict[str, Any]:
    parent = None
    if view.parent is not None:
        found = await page.store.get(view.parent)
        parent = None if found is None else shapes.summary(found)
    return {"parent": parent}


def _given(view: ExecutionView) -> bytes | str:
    """What it was started with; a task's row keeps its attempts beside that."""
    if view.kind != "task":
        return view.state
    try:
        return bytes(msgspec.json.decode(view.state, type=dict[str, Raw])["input"])
    except (msgspec.DecodeError, RecursionError, KeyError):
        return view.state


def _possible(view: ExecutionView) -> dict[str, bool]:
    is_live = not view.status.is_terminal
    return {
        "cancel": is_live,
        "force": is_live and view.kind in ("workflow", "batch"),  # the others end as they stand, or close what they owe
        "pause": is_live and not view.paused and view.status is not Status.STRANDED,
        "resume": is_live and (view.paused or view.status is Status.STRANDED),
        "retry": view.status is Status.FAILED
        and view.kind in ("workflow", "machine", "task")
        and view.successor is None,
        "signal": is_live and view.kind in ("workflow", "machine", "flow"),
        "retry_failed": view.kind == "batch" and not is_live,
        "fork": view.kind == "workflow" and view.journal_length > 0,
    }


def event_line(event: Event) -> EventLine:
    kind = type(event).__name__
    parts = []
    for field in ("function_name", "signal_name", "duration", "attempt", "failed_attempt", "reason"):
        value = getattr(event, field, None)
        if value is not None:
            parts.append(f"{field.replace('_', ' ')} {value}" if "attempt" in field else str(value))
    if isinstance(event, ExecutionAwaiting):
        parts.append(_waits(event))
    elif number := getattr(event, "promise_id", None) or getattr(event, "join_set_id", None):
        parts.insert(0, _number(number))
    error = getattr(event, "error", None)
    if error is not None:
        parts.append(f"{error.type}: {error.message}")
    return EventLine(event, kind, " · ".join(parts))


def _waits(event: ExecutionAwaiting) -> str:
    named = ", ".join(map(_number, event.waiting_on[:8]))
    if event.join_set_id is None:
        return f"on {named}"
    left = f"on any of the results left of join set {_number(event.join_set_id)}"
    return f"{left}, or {named}" if named else left


def _number(promise_id: str) -> str:
    return f"#{promise_id.rpartition('.')[2]}"


def _queries(page: Page) -> dict[str, str]:
    kept = {name: page.query(name) for name in ("rows", "scale", "events") if page.query(name)}

    def without(name: str) -> str:
        return urlencode({key: value for key, value in kept.items() if key != name})

    return {name: without(name) for name in ("rows", "scale", "events")}


def _whole(text: str) -> int:
    try:
        return max(0, int(text)) if text else 0
    except ValueError:
        return 0
