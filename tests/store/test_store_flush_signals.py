"""Signals that ride in a commit (rulings A7, E2, E5; seed section 5)."""

from __future__ import annotations

from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.effects import Commit, DeliverSignal
from holdfast.store.values import NewSignal
from holdfast.testing.hand import (
    Hand,
    done,
    go,
    park,
    promise_of,
    row,
)


async def test_a_signal_rides_in_the_commit_that_sends_it(hand: Hand, store: Store) -> None:
    """Ruling A7: every wake-up rides in the transaction of the state that causes it."""
    await hand.apply(await hand.take(row("target")), park("go"))
    claim = await hand.take(row("sender"))
    flushed = await hand.flush(Commit(claim, (done(), DeliverSignal(NewSignal(promise_of("target"), "go", '"hi"')))))
    assert flushed.woke
    (woken,) = await hand.pick()
    assert [(signal.name, signal.payload) for signal in woken.inbox] == [("go", '"hi"')]


async def test_a_signal_to_nobody_does_not_harm_its_commit(hand: Hand) -> None:
    """E5: it is refused; the sender goes on."""
    await hand.apply(await hand.take(row("ended")), done())
    claim = await hand.take(row("sender"))
    unknown = DeliverSignal(NewSignal(promise_of("nobody"), "go", "1"))
    ended = DeliverSignal(NewSignal(promise_of("ended"), "go", "1"))
    assert (await hand.apply(claim, go(), unknown, ended)).status is Status.RUNNABLE


async def test_a_signal_to_oneself_is_in_ones_inbox(hand: Hand) -> None:
    claim = await hand.take(row("a"))
    await hand.apply(claim, go(), DeliverSignal(NewSignal(claim.promise, "note", "1")))
    assert [signal.name for signal in (await hand.take()).inbox] == ["note"]


async def test_parking_on_a_signal_that_the_same_commit_sends_does_not_park_for_ever(hand: Hand) -> None:
    """E2: every interleaving ends runnable or woken."""
    claim = await hand.take(row("a"))
    receipt = await hand.apply(claim, park("note"), DeliverSignal(NewSignal(claim.promise, "note", "1")))
    assert receipt.status is Status.RUNNABLE, "the receipt tells the status that the row has now"
    assert (await hand.take()).step == "woken"


async def test_a_target_that_parks_in_the_same_flush_is_woken(hand: Hand) -> None:
    """E2: within one flush too, in either order of the two commits."""
    for order in (1, -1):
        await hand.insert(row(f"sender{order}"), row(f"target{order}"))
        sender, target = await hand.pick()
        signal = DeliverSignal(NewSignal(target.promise, "go", "1"))
        commits = [Commit(sender, (done(), signal)), Commit(target, (park("go"),))][::order]
        flushed = await hand.flush(*commits)
        assert [receipt.status for receipt in flushed.receipts][::order] == [Status.DONE, Status.RUNNABLE]
        woken = await hand.take()
        assert [signal.name for signal in woken.inbox] == ["go"]
        await hand.apply(woken, done())


async def test_a_target_that_ends_in_the_same_flush_keeps_no_inbox(hand: Hand, store: Store) -> None:
    for order in (1, -1):
        await hand.insert(row(f"sender{order}"), row(f"target{order}"))
        sender, target = await hand.pick()
        signal = DeliverSignal(NewSignal(target.promise, "go", "1"))
        await hand.flush(*[Commit(sender, (done(), signal)), Commit(target, (done(),))][::order])
        assert await store.inbox(target.promise) == []


async def test_one_dedup_key_sent_by_two_commits_of_a_flush_arrives_once(hand: Hand, store: Store) -> None:
    await hand.insert(row("a"), row("b"), row("target", queue="elsewhere"))
    signal = DeliverSignal(NewSignal(promise_of("target"), "go", "1", "key"))
    await hand.flush(*(Commit(claim, (done(), signal)) for claim in await hand.pick()))
    assert len(await store.inbox(promise_of("target"))) == 1


async def test_several_signals_of_one_commit_arrive_in_their_order(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    await hand.insert(row("target", queue="elsewhere"))
    signals = [DeliverSignal(NewSignal(promise_of("target"), f"s{n}", str(n))) for n in range(10)]
    await hand.apply(claim, done(), *signals)
    assert [signal.payload for signal in await store.inbox(promise_of("target"))] == [str(n) for n in range(10)]
