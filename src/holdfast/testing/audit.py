"""What must hold of any ledger at any moment, read through the store's contract alone.

`audit` returns the faults it finds, as sentences. A ledger that passes can still be wrong; one that fails is.
"""

from __future__ import annotations

from collections import Counter

from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.values import ExecutionFilter, ExecutionView

_PAGE = 500


async def all_views(store: Store) -> list[ExecutionView]:
    """Every execution, oldest first."""
    views: list[ExecutionView] = []
    cursor: str | None = None
    while True:
        page = await store.browse(ExecutionFilter(), _PAGE, cursor)
        views += page.items
        cursor = page.cursor
        if cursor is None:
            return views[::-1]


async def audit(store: Store) -> list[str]:
    """The faults of the whole ledger; an empty list if it is sound."""
    views = await all_views(store)
    faults = [f"{PromiseId.from_bytes(view.promise).short}: {fault}" for view in views for fault in _of_row(view)]
    keys = Counter(
        view.partition_key for view in views if view.status is Status.EXECUTING and view.partition_key is not None
    )
    faults += [
        f"{count} rows of the partition key {key!r} execute at once (E9)" for key, count in keys.items() if count > 1
    ]
    for view in views:
        name = PromiseId.from_bytes(view.promise).short
        if view.status.is_terminal and await store.inbox(view.promise):
            faults.append(f"{name}: it has ended and still has an inbox (section 5)")
        if view.status is Status.AWAITING_CHILDREN:
            children = await store.children(view.promise, view.barrier_round)
            live = sum(not child.status.is_terminal for child in children)
            if live < view.children_pending:
                faults.append(
                    f"{name}: waits for {view.children_pending} children, and only {live} are alive (section 11)"
                )
    return faults


def _of_row(view: ExecutionView) -> list[str]:
    faults = []
    if (view.status is Status.EXECUTING) != (view.locked_by is not None):
        faults.append(f"status {view.status}, locked by {view.locked_by} (E1)")
    if view.status.is_terminal != (view.ended_at is not None):
        faults.append(f"status {view.status}, ended at {view.ended_at}")
    if view.status is Status.AWAITING_SIGNAL and not view.awaits:
        faults.append("awaits signals and names none (section 5)")
    if view.status is Status.AWAITING_CHILDREN and view.children_pending < 1:
        faults.append("awaits children and none is pending (section 11)")
    if view.wake_at is not None and not view.status.is_parked:
        faults.append(f"status {view.status} has a deadline, and is not parked")
    if view.lease_epoch > 0 and view.started_at is None:
        faults.append("was claimed and never started")
    return faults
