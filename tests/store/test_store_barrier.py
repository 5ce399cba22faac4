"""Barriers over time: rounds, late children, deadlines, and what does not release (seed section 11; E4, E7, E10)."""

from __future__ import annotations

import pytest

from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution, Commit, SpawnExecutions
from holdfast.store.values import ExecutionClaim
from holdfast.testing.hand import (
    LEASE_SECONDS,
    Hand,
    child_rows,
    done,
    go,
    replay,
    row,
    strand,
    wait_children,
)
from holdfast.testing.stores import Stores


async def spawn(
    hand: Hand, parent: ExecutionClaim, count: int, quorum: int | None = None, wake_after: float | None = None
) -> list[ExecutionClaim]:
    """Park the parent on `count` children, and claim them all."""
    effect = SpawnExecutions(child_rows(parent, count, queue="children"), quorum)
    receipt = await hand.apply(parent, wait_children(wake_after=wake_after), effect)
    assert receipt.status is Status.AWAITING_CHILDREN
    return await hand.pick(count, queues=["children"])


async def end_all(hand: Hand, children: list[ExecutionClaim]) -> None:
    await hand.flush(*(Commit(child, (done(),)) for child in children))


async def test_each_round_has_its_own_children(hand: Hand, store: Store) -> None:
    """E7: the children of the barrier just released, not those of earlier rounds."""
    parent = await hand.take(row("parent"))
    await end_all(hand, await spawn(hand, parent, 2))
    parent = await hand.take()
    assert (parent.barrier_round, parent.next_child) == (1, 2)
    await end_all(hand, await spawn(hand, parent, 3))
    parent = await hand.take()
    assert (parent.barrier_round, parent.next_child) == (2, 5)
    paths = {
        turn: [PromiseId.from_bytes(child.promise).path for child in await store.children(parent.promise, turn)]
        for turn in (1, 2, None)
    }
    assert paths == {1: [(0,), (1,)], 2: [(2,), (3,), (4,)], None: [(0,), (1,), (2,), (3,), (4,)]}


async def test_a_late_child_of_an_earlier_round_does_not_touch_the_next_barrier(hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    first, late = await spawn(hand, parent, 2, quorum=1)
    await hand.apply(first, done())
    parent = await hand.take()
    (current,) = await spawn(hand, parent, 1)
    await hand.apply(late, done())
    view = await hand.view(parent)
    assert (view.status, view.children_pending) == (Status.AWAITING_CHILDREN, 1)
    await hand.apply(current, done())
    assert (await hand.view(parent)).status is Status.RUNNABLE


async def test_a_late_child_beside_its_parents_next_round_in_one_flush(hand: Hand) -> None:
    """Parent and child in one flush, in either order: the child belongs to the round before."""
    for order in (1, -1):
        parent = await hand.take(row(f"parent{order}"))
        first, late = await spawn(hand, parent, 2, quorum=1)
        await hand.apply(first, done())
        parent = await hand.take()
        effect = SpawnExecutions(child_rows(parent, 1, queue="children"))
        await hand.flush(*[Commit(parent, (wait_children(), effect)), Commit(late, (done(),))][::order])
        view = await hand.view(parent)
        assert (view.status, view.children_pending) == (Status.AWAITING_CHILDREN, 1)
        await end_all(hand, await hand.pick(queues=["children"]))
        await hand.apply(await hand.take(), done())


async def test_parent_and_child_end_in_one_flush(hand: Hand) -> None:
    for order in (1, -1):
        parent = await hand.take(row(f"parent{order}"))
        first, late = await spawn(hand, parent, 2, quorum=1)
        await hand.apply(first, done())
        parent = await hand.take()
        flushed = await hand.flush(*[Commit(parent, (done("1"),)), Commit(late, (done("2"),))][::order])
        assert all(receipt.applied for receipt in flushed.receipts)
        assert (await hand.view(parent)).status is Status.DONE


async def test_a_late_child_does_not_wake_a_parent_that_waits_for_something_else(hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    first, late = await spawn(hand, parent, 2, quorum=1)
    await hand.apply(first, done())
    await hand.apply(await hand.take(), AdvanceExecution(status=Status.AWAITING_SIGNAL, awaits=("go",)))
    await hand.apply(late, done())
    assert (await hand.view(parent)).status is Status.AWAITING_SIGNAL


async def test_that_the_barrier_was_released_is_known_until_progress(hand: Hand) -> None:
    """E4: a redo sees the same inputs; a crash as well (section 11, wake-up)."""
    parent = await hand.take(row("parent"))
    await end_all(hand, await spawn(hand, parent, 1))
    claim = await hand.take()
    await hand.apply(claim, replay(claim))
    claim = await hand.take()
    assert claim.children_ready
    await hand.apply(claim, go())
    assert not (await hand.take()).children_ready


async def test_the_parent_reads_the_same_children_after_a_crash(stores: Stores, hand: Hand, rival: Hand) -> None:
    parent = await hand.take(row("parent"))
    await end_all(hand, await spawn(hand, parent, 2))
    await hand.take()
    await stores.advance(LEASE_SECONDS - 1)
    await rival.beat()
    await stores.advance(2)
    await stores.store.reap(10, max_crashes=10)
    claim = await rival.take()
    assert (claim.children_ready, claim.barrier_round, claim.attempt) == (True, 1, 1)
    assert len(await stores.store.children(claim.promise, claim.barrier_round)) == 2


# ---------------------------------------------------------------------- what does not release


async def test_a_deadline_opens_the_barrier_with_children_still_running(stores: Stores, hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    first, second = await spawn(hand, parent, 2, wake_after=10)
    await hand.apply(first, done())
    await stores.advance(10)
    assert (await stores.store.fire_timers(10)).fired == 1
    claim = await hand.take()
    assert (claim.step, claim.timed_out, claim.children_ready) == ("joined", True, False)
    await hand.apply(second, done())
    assert (await hand.view(parent)).status is Status.EXECUTING, "the late one wakes nobody"


async def test_a_parent_may_wait_again_for_those_that_were_late(stores: Stores, hand: Hand) -> None:
    """Parking on the barrier it already has, without spawning: those that ended meanwhile count."""
    parent = await hand.take(row("parent"))
    first, second, third = await spawn(hand, parent, 3, wake_after=10)
    await hand.apply(first, done())
    await stores.advance(10)
    await stores.store.fire_timers(10)
    claim = await hand.take()
    await hand.apply(second, done())
    assert (await hand.apply(claim, wait_children())).status is Status.AWAITING_CHILDREN
    assert (await hand.view(parent)).children_pending == 1
    await hand.apply(third, done())
    again = await hand.take()
    assert (again.children_ready, again.timed_out, again.barrier_round) == (True, False, 1)


async def test_waiting_again_when_all_have_ended_is_no_wait(stores: Stores, hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    (child,) = await spawn(hand, parent, 1, wake_after=10)
    await stores.advance(10)
    await stores.store.fire_timers(10)
    claim = await hand.take()
    await hand.apply(child, done())
    assert (await hand.apply(claim, wait_children())).status is Status.RUNNABLE
    assert (await hand.take()).children_ready


async def test_a_barrier_released_in_time_has_no_deadline_left(stores: Stores, hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    await end_all(hand, await spawn(hand, parent, 1, wake_after=10))
    await stores.advance(20)
    assert (await stores.store.fire_timers(10)).fired == 0
    assert not (await hand.take()).timed_out


@pytest.mark.parametrize("advance", [go(), strand()], ids=["next", "stranded"])
async def test_a_child_that_has_not_ended_is_waited_for(hand: Hand, advance: AdvanceExecution) -> None:
    """A stranded child is alive: it can be resumed."""
    parent = await hand.take(row("parent"))
    (child,) = await spawn(hand, parent, 1)
    await hand.apply(child, advance)
    assert (await hand.view(parent)).children_pending == 1


async def test_a_crashed_child_is_waited_for(stores: Stores, hand: Hand) -> None:
    """The barrier of nobody is touched by the reaper, not even by the strand of a poison claim."""
    parent = await hand.take(row("parent"))
    await spawn(hand, parent, 2)
    await stores.advance(LEASE_SECONDS + 1)
    assert len((await stores.store.reap(10, max_crashes=1)).stranded) == 2
    view = await hand.view(parent)
    assert (view.status, view.children_pending) == (Status.AWAITING_CHILDREN, 2)


async def test_a_parent_that_ended_leaves_its_children_running(hand: Hand) -> None:
    """E10, section 11: terminating a parent does not touch its children; their end finds nobody waiting."""
    parent = await hand.take(row("parent"))
    first, late = await spawn(hand, parent, 2, quorum=1)
    await hand.apply(first, done())
    await hand.apply(await hand.take(), done("1"))
    before = await hand.view(parent)
    await hand.apply(late, done())
    assert await hand.view(parent) == before


async def test_a_child_found_under_its_promise_is_not_waited_for(hand: Hand) -> None:
    """Only those that were really inserted are in the barrier."""
    parent = await hand.take(row("parent"))
    rows = child_rows(parent, 2, queue="children")
    await hand.insert(rows[0])
    receipt = await hand.apply(parent, wait_children(), SpawnExecutions(rows))
    assert [child.created for child in receipt.children] == [False, True]
    assert (await hand.view(parent)).children_pending == 1


async def test_a_thousand_children_join(hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    children = await spawn(hand, parent, 1_000)
    assert len(children) == 1_000
    await end_all(hand, children)
    assert (await hand.view(parent)).status is Status.RUNNABLE
