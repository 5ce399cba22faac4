"""Batches: runs with their progress, and one run with the heat map of its ledger, its head of line and its failures."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from msgspec import Struct
from starlette.responses import Response

from holdfast.core.errors import NotFoundError
from holdfast.core.identity import PromiseId
from holdfast.models.batch.status import BatchStatus, HeatCell
from holdfast.store.values import ExecutionFilter, ExecutionView
from holdfast.views import shapes
from holdfast.web.dashboard.render import Page

PAGE_SIZE: Final = 25
CELLS: Final = 600
CELLS_A_ROW: Final = 60
CELL: Final = 14.0
FAILED_A_PAGE: Final = 50
DIGITS_MOST: Final = 18  # of a number that every store can hold


class Square(Struct, frozen=True):
    x: float
    y: float
    css: str
    title: str


class RunLine(Struct, frozen=True):
    item: shapes.Summary
    status: BatchStatus


async def batches(page: Page) -> Response:
    found = await page.store.browse(ExecutionFilter(kind="batch"), PAGE_SIZE, page.query("after") or None)
    lines = []
    for view in found.items:
        with contextlib.suppress(NotFoundError):  # it was deleted just now
            lines.append(RunLine(shapes.summary(view), await _status(page, view)))
    return page.render(
        "batches.html",
        here="/batches",
        title="Batches",
        lines=lines,
        cursor=found.cursor,
        is_continued=bool(page.query("after")),
    )


async def run_of(page: Page, view: ExecutionView) -> dict[str, Any]:
    """What the page of an execution shows of a run."""
    run = page.site.app.batch_run(PromiseId.from_bytes(view.promise))
    status = await run.status()
    heat = await run.heat(CELLS)
    after = page.query("failed")
    is_place = after.isascii() and after.isdigit() and len(after) <= DIGITS_MOST
    failed = await run.failed(int(after) if is_place else -1, FAILED_A_PAGE + 1)
    rows = -(-len(heat) // CELLS_A_ROW)
    return {
        "status": status,
        "squares": [_square(number, cell) for number, cell in enumerate(heat)],
        "heat_width": CELLS_A_ROW * CELL,
        "heat_height": max(1, rows) * CELL,
        "cell": CELL,
        "items_a_cell": heat[0].count if heat else 0,
        "failed": failed[:FAILED_A_PAGE],
        "failed_after": failed[FAILED_A_PAGE - 1].seq if len(failed) > FAILED_A_PAGE else None,
        "is_continued": bool(after),
        "bar": progress(status),
    }


def progress(status: BatchStatus) -> list[tuple[str, float, float, str]]:
    """The run as one bar: class, place and width in percent, and words."""
    total = max(status.taken, status.total or 0, 1)
    parts = (
        ("c2", status.succeeded, "succeeded"),
        ("c6", status.skipped + status.cancelled, "skipped or cancelled"),
        ("c4", status.failed, "failed"),
        ("c5", status.in_flight, "at work"),
    )
    found: list[tuple[str, float, float, str]] = []
    at = 0.0
    for css, count, words in parts:
        if count:
            width = 100 * count / total
            found.append((css, round(at, 3), round(width, 3), f"{count} {words}"))
            at += width
    return found


def _square(number: int, cell: HeatCell) -> Square:
    last = cell.first + cell.count - 1
    if cell.failed:
        css = "c4" if cell.failed * 10 >= cell.count else "c3"
    elif cell.committed >= cell.count:
        css = "c2"
    elif cell.ended >= cell.count:
        css = "c1"
    else:
        css = "c5" if cell.ended else "c0"
    words = f"{cell.ended} of {cell.count} ended, {cell.failed} failed, {cell.committed} committed"
    return Square(
        number % CELLS_A_ROW * CELL, number // CELLS_A_ROW * CELL, css, f"items {cell.first} to {last}: {words}"
    )


async def _status(page: Page, view: ExecutionView) -> BatchStatus:
    return await page.site.app.batch_run(PromiseId.from_bytes(view.promise)).status()
