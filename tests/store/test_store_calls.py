"""Waiting for calls: a workflow parks until enough of its children have ended (rulings B7, B9; DESIGN section 6).

What an end looks like in the inbox is in `test_store_reports.py`; here is who is woken, when, and how often.
"""

from __future__ import annotations

import asyncio

import pytest
from msgspec.json import decode

from holdfast.core.identity import PromiseId
from holdfast.core.status import TERMINAL, Status
from holdfast.store.base import Ear, Store
from holdfast.store.effects import AdvanceExecution, Commit, ConsumeSignals, Effect, SpawnExecutions
from holdfast.store.values import CHILD, ChildEnd, ExecutionClaim, NewExecution, NewSignal, Retention, Topic
from holdfast.testing.hand import Hand, done, fail, go, keep, promise_of, row
from holdfast.testing.stores import Stores


def wait(children: int = 0, *names: str, wake_after: float | None = None) -> AdvanceExecution:
    """A workflow's Blocked: on so many ends, or any of these signals, or the deadline."""
    return AdvanceExecution(
        status=Status.AWAITING_PROMISE, wait_children=children, awaits=names or None, wake_after=wake_after
    )


def calls(parent: ExecutionClaim, count: int, first: int = 0) -> SpawnExecutions:
    """Children `first` ... by their numbers; they report."""
    promise = PromiseId.from_bytes(parent.promise)
    rows: tuple[NewExecution, ...] = tuple(
        row("call", promise=promise.child(number).to_bytes(), queue="calls", reports=True)
        for number in range(first, first + count)
    )
    return SpawnExecutions(rows, barrier=False)


async def started(hand: Hand, count: int, advance: AdvanceExecution) -> tuple[ExecutionClaim, list[ExecutionClaim]]:
    """A parent that made `count` calls in one commit with `advance`, and the claims of the calls."""
    parent = await hand.take(row("parent"))
    await hand.apply(parent, advance, calls(parent, count))
    return parent, await hand.pick(count, queues=["calls"])


# ---------------------------------------------------------------------- all, any


async def test_all_of_a_thousand_is_one_wake(hand: Hand, store: Store) -> None:
    """However their ends are spread over commits, the last one wakes the parent, and no other."""
    parent, children = await started(hand, 1_000, wait(1_000))
    wakes = 0
    for start in range(0, 1_000, 130):
        await hand.flush(*(Commit(child, (done("1"),)) for child in children[start : start + 130]))
        wakes += (await hand.view(parent)).status is Status.RUNNABLE
    assert wakes == 1
    claim = await hand.take()
    assert {bytes.fromhex(end.name) for end in claim.inbox} == {child.promise for child in children}
    assert len(claim.inbox) == 1_000
    receipt = await hand.apply(claim, keep(), ConsumeSignals(tuple(end.id for end in claim.inbox)))
    assert not receipt.has_inbox


async def test_any_is_woken_by_the_first(hand: Hand, store: Store) -> None:
    parent, (first, second, third) = await started(hand, 3, wait(1))
    await hand.apply(second, done("2"))
    assert (await hand.view(parent)).status is Status.RUNNABLE
    await hand.apply(first, done("1"))
    await hand.apply(third, fail())
    claim = await hand.take()
    assert [bytes.fromhex(end.name) for end in claim.inbox] == [second.promise, first.promise, third.promise]
    assert await hand.pick() == [], "the later ends woke nobody again"


@pytest.mark.parametrize("together", [True, False], ids=["one flush", "two flushes"])
async def test_two_ends_count_twice(hand: Hand, together: bool) -> None:
    parent, children = await started(hand, 3, wait(2))
    commits = [Commit(child, (done(),)) for child in children[:2]]
    if together:
        await hand.flush(*commits)
    else:
        await hand.flush(commits[0])
        view = await hand.view(parent)
        assert (view.status, view.children_pending) == (Status.AWAITING_PROMISE, 1)
        await hand.flush(commits[1])
    assert (await hand.view(parent)).status is Status.RUNNABLE
    assert len((await hand.take()).inbox) == 2


async def test_ends_of_calls_of_two_parents_in_one_flush(hand: Hand) -> None:
    await hand.insert(row("a"), row("b"))
    first, second = await hand.pick(2)
    for parent in (first, second):
        await hand.apply(parent, wait(2), calls(parent, 2))
    children = await hand.pick(4, queues=["calls"])
    await hand.flush(*(Commit(child, (done(),)) for child in children if child.parent == first.promise))
    assert [(await hand.view(parent)).status for parent in (first, second)] == [
        Status.RUNNABLE,
        Status.AWAITING_PROMISE,
    ]
    await hand.flush(*(Commit(child, (done(),)) for child in children if child.parent == second.promise))
    assert len(await hand.pick(2)) == 2


# ---------------------------------------------------------------------- where the parent stands


async def test_an_end_while_the_parent_executes_is_in_the_receipt(hand: Hand, store: Store) -> None:
    """B9: nothing but the inbox is written; the holder hears of it from its next receipt, or by asking."""
    parent, (child,) = await started(hand, 1, keep())
    await hand.apply(child, done())
    assert (await hand.view(parent)).status is Status.EXECUTING
    assert await store.stirred(hand.name, [parent.row]) == [parent.row]
    receipt = await hand.apply(parent, keep())
    assert (receipt.status, receipt.has_inbox) == (Status.EXECUTING, True)
    (end,) = await store.inbox(parent.promise)
    receipt = await hand.apply(parent, keep(), ConsumeSignals((end.id,)))
    assert not receipt.has_inbox


async def test_an_end_while_the_parent_waits_to_run_moves_nothing_but_its_inbox(stores: Stores, hand: Hand) -> None:
    parent, (child,) = await started(hand, 1, go(delay=60))
    before = await hand.view(parent)
    await stores.advance(1)
    await hand.apply(child, done())
    view = await hand.view(parent)
    assert (view.status, view.eligible_at) == (Status.RUNNABLE, before.eligible_at)
    await stores.advance(60)
    await hand.beat()
    assert [end.kind for end in (await hand.take()).inbox] == [CHILD]


async def test_an_end_does_not_wake_a_parent_that_waits_for_a_signal_alone(hand: Hand, store: Store) -> None:
    parent, (child,) = await started(hand, 1, AdvanceExecution(status=Status.AWAITING_SIGNAL, awaits=("go",)))
    await hand.apply(child, done())
    assert (await hand.view(parent)).status is Status.AWAITING_SIGNAL
    await store.deliver([NewSignal(parent.promise, "go", "1")])
    assert [signal.kind for signal in (await hand.take()).inbox] == ["child", "signal"]


async def test_a_paused_parent_is_woken_but_not_picked(hand: Hand, store: Store) -> None:
    parent, (child,) = await started(hand, 1, wait(1))
    await store.pause(parent.promise, True)
    await hand.apply(child, done())
    assert (await hand.view(parent)).status is Status.RUNNABLE
    assert await hand.pick() == []
    await store.pause(parent.promise, False)
    assert len((await hand.take()).inbox) == 1


async def test_a_signal_wakes_a_parent_that_waits_for_ends_too(hand: Hand, store: Store) -> None:
    parent, (child,) = await started(hand, 1, wait(1, "go"))
    await store.deliver([NewSignal(parent.promise, "other", "0")])
    assert (await hand.view(parent)).status is Status.AWAITING_PROMISE
    await store.deliver([NewSignal(parent.promise, "go", "1")])
    claim = await hand.take()
    assert [signal.name for signal in claim.inbox] == ["other", "go"]
    await hand.apply(child, done())
    assert (await hand.view(parent)).status is Status.EXECUTING


async def test_a_signal_that_is_there_already_keeps_it_from_parking(hand: Hand, store: Store) -> None:
    """E2, E3: what the claim has seen and ignores does not count, what came after does."""
    await hand.insert(row("parent"))
    await store.deliver([NewSignal(promise_of("parent"), "go", "1")])
    claim = await hand.take()
    ignoring = AdvanceExecution(
        status=Status.AWAITING_PROMISE, awaits=("go",), ignore=tuple(signal.id for signal in claim.inbox)
    )
    assert (await hand.apply(claim, ignoring)).status is Status.AWAITING_PROMISE
    await store.deliver([NewSignal(promise_of("parent"), "go", "2")])
    again = await hand.take()
    assert (await hand.apply(again, wait(0, "go"))).status is Status.RUNNABLE


async def test_its_deadline_wakes_a_parent(stores: Stores, hand: Hand) -> None:
    _, (child,) = await started(hand, 1, wait(1, wake_after=10))
    await stores.advance(10)
    await hand.beat()
    assert (await stores.store.fire_timers(10)).fired == 1
    claim = await hand.take()
    assert claim.timed_out
    await hand.apply(claim, wait(1))
    await hand.apply(child, done())
    assert not (await hand.take()).timed_out


# ---------------------------------------------------------------------- starting calls


async def test_calls_are_numbered_by_their_promises(hand: Hand, store: Store) -> None:
    """Numbers that timers and signals took stay free: `next_child` is not the store's business here."""
    parent = await hand.take(row("parent"))
    await hand.apply(parent, keep(), calls(parent, 1, first=3))
    await hand.apply(parent, go(), calls(parent, 1, first=7))
    children = await store.children(parent.promise)
    assert [PromiseId.from_bytes(child.promise).path for child in children] == [(3,), (7,)]
    again = await hand.take()
    assert (again.next_child, again.barrier_round) == (0, 0)


async def test_a_call_that_is_there_is_found_not_made_twice(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    first = await hand.apply(parent, keep(), calls(parent, 2))
    again = await hand.apply(parent, keep(), calls(parent, 3))
    assert [child.created for child in first.children] == [True, True]
    assert [child.created for child in again.children] == [False, False, True]
    assert len(await store.children(parent.promise)) == 3


async def test_calls_of_many_commits_of_one_flush(hand: Hand, store: Store) -> None:
    await hand.insert(*(row(str(number)) for number in range(3)))
    parents = await hand.pick(3)
    effects: list[tuple[Effect, ...]] = [
        (wait(1), calls(parents[0], 1)),
        (keep(),),
        (wait(2), calls(parents[2], 2)),
    ]
    flushed = await hand.flush(*(Commit(parent, effect) for parent, effect in zip(parents, effects, strict=True)))
    assert [len(receipt.children) for receipt in flushed.receipts] == [1, 0, 2]
    assert [len(await store.children(parent.promise)) for parent in parents] == [1, 0, 2]
    assert flushed.woke


async def test_clean_up_may_make_calls(hand: Hand, store: Store) -> None:
    """B2: while cancelling, clean-up may call and suspend."""
    await hand.insert(row("parent", cleans_up=True))
    await store.cancel([promise_of("parent")], reason="enough")
    claim = await hand.take()
    assert claim.cancel_reason == "enough"
    receipt = await hand.apply(claim, wait(1), calls(claim, 1))
    assert receipt.status is Status.AWAITING_PROMISE
    (child,) = await hand.pick(queues=["calls"])
    await hand.apply(child, done())
    assert [end.kind for end in (await hand.take()).inbox] == [CHILD]


async def test_calls_of_a_commit_that_did_not_know_of_the_cancel_are_made(hand: Hand, store: Store) -> None:
    """Its journal says that they were scheduled: they must be there, to be cancelled or awaited."""
    parent = await hand.take(row("parent", cleans_up=True))
    await store.cancel([parent.promise])
    receipt = await hand.apply(parent, wait(1), calls(parent, 1))
    assert (receipt.status, receipt.cancel_requested) == (Status.RUNNABLE, True)
    assert [child.created for child in receipt.children] == [True]
    assert len(await store.children(parent.promise)) == 1


# ---------------------------------------------------------------------- ends from outside


async def test_cascade_ends_calls_and_their_parent_hears_of_each(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent", cleans_up=True))
    await hand.apply(parent, wait(3), calls(parent, 3))
    (held,) = await hand.pick(1, queues=["calls"])
    assert await store.cancel([parent.promise], cascade=True, reason="enough") == [Status.RUNNABLE]
    claim = await hand.take()
    assert (claim.cancel_requested, claim.cancel_reason) == (True, "enough")
    assert [decode(end.payload, type=ChildEnd).status for end in claim.inbox] == [Status.CANCELLED] * 2
    view = await hand.view(held)
    assert (view.status, view.cancel_requested, view.cancel_reason) == (Status.EXECUTING, True, "enough")
    await hand.apply(held, AdvanceExecution(status=Status.CANCELLED))
    assert len(await store.inbox(parent.promise)) == 3


async def test_cascade_tells_an_ended_parent_nothing(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    await hand.apply(parent, wait(2), calls(parent, 2))
    assert await store.cancel([parent.promise], cascade=True) == [Status.CANCELLED]
    assert {child.status for child in await store.children(parent.promise)} == {Status.CANCELLED}
    assert await store.inbox(parent.promise) == []


@pytest.mark.parametrize("status", sorted(TERMINAL))
async def test_an_end_is_read_as_the_store_wrote_it(hand: Hand, store: Store, status: Status) -> None:
    """Whatever JSON the child's columns hold comes through as text."""
    parent, (child,) = await started(hand, 1, keep())
    text = '{"z":1.0,"a":[1,"\\u0000é"],"n":123456789012345678901}'
    await hand.apply(child, AdvanceExecution(status=status, result=text, error=text))
    (end,) = await store.inbox(parent.promise)
    payload = decode(end.payload, type=ChildEnd)
    assert (payload.status, bytes(payload.state)) == (status, b"null")
    assert [bytes(payload.result).decode(), bytes(payload.error).decode()] == [text, text]


async def test_an_ended_call_may_be_purged_while_its_parent_lives(stores: Stores, hand: Hand) -> None:
    """Its end is in the inbox or in the journal: the row is not needed any more."""
    _, (child,) = await started(hand, 1, wait(1))
    await hand.apply(child, done("1"))
    await stores.advance(100)
    await hand.beat()
    assert await stores.store.purge(Retention(age_seconds=10), 10) == 1
    (end,) = (await hand.take()).inbox
    assert bytes(decode(end.payload, type=ChildEnd).result) == b"1"


# ---------------------------------------------------------------------- a hint for the holder


@pytest.mark.parametrize("by", ["signal", "cancel", "call"])
async def test_a_holder_elsewhere_is_rung(stores: Stores, hand: Hand, by: str) -> None:
    parent, (child,) = await started(hand, 1, keep())
    heard = asyncio.Event()
    holder = await stores.another()
    ear: Ear = await holder.open_ear(lambda topic: heard.set() if topic is Topic.WORK else None)
    await ear.arm(Topic.WORK)
    heard.clear()
    if by == "signal":
        await stores.store.deliver([NewSignal(parent.promise, "any", "1")])
    elif by == "cancel":
        await stores.store.cancel([parent.promise])
    else:
        await hand.apply(child, done())
    await asyncio.wait_for(heard.wait(), 20)
    await ear.close()
