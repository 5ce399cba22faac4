"""What the ledger says of one run of the demo, read through the store's contract."""

from __future__ import annotations

import json

from holdfast.cli.demo.machines import Order, expected_result
from holdfast.cli.demo.proof import Committed, Finished
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.values import ExecutionFilter, ExecutionView

PAGE = 500


async def executing(store: Store, queue: str) -> frozenset[str]:
    """The executions that a worker holds, by the word of the ledger."""
    views = await _all(store, ExecutionFilter(queue=queue, statuses=(Status.EXECUTING,)))
    return frozenset(str(PromiseId.from_bytes(view.promise)) for view in views)


async def read_finished(store: Store, queue: str) -> list[Finished]:
    """Every execution of this run, with its history."""
    return [await _finished(store, view) for view in await _all(store, ExecutionFilter(queue=queue))]


async def _finished(store: Store, view: ExecutionView) -> Finished:
    promise = PromiseId.from_bytes(view.promise)
    is_order = view.name == Order.__name__
    return Finished(
        id=str(promise),
        label=promise.label(view.name),
        name=view.name,
        status=view.status,
        result=None if view.result is None else json.loads(view.result),
        expected=expected_result(json.loads(view.state)["number"]) if is_order else None,
        history=[Committed(line.step, line.attempt, line.outcome) for line in await store.history(view.promise)],
    )


async def _all(store: Store, where: ExecutionFilter) -> list[ExecutionView]:
    views: list[ExecutionView] = []
    cursor: str | None = None
    while True:
        page = await store.browse(where, PAGE, cursor)
        views += page.items
        cursor = page.cursor
        if cursor is None:
            return views
