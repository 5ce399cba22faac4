"""Timers: parked rows whose deadline has come (DESIGN sections 5 and 9; the seed's section 11 leaves it open)."""

from __future__ import annotations

import pytest

from holdfast.core.clock import to_datetime
from holdfast.core.status import PARKED, Status
from holdfast.store.effects import AdvanceExecution, Commit, SpawnExecutions
from holdfast.store.values import Fired, NewSignal
from holdfast.testing.hand import Hand, child_rows, done, go, park, promise_of, replay, row, wait_children
from holdfast.testing.stores import Stores


async def park_as(hand: Hand, parked: Status, key: str, wake_after: float | None) -> None:
    claim = await hand.take(row(key))
    if parked is Status.AWAITING_CHILDREN:
        effect = SpawnExecutions(child_rows(claim, 1, queue="children"))
        await hand.apply(claim, wait_children("woken", wake_after), effect)
    else:
        await hand.apply(claim, AdvanceExecution(status=parked, step="woken", awaits=("go",), wake_after=wake_after))


@pytest.mark.parametrize("parked", sorted(PARKED))
async def test_a_deadline_wakes_with_timed_out(stores: Stores, hand: Hand, parked: Status) -> None:
    await park_as(hand, parked, "a", 10)
    await stores.advance(9.999)
    assert (await stores.store.fire_timers(10)).fired == 0
    assert (await hand.view("a")).status is parked
    await stores.advance(0.001)
    assert (await stores.store.fire_timers(10)).fired == 1
    view = await hand.view("a")
    assert (view.status, view.eligible_at, view.wake_at) == (Status.RUNNABLE, stores.clock.now, None)
    claim = await hand.take()
    assert (claim.step, claim.timed_out, claim.children_ready) == ("woken", True, False)


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("parked", [Status.AWAITING_SIGNAL, Status.AWAITING_PROMISE])
async def test_a_deadline_may_be_a_moment(stores: Stores, hand: Hand, parked: Status, together: int) -> None:
    """However late the park is written: a sleeper does not sleep longer because the ledger was busy."""
    await hand.insert(*(row(str(n)) for n in range(together)))
    claims = await hand.pick(together)
    moment = claims[0].picked_at_us + 10_000_000
    await stores.advance(4)
    awaits = ("go",) if parked is Status.AWAITING_SIGNAL else ()
    advance = AdvanceExecution(status=parked, step="woken", awaits=awaits, wake_after=99, wake_at_us=moment)
    receipts = (await hand.flush(*(Commit(claim, (advance,)) for claim in claims))).receipts
    assert all(receipt.applied and receipt.status is parked for receipt in receipts)
    assert {(await hand.view(claim)).wake_at for claim in claims} == {to_datetime(moment)}
    await stores.advance(5.999)
    assert (await stores.store.fire_timers(10)).fired == 0
    await stores.advance(0.001)
    assert (await stores.store.fire_timers(10)).fired == together


async def test_a_moment_that_has_passed_fires_at_once(stores: Stores, hand: Hand) -> None:
    claim = await hand.take(row("a"))
    moment = claim.picked_at_us + 1_000_000
    await stores.advance(2)
    await hand.apply(claim, AdvanceExecution(status=Status.AWAITING_PROMISE, awaits=(), wake_at_us=moment))
    assert (await stores.store.fire_timers(10)).fired == 1
    assert (await hand.take()).timed_out


@pytest.mark.parametrize("parked", sorted(PARKED))
async def test_without_a_deadline_nothing_fires(stores: Stores, hand: Hand, parked: Status) -> None:
    await park_as(hand, parked, "a", None)
    await stores.advance(10**9)
    assert await stores.store.fire_timers(10) == Fired()


async def test_a_timer_fires_once(stores: Stores, hand: Hand) -> None:
    await park_as(hand, Status.AWAITING_SIGNAL, "a", 10)
    await stores.advance(11)
    assert (await stores.store.fire_timers(10)).fired == 1
    assert await stores.store.fire_timers(10) == Fired()


async def test_the_next_deadline_is_known(stores: Stores, hand: Hand) -> None:
    await park_as(hand, Status.AWAITING_SIGNAL, "a", 30)
    await park_as(hand, Status.AWAITING_PROMISE, "b", 20)
    assert await stores.store.fire_timers(10) == Fired(0, pytest.approx(20), False)  # type: ignore[arg-type]
    await stores.advance(25)
    assert await stores.store.fire_timers(10) == Fired(1, pytest.approx(5), False)  # type: ignore[arg-type]


async def test_a_pass_is_bounded_and_says_that_there_is_more(stores: Stores, hand: Hand) -> None:
    for n in range(5):
        await park_as(hand, Status.AWAITING_SIGNAL, str(n), 1 + n)
    await stores.advance(10)
    first = await stores.store.fire_timers(2)
    assert (first.fired, first.more) == (2, True)
    assert [(await hand.view(key)).status is Status.RUNNABLE for key in "01234"] == [True, True, False, False, False]
    fired = first.fired
    while first.more:
        first = await stores.store.fire_timers(2)
        fired += first.fired
    assert fired == 5


async def test_a_signal_after_the_deadline_finds_the_row_woken_already(stores: Stores, hand: Hand) -> None:
    """Nobody has acted on the deadline yet, so the step has what it waited for; another name changes nothing."""
    await park_as(hand, Status.AWAITING_SIGNAL, "a", 10)
    await stores.advance(11)
    await stores.store.fire_timers(10)
    await stores.store.deliver([NewSignal(promise_of("a"), "other", "1")])
    claim = await hand.take()
    assert claim.timed_out
    await stores.store.deliver([NewSignal(promise_of("a"), "go", "1")])
    await hand.apply(claim, replay(claim))
    again = await hand.take()
    assert not again.timed_out
    assert [signal.name for signal in again.inbox] == ["other", "go"]


async def test_timed_out_is_of_one_park_only(stores: Stores, hand: Hand) -> None:
    await park_as(hand, Status.AWAITING_SIGNAL, "a", 10)
    await stores.advance(11)
    await hand.beat()
    await stores.store.fire_timers(10)
    await hand.apply(await hand.take(), park("again"))
    await stores.store.deliver([NewSignal(promise_of("a"), "again", "1")])
    assert not (await hand.take()).timed_out


async def test_what_is_not_parked_has_no_timer(stores: Stores, hand: Hand) -> None:
    await hand.apply(await hand.take(row("a")), AdvanceExecution(status=Status.RUNNABLE, wake_after=1, delay=60))
    await hand.apply(await hand.take(row("b")), AdvanceExecution(status=Status.DONE, wake_after=1))
    claim = await hand.take(row("c"))
    await hand.apply(claim, AdvanceExecution(status=Status.DONE, wake_at_us=claim.picked_at_us))
    await stores.advance(10)
    assert await stores.store.fire_timers(10) == Fired()


async def test_an_ended_execution_has_no_timer_left(stores: Stores, hand: Hand) -> None:
    await park_as(hand, Status.AWAITING_SIGNAL, "a", 10)
    await stores.store.cancel([promise_of("a")])
    await stores.advance(11)
    assert await stores.store.fire_timers(10) == Fired()


async def test_a_paused_row_keeps_its_deadline_and_is_woken_when_it_goes_on(stores: Stores, hand: Hand) -> None:
    await park_as(hand, Status.AWAITING_SIGNAL, "a", 10)
    await stores.store.pause(promise_of("a"), True)
    await stores.advance(11)
    await hand.beat()
    await stores.store.fire_timers(10)
    assert await hand.pick() == []
    await stores.store.pause(promise_of("a"), False)
    await stores.store.fire_timers(10)
    assert (await hand.take()).timed_out


async def test_a_deadline_of_no_time_is_due_at_once(stores: Stores, hand: Hand) -> None:
    await park_as(hand, Status.AWAITING_SIGNAL, "a", 0)
    assert (await stores.store.fire_timers(10)).fired == 1
    claim = await hand.take()
    assert claim.timed_out
    await hand.apply(claim, go(delay=1))
    await stores.advance(1)
    await hand.apply(await hand.take(), done())
