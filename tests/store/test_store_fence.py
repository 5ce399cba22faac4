"""The fence: a worker that lost its lease changes nothing, whatever it does (DESIGN section 5, ruling E1)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.effects import (
    AdvanceExecution,
    Commit,
    ConsumeSignals,
    DeliverSignal,
    Effect,
    RecordTransition,
    SpawnExecutions,
)
from holdfast.store.values import ExecutionClaim, NewSignal, Receipt
from holdfast.testing.hand import (
    LEASE_SECONDS,
    Hand,
    child_rows,
    done,
    fail,
    go,
    keep,
    park,
    promise_of,
    row,
    strand,
    wait_children,
)
from holdfast.testing.stores import Stores


def is_fenced(receipt: Receipt) -> bool:
    """Not applied, and nothing told of a row that is another's now."""
    return (receipt.applied, receipt.status, receipt.children) == (False, None, ())


async def lose_lease(stores: Stores, *survivors: Hand) -> None:
    """Let every lease run out but those of the survivors, and take back what they held."""
    await stores.advance(LEASE_SECONDS - 1)
    for survivor in survivors:
        assert await survivor.beat()
    await stores.advance(2)
    await stores.store.reap(100, max_crashes=10)


OUTCOMES: list[AdvanceExecution] = [go(), keep(), park("x"), done(), fail(), strand(), wait_children()]


@pytest.mark.parametrize("advance", OUTCOMES, ids=[advance.status for advance in OUTCOMES])
async def test_a_stale_worker_changes_nothing(
    stores: Stores, hand: Hand, rival: Hand, advance: AdvanceExecution
) -> None:
    """E1, in each outcome: the row is its successor's now."""
    stale = await hand.take(row("a"))
    await lose_lease(stores, rival)
    claim = await rival.take()
    before = await rival.view("a")
    assert is_fenced(await hand.commit(stale, advance))
    assert await rival.view("a") == before
    await rival.apply(claim, done())


@pytest.mark.parametrize("advance", OUTCOMES, ids=[advance.status for advance in OUTCOMES])
async def test_a_stale_worker_changes_nothing_of_a_row_that_waits(
    stores: Stores, hand: Hand, rival: Hand, advance: AdvanceExecution
) -> None:
    stale = await hand.take(row("a"))
    await lose_lease(stores, rival)
    before = await rival.view("a")
    assert is_fenced(await hand.commit(stale, advance))
    assert await rival.view("a") == before


async def test_an_old_epoch_of_the_same_worker_is_fenced(hand: Hand, store: Store) -> None:
    """The worker's name is not enough: it may hold the row again, by a later claim."""
    old = await hand.take(row("a"))
    await store.release(hand.name, [old])
    new = await hand.take()
    assert new.epoch == old.epoch + 1
    assert is_fenced(await hand.commit(old, done()))
    await hand.apply(new, done())


async def _behind(hand: Hand) -> tuple[ExecutionClaim, ExecutionClaim]:
    """Two claims with one epoch, of which one knows the row's last commit.

    So it is after a server has lost a lease that it had granted, and the same worker has picked the row again; or after
    a failover that lost a commit.
    """
    claim = await hand.take(row("a"))
    behind = replace(claim)
    await hand.apply(claim, keep("second"))
    return claim, behind


@pytest.mark.parametrize("advance", OUTCOMES, ids=[advance.status for advance in OUTCOMES])
@pytest.mark.parametrize("shape", ["alone", "plain", "mixed"])
async def test_a_claim_that_does_not_know_the_last_commit_changes_nothing(
    hand: Hand, advance: AdvanceExecution, shape: str
) -> None:
    claim, behind = await _behind(hand)
    before = await hand.view("a")
    if shape == "alone":
        assert is_fenced(await hand.commit(behind, advance))
    else:
        other = await hand.take(row("b"))
        beside: AdvanceExecution = keep("on") if shape == "plain" else park("signal")
        flushed = await hand.flush(Commit(behind, (advance,)), Commit(other, (beside,)))
        assert is_fenced(flushed.receipts[0])
        assert flushed.receipts[1].applied
    assert await hand.view("a") == before
    await hand.apply(claim, done())


async def test_a_transaction_that_does_not_know_the_last_commit_does_not_begin(hand: Hand, store: Store) -> None:
    _, behind = await _behind(hand)

    def begin(connection: object) -> None:
        raise AssertionError("user code ran under a lost lease")

    assert is_fenced(await store.transact(hand.name, behind, begin, lambda _: [keep("third")]))
    assert (await hand.view("a")).step == "second"


@pytest.mark.parametrize("asked", ["cancel", "pause"])
async def test_a_transaction_heeds_a_cancel_or_a_pause_if_told_to(hand: Hand, store: Store, asked: str) -> None:
    """Then nothing runs and nothing is written, and the row is held as before; a lost lease goes before."""
    claim, behind = await _behind(hand)
    if asked == "cancel":
        await store.cancel([claim.promise])
    else:
        await store.pause(claim.promise, True)
    heeds = {"heeds_cancel": asked == "cancel", "heeds_pause": asked == "pause"}

    def begin(connection: object) -> None:
        raise AssertionError("user code ran")

    before = await hand.view("a")
    receipt = await store.transact(hand.name, claim, begin, lambda _: [keep("third")], **heeds)
    assert (receipt.applied, receipt.is_refused, receipt.status) == (False, True, Status.EXECUTING)
    assert receipt.cancel_requested is (asked == "cancel")
    assert await hand.view("a") == before
    fenced = await store.transact(hand.name, behind, begin, lambda _: [keep("third")], **heeds)
    assert is_fenced(fenced)
    assert not fenced.is_refused

    async def begin_there(connection: object) -> None: ...

    work = (lambda _: None) if store.commits_in_thread else begin_there
    heeds = {"heeds_cancel": asked != "cancel", "heeds_pause": asked != "pause"}
    assert (await store.transact(hand.name, claim, work, lambda _: [keep("third")], **heeds)).applied


async def test_the_right_epoch_of_another_worker_is_fenced(hand: Hand, rival: Hand) -> None:
    claim = await hand.take(row("a"))
    assert is_fenced(await rival.commit(claim, done()))
    await hand.apply(claim, done())


async def test_a_released_claim_is_fenced(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    await store.release(hand.name, [claim])
    assert is_fenced(await hand.commit(claim, done()))
    assert (await hand.view("a")).status is Status.RUNNABLE


async def test_a_claim_commits_its_end_only_once(hand: Hand) -> None:
    claim = await hand.take(row("a"))
    await hand.apply(claim, done("1"))
    assert is_fenced(await hand.commit(claim, done("2")))
    assert (await hand.view("a")).result == "1"


async def test_a_claim_parked_is_a_claim_given_up(hand: Hand) -> None:
    claim = await hand.take(row("a"))
    await hand.apply(claim, park("go"))
    assert is_fenced(await hand.commit(claim, go()))


async def test_a_worker_that_came_back_late_but_was_not_reaped_still_holds(stores: Stores, hand: Hand) -> None:
    """The lease is over when it is taken back, not before: nobody else can have the row."""
    claim = await hand.take(row("a"))
    await stores.advance(LEASE_SECONDS * 3)
    await hand.apply(claim, done())


async def test_a_fenced_commit_drops_out_alone(stores: Stores, hand: Hand, rival: Hand) -> None:
    """DESIGN section 6: an outcome whose guard fails drops out alone, and the others commit."""
    await hand.insert(*(row(str(n)) for n in range(6)))
    claims = await hand.pick()
    await stores.store.release(hand.name, claims[::2])
    flushed = await hand.flush(*(Commit(claim, (go(f"s{n}"),)) for n, claim in enumerate(claims)))
    assert [receipt.applied for receipt in flushed.receipts] == [False, True] * 3
    steps = [(await hand.view(claim)).step for claim in claims]
    assert steps == ["start", "s1", "start", "s3", "start", "s5"]


async def test_a_stale_claim_beside_the_living_one_of_the_same_row_drops_out_alone(hand: Hand, store: Store) -> None:
    """Two claims of a row are two fences, in either order."""
    for order in (1, -1):
        old = await hand.take(row(f"a{order}"))
        await store.release(hand.name, [old])
        new = await hand.take()
        commits = [Commit(old, (go("stale"),)), Commit(new, (done('"right"'),))][::order]
        flushed = await hand.flush(*commits)
        assert [receipt.applied for receipt in flushed.receipts] == [False, True][::order]
        assert (await hand.view(new)).result == '"right"'


async def stale_commit(stores: Stores, hand: Hand, rival: Hand, *effects: Effect) -> ExecutionClaim:
    """A commit under a lost lease, in one flush with one that holds."""
    stale = await hand.take(row("stale"))
    await stores.store.release(hand.name, [stale])
    (held, again) = [*await hand.pick(handlers=[row("x", name="Held").handler]), *await rival.pick()]
    assert again.promise == stale.promise
    flushed = await hand.flush(Commit(stale, effects), Commit(held, (go("went on"),)))
    assert [receipt.applied for receipt in flushed.receipts] == [False, True]
    assert is_fenced(flushed.receipts[0])
    assert (await hand.view(held)).step == "went on"
    return again


async def test_fenced_children_are_not_spawned(stores: Stores, hand: Hand, rival: Hand) -> None:
    await hand.insert(row("held", name="Held"))
    rows = (row("child-1"), row("child-2"))
    again = await stale_commit(stores, hand, rival, wait_children(), SpawnExecutions(rows))
    assert await stores.store.get_many([new.promise for new in rows]) == [None, None]
    view = await rival.view(again)
    assert (view.status, view.children_pending, view.barrier_round) == (Status.EXECUTING, 0, 0)


async def test_fenced_signals_are_not_sent(stores: Stores, hand: Hand, rival: Hand) -> None:
    await hand.insert(row("held", name="Held"), row("target", queue="elsewhere"))
    signal = DeliverSignal(NewSignal(promise_of("target"), "go", "1", "key"))
    await stale_commit(stores, hand, rival, done(), signal)
    assert await stores.store.inbox(promise_of("target")) == []
    assert await stores.store.deliver([signal.signal]) == ["delivered"], "nor is its dedup key known"


async def test_fenced_consumption_consumes_nothing(stores: Stores, hand: Hand, rival: Hand) -> None:
    """E1: the seed's statement would have emptied its successor's inbox."""
    await hand.insert(row("held", name="Held"), row("stale"))
    await stores.store.deliver([NewSignal(promise_of("stale"), "go", "1")])
    (signal,) = await stores.store.inbox(promise_of("stale"))
    again = await stale_commit(stores, hand, rival, go(), ConsumeSignals((signal.id,)))
    assert again.inbox == (signal,)
    assert await stores.store.inbox(again.promise) == [signal]


async def test_a_fenced_end_deletes_no_inbox(stores: Stores, hand: Hand, rival: Hand) -> None:
    await hand.insert(row("held", name="Held"), row("stale"))
    await stores.store.deliver([NewSignal(promise_of("stale"), "go", "1")])
    again = await stale_commit(stores, hand, rival, done())
    assert len(await stores.store.inbox(again.promise)) == 1


async def test_fenced_history_is_not_written(stores: Stores, hand: Hand, rival: Hand) -> None:
    await hand.insert(row("held", name="Held"))
    again = await stale_commit(stores, hand, rival, go(), RecordTransition("start", "next", "next", 0))
    assert await stores.store.history(again.promise) == []


async def test_a_fenced_end_of_a_child_releases_no_barrier(stores: Stores, hand: Hand, rival: Hand) -> None:
    """E1: the seed's statement would have decremented the barrier twice."""
    parent = await hand.take(row("parent"))
    await hand.apply(parent, wait_children(), SpawnExecutions(child_rows(parent, 2)))
    stale, sibling = await hand.pick()
    await stores.store.release(hand.name, [stale])
    (successor,) = await rival.pick()
    assert is_fenced(await hand.commit(stale, done()))
    assert (await hand.view(parent)).children_pending == 2
    await rival.apply(successor, done())
    assert is_fenced(await hand.commit(stale, fail()))
    view = await hand.view(parent)
    assert (view.status, view.children_pending) == (Status.AWAITING_CHILDREN, 1)
    await hand.apply(sibling, done())
    assert (await hand.view(parent)).status is Status.RUNNABLE


async def test_a_flush_in_which_all_is_fenced_wakes_nobody(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    await store.release(hand.name, [claim])
    flushed = await hand.flush(Commit(claim, (go(),)))
    assert not flushed.woke
    assert is_fenced(flushed.receipts[0])
