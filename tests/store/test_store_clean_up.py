"""What cleans up is asked to end, never ended; and an execution's own deadline (DESIGN section 9, ruling B2)."""

from __future__ import annotations

import pytest

from holdfast.core.identity import PromiseId
from holdfast.core.status import PARKED, Status
from holdfast.store.base import DEADLINE_EXCEEDED, Store
from holdfast.store.effects import AdvanceExecution, ContinueExecution, DeliverSignal, SpawnExecutions
from holdfast.store.flows import CLOSE, FLOW, MESSAGE, OpenJob
from holdfast.store.values import NewSignal
from holdfast.testing.hand import HANDLER, Hand, child_rows, done, keep, park, promise_of, row, strand, wait_children
from holdfast.testing.stores import Stores

CANCELLED = AdvanceExecution(status=Status.CANCELLED)


CANCELLED = AdvanceExecution(status=Status.CANCELLED)


@pytest.mark.parametrize("parked", sorted(PARKED))
async def test_what_cleans_up_is_woken_to_hear_of_the_cancel(stores: Stores, hand: Hand, parked: Status) -> None:
    claim = await hand.take(row("a", cleans_up=True))
    if parked is Status.AWAITING_CHILDREN:
        await hand.apply(claim, wait_children(), SpawnExecutions(child_rows(claim, 1, queue="children")))
    else:
        await hand.apply(claim, AdvanceExecution(status=parked, awaits=("go",), wake_after=60))
    assert await stores.store.cancel([claim.promise], reason="why") == [Status.RUNNABLE]
    again = await hand.take()
    assert (again.cancel_requested, again.cancel_reason, again.timed_out) == (True, "why", False)
    await hand.apply(again, CANCELLED)


async def test_what_cleans_up_and_waits_to_run_is_asked(hand: Hand, store: Store) -> None:
    await hand.insert(row("a", cleans_up=True))
    assert await store.cancel([promise_of("a")]) == [Status.RUNNABLE]
    claim = await hand.take()
    assert claim.cancel_requested


async def test_what_cleans_up_may_park_once_its_holder_knows(hand: Hand, store: Store) -> None:
    """Ruling B2: while cancelling, clean-up may suspend; a late resume must not un-cancel."""
    await hand.insert(row("a", cleans_up=True))
    await store.cancel([promise_of("a")])
    claim = await hand.take()
    assert (await hand.apply(claim, park("cleaned"))).status is Status.AWAITING_SIGNAL
    assert await store.cancel([promise_of("a")]) == [Status.AWAITING_SIGNAL], "it has been told already"
    await store.deliver([NewSignal(promise_of("a"), "cleaned", "1")])
    assert (await hand.take()).cancel_requested


async def test_a_holder_that_does_not_know_yet_does_not_park(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a", cleans_up=True))
    await store.cancel([claim.promise])
    receipt = await hand.apply(claim, park("never"))
    assert (receipt.status, receipt.cancel_requested) == (Status.RUNNABLE, True)
    assert (await hand.take()).cancel_requested


async def test_what_cleans_up_is_told_of_a_park_that_did_not_park(hand: Hand, store: Store) -> None:
    """The receipt tells the status that the row has now, a requested cancel or not."""
    await hand.insert(row("a", cleans_up=True))
    await store.cancel([promise_of("a")])
    claim = await hand.take()
    receipt = await hand.apply(claim, park("x"), DeliverSignal(NewSignal(claim.promise, "x", "1")))
    assert (receipt.status, receipt.cancel_requested) == (Status.RUNNABLE, True)


async def test_a_call_of_a_holder_that_does_not_know_yet_is_made_but_not_waited_for(hand: Hand, store: Store) -> None:
    """Its journal, in this very commit, says that the call was made."""
    for count in (0, 2):
        claim = await hand.take(row(f"a{count}", cleans_up=True))
        await store.cancel([claim.promise])
        rows = child_rows(claim, count, queue="calls", reports=True)
        blocked = AdvanceExecution(status=Status.AWAITING_PROMISE, wait_children=1, wake_after=5)
        receipt = await hand.apply(claim, blocked, SpawnExecutions(rows, barrier=False))
        assert (receipt.status, receipt.cancel_requested) == (Status.RUNNABLE, True)
        assert [child.created for child in receipt.children] == [True] * count
        await hand.apply(await hand.take(), CANCELLED)


async def test_cascade_asks_what_cleans_up_and_ends_the_rest(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent", cleans_up=True))
    rows = (*child_rows(parent, 1, queue="q"), *child_rows(parent, 2, queue="q", cleans_up=True)[1:])
    await hand.apply(parent, wait_children(), SpawnExecutions(rows))
    assert await store.cancel([parent.promise], cascade=True) == [Status.RUNNABLE]
    assert [child.status for child in await store.children(parent.promise)] == [Status.CANCELLED, Status.RUNNABLE]
    assert (await hand.take()).cancel_requested


# ---------------------------------------------------------------------- an execution's own deadline


async def test_a_deadline_requests_the_cancel(stores: Stores, hand: Hand) -> None:
    await hand.insert(row("waiting", deadline=10), row("held", deadline=10, queue="held"), row("free"))
    held = await hand.take(queues=["held"])
    assert (await stores.store.fire_timers(10)).next_due_seconds == pytest.approx(10)
    await stores.advance(10)
    await stores.store.fire_timers(10)
    view = await hand.view("waiting")
    assert (view.status, view.cancel_reason) == (Status.CANCELLED, DEADLINE_EXCEEDED)
    asked = await hand.view(held)
    assert (asked.status, asked.cancel_requested, asked.cancel_reason) == (Status.EXECUTING, True, DEADLINE_EXCEEDED)
    assert (await hand.view("free")).status is Status.RUNNABLE
    assert (await stores.store.fire_timers(10)).next_due_seconds is None


async def test_a_deadline_that_was_met_does_nothing(stores: Stores, hand: Hand) -> None:
    await hand.apply(await hand.take(row("a", deadline=10)), done())
    await stores.advance(60)
    await stores.store.fire_timers(10)
    assert (await hand.view("a")).status is Status.DONE


async def test_force_ends_what_nobody_holds_without_its_clean_up(hand: Hand, store: Store) -> None:
    parked = await hand.take(row("parked", cleans_up=True))
    await hand.apply(parked, park("never"))
    stranded = await hand.take(row("stranded", cleans_up=True))
    await hand.apply(stranded, strand())
    held = await hand.take(row("held", cleans_up=True))
    promises = [parked.promise, stranded.promise, held.promise]
    assert await store.cancel(promises[:2]) == [Status.RUNNABLE, Status.STRANDED]
    assert await store.cancel(promises, force=True) == [Status.CANCELLED, Status.CANCELLED, Status.EXECUTING]
    receipt = await hand.apply(held, keep())
    assert receipt.cancel_requested


async def test_force_with_cascade_ends_the_tree(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("p", cleans_up=True))
    await hand.apply(parent, wait_children(), SpawnExecutions(child_rows(parent, 2, cleans_up=True)))
    assert await store.cancel([parent.promise], cascade=True, force=True) == [Status.CANCELLED]
    assert {child.status for child in await store.children(parent.promise)} == {Status.CANCELLED}


async def test_force_with_cascade_ends_what_earlier_runs_left_behind(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a", cleans_up=True))
    await hand.apply(claim, wait_children(), SpawnExecutions(child_rows(claim, 2, cleans_up=True), 1))
    ended, left = await hand.pick()
    await hand.apply(left, park("never"))
    await hand.apply(ended, done())
    claim = await hand.take()
    new = row("a", promise=PromiseId.from_bytes(claim.promise).successor("continued").to_bytes(), cleans_up=True)
    await hand.apply(claim, done(), ContinueExecution(new))
    assert await store.cancel([new.promise], cascade=True, force=True) == [Status.CANCELLED]
    assert (await hand.view(left)).status is Status.CANCELLED
    assert (await hand.view("a")).status is Status.DONE


async def test_force_leaves_it_to_messages_to_close_what_their_job_owes(hand: Hand, store: Store) -> None:
    """Ruling A11, also of a job that is stranded with a dead letter."""
    job = await hand.take(row("job", kind=FLOW, handler=HANDLER, cleans_up=True))
    opened = OpenJob(child_rows(job, 2, kind=MESSAGE, handler=HANDLER, cleans_up=True))
    await hand.apply(job, AdvanceExecution(status=Status.DELEGATED), opened)
    letter, _ = await hand.pick()
    await hand.apply(letter, strand())
    assert (await hand.view(job)).status is Status.STRANDED
    assert await store.cancel([job.promise], force=True) == [Status.DELEGATED]
    view = await hand.view(letter)
    assert (view.status, view.step) == (Status.RUNNABLE, CLOSE)
