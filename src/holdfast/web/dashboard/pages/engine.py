"""Queues, schedules, workers and dead letters: tables of what the engine has at hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic
from urllib.parse import urlencode

from msgspec import Struct
from starlette.responses import Response

from holdfast.views import dead_letters as dead
from holdfast.views import ledger_shapes, reading
from holdfast.views.reading import NamedT
from holdfast.web.dashboard.render import Page

PAGE_SIZE: Final = 50
NAMES_A_PAGE: Final = 100


class NamedPage(Struct, Generic[NamedT]):
    """Some of many, by their names."""

    items: list[NamedT]
    fit: int  # how many there are of those that are looked for
    search: str
    is_long: bool  # there are more than one page shows
    is_continued: bool
    following: str  # the query of the next page
    query: str  # that of this one: an action leads back to it


def by_name(page: Page, found: Sequence[NamedT]) -> NamedPage[NamedT]:
    """Those whose names contain what is searched for, after the name at which the page before ended."""
    search, after = page.query("q"), page.query("after")
    fit = [one for one in found if search.casefold() in one.name.casefold()]
    items, cursor = reading.page_by_name(fit, after, NAMES_A_PAGE)
    kept = {"q": search} if search else {}
    return NamedPage(
        items=items,
        fit=len(fit),
        search=search,
        is_long=len(found) > NAMES_A_PAGE,
        is_continued=bool(after),
        following=urlencode({**kept, "after": cursor}) if cursor else "",
        query=urlencode({**kept, **({"after": after} if after else {})}),
    )


async def queues(page: Page) -> Response:
    listed = by_name(page, await reading.queues(page.store))
    return page.render("queues.html", here="/queues", title="Queues", listed=listed)


async def schedules(page: Page) -> Response:
    listed = by_name(page, await page.store.schedules())
    lines = [ledger_shapes.schedule(found) for found in listed.items]
    return page.render("schedules.html", here="/schedules", title="Schedules", listed=listed, schedules=lines)


async def workers(page: Page) -> Response:
    found = sorted(await reading.workers(page.store), key=lambda worker: (worker.is_expired, worker.id))
    return page.render("workers.html", here="/workers", title="Workers", workers=found, poll_seconds=5)


async def dead_letters(page: Page) -> Response:
    """What does not go on by itself: stranded and failed executions."""
    chosen = page.query("status") if page.query("status") in ("stranded", "failed") else ""
    after = page.query("after") or None
    if chosen:
        read = dead.stranded if chosen == "stranded" else dead.failed
        listed = await read(page.store, after, PAGE_SIZE)
        items, cursor = listed.executions, listed.cursor
    else:
        items, cursor = await dead.newest(page.store, PAGE_SIZE), None
    return page.render(
        "dead_letters.html",
        here="/dead-letters",
        title="Dead letters",
        items=items,
        cursor=cursor,
        chosen=chosen,
        is_cut=not chosen and len(items) == PAGE_SIZE,
        is_continued=after is not None,
    )
