"""What does not go on by itself: stranded executions, and failed ones from the latest; each along its own index."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.values import ExecutionFilter
from holdfast.store.watching import failures_cursor
from holdfast.views import shapes

STRANDED: Final = ExecutionFilter(statuses=(Status.STRANDED,))


async def stranded(store: Store, after: str | None, limit: int) -> shapes.ExecutionPage:
    """Newest first."""
    page = await store.browse(STRANDED, limit, after)
    return shapes.ExecutionPage(executions=[shapes.summary(view) for view in page.items], cursor=page.cursor)


async def failed(
    store: Store, after: str | None, limit: int, *, before: datetime | None = None
) -> shapes.ExecutionPage:
    """The latest end first; `before` is for the first page."""
    if after is None and before is not None:
        after = failures_cursor(before)
    page = await store.failures(limit, after)
    return shapes.ExecutionPage(executions=[shapes.summary(view) for view in page.items], cursor=page.cursor)


async def newest(store: Store, limit: int) -> list[shapes.Summary]:
    """Of both, those that ended or were stranded last."""
    found = [
        *(await stranded(store, None, limit)).executions,
        *(await failed(store, None, limit)).executions,
    ]
    return sorted(found, key=lambda item: item.ended_at or item.updated_at, reverse=True)[:limit]
