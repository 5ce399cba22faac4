"""Executions as a person wants them listed: without the chunks of batches, unless they are asked for.

A batch of a million items has thousands of chunks, each a row; its own page shows them as a heat map. A page of the
list may be shorter or longer than asked for, and its cursor goes on where it ended.
"""

from __future__ import annotations

from typing import Final

from holdfast.store.base import Store
from holdfast.store.values import ExecutionFilter
from holdfast.views import shapes

CHUNK: Final = "chunk"
ROUNDS: Final = 20  # so much is looked through for one page


async def listing(store: Store, where: ExecutionFilter, after: str | None, limit: int) -> shapes.ExecutionPage:
    """At least half of `limit` where there are so many among the next `ROUNDS` times as many rows."""
    cursor = after
    found: list[shapes.Summary] = []
    for _ in range(ROUNDS):
        page = await store.browse(where, limit, cursor)
        is_wanted = where.kind is not None or where.parent is not None
        found += [shapes.summary(view) for view in page.items if is_wanted or view.kind != CHUNK]
        cursor = page.cursor
        if cursor is None or len(found) >= limit / 2:
            break
    return shapes.ExecutionPage(executions=found, cursor=cursor)
