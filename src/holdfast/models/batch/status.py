"""Where a run stands: counters, rate and time left, and which seq the lane waits for, and why (ruling D7)."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from holdfast.core.identity import PromiseId
from holdfast.core.sequence import State
from holdfast.core.status import Status
from holdfast.models.batch.packing import attempts_at, state_at
from holdfast.store.base import Store
from holdfast.store.batches import BatchView, Counters
from holdfast.store.values import ExecutionView

HEAT_CHUNKS_A_READ = 1_000


class Head(Struct, frozen=True):
    """The lowest seq that is not committed, and what it waits for."""

    seq: int
    state: str
    attempts: int
    reason: str
    worker: str | None = None


class BatchStatus(Struct, frozen=True, kw_only=True):
    """`committed` counts into the four outcomes, as does `terminal` (ended, not committed yet)."""

    status: Status
    taken: int  # items so far
    expected: int | None  # how many there will be, if that is known
    closed: bool  # nothing more is taken in
    unseen: int
    dispatched: int
    in_flight: int
    terminal: int
    committed: int
    succeeded: int
    skipped: int
    failed: int
    cancelled: int
    retries: int
    rate: float  # items that end in a second
    eta_seconds: float | None
    head: Head | None  # None: everything that was taken in is committed
    updated_at: datetime | None

    @property
    def total(self) -> int | None:
        return self.taken if self.closed else self.expected


class HeatCell(Struct, frozen=True):
    """A stretch of items for a picture of the run: how many of them have ended, and how many of those failed."""

    first: int
    count: int
    ended: int
    failed: int
    committed: int


def rate_of(row: ExecutionView, view: BatchView | None) -> float:
    """Over the whole run so far."""
    if view is None or row.started_at is None:
        return 0.0
    elapsed = ((row.ended_at or view.updated_at) - row.started_at).total_seconds()
    return view.counters.ended / elapsed if elapsed > 0 else 0.0


def status_of(row: ExecutionView, view: BatchView | None, head: Head | None, rate: float) -> BatchStatus:
    counters = Counters() if view is None else view.counters
    taken = 0 if view is None else view.taken
    closed = view is not None and view.closed
    expected = None if view is None else view.expected
    total = taken if closed else expected
    left = None if total is None else max(0, total - counters.ended)
    eta = None if left is None or (left and not rate) else left / rate if left else 0.0
    return BatchStatus(
        status=row.status,
        taken=taken,
        expected=expected,
        closed=closed,
        unseen=0 if view is None else view.unseen,
        dispatched=counters.dispatched,
        in_flight=counters.in_flight,
        terminal=0 if view is None else view.terminal,
        committed=0 if view is None else view.committed,
        succeeded=counters.succeeded,
        skipped=counters.skipped,
        failed=counters.failed,
        cancelled=counters.cancelled,
        retries=counters.retries,
        rate=rate,
        eta_seconds=eta,
        head=head,
        updated_at=None if view is None else view.updated_at,
    )


async def find_head(store: Store, row: ExecutionView, view: BatchView | None) -> Head | None:
    if view is None or view.head >= view.taken:
        return None
    seq = view.head
    found = await store.batch_chunks(row.promise, seq, 1, "whole")
    if not found:
        return None
    chunk = found[0]
    state, _ = state_at(chunk.states, seq - chunk.first)
    attempts = attempts_at(chunk.attempts, seq - chunk.first)
    owner = await store.get(PromiseId.from_bytes(row.promise).child(chunk.first).to_bytes())
    worker = None if owner is None else owner.locked_by
    return Head(seq, state.name, attempts, _reason(row, state, attempts, owner, chunk.ready_ms is not None), worker)


def _reason(row: ExecutionView, state: State, attempts: int, chunk: ExecutionView | None, has_waiting: bool) -> str:
    if row.status is Status.FAILED:
        return "the run has failed, nothing more is committed"
    if row.status is Status.STRANDED:
        return "the run is stranded: mend the cause, then resume it"
    if state is State.UNSEEN:
        return "not dispatched yet" if not row.paused else "the run is paused"
    if chunk is not None and chunk.status is Status.STRANDED:
        return f"its chunk is stranded: resume {PromiseId.from_bytes(chunk.promise).short} once the cause is mended"
    if chunk is not None and chunk.paused and state is State.DISPATCHED:
        return "its chunk is paused"
    if state is State.DISPATCHED:
        is_held = chunk is not None and chunk.locked_by is not None
        if attempts and (is_held or has_waiting):
            return f"waits for attempt {attempts + 1}"
        return "its worker has not begun it yet" if is_held else "no worker has taken it yet"
    if state is State.IN_FLIGHT:
        return f"attempt {attempts + 1} is at work"
    if row.error is not None:
        return "ready to be committed; the sink failed and is tried again"
    return "ready to be committed"


async def heat_of(store: Store, promise: bytes, head: int, cells: int) -> list[HeatCell]:
    """The run as at most `cells` stretches of chunks, in order."""
    chunks = []
    at = 0
    while True:
        found = await store.batch_chunks(promise, at, HEAT_CHUNKS_A_READ)
        found = [chunk for chunk in found if chunk.first >= at]
        chunks += found
        if len(found) < HEAT_CHUNKS_A_READ - 1:
            break
        at = found[-1].stop
    total = sum(chunk.count for chunk in chunks)
    wanted = max(1, -(-total // max(1, cells)))
    heat: list[HeatCell] = []
    group: list[int] = [0, 0, 0, 0]
    for chunk in chunks:
        if group[1] and group[1] + chunk.count > wanted and len(heat) < cells - 1:
            heat.append(_cell(group, head))
            group = [chunk.first, 0, 0, 0]
        group[1] += chunk.count
        group[2] += chunk.ended
        group[3] += chunk.failed
    if group[1]:
        heat.append(_cell(group, head))
    return heat


def _cell(group: list[int], head: int) -> HeatCell:
    first, count, ended, failed = group
    return HeatCell(first, count, ended, failed, min(count, max(0, head - first)))
