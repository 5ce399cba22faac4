"""The deadline of a whole execution: when it comes, its cancel is requested (issue 3, DESIGN section 9)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.json import decode

from holdfast.core.status import Status
from holdfast.store.base import DEADLINE_EXCEEDED
from holdfast.store.effects import AdvanceExecution, SpawnExecutions
from holdfast.store.values import ChildEnd, Fired
from holdfast.testing.hand import (
    LEASE_SECONDS,
    Hand,
    child_rows,
    done,
    go,
    park,
    promise_of,
    row,
    strand,
    wait_children,
)
from holdfast.testing.stores import Stores


async def test_it_counts_from_the_moment_it_may_start(stores: Stores, hand: Hand) -> None:
    now = stores.clock.now
    at = now + timedelta(seconds=100)
    await hand.insert(row("now", deadline=10), row("delayed", delay=60, deadline=10), row("at", at=at, deadline=0.5))
    assert (await hand.view("now")).deadline_at == now + timedelta(seconds=10)
    assert (await hand.view("delayed")).deadline_at == now + timedelta(seconds=70)
    assert (await hand.view("at")).deadline_at == at + timedelta(seconds=0.5)
    await hand.insert(row("none"))
    assert (await hand.view("none")).deadline_at is None


async def test_it_does_not_come_too_early(stores: Stores, hand: Hand) -> None:
    await hand.insert(row("a", deadline=10))
    await stores.advance(9.5)
    fired = await stores.store.fire_timers(10)
    assert fired.fired == 0
    assert fired.next_due_seconds == pytest.approx(0.5)
    assert (await hand.view("a")).status is Status.RUNNABLE
    await stores.advance(0.5)
    assert (await stores.store.fire_timers(10)).fired == 1
    assert (await hand.view("a")).status is Status.CANCELLED


async def test_the_earlier_of_timer_and_deadline_is_due_next(stores: Stores, hand: Hand) -> None:
    await hand.apply(await hand.take(row("a", deadline=20)), park("go", wake_after=10))
    assert (await stores.store.fire_timers(10)).next_due_seconds == pytest.approx(10)
    await stores.store.cancel([promise_of("a")])
    await hand.apply(await hand.take(row("b", deadline=5)), park("go", wake_after=10))
    assert (await stores.store.fire_timers(10)).next_due_seconds == pytest.approx(5)


@pytest.mark.parametrize("cleans_up", [True, False], ids=["cleans up", "ends at once"])
async def test_parked_rows(stores: Stores, hand: Hand, cleans_up: bool) -> None:
    claim = await hand.take(row("a", deadline=10, cleans_up=cleans_up))
    await hand.apply(claim, AdvanceExecution(status=Status.AWAITING_PROMISE, wake_after=60))
    await stores.advance(10)
    await hand.beat()
    assert (await stores.store.fire_timers(10)).fired == 1
    view = await hand.view("a")
    assert (view.cancel_requested, view.cancel_reason, view.wake_at) == (True, DEADLINE_EXCEEDED, None)
    assert view.status is (Status.RUNNABLE if cleans_up else Status.CANCELLED)
    if cleans_up:
        woken = await hand.take()
        assert (woken.cancel_requested, woken.cancel_reason, woken.timed_out) == (True, DEADLINE_EXCEEDED, False)


async def test_a_holder_is_asked_once(stores: Stores, hand: Hand) -> None:
    claim = await hand.take(row("a", deadline=10))
    await stores.advance(10)
    await hand.beat()
    assert (await stores.store.fire_timers(10)).fired == 1
    assert await stores.store.fire_timers(10) == Fired()
    receipt = await hand.apply(claim, park("go", wake_after=60))
    assert (receipt.status, receipt.cancel_requested) == (Status.RUNNABLE, True)


async def test_a_cancel_that_was_requested_before_keeps_its_reason(stores: Stores, hand: Hand) -> None:
    claim = await hand.take(row("a", deadline=10))
    await stores.store.cancel([claim.promise], reason="mine")
    await stores.advance(10)
    assert await stores.store.fire_timers(10) == Fired()
    assert (await hand.view("a")).cancel_reason == "mine"


async def test_what_is_stranded_is_given_up(stores: Stores, hand: Hand) -> None:
    await hand.apply(await hand.take(row("a", deadline=10)), strand())
    await stores.advance(10)
    await stores.store.fire_timers(10)
    assert (await hand.view("a")).status is Status.CANCELLED


async def test_what_cleans_up_and_is_stranded_is_asked(stores: Stores, hand: Hand) -> None:
    """No code at hand can clean up: it hears of the cancel once it is resumed."""
    await hand.apply(await hand.take(row("a", deadline=10, cleans_up=True)), strand())
    await stores.advance(10)
    await hand.beat()
    assert (await stores.store.fire_timers(10)).fired == 1
    assert (await hand.view("a")).status is Status.STRANDED
    assert await stores.store.resume(promise_of("a"))
    assert (await hand.take()).cancel_reason == DEADLINE_EXCEEDED


async def test_it_is_bounded_and_says_that_there_is_more(stores: Stores, hand: Hand) -> None:
    await hand.apply(await hand.take(row("parked")), park("x", wake_after=1))
    await hand.insert(*(row(str(number), deadline=1 + number) for number in range(5)))
    await stores.advance(LEASE_SECONDS / 2)
    fired = await stores.store.fire_timers(3)
    assert (fired.fired, fired.more) == (3, True)
    assert (await hand.view("parked")).status is Status.RUNNABLE, "timers come first"
    fired = await stores.store.fire_timers(3)
    assert (fired.fired, fired.more) == (3, True)
    assert await stores.store.fire_timers(3) == Fired()
    assert {(await hand.view(str(number))).status for number in range(5)} == {Status.CANCELLED}


async def test_its_key_is_free_for_the_next(stores: Stores, hand: Hand) -> None:
    await hand.insert(row("first", deadline=10, partition_key="k"), row("second", partition_key="k"))
    await hand.apply((await hand.pick(1))[0], go(delay=60))
    await hand.apply(await hand.take(), go(delay=5))
    await stores.advance(10)
    await hand.beat()
    await stores.store.fire_timers(10)
    assert (await hand.take()).promise == promise_of("second")


async def test_its_end_releases_the_barrier(stores: Stores, hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    await hand.apply(parent, wait_children(), SpawnExecutions(child_rows(parent, 1, queue="children", deadline=10)))
    await stores.advance(10)
    await hand.beat()
    await stores.store.fire_timers(10)
    assert (await hand.take()).children_ready


async def test_its_end_is_reported(stores: Stores, hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    rows = child_rows(parent, 2, queue="calls", deadline=10, reports=True)
    waiting = AdvanceExecution(status=Status.AWAITING_PROMISE, wait_children=2)
    await hand.apply(parent, waiting, SpawnExecutions(rows, barrier=False))
    await stores.advance(10)
    await hand.beat()
    assert (await stores.store.fire_timers(10)).fired == 2
    inbox = (await hand.take()).inbox
    assert [decode(end.payload, type=ChildEnd).status for end in inbox] == [Status.CANCELLED] * 2


async def test_one_that_ended_in_time_is_left_alone(stores: Stores, hand: Hand) -> None:
    await hand.apply(await hand.take(row("a", deadline=10)), done())
    assert await stores.store.fire_timers(10) == Fired()
