"""Queues, schedules, workers and dead letters: tables of what the engine has at hand."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from holdfast.views import dead_letters as dead
from holdfast.views import reading
from holdfast.web.dashboard.render import Page

PAGE_SIZE: Final = 50


async def queues(page: Page) -> Response:
    found = await reading.queues(page.store)
    return page.render("queues.html", here="/queues", title="Queues", queues=found)


async def schedules(page: Page) -> Response:
    found = await reading.schedules(page.store)
    return page.render("schedules.html", here="/schedules", title="Schedules", schedules=found)


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
