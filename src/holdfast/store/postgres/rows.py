"""From rows of the database to the values of the contract."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TypeAlias

import asyncpg

from holdfast.core.clock import to_us
from holdfast.core.identity import parent_bytes
from holdfast.core.status import Status
from holdfast.store.values import (
    EXECUTIONS,
    ExecutionClaim,
    ExecutionView,
    QueueSettings,
    QueueStats,
    Signal,
    Transition,
    WorkerInfo,
)

Row: TypeAlias = asyncpg.Record


place_of = itemgetter("priority", "eligible_at", "id")  # in the order of a pick


def claims_of(rows: Sequence[Row]) -> list[ExecutionClaim]:
    """Rows of `pick_3` or `reclaim_1`, put in the order of a pick; all of one call were leased at one moment."""
    picked_at_us = to_us(rows[0]["picked_at"]) if rows else 0
    return [claim_of(row, picked_at_us) for row in sorted(rows, key=place_of)]


def claim_of(row: Row, picked_at_us: int = 0) -> ExecutionClaim:
    awaits = row["awaits"]
    inbox = row["inbox"]
    promise: bytes = row["promise"]
    parent = row["parent_id"]
    return ExecutionClaim(
        table=EXECUTIONS,
        row=row["id"],
        epoch=row["epoch"],
        kind=row["kind"],
        name=row["name"],
        version=row["version"],
        handler=row["handler"],
        queue=row["queue"],
        priority=row["priority"],
        attempt=row["attempt"],
        partition_key=row["partition_key"],
        promise=promise,
        revision=row["revision"],
        step=row["step"],
        state=row["state"],
        crashes=row["crashes"],
        digest=row["digest"],
        awaits=None if awaits is None else tuple(awaits),
        inbox=tuple([Signal(int(number), *rest) for number, *rest in inbox]) if inbox else (),
        timed_out=row["timed_out"],
        children_ready=row["children_ready"],
        barrier_round=row["barrier_round"],
        next_child=row["next_child"],
        cancel_requested=row["cancel_requested"],
        has_parent=parent is not None,
        parent_row=parent,
        parent=None if parent is None else parent_bytes(promise),
        cancel_reason=row["cancel_reason"],
        journal_length=row["journal_length"],
        idempotency_key=row["idempotency_key"],
        picked_at_us=picked_at_us,
        beats=row["beats"],
        published=row["published"],
        attributes=row["attributes"],
    )


def view_of(row: Row) -> ExecutionView:
    """A row of the block `view`."""
    awaits = row["awaits"]
    promise: bytes = row["promise"]
    return ExecutionView(
        promise=promise,
        kind=row["kind"],
        name=row["name"],
        version=row["version"],
        step=row["step"],
        status=Status(row["status"]),
        state=row["state"],
        result=row["result"],
        error=row["error"],
        queue=row["queue"],
        priority=row["priority"],
        partition_key=row["partition_key"],
        attempt=row["attempt"],
        crashes=row["crashes"],
        revision=row["revision"],
        lease_epoch=row["lease_epoch"],
        locked_by=row["locked_by"],
        awaits=None if awaits is None else tuple(awaits),
        children_pending=row["children_pending"],
        barrier_round=row["barrier_round"],
        # A child's id is its parent's and one number more (DESIGN section 4), also when the parent was purged.
        parent=None if row["parent_id"] is None else parent_bytes(promise),
        cancel_requested=row["cancel_requested"],
        paused=row["paused"],
        unique_key=row["unique_key"],
        digest=row["digest"],
        attributes=row["attributes"],
        eligible_at=row["eligible_at"],
        wake_at=row["wake_at"],
        inserted_at=row["inserted_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        updated_at=row["updated_at"],
        idempotency_key=row["idempotency_key"],
        cancel_reason=row["cancel_reason"],
        deadline_at=row["deadline_at"],
        journal_length=row["journal_length"],
        reports=row["reports"],
        published=row["published"],
        beats=row["beats"],
        successor=row["successor"],
    )


def views_in_order(promises: Sequence[bytes], rows: Sequence[Row]) -> list[ExecutionView | None]:
    found = {view.promise: view for view in map(view_of, rows)}
    return [found.get(promise) for promise in promises]


def transition_of(row: Row) -> Transition:
    return Transition(**dict(row))


def worker_of(row: Row) -> WorkerInfo:
    return WorkerInfo(**{**dict(row), "queues": tuple(row["queues"])})


def queue_of(row: Row, bound: int) -> QueueStats:
    """A row of the block `queue_stats`; what was counted past `bound` is cut there."""
    return QueueStats(
        settings=QueueSettings(
            name=row["name"],
            paused=row["paused"],
            concurrency=row["concurrency"],
            rate=row["rate"],
            rate_seconds=row["rate_seconds"],
        ),
        runnable=min(row["runnable"], bound),
        executing=min(row["executing"], bound),
        oldest_eligible_at=row["oldest_eligible_at"],
        capped=row["runnable"] > bound or row["executing"] > bound,
    )
