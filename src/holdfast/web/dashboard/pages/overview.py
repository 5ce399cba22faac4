"""The overview: how much is going through, what waits, who works, what went wrong."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from holdfast.core.status import PARKED, Status
from holdfast.store.values import ExecutionFilter
from holdfast.views import reading
from holdfast.web.dashboard.render import Page

SHOWN: Final = 6


async def overview(page: Page) -> Response:
    counts = await page.store.count(ExecutionFilter())
    queues = await reading.queues(page.store)
    workers = await reading.workers(page.store)
    dead = await reading.executions(page.store, ExecutionFilter(statuses=(Status.STRANDED, Status.FAILED)), None, SHOWN)
    newest = await reading.executions(page.store, None, None, SHOWN)
    waiting = [queue.oldest_eligible_at for queue in queues if queue.oldest_eligible_at and not queue.paused]
    oldest = min(waiting, default=None)
    return page.render(
        "overview.html",
        here="/",
        title="Overview",
        counts=counts,
        Status=Status,
        total=sum(counts.values()),
        parked=sum(counts.get(status, 0) for status in (*PARKED, Status.DELEGATED)),
        queues=queues,
        oldest=oldest if oldest is not None and oldest <= page.now else None,
        workers=workers,
        alive=[worker for worker in workers if not worker.is_expired],
        dead=dead.executions,
        newest=newest.executions,
    )
