"""Children: spawn and barrier in the parent's commit, join in the child's (seed section 11; rulings E7, E10)."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.identity import PromiseId
from holdfast.core.status import TERMINAL, Status
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution, Commit, SpawnExecutions
from holdfast.store.values import ExecutionClaim, Inserted
from holdfast.testing.hand import (
    ERROR,
    Hand,
    child_rows,
    done,
    fail,
    promise_of,
    replay,
    row,
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


async def test_children_appear_and_the_parent_parks_in_one_commit(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    rows = child_rows(parent, 3, queue="children", state="7")
    receipt = await hand.apply(parent, wait_children("joined"), SpawnExecutions(rows))
    assert receipt.children == tuple(Inserted(new.promise, created=True) for new in rows)
    view = await hand.view(parent)
    assert (view.status, view.step, view.attempt) == (Status.AWAITING_CHILDREN, "joined", 0)
    assert (view.children_pending, view.barrier_round, view.locked_by) == (3, 1, None)
    children = await store.children(parent.promise)
    assert [child.promise for child in children] == [new.promise for new in rows]
    assert {(child.status, child.parent, child.state) for child in children} == {(Status.RUNNABLE, parent.promise, "7")}


async def test_of_many_children_one_that_is_there_keeps_none_of_the_others_out(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    rows = child_rows(parent, 50, queue="children")
    await store.insert([rows[30]])
    receipt = await hand.apply(parent, wait_children("joined"), SpawnExecutions(rows))
    assert receipt.children == tuple(Inserted(new.promise, created=new is not rows[30]) for new in rows)
    assert (await hand.view(parent)).children_pending == 49
    children = await store.children(parent.promise)
    assert [child.promise for child in children] == [new.promise for new in rows if new is not rows[30]]


async def test_a_child_knows_that_it_has_a_parent(hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    (child,) = await spawn(hand, parent, 1)
    assert child.has_parent
    assert child.parent_row == parent.row
    assert PromiseId.from_bytes(child.promise).parent == PromiseId.from_bytes(parent.promise)


async def test_the_last_child_releases_the_barrier(stores: Stores, hand: Hand) -> None:
    """The decrement that drives it to zero makes the parent runnable at its next step."""
    parent = await hand.take(row("parent"))
    first, second = await spawn(hand, parent, 2)
    await hand.apply(first, done("1"))
    view = await hand.view(parent)
    assert (view.status, view.children_pending) == (Status.AWAITING_CHILDREN, 1)
    await stores.advance(3)
    flushed = await hand.flush(Commit(second, (done("2"),)))
    assert flushed.woke
    view = await hand.view(parent)
    assert (view.status, view.children_pending, view.eligible_at) == (Status.RUNNABLE, 0, stores.clock.now)
    claim = await hand.take()
    assert (claim.step, claim.attempt) == ("joined", 0)
    assert claim.children_ready
    assert not claim.timed_out


@pytest.mark.parametrize("ended", sorted(TERMINAL))
async def test_the_barrier_waits_for_the_end_not_for_success(hand: Hand, store: Store, ended: Status) -> None:
    """Section 11, failures: the parent sees status and error, and decides."""
    parent = await hand.take(row("parent"))
    (child,) = await spawn(hand, parent, 1)
    await hand.apply(child, AdvanceExecution(status=ended, error=ERROR if ended is Status.FAILED else None))
    assert (await hand.view(parent)).status is Status.RUNNABLE
    (seen,) = await store.children(parent.promise, 1)
    assert seen.status is ended
    assert seen.error == (ERROR if ended is Status.FAILED else None)


async def test_children_of_one_flush_are_all_counted(hand: Hand) -> None:
    """DESIGN section 6: a row updated twice keeps one update, so barriers are aggregated by parent."""
    parent = await hand.take(row("parent"))
    children = await spawn(hand, parent, 5)
    await end_all(hand, children[:3])
    view = await hand.view(parent)
    assert (view.status, view.children_pending) == (Status.AWAITING_CHILDREN, 2)
    await end_all(hand, children[3:])
    assert (await hand.view(parent)).status is Status.RUNNABLE


async def test_children_of_many_parents_end_in_one_flush(hand: Hand) -> None:
    await hand.insert(*(row(f"p{n}") for n in range(4)))
    parents = await hand.pick()
    spawned = [await spawn(hand, parent, 2) for parent in parents]
    await hand.flush(*(Commit(child, (done(),)) for pair in spawned for child in pair))
    assert {(await hand.view(parent)).status for parent in parents} == {Status.RUNNABLE}


async def test_siblings_in_two_processes_end_at_once(stores: Stores, hand: Hand) -> None:
    """Section 11: concurrent siblings serialise on the parent's row."""
    other = await stores.another()
    parent = await hand.take(row("parent"))
    children = await spawn(hand, parent, 20)
    flushes = [
        (hand.store if n % 2 else other).flush(hand.name, [Commit(child, (done(),))])
        for n, child in enumerate(children)
    ]
    await asyncio.gather(*flushes)
    view = await hand.view(parent)
    assert (view.status, view.children_pending) == (Status.RUNNABLE, 0)


async def test_a_child_that_runs_twice_is_counted_once(stores: Stores, hand: Hand, rival: Hand) -> None:
    """Section 11: the decrement rides the terminal commit, so a crash before it never decremented."""
    parent = await hand.take(row("parent"))
    first, _second = await spawn(hand, parent, 2)
    await hand.apply(first, replay(first))
    (again,) = await rival.pick(queues=["children"])
    assert (await hand.view(parent)).children_pending == 2
    await rival.apply(again, done())
    assert not (await hand.commit(first, done())).applied
    assert (await hand.view(parent)).children_pending == 1


async def test_nesting_is_free(hand: Hand) -> None:
    """Section 11: each level is an independent barrier."""
    parent = await hand.take(row("parent"))
    (child,) = await spawn(hand, parent, 1)
    (grandchild,) = await spawn(hand, child, 1)
    await hand.apply(grandchild, done())
    assert (await hand.view(parent)).status is Status.AWAITING_CHILDREN
    (child,) = await hand.pick(queues=["children"])
    await hand.apply(child, done())
    assert (await hand.view(parent)).status is Status.RUNNABLE


async def test_a_child_of_a_cancelled_parent_ends_beside_its_grandparent(hand: Hand) -> None:
    """One flush writes both ends of a tree whose middle is gone; the middle stays as it ended."""
    parent = await hand.take(row("parent"))
    (child,) = await spawn(hand, parent, 1)
    (grandchild,) = await spawn(hand, child, 1)
    assert await hand.store.cancel([child.promise]) == [Status.CANCELLED]
    before = await hand.view(child)
    again = await hand.take()
    flushed = await hand.flush(Commit(grandchild, (done(),)), Commit(again, (done(),)))
    assert all(receipt.applied for receipt in flushed.receipts)
    assert await hand.view(child) == before


# ---------------------------------------------------------------------- none, some, enough


async def test_no_children_at_all_is_a_barrier_already_satisfied(hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    flushed = await hand.flush(Commit(parent, (wait_children("joined", wake_after=9), SpawnExecutions(()))))
    assert flushed.receipts[0].status is Status.RUNNABLE
    assert flushed.woke
    claim = await hand.take()
    assert (claim.step, claim.children_ready, claim.barrier_round, claim.next_child) == ("joined", True, 1, 0)
    assert (await hand.view(parent)).wake_at is None


async def test_children_dropped_by_uniqueness_are_not_waited_for(hand: Hand) -> None:
    """Section 11: `children_pending` is the number actually inserted."""
    await hand.insert(row("occupant", queue="elsewhere", unique_key=b"k", unique_scope=("runnable",)))
    parent = await hand.take(row("parent"))
    plain, dropped, also = child_rows(parent, 3, queue="children")
    rows = (plain, row("d", promise=dropped.promise, unique_key=b"k", unique_scope=("runnable",)), also)
    receipt = await hand.apply(parent, wait_children(), SpawnExecutions(rows))
    assert [child.created for child in receipt.children] == [True, False, True]
    assert receipt.children[1] == Inserted(promise_of("occupant"), created=False, collided=True)
    assert (await hand.view(parent)).children_pending == 2
    await end_all(hand, await hand.pick(queues=["children"]))
    claim = await hand.take()
    assert claim.next_child == 3, "numbers are used up whether or not their rows were inserted"


async def test_if_every_child_is_dropped_the_parent_goes_on_at_once(hand: Hand) -> None:
    unique = {"queue": "elsewhere", "unique_key": b"k", "unique_scope": ("runnable",)}
    await hand.insert(row("occupant", **unique))
    parent = await hand.take(row("parent"))
    receipt = await hand.apply(parent, wait_children(), SpawnExecutions(child_rows(parent, 2, **unique)))
    assert receipt.status is Status.RUNNABLE
    assert (await hand.take()).children_ready


async def test_children_of_one_batch_that_collide_with_each_other_count_once(hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    rows = child_rows(parent, 3, queue="children", unique_key=b"k", unique_scope=("runnable",))
    receipt = await hand.apply(parent, wait_children(), SpawnExecutions(rows))
    assert [child.created for child in receipt.children] == [True, False, False]
    assert (await hand.view(parent)).children_pending == 1


async def test_two_parents_of_one_flush_race_for_a_childs_key(hand: Hand) -> None:
    """Uniqueness holds among the children of all commits of a flush; each receipt has its own."""
    await hand.insert(row("p0"), row("p1"))
    parents = await hand.pick()
    columns = {"queue": "children", "unique_key": b"k", "unique_scope": ("runnable",)}
    commits = [
        Commit(parent, (wait_children(), SpawnExecutions(child_rows(parent, 1, **columns)))) for parent in parents
    ]
    flushed = await hand.flush(*commits)
    created = [receipt.children[0].created for receipt in flushed.receipts]
    assert sorted(created) == [False, True]
    statuses = {was: receipt.status for was, receipt in zip(created, flushed.receipts, strict=True)}
    assert statuses == {True: Status.AWAITING_CHILDREN, False: Status.RUNNABLE}


async def test_a_quorum_is_enough(hand: Hand) -> None:
    """Beyond the seed: k of n; the rest keep running (E10)."""
    parent = await hand.take(row("parent"))
    first, second, third = await spawn(hand, parent, 3, quorum=2)
    assert (await hand.view(parent)).children_pending == 2
    await hand.apply(first, done())
    assert (await hand.view(parent)).status is Status.AWAITING_CHILDREN
    await hand.apply(second, fail())
    assert (await hand.view(parent)).status is Status.RUNNABLE
    claim = await hand.take()
    assert claim.children_ready
    await hand.apply(third, done())
    await hand.apply(claim, done())


async def test_a_quorum_passed_in_one_flush_releases_once(hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    await end_all(hand, await spawn(hand, parent, 4, quorum=2))
    view = await hand.view(parent)
    assert (view.status, view.children_pending) == (Status.RUNNABLE, 0)
    assert len(await hand.pick()) == 1


async def test_a_quorum_larger_than_the_children_means_all(hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    children = await spawn(hand, parent, 2, quorum=9)
    assert (await hand.view(parent)).children_pending == 2
    await end_all(hand, children)
    assert (await hand.view(parent)).status is Status.RUNNABLE


async def test_a_quorum_counts_only_what_was_inserted(hand: Hand) -> None:
    unique = {"unique_key": b"k", "unique_scope": ("runnable",)}
    await hand.insert(row("occupant", queue="elsewhere", **unique))
    parent = await hand.take(row("parent"))
    plain, dropped = child_rows(parent, 2, queue="children")
    rows = (plain, row("d", promise=dropped.promise, **unique))
    await hand.apply(parent, wait_children(), SpawnExecutions(rows, 2))
    assert (await hand.view(parent)).children_pending == 1
