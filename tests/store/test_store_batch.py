"""Batches in the store: fenced marks, counters, the lane, feeding, and what goes when a run is deleted."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import LedgerError
from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.batches import CommitItems, Counters, DispatchChunks, MarkItems, NewChunk, TakeIn
from holdfast.store.effects import SpawnExecutions
from holdfast.store.values import ExecutionClaim, Retention
from holdfast.testing.hand import LEASE_SECONDS, Hand, child_rows, done, keep, park, promise_of, row
from holdfast.testing.stores import Stores

RUN = promise_of("run")


def chunk(first: int, count: int = 4) -> NewChunk:
    return NewChunk(first, count, "[" + ",".join(map(str, range(first, first + count))) + "]")


def run_row(**columns: Any) -> Any:
    return row("run", kind="batch", **columns)


async def start(store: Store, hand: Hand, *chunks: NewChunk) -> ExecutionClaim:
    """A run that is held."""
    await store.start_batch(run_row(), TakeIn(chunks=chunks, digest="d"))
    (claim,) = await hand.pick(1, handlers=[run_row().handler])
    return claim


async def dispatched(store: Store, hand: Hand) -> tuple[ExecutionClaim, ExecutionClaim]:
    """A run and its only chunk, both held."""
    run = await start(store, hand, chunk(0))
    children = child_rows(run, 1, kind="chunk", reports=True, cleans_up=True)
    await hand.apply(run, keep(), SpawnExecutions(children, barrier=False), DispatchChunks((0,)))
    (held,) = await hand.pick(1, handlers=[children[0].handler])
    return run, held


def mark(states: bytes, changed: Counters, **fields: Any) -> MarkItems:
    prefix = len(states) - len(states.lstrip(b"\x03\x04\x15\x06"))
    return MarkItems(first=0, states=states, attempts=None, prefix=prefix, changed=changed, **fields)


async def test_a_run_begins_with_its_first_items(store: Store, hand: Hand) -> None:
    assert (await store.start_batch(run_row(), TakeIn(chunks=(chunk(0), chunk(4, 2)), expected=9))).created
    view = await store.batch_status(RUN)
    assert view is not None
    assert (view.taken, view.expected, view.closed, view.head, view.unseen) == (6, 9, False, 0, 6)
    assert view.open_bytes == len("[0,1,2,3]") + len("[4,5]")
    assert not (await store.start_batch(run_row(), TakeIn(chunks=(chunk(6),)))).created
    assert [found.first for found in await store.batch_chunks(RUN, 0, 9)] == [0, 4]


async def test_what_is_no_batch_has_no_status(store: Store, hand: Hand) -> None:
    await hand.insert(row("plain"))
    assert await store.batch_status(promise_of("plain")) is None
    assert await store.batch_chunks(promise_of("nobody"), 0, 9) == []
    assert (await store.feed_batch(promise_of("nobody"), 0, TakeIn(closes=True))).view is None


async def test_a_feed_is_taken_only_where_it_continues(store: Store, hand: Hand) -> None:
    run = await start(store, hand, chunk(0))
    await hand.apply(run, park("intake"))
    assert (await store.feed_batch(RUN, 4, TakeIn(chunks=(chunk(4),)))).accepted
    again = await store.feed_batch(RUN, 4, TakeIn(chunks=(chunk(4),)))
    assert (again.accepted, again.view and again.view.taken) == (False, 8)
    found = await store.get(RUN)
    assert found is not None
    assert found.status is Status.RUNNABLE, "whoever feeds wakes the run"
    assert (await store.feed_batch(RUN, 8, TakeIn(closes=True))).accepted
    assert not (await store.feed_batch(RUN, 8, TakeIn(chunks=(chunk(8),)))).accepted


async def test_marks_move_states_and_counters_together(store: Store, hand: Hand) -> None:
    run, held = await dispatched(store, hand)
    view = await store.batch_status(RUN)
    assert view is not None
    assert (view.unseen, view.counters) == (0, Counters(dispatched=4))
    await hand.apply(held, keep(), mark(b"\x02\x02\x01\x01", Counters(-2, 2)))
    await hand.apply(
        held,
        done(),
        mark(b"\x03\x04\x15\x06", Counters(-2, -2, 1, 1, 1, 1), is_final=True, notes="{}", inputs='{"2":2}'),
    )
    view = await store.batch_status(RUN)
    assert view is not None
    assert view.counters == Counters(0, 0, 1, 1, 1, 1)
    assert (view.terminal, view.open_bytes) == (4, 0)
    (found,) = await store.batch_chunks(RUN, 0, 9, "failed")
    assert (found.states, found.ended, found.failed, found.prefix) == (b"\x03\x04\x15\x06", 4, 1, 4)
    assert (found.inputs, found.notes) == ('{"2":2}', "{}")
    assert run.row == held.parent_row


async def test_a_stale_owner_moves_no_item(stores: Stores, hand: Hand, rival: Hand) -> None:
    """D8: the lease of the chunk is the lease of its items."""
    store = stores.store
    _, held = await dispatched(store, hand)
    await stores.advance(LEASE_SECONDS + 1)
    await rival.beat()
    await store.reap(10, 10)
    receipt = await hand.commit(held, done(), mark(b"\x03" * 4, Counters(-4, 0, 4), is_final=True))
    assert not receipt.applied
    view = await store.batch_status(RUN)
    assert view is not None
    assert view.counters == Counters(dispatched=4)


async def test_the_lane_moves_from_where_it_is_and_never_over_what_is_open(store: Store, hand: Hand) -> None:
    """D7."""
    run, held = await dispatched(store, hand)
    await hand.apply(held, done(), mark(b"\x03" * 4, Counters(-4, 0, 4), is_final=True, results="[1,2,3,4]"))
    await hand.apply(run, keep(), CommitItems(0, 3))
    with pytest.raises(LedgerError, match="the lane of a batch is not at seq 0"):
        await hand.apply(run, keep(), CommitItems(0, 4))
    await hand.apply(run, keep(), CommitItems(3, 4, (0,)))
    view = await store.batch_status(RUN)
    assert view is not None
    assert (view.head, view.terminal) == (4, 0)
    (found,) = await store.batch_chunks(RUN, 3, 9, "whole")
    assert found.results is None


async def test_counters_that_cannot_be_are_refused_and_nothing_is_written(store: Store, hand: Hand) -> None:
    """The table itself refuses what no history can produce."""
    _, held = await dispatched(store, hand)
    with pytest.raises(Exception, match=r"(?i)check"):
        await hand.apply(held, keep(), mark(b"\x02" * 4, Counters(-5, 5)))
    (found,) = await store.batch_chunks(RUN, 0, 9, "whole")
    assert found.states == b"\x01" * 4


async def test_chunks_are_found_by_a_seq_they_hold(store: Store, hand: Hand) -> None:
    await start(store, hand, chunk(0), chunk(4), chunk(8))
    assert [found.first for found in await store.batch_chunks(RUN, 5, 9)] == [4, 8]
    assert [found.first for found in await store.batch_chunks(RUN, 5, 1)] == [4]
    assert [found.first for found in await store.batch_chunks(RUN, 1, 9, "undispatched")] == [4, 8]
    assert [found.inputs for found in await store.batch_chunks(RUN, 11, 1, "whole")] == ["[8,9,10,11]"]


async def test_a_deleted_run_takes_its_items_along(stores: Stores, hand: Hand) -> None:
    store = stores.store
    run = await start(store, hand, chunk(0))
    await hand.apply(run, done())
    await stores.advance(100)
    assert await store.purge(Retention(age_seconds=10), 10) == 1
    assert await store.batch_status(RUN) is None
    assert await store.batch_chunks(RUN, 0, 9) == []
    await store.start_batch(run_row(), TakeIn(chunks=(chunk(0, 1),)))
    view = await store.batch_status(RUN)
    assert view is not None
    assert view.taken == 1
