"""Cancelling: at once where nobody holds the row, through its holder otherwise (DESIGN section 9, ruling E10)."""

from __future__ import annotations

import pytest

from holdfast.core.identity import PromiseId
from holdfast.core.status import LIVE, TERMINAL, Status
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution, Commit, ContinueExecution, DeliverSignal, SpawnExecutions
from holdfast.store.values import ExecutionClaim, NewSignal
from holdfast.testing.hand import Hand, child_rows, done, go, keep, park, promise_of, replay, row, strand, wait_children
from holdfast.testing.stores import Stores

CANCELLED = AdvanceExecution(status=Status.CANCELLED)


async def spawn(hand: Hand, parent: ExecutionClaim, count: int, quorum: int | None = None) -> list[ExecutionClaim]:
    effect = SpawnExecutions(child_rows(parent, count, queue="children"), quorum)
    await hand.apply(parent, wait_children(), effect)
    return await hand.pick(count, queues=["children"])


async def bring_to(hand: Hand, status: Status) -> ExecutionClaim:
    """One execution "a" in the given status."""
    if status is Status.RUNNABLE:
        claim = await hand.take(row("a"))
        await hand.store.release(hand.name, [claim])
        return claim
    claim = await hand.take(row("a"))
    if status is Status.AWAITING_CHILDREN:
        await hand.apply(claim, wait_children(), SpawnExecutions(child_rows(claim, 1, queue="children")))
    elif status is not Status.EXECUTING:
        await hand.apply(claim, AdvanceExecution(status=status, awaits=("go",), wake_after=60))
    return claim


@pytest.mark.parametrize("status", sorted(LIVE - {Status.EXECUTING, Status.DELEGATED}))
async def test_what_nobody_holds_ends_at_once(stores: Stores, hand: Hand, status: Status) -> None:
    claim = await bring_to(hand, status)
    assert (await hand.view("a")).status is status
    await stores.store.deliver([NewSignal(claim.promise, "other", "1")])
    await stores.advance(5)
    assert await stores.store.cancel([claim.promise]) == [Status.CANCELLED]
    view = await hand.view("a")
    assert (view.status, view.ended_at, view.wake_at) == (Status.CANCELLED, stores.clock.now, None)
    assert view.awaits is None, "what has ended awaits nothing"
    assert await stores.store.inbox(claim.promise) == []
    assert await hand.pick() == []


async def test_the_holder_is_asked_and_decides(hand: Hand, store: Store) -> None:
    """E11: a cancel is honoured between steps."""
    claim = await hand.take(row("a"))
    before = await hand.view("a")
    assert await store.cancel([claim.promise]) == [Status.EXECUTING]
    view = await hand.view("a")
    assert view.cancel_requested
    assert (view.status, view.locked_by, view.lease_epoch) == (before.status, before.locked_by, before.lease_epoch)
    receipt = await hand.apply(claim, keep("second"))
    assert receipt.status is Status.EXECUTING
    assert receipt.cancel_requested
    await hand.apply(claim, CANCELLED)
    assert (await hand.view("a")).status is Status.CANCELLED


@pytest.mark.parametrize("ended", sorted(TERMINAL))
async def test_what_has_ended_stays_as_it_ended(hand: Hand, store: Store, ended: Status) -> None:
    claim = await hand.take(row("a"))
    await hand.apply(claim, AdvanceExecution(status=ended))
    before = await hand.view("a")
    assert await store.cancel([claim.promise], cascade=True) == [ended]
    assert await hand.view("a") == before


async def test_nobody_cannot_be_cancelled(store: Store) -> None:
    assert await store.cancel([promise_of("nobody")]) == [None]
    assert await store.cancel([]) == []


async def test_several_are_answered_in_order(hand: Hand, store: Store) -> None:
    await hand.apply(await hand.take(row("ended")), done())
    await hand.take(row("held"))
    await hand.insert(row("waiting"))
    keys = ["waiting", "nobody", "held", "ended", "waiting"]
    assert await store.cancel([promise_of(key) for key in keys]) == [
        Status.CANCELLED,
        None,
        Status.EXECUTING,
        Status.DONE,
        Status.CANCELLED,
    ]


async def test_cancelling_twice_is_cancelling_once(hand: Hand, store: Store) -> None:
    await hand.insert(row("a"))
    assert await store.cancel([promise_of("a")]) == [Status.CANCELLED]
    before = await hand.view("a")
    assert await store.cancel([promise_of("a")]) == [Status.CANCELLED]
    assert await hand.view("a") == before


async def test_a_paused_row_can_be_cancelled(hand: Hand, store: Store) -> None:
    await hand.insert(row("a", paused=True))
    assert await store.cancel([promise_of("a")]) == [Status.CANCELLED]


async def test_a_cancelled_row_gives_up_its_unique_key(hand: Hand, store: Store) -> None:
    unique = {"unique_key": b"k", "unique_scope": ("runnable",)}
    await hand.insert(row("a", **unique))
    await store.cancel([promise_of("a")])
    assert (await hand.insert(row("b", **unique)))[0].created


# ---------------------------------------------------------------------- what a holder commits after it was asked


async def test_an_end_that_was_reached_anyway_is_kept(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    await store.cancel([claim.promise])
    assert (await hand.apply(claim, done("1"))).status is Status.DONE
    assert (await hand.view("a")).status is Status.DONE


@pytest.mark.parametrize(
    "advance",
    [go("second", delay=60), park("go", step="second", wake_after=60)],
    ids=["next-later", "await"],
)
async def test_instead_of_waiting_a_cancelled_row_comes_back_at_once(
    stores: Stores, hand: Hand, advance: AdvanceExecution
) -> None:
    """Runnable now at the written step: the worker that picks it sees the request, and ends it."""
    claim = await hand.take(row("a"))
    await stores.store.cancel([claim.promise])
    flushed = await hand.flush(Commit(claim, (advance,)))
    receipt = flushed.receipts[0]
    assert (receipt.status, receipt.cancel_requested) == (Status.RUNNABLE, True)
    assert flushed.woke
    view = await hand.view("a")
    assert (view.status, view.step, view.eligible_at) == (Status.RUNNABLE, "second", stores.clock.now)
    again = await hand.take()
    assert again.cancel_requested
    assert not again.timed_out
    await hand.apply(again, CANCELLED)


async def test_a_replay_of_a_cancelled_row_comes_back_at_once(stores: Stores, hand: Hand) -> None:
    claim = await hand.take(row("a"))
    await stores.store.cancel([claim.promise])
    await hand.apply(claim, replay(claim, delay=60))
    assert (await hand.take()).cancel_requested


async def test_a_cancelled_parent_spawns_no_children(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    await store.cancel([claim.promise])
    receipt = await hand.apply(claim, wait_children(), SpawnExecutions(child_rows(claim, 2, queue="children")))
    assert (receipt.status, receipt.cancel_requested) == (Status.RUNNABLE, True)
    assert await store.children(claim.promise) == []
    assert not (await hand.take()).children_ready


async def test_signals_of_a_cancelled_row_still_arrive(hand: Hand, store: Store) -> None:
    """What it did before it was stopped, it did."""
    await hand.apply(await hand.take(row("target")), park("go"))
    claim = await hand.take(row("a"))
    await store.cancel([claim.promise])
    await hand.apply(claim, go(), DeliverSignal(NewSignal(promise_of("target"), "go", "1")))
    assert (await hand.view("target")).status is Status.RUNNABLE


async def test_a_released_claim_keeps_the_request(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    await store.cancel([claim.promise])
    await store.release(hand.name, [claim])
    assert (await hand.take()).cancel_requested


async def test_a_cancel_is_not_held_up_by_a_pause(hand: Hand, store: Store) -> None:
    """Whichever came first: the row is picked, so that its worker can end it."""
    await hand.insert(row("a"), row("b"))
    for order, claim in enumerate(await hand.pick()):
        if order:
            await store.cancel([claim.promise])
            await store.pause(claim.promise, True)
        else:
            await store.pause(claim.promise, True)
            await store.cancel([claim.promise])
        await hand.apply(claim, go())
    claims = await hand.pick()
    assert [claim.cancel_requested for claim in claims] == [True, True]


async def test_the_first_reason_stays(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    await store.cancel([claim.promise])
    await store.cancel([claim.promise], reason="first")
    await store.cancel([claim.promise], reason="second")
    assert (await hand.view("a")).cancel_reason == "first"
    await store.release(hand.name, [claim])
    assert (await hand.take()).cancel_reason == "first"


async def test_what_ends_at_once_keeps_its_reason_too(hand: Hand, store: Store) -> None:
    await hand.insert(row("a"))
    await store.cancel([promise_of("a")], reason="out of stock")
    assert (await hand.view("a")).cancel_reason == "out of stock"


# ---------------------------------------------------------------------- children and parents


async def test_without_cascade_children_keep_running(hand: Hand, store: Store) -> None:
    """E10."""
    parent = await hand.take(row("parent"))
    (child,) = await spawn(hand, parent, 1)
    assert await store.cancel([parent.promise]) == [Status.CANCELLED]
    view = await hand.view(child)
    assert (view.status, view.cancel_requested) == (Status.EXECUTING, False)
    await hand.apply(child, done())
    assert (await hand.view(parent)).status is Status.CANCELLED


async def test_cascade_reaches_every_descendant(hand: Hand, store: Store) -> None:
    """Four levels; at each a held, a waiting and an ended child."""
    claim = await hand.take(row("root"))
    root = claim.promise
    expected: dict[bytes, Status] = {root: Status.CANCELLED}
    for _ in range(4):
        held, waiting, ended, deeper = await spawn(hand, claim, 4)
        await hand.apply(waiting, park("never"))
        await hand.apply(ended, done())
        expected |= {held.promise: Status.EXECUTING, waiting.promise: Status.CANCELLED, ended.promise: Status.DONE}
        expected |= {deeper.promise: Status.CANCELLED}
        claim = deeper
    await hand.apply(claim, park("never"))
    assert await store.cancel([root], cascade=True) == [Status.CANCELLED]
    for promise, status in expected.items():
        view = await hand.view(promise)
        assert view.status is status
        if status is not Status.CANCELLED:
            assert view.cancel_requested is (status is Status.EXECUTING)


async def test_cascade_goes_through_a_held_or_ended_middle(hand: Hand, store: Store) -> None:
    """What has ended, or is only asked, does not shield what it spawned."""
    top = await hand.take(row("top"))
    first, second = await spawn(hand, top, 2, quorum=1)
    (grandchild,) = await spawn(hand, first, 1)
    await hand.apply(grandchild, park("never"))
    await store.cancel([first.promise])
    (deep,) = await spawn(hand, second, 1)
    await hand.apply(deep, park("never"))
    held = await hand.take()
    assert held.promise == top.promise
    assert await store.cancel([top.promise], cascade=True) == [Status.EXECUTING]
    assert (await hand.view(top)).cancel_requested
    for claim in (grandchild, second, deep):
        assert (await hand.view(claim)).status is Status.CANCELLED


async def test_cascade_leaves_strangers_alone(hand: Hand, store: Store) -> None:
    one, other = await hand.take(row("one")), await hand.take(row("other"))
    (mine,) = await spawn(hand, one, 1)
    (theirs,) = await spawn(hand, other, 1)
    await store.cancel([one.promise], cascade=True)
    assert (await hand.view(mine)).cancel_requested
    view = await hand.view(theirs)
    assert not view.cancel_requested
    assert (await hand.view(other)).status is Status.AWAITING_CHILDREN


async def test_a_cancelled_child_releases_its_parents_barrier_once(hand: Hand, store: Store) -> None:
    """Section 11: any terminal status releases the slot, and exactly once per child."""
    parent = await hand.take(row("parent"))
    first, second = await spawn(hand, parent, 2)
    await store.release(hand.name, [first])
    for _ in range(3):
        assert await store.cancel([first.promise]) == [Status.CANCELLED]
        assert (await hand.view(parent)).children_pending == 1
    await hand.apply(second, done())
    assert (await hand.take()).children_ready


async def test_a_held_child_releases_the_barrier_when_its_holder_ends_it(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    first, second = await spawn(hand, parent, 2)
    assert await store.cancel([first.promise]) == [Status.EXECUTING]
    assert (await hand.view(parent)).children_pending == 2
    await hand.apply(first, CANCELLED)
    assert (await hand.view(parent)).children_pending == 1
    await hand.apply(second, done())
    assert (await hand.view(parent)).status is Status.RUNNABLE


async def test_all_children_cancelled_in_one_call_release_the_parent(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    children = await spawn(hand, parent, 3)
    await store.release(hand.name, children)
    await store.cancel([child.promise for child in children])
    view = await hand.view(parent)
    assert (view.status, view.children_pending) == (Status.RUNNABLE, 0)


async def test_a_cancelled_child_of_an_earlier_round_does_not_touch_the_barrier(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    first, late = await spawn(hand, parent, 2, quorum=1)
    await hand.apply(first, done())
    await store.release(hand.name, [late])
    await hand.apply(await hand.take(), wait_children(), SpawnExecutions((row("other child", queue="elsewhere"),)))
    assert await store.cancel([late.promise]) == [Status.CANCELLED]
    view = await hand.view(parent)
    assert (view.status, view.children_pending) == (Status.AWAITING_CHILDREN, 1)


async def test_cascade_over_parent_and_children_wakes_no_parent_on_the_way(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    children = await spawn(hand, parent, 3)
    await store.release(hand.name, children)
    await store.cancel([parent.promise], cascade=True)
    assert {(await hand.view(claim)).status for claim in [parent, *children]} == {Status.CANCELLED}
    assert await hand.pick(queues=["default", "children"]) == []


async def test_a_stranded_child_can_be_given_up(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    (child,) = await spawn(hand, parent, 1)
    await hand.apply(child, strand())
    assert await store.cancel([child.promise]) == [Status.CANCELLED]
    assert (await hand.view(parent)).status is Status.RUNNABLE


async def test_a_middle_that_is_cancelled_releases_the_top(hand: Hand, store: Store) -> None:
    """Cascade from the middle: the barrier above is released once, by the middle alone."""
    top = await hand.take(row("top"))
    middle, sibling = await spawn(hand, top, 2)
    (leaf,) = await spawn(hand, middle, 1)
    await store.release(hand.name, [leaf])
    await store.cancel([middle.promise], cascade=True)
    assert (await hand.view(top)).children_pending == 1
    await hand.apply(sibling, done())
    assert (await hand.view(top)).status is Status.RUNNABLE


# ---------------------------------------------------------------------- runs that went on as others


async def run_of_three(hand: Hand) -> tuple[list[bytes], list[ExecutionClaim]]:
    """The ids of an execution that went on twice, and parks; and what each of its runs started and left behind."""
    claim, runs, left = await hand.take(row("a")), [], []
    for turn in range(3):
        runs.append(claim.promise)
        late, ended = await spawn(hand, claim, 2, quorum=1)
        await hand.apply(late, park("never"))
        await hand.apply(ended, done())
        left.append(late)
        claim = await hand.take()
        if turn < 2:
            new = row("a", promise=PromiseId.from_bytes(claim.promise).successor("continued").to_bytes())
            await hand.apply(claim, done(), ContinueExecution(new))
            claim = await hand.take()
    await hand.apply(claim, park("never"))
    return runs, left


@pytest.mark.parametrize("named", [0, 1, 2], ids=["first", "between", "newest"])
async def test_cascade_takes_what_earlier_runs_left_behind(hand: Hand, store: Store, named: int) -> None:
    runs, left = await run_of_three(hand)
    before = await store.get_many(runs[:2])
    (answer,) = await store.cancel([runs[named]], cascade=True)
    assert answer is (Status.CANCELLED if named == 2 else Status.DONE)
    assert [(await hand.view(claim)).status for claim in left] == [Status.CANCELLED] * 3
    newest = await store.get(runs[2])
    assert newest is not None
    assert newest.status is Status.CANCELLED
    assert await store.get_many(runs[:2]) == before, "a run that has ended stays as it ended"


async def test_without_cascade_what_earlier_runs_left_behind_goes_on(hand: Hand, store: Store) -> None:
    runs, left = await run_of_three(hand)
    assert await store.cancel([runs[2]]) == [Status.CANCELLED]
    assert {(await hand.view(claim)).status for claim in left} == {Status.AWAITING_SIGNAL}


async def test_cascade_from_a_child_that_went_on_leaves_its_siblings_alone(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    child, sibling = await spawn(hand, parent, 2)
    await hand.apply(sibling, park("never"))
    left, ended = await spawn(hand, child, 2, quorum=1)
    await hand.apply(left, park("never"))
    await hand.apply(ended, done())
    (child,) = await hand.pick(1, queues=["children"])
    new = row("child", promise=PromiseId.from_bytes(child.promise).successor("continued").to_bytes())
    await hand.apply(child, done(), ContinueExecution(new))
    await store.cancel([new.promise], cascade=True)
    assert (await hand.view(left)).status is Status.CANCELLED
    assert (await hand.view(sibling)).status is Status.AWAITING_SIGNAL
    view = await hand.view(parent)
    assert (view.status, view.children_pending) == (Status.AWAITING_CHILDREN, 1)
