"""The overview: how much is going through, what waits, who works, what went wrong."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from msgspec import Struct
from starlette.responses import Response

from holdfast.core.status import PARKED, Status
from holdfast.store.watching import Pace
from holdfast.views import dead_letters, ledger_shapes, reading
from holdfast.web.dashboard.render import Page
from holdfast.web.dashboard.words import compact

SHOWN: Final = 6
BUCKETS: Final = 60
BUCKET_SECONDS: Final = 60.0
CHART_HEIGHT: Final = 72.0
QUEUES_SHOWN: Final = 8


class Column(Struct, frozen=True):
    """What ended in one minute, as parts of a bar: class, top and height."""

    x: float
    width: float
    parts: list[tuple[str, float, float]]
    title: str


class Count(Struct, frozen=True):
    shown: str
    is_some: bool
    is_estimate: bool = False


async def overview(page: Page) -> Response:
    found = await reading.overview(page.store, bucket_seconds=BUCKET_SECONDS, buckets=BUCKETS)
    workers = sorted(await reading.workers(page.store), key=lambda worker: (worker.is_expired, worker.id))
    dead = await dead_letters.newest(page.store, SHOWN)
    newest = await reading.executions(page.store, limit=2 * SHOWN)
    late = [
        queue.oldest_eligible_at
        for queue in found.queues
        if queue.oldest_eligible_at is not None and not queue.paused and queue.oldest_eligible_at <= page.now
    ]
    columns, highest = chart(found.pace)
    ended = sum(bucket.done + bucket.failed + bucket.cancelled for bucket in found.pace.buckets)
    minutes = max(1.0, (found.pace.until - found.pace.since) / timedelta(minutes=1))
    return page.render(
        "overview.html",
        here="/",
        title="Overview",
        count=lambda *names: counted(found.statuses, *names),
        parked=[status.value for status in (*PARKED, Status.DELEGATED)],
        is_empty=not newest.executions and newest.cursor is None,
        queues=sorted(found.queues, key=lambda queue: -queue.runnable)[:QUEUES_SHOWN],
        oldest=min(late, default=None),
        workers=workers,
        alive=found.workers,
        dead=dead,
        newest=newest.executions[:SHOWN],
        columns=columns,
        highest=highest,
        chart_height=CHART_HEIGHT,
        ended=ended,
        a_minute=compact(round(ended / minutes, 1)),
        pace=found.pace,
    )


def counted(statuses: list[ledger_shapes.StatusCount], *names: str) -> Count:
    """The sum of some statuses, as good as it is known."""
    chosen = [line for line in statuses if line.status in names]
    total = sum(line.count if line.estimate is None else line.estimate for line in chosen)
    if any(line.estimate is not None for line in chosen):  # then what is capped besides is little
        return Count(compact(total), True, True)
    return Count(compact(total) + ("+" if any(line.capped for line in chosen) else ""), total > 0)


def chart(pace: Pace) -> tuple[list[Column], int]:
    """Columns by minute, the newest at the right, and what the highest stands for."""
    highest = max((bucket.done + bucket.failed + bucket.cancelled for bucket in pace.buckets), default=0)
    columns: list[Column] = []
    width = 100 / BUCKETS
    for bucket in pace.buckets:
        back = (pace.until - bucket.at) / timedelta(seconds=pace.bucket_seconds)
        x = 100 - back * width
        if x < -width:
            continue
        parts: list[tuple[str, float, float]] = []
        top = CHART_HEIGHT
        for css, value in (("ok", bucket.done), ("no", bucket.cancelled), ("ko", bucket.failed)):
            height = round(max(1.5, value / highest * (CHART_HEIGHT - 4)), 2) if value else 0.0
            if value:
                top -= height
                parts.append((css, round(top, 2), height))
        title = f"{bucket.at:%H:%M} UTC: {bucket.done} done, {bucket.failed} failed, {bucket.cancelled} cancelled"
        columns.append(Column(round(max(0.0, x), 3), round(width * 0.82, 3), parts, title))
    return columns, highest
