"""The list of executions: filters, search, keyset pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from msgspec.structs import replace
from starlette.responses import RedirectResponse, Response

from holdfast.core.errors import HoldfastError, InvalidArgumentError
from holdfast.core.status import Status
from holdfast.store.values import ExecutionFilter
from holdfast.views import dead_letters, finding, ledger_shapes, reading, shapes
from holdfast.web.dashboard.render import Page

PAGE_SIZE: Final = 50
SEARCH_MAX_CHARS: Final = 2_000  # what `_ATTRIBUTE` takes grows with the square of a long word
KINDS: Final = ("workflow", "task", "machine", "flow", "message", "batch", "chunk")
# What people look for, as groups of statuses.
GROUPS: Final[dict[str, tuple[Status, ...]]] = {
    "live": (
        Status.RUNNABLE,
        Status.EXECUTING,
        Status.AWAITING_SIGNAL,
        Status.AWAITING_CHILDREN,
        Status.AWAITING_PROMISE,
        Status.DELEGATED,
        Status.STRANDED,
    ),
    "runnable": (Status.RUNNABLE,),
    "executing": (Status.EXECUTING,),
    "waiting": (Status.AWAITING_SIGNAL, Status.AWAITING_CHILDREN, Status.AWAITING_PROMISE, Status.DELEGATED),
    "stranded": (Status.STRANDED,),
    "failed": (Status.FAILED,),
    "done": (Status.DONE,),
    "cancelled": (Status.CANCELLED,),
}
ONLY_FAILED: Final = ExecutionFilter(statuses=(Status.FAILED,))
_ATTRIBUTE = re.compile(r"([^\s=]+)=(\"[^\"]*\"|\S+)")


async def executions(page: Page) -> Response:
    search = page.query("q")
    chosen = {name: page.query(name) for name in ("status", "kind", "name", "queue", "parent", "before")}
    problem = ""
    parent: shapes.Summary | None = None
    found: list[shapes.Summary] = []
    cursor: str | None = None
    try:
        if len(search) > SEARCH_MAX_CHARS:
            search = ""
            raise InvalidArgumentError(f"a search has at most {SEARCH_MAX_CHARS} characters: look for an id or a name")
        if search and not _ATTRIBUTE.search(search):
            views = await finding.meant(page.store, search, PAGE_SIZE)
            if len(views) == 1:
                return RedirectResponse(f"/executions/{shapes.id_of(views[0])}", 303)
            found = [shapes.summary(view) for view in views]
        if not found:
            where, after, before = filter_of(chosen, search), page.query("after") or None, moment_of(chosen["before"])
            if chosen["parent"]:
                view = await finding.find(page.store, chosen["parent"])
                parent, where = shapes.summary(view), replace(where, parent=view.promise)
            if where == ONLY_FAILED:  # by their end: there is an index for that
                listed = await dead_letters.failed(page.store, after, PAGE_SIZE, before=before)
            else:
                listed = await reading.executions(page.store, where, after, PAGE_SIZE, before=before)
            found, cursor = listed.executions, listed.cursor
    except (HoldfastError, ValueError) as error:
        problem = str(error)
    definitions = await reading.definitions(page.store)
    kept = {name: value for name, value in {**chosen, "q": search}.items() if value}
    return page.render(
        "executions.html",
        here="/executions",
        title="Executions",
        items=found,
        problem=problem,
        chosen=chosen,
        parent=parent,
        search=search,
        is_filtered=bool(kept) or bool(page.query("after")),
        is_continued=bool(page.query("after")),
        groups=[
            (name, urlencode({**{k: v for k, v in kept.items() if k != "status"}, "status": name})) for name in GROUPS
        ],
        everything=urlencode({k: v for k, v in kept.items() if k != "status"}),
        newest=urlencode(kept),
        looked_at=reading.LOOKED_AT,
        page_size=PAGE_SIZE,
        following=urlencode({**kept, "after": cursor}) if cursor else "",
        kinds=KINDS,
        names=sorted({line.name for line in definitions}),
        startable=_startable(definitions),
    )


def _startable(definitions: Sequence[ledger_shapes.DefinitionLine]) -> list[tuple[str, str]]:
    """The names that can be started, and what the newest version of each takes."""
    newest = {line.name: line for line in sorted(definitions, key=lambda line: (line.name, line.version))}
    return [
        (name, "its state" if line.kind == "machine" else ", ".join(line.parameters) or "nothing")
        for name, line in newest.items()
    ]


def moment_of(text: str) -> datetime | None:
    """What a field for a day and a time of day holds; in UTC, unless it says another zone."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgumentError(f"{text[:60]!r} is no day and time: write it as 2030-01-31T14:00") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def filter_of(chosen: dict[str, str], search: str = "") -> ExecutionFilter:
    """What the form asks for; `key=value` words of the search are attributes, one other word is a name."""
    status = chosen.get("status", "")
    statuses: tuple[Status, ...] = ()
    if status:
        if status not in GROUPS and status not in set(Status):
            raise InvalidArgumentError(f"{status!r} is no status; choose one of {', '.join(GROUPS)}")
        statuses = GROUPS.get(status) or (Status(status),)
    attributes = {key: _scalar(value) for key, value in _ATTRIBUTE.findall(search)}
    rest = _ATTRIBUTE.sub("", search).split()
    if len(rest) > 1:
        raise InvalidArgumentError("search for an id, the name of a definition, or attributes such as customer=17")
    return ExecutionFilter(
        kind=chosen.get("kind") or None,
        name=(rest[0] if rest else None) or chosen.get("name") or None,
        queue=chosen.get("queue") or None,
        statuses=statuses,
        attributes=attributes or None,
    )


def _scalar(text: str) -> Any:
    """`17` is a number and `true` a truth, unless they are in quotes."""
    if text.startswith('"') and text.endswith('"') and len(text) > 1:
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
