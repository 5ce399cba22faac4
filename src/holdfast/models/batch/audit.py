"""Every stored batch against its rules: counters equal a recount, the lane is sound, states are legal.

A full scan: for `holdfast verify` and for tests, never on the way of the work (ruling D6).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from holdfast.core.errors import LedgerError
from holdfast.core.identity import PromiseId
from holdfast.core.sequence import State
from holdfast.core.status import Status
from holdfast.models.batch.definition import KIND
from holdfast.models.batch.items import has_all_inputs
from holdfast.models.batch.packing import attempts_at, count_states, prefix_of, read_ready, state_at, unpack
from holdfast.store.base import Store
from holdfast.store.batches import BatchView, ChunkView, Counters
from holdfast.store.values import ExecutionFilter, ExecutionView

RUNS_A_PAGE = 100
CHUNKS_A_PAGE = 64
LOOKS = 5


async def audit_batches(store: Store) -> list[str]:
    """The faults of every batch of a ledger, as sentences; an empty list if all are sound."""
    faults: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.browse(ExecutionFilter(kind=KIND), RUNS_A_PAGE, cursor)
        for row in page.items:
            label = PromiseId.from_bytes(row.promise).label(row.name)
            faults += [f"{label}: {fault}" for fault in await audit_run(store, row)]
        cursor = page.cursor
        if cursor is None:
            return faults


async def audit_run(store: Store, row: ExecutionView) -> list[str]:
    """The faults of one run. What moves while it is looked at is looked at again; in the end it is left alone."""
    for _ in range(LOOKS):
        view = await store.batch_status(row.promise)
        now = await store.get(row.promise)
        if view is None or now is None:
            return []
        faults = await _look(store, now, view)
        if not faults or view == await store.batch_status(row.promise):
            return faults
    return []


async def _look(store: Store, row: ExecutionView, view: BatchView) -> list[str]:
    faults: list[str] = []
    counted, taken, open_bytes = Counters(), 0, 0
    async for chunk in _chunks(store, row.promise):
        if chunk.first != taken:
            faults.append(f"a chunk begins at seq {chunk.first}, where {taken} was to come")
        taken = chunk.stop
        open_bytes += chunk.size if has_all_inputs(chunk) else 0
        found = _chunk_faults(chunk)
        faults += [f"chunk {chunk.first}: {fault}" for fault in found]
        if not found and chunk.states is not None:
            counted = counted.plus(_recount(chunk.states, chunk.attempts))
            behind = chunk.first + prefix_of(chunk.states)
            if behind < min(view.head, chunk.stop):
                faults.append(f"the lane's head is {view.head}, and seq {behind} is not terminal (D7)")
        elif chunk.states is None and view.head > chunk.first:
            faults.append(f"the lane's head is {view.head}, and seq {chunk.first} was never dispatched (D7)")
    if counted != view.counters and not faults:
        faults.append(f"counters have drifted: kept {view.counters}, counted {counted} (D6)")
    return faults + _run_faults(row, view, taken, open_bytes)


async def _chunks(store: Store, promise: bytes) -> AsyncIterator[ChunkView]:
    at = 0
    while True:
        found = await store.batch_chunks(promise, at, CHUNKS_A_PAGE, "whole")
        found = [chunk for chunk in found if chunk.first >= at]
        for chunk in found:
            yield chunk
        if not found:
            return
        at = found[-1].stop


def _chunk_faults(chunk: ChunkView) -> list[str]:
    if chunk.states is None:
        return ["it is dispatched and has no states"] if chunk.is_dispatched else []
    if not chunk.is_dispatched or len(chunk.states) != chunk.count:
        return [f"it has {len(chunk.states)} states for {chunk.count} items, dispatched: {chunk.is_dispatched}"]
    try:
        unpack(chunk.first, chunk.states, chunk.attempts)
        waiting = [seq - chunk.first for seq in read_ready(chunk.first, chunk.ready_ms)]
    except LedgerError as error:
        return [str(error)]
    for place in waiting:
        if not 0 <= place < chunk.count or not _may_wait(chunk.states, chunk.attempts, place):
            return [f"seq {chunk.first + place} has a time for its next attempt, and does not wait for one"]
    counted = _recount(chunk.states, chunk.attempts)
    kept = (chunk.ended, chunk.failed, chunk.prefix)
    found = (counted.ended, counted.failed, prefix_of(chunk.states))
    return [] if kept == found else [f"ended, failed and prefix are kept as {kept}, and are {found}"]


def _may_wait(states: bytes, attempts: bytes | None, place: int) -> bool:
    return state_at(states, place)[0] is State.DISPATCHED and attempts_at(attempts, place) > 0


def _recount(states: bytes, attempts: bytes | None) -> Counters:
    counted = count_states(states)
    retries = 0 if attempts is None else sum(memoryview(attempts).cast("H"))
    return Counters(
        counted[State.DISPATCHED],
        counted[State.IN_FLIGHT],
        counted[State.TERMINAL_SUCCESS],
        counted[State.TERMINAL_SKIP],
        counted[State.TERMINAL_FAIL],
        counted[State.TERMINAL_CANCEL],
        retries,
    )


def _run_faults(row: ExecutionView, view: BatchView, taken: int, open_bytes: int) -> list[str]:
    faults = []
    if taken != view.taken:
        faults.append(f"it has taken in {view.taken} items, and its chunks hold {taken}")
    if open_bytes != view.open_bytes:
        faults.append(f"its open inputs take {open_bytes} bytes, and {view.open_bytes} are kept")
    # One that was cancelled by force ended as it stood, with no result: by decree, not by its ledger.
    has_ended = row.status is Status.DONE or (row.status is Status.CANCELLED and row.result is not None)
    if has_ended and (not view.closed or view.head != view.taken):
        faults.append(f"it is {row.status}, and {view.taken - view.head} of its items are not committed")
    return faults
