"""Queues, schedules, workers and dead letters: tables of what the engine has at hand."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from holdfast.core.status import Status
from holdfast.store.values import ExecutionFilter
from holdfast.views import reading
from holdfast.web.dashboard.render import Page

DEAD: Final = (Status.STRANDED, Status.FAILED)
PAGE_SIZE: Final = 50


async def queues(page: Page) -> Response:
    found = await reading.queues(page.store)
    return page.render("queues.html", here="/queues", title="Queues", queues=found)


async def schedules(page: Page) -> Response:
    found = await reading.schedules(page.store)
    return page.render("schedules.html", here="/schedules", title="Schedules", schedules=found)


async def workers(page: Page) -> Response:
    found = sorted(await reading.workers(page.store), key=lambda worker: (worker.is_expired, worker.id))
    return page.render("workers.html", here="/workers", title="Workers", workers=found)


async def dead_letters(page: Page) -> Response:
    """What does not go on by itself: stranded and failed executions."""
    chosen = page.query("status")
    statuses = (Status(chosen),) if chosen in set(DEAD) else DEAD
    listed = await reading.executions(
        page.store, ExecutionFilter(statuses=statuses), page.query("after") or None, PAGE_SIZE
    )
    return page.render(
        "dead_letters.html",
        here="/dead-letters",
        title="Dead letters",
        items=listed.executions,
        cursor=listed.cursor,
        chosen=chosen,
        is_continued=bool(page.query("after")),
    )
