"""Retention: ended executions go, oldest first, never one that a parent has still to read (seed sections 8 and 11)."""

from __future__ import annotations

import pytest

from holdfast.core.identity import PromiseId
from holdfast.core.status import LIVE, TERMINAL, Status
from holdfast.store.base import Store, handler_of
from holdfast.store.effects import (
    AdvanceExecution,
    Commit,
    ConsumeSignals,
    ContinueExecution,
    RecordTransition,
    SpawnExecutions,
)
from holdfast.store.values import Delivery, ExecutionClaim, ExecutionFilter, NewSignal, Retention
from holdfast.testing.hand import Hand, child_rows, done, go, keep, promise_of, row, wait_children
from holdfast.testing.stores import Stores

DAY = 86_400.0
OLD = Retention(age_seconds=DAY)


async def finish(hand: Hand, *keys: str, ended: Status = Status.DONE, **columns: object) -> None:
    await hand.beat()
    await hand.insert(*(row(key, **columns) for key in keys))
    handlers = [handler_of("machine", str(columns.get("name", "Order")), 1)]
    claims = await hand.pick(len(keys), queues=[str(columns.get("queue", "default"))], handlers=handlers)
    assert len(claims) == len(keys)
    await hand.flush(*(Commit(claim, (AdvanceExecution(status=ended),)) for claim in claims))


async def left(store: Store) -> int:
    return sum((await store.count(ExecutionFilter())).values())


@pytest.mark.parametrize("ended", sorted(TERMINAL))
async def test_what_ended_long_ago_is_deleted(stores: Stores, hand: Hand, ended: Status) -> None:
    await finish(hand, "a", ended=ended)
    await stores.advance(DAY - 1)
    assert await stores.store.purge(OLD, 10) == 0
    await stores.advance(2)
    assert await stores.store.purge(OLD, 10) == 1
    assert await stores.store.get(promise_of("a")) is None


async def test_the_age_counts_from_the_end(stores: Stores, hand: Hand) -> None:
    claim = await hand.take(row("a"))
    await stores.advance(10 * DAY)
    await hand.apply(claim, done())
    await stores.advance(DAY / 2)
    assert await stores.store.purge(OLD, 10) == 0


@pytest.mark.parametrize("status", sorted(LIVE))
async def test_what_lives_is_never_deleted(stores: Stores, hand: Hand, status: Status) -> None:
    claim = await hand.take(row("a"))
    if status is Status.AWAITING_CHILDREN:
        await hand.apply(claim, wait_children(), SpawnExecutions(child_rows(claim, 1, queue="children")))
    else:
        await hand.apply(claim, AdvanceExecution(status=status, awaits=("go",)))
    await stores.advance(1_000 * DAY)
    assert await stores.store.purge(Retention(age_seconds=0), 100) == 0
    assert (await hand.view("a")).status is status


async def test_a_rule_may_name_a_queue(stores: Stores, hand: Hand) -> None:
    await finish(hand, "a", queue="one")
    await finish(hand, "b", queue="two")
    await stores.advance(2 * DAY)
    assert await stores.store.purge(Retention(age_seconds=DAY, queue="two"), 10) == 1
    assert await stores.store.get(promise_of("b")) is None
    assert await left(stores.store) == 1


async def test_a_rule_may_name_a_definition(stores: Stores, hand: Hand) -> None:
    await finish(hand, "a")
    await finish(hand, "b", name="Other")
    await stores.advance(2 * DAY)
    assert await stores.store.purge(Retention(age_seconds=DAY, name="Other"), 10) == 1
    assert await stores.store.get(promise_of("b", "Other")) is None
    assert await left(stores.store) == 1


async def test_a_rule_may_name_both(stores: Stores, hand: Hand) -> None:
    await finish(hand, "a", queue="one")
    await finish(hand, "b", queue="one", name="Other")
    await finish(hand, "c", queue="two", name="Other")
    await stores.advance(2 * DAY)
    assert await stores.store.purge(Retention(age_seconds=DAY, queue="one", name="Other"), 10) == 1
    assert await stores.store.get(promise_of("b", "Other")) is None


async def test_a_pass_is_bounded_and_takes_the_oldest(stores: Stores, hand: Hand) -> None:
    for key in ("c", "a", "d", "b", "e"):
        await finish(hand, key)
        await stores.advance(60)
    await stores.advance(2 * DAY)
    assert await stores.store.purge(OLD, 2) == 2
    views = await stores.store.get_many([promise_of(key) for key in ("c", "a", "d", "b", "e")])
    assert [view is None for view in views] == [True, True, False, False, False]
    assert await stores.store.purge(OLD, 10) == 3
    assert await stores.store.purge(OLD, 10) == 0


async def test_history_and_dedup_keys_go_with_it(stores: Stores, hand: Hand) -> None:
    """A promise used again after retention is another execution, and finds nothing of the old one."""
    store = stores.store
    claim = await hand.take(row("a"))
    signal = NewSignal(claim.promise, "go", "1", "key")
    await store.deliver([signal])
    (received,) = await store.inbox(claim.promise)
    await hand.apply(claim, keep(), ConsumeSignals((received.id,)), RecordTransition("start", "next", "next", 0))
    await hand.apply(claim, done("1"))
    await stores.advance(2 * DAY)
    assert await store.purge(OLD, 10) == 1
    assert await store.history(claim.promise) == []
    assert await store.deliver([signal]) == [Delivery.UNKNOWN]
    await hand.beat()
    again = await hand.take(row("a"))
    assert (again.revision, again.inbox) == (0, ())
    assert await store.history(again.promise) == []
    assert await store.deliver([signal]) == [Delivery.DELIVERED]


# ---------------------------------------------------------------------- parents and children


async def spawn(hand: Hand, parent: ExecutionClaim, count: int, quorum: int | None = None) -> list[ExecutionClaim]:
    effect = SpawnExecutions(child_rows(parent, count, queue="children"), quorum)
    await hand.apply(parent, wait_children(), effect)
    return await hand.pick(count, queues=["children"])


async def test_a_child_that_its_parent_has_still_to_read_stays(stores: Stores, hand: Hand) -> None:
    """Section 11: children are not deleted on read, and a crash reads the same children again."""
    parent = await hand.take(row("parent"))
    first, second = await spawn(hand, parent, 2)
    await hand.apply(first, done())
    await stores.advance(9 * DAY)
    assert await stores.store.purge(OLD, 10) == 0, "the parent still waits"
    await hand.apply(second, done())
    await stores.advance(9 * DAY)
    assert await stores.store.purge(OLD, 10) == 0, "the parent may run"
    await hand.beat()
    claim = await hand.take()
    assert await stores.store.purge(OLD, 10) == 0, "the parent runs"
    assert len(await stores.store.children(claim.promise, claim.barrier_round)) == 2


async def test_children_of_an_earlier_round_may_go(stores: Stores, hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    await hand.flush(*(Commit(child, (done(),)) for child in await spawn(hand, parent, 2)))
    parent = await hand.take()
    (current,) = await spawn(hand, parent, 1)
    await hand.apply(current, done())
    await stores.advance(2 * DAY)
    assert await stores.store.purge(OLD, 10) == 2
    children = await stores.store.children(parent.promise)
    assert [child.promise for child in children] == [current.promise]


async def test_children_of_an_ended_parent_may_go(stores: Stores, hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    await hand.flush(*(Commit(child, (done(),)) for child in await spawn(hand, parent, 2)))
    await hand.apply(await hand.take(), done())
    await stores.advance(2 * DAY)
    assert await stores.store.purge(OLD, 10) == 3
    assert await left(stores.store) == 0


async def test_protected_children_do_not_hold_up_the_rest(stores: Stores, hand: Hand) -> None:
    """A bounded pass must get past the oldest rows when those have to stay."""
    parent = await hand.take(row("parent"))
    children = await spawn(hand, parent, 30)
    await hand.flush(*(Commit(child, (done(),)) for child in children[1:]))
    await stores.advance(60)
    await finish(hand, "a")
    await stores.advance(2 * DAY)
    assert await stores.store.purge(OLD, 1) == 1
    assert await stores.store.get(promise_of("a")) is None


async def test_a_child_outlives_a_parent_that_was_deleted(stores: Stores, hand: Hand) -> None:
    """E10: it keeps running; its end finds nobody."""
    parent = await hand.take(row("parent"))
    first, late = await spawn(hand, parent, 2, quorum=1)
    await hand.apply(first, done())
    await hand.apply(await hand.take(), done())
    await stores.advance(2 * DAY)
    await hand.beat()
    assert await stores.store.purge(OLD, 10) == 2
    await hand.apply(late, go())
    (again,) = await hand.pick(queues=["children"])
    await hand.apply(again, done())
    assert (await hand.view(late)).status is Status.DONE


async def test_a_run_is_found_by_its_first_id_as_long_as_by_its_last(stores: Stores, hand: Hand) -> None:
    """A key names the first of the runs that followed each other: its age is that of the last."""
    claim = await hand.take(row("a"))
    for _ in range(3):
        await stores.advance(2 * DAY)
        await hand.beat()
        new = PromiseId.from_bytes(claim.promise).successor("continued").to_bytes()
        await hand.apply(claim, done(), ContinueExecution(row("a", promise=new)))
        claim = await hand.take()
    await hand.apply(claim, done("7"))
    await stores.store.purge(OLD, 10)
    first, last = await stores.store.get_many([promise_of("a"), claim.promise])
    assert first is not None
    assert last is not None
    (again,) = await stores.store.insert([row("a")])
    assert not again.created, "the same key starts no second one while the first is remembered"
    await stores.advance(2 * DAY)
    await stores.store.purge(OLD, 10)
    assert await left(stores.store) == 0
