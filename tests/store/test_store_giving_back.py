"""Giving claims back, and asking after a lost reply (DESIGN section 6, unknown commits; ruling E1)."""

from __future__ import annotations

import pytest

from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.effects import Commit
from holdfast.store.values import NewSignal
from holdfast.testing.hand import LEASE_SECONDS, Hand, done, go, keep, replay, row
from holdfast.testing.stores import Stores


async def expire(stores: Stores, *survivors: Hand) -> None:
    """Let the leases of all but the survivors run out."""
    await stores.advance(LEASE_SECONDS - 1)
    for survivor in survivors:
        assert await survivor.beat()
    await stores.advance(2)


async def test_a_released_claim_is_as_if_never_picked(hand: Hand, rival: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    await hand.apply(claim, replay(claim))
    claim = await hand.take()
    assert await store.release(hand.name, [claim]) == 1
    view = await hand.view("a")
    assert (view.status, view.attempt, view.crashes, view.locked_by) == (Status.RUNNABLE, 1, 0, None)
    assert view.revision == claim.revision
    assert (await rival.take()).epoch == claim.epoch + 1


async def test_release_is_fenced(hand: Hand, rival: Hand, store: Store) -> None:
    """E1: by worker and by epoch, each claim for itself."""
    await hand.insert(*(row(str(n)) for n in range(4)))
    given, lost, done_already, kept = await hand.pick()
    await store.release(hand.name, [lost])
    await rival.take()
    await hand.apply(done_already, done())
    assert await store.release(hand.name, [given, lost, done_already]) == 1
    assert (await hand.view(lost)).locked_by == rival.name
    assert (await hand.view(kept)).locked_by == hand.name
    assert await store.release(rival.name, [kept]) == 0
    assert await store.release(hand.name, []) == 0


async def test_an_old_claim_does_not_release_the_new_one(hand: Hand, store: Store) -> None:
    old = await hand.take(row("a"))
    await store.release(hand.name, [old])
    await hand.take()
    assert await store.release(hand.name, [old]) == 0
    assert (await hand.view("a")).status is Status.EXECUTING


async def test_a_retiring_worker_gives_back_all_and_is_gone(hand: Hand, rival: Hand, store: Store) -> None:
    await hand.insert(*(row(str(n)) for n in range(5)))
    claims = await hand.pick(3)
    await hand.apply(claims[0], done())
    assert await store.retire_worker(hand.name) == 2
    view = await hand.view(claims[1])
    assert (view.status, view.attempt, view.crashes) == (Status.RUNNABLE, 0, 0)
    assert [worker.id for worker in await store.workers()] == [rival.name]
    assert not await hand.beat()
    assert (await hand.ask()).worker_lost
    assert not (await hand.commit(claims[1], done())).applied
    assert len(await rival.pick()) == 4
    assert await store.retire_worker(hand.name) == 0


async def test_a_worker_gives_back_what_it_does_not_know_it_holds(hand: Hand, rival: Hand, store: Store) -> None:
    """After a pick whose reply was lost."""
    await hand.insert(*(row(str(n)) for n in range(5)))
    known, *unknown = await hand.pick(3)
    theirs = await rival.pick(1)
    assert await store.disown(hand.name, [known.row]) == 2
    for claim in unknown:
        view = await hand.view(claim)
        assert (view.status, view.attempt, view.crashes, view.locked_by) == (Status.RUNNABLE, 0, 0, None)
        assert not (await hand.commit(claim, done())).applied
    await hand.apply(known, done())
    await rival.apply(theirs[0], done())
    assert await store.disown(hand.name, []) == 0


# ---------------------------------------------------------------------- after a lost reply


async def test_reclaim_shows_that_a_commit_was_applied(hand: Hand, store: Store) -> None:
    """DESIGN section 6, unknown commits: the revision has moved on."""
    claim = await hand.take(row("a"))
    await hand.apply(claim, keep("second", '"new"'))
    (again,) = await store.reclaim(hand.name, [claim])
    assert again is not None
    assert (again.epoch, again.revision) == (claim.epoch + 1, 1)
    assert (again.step, again.state, again.promise, again.row) == ("second", '"new"', claim.promise, claim.row)
    await hand.apply(again, done())


async def test_reclaim_shows_that_a_commit_was_not_applied_and_fences_it(hand: Hand, store: Store) -> None:
    """Reading alone can say "not there" just before the old backend commits; a new epoch cannot."""
    claim = await hand.take(row("a"))
    (again,) = await store.reclaim(hand.name, [claim])
    assert again is not None
    assert (again.epoch, again.revision, again.step) == (claim.epoch + 1, claim.revision, claim.step)
    assert not (await hand.commit(claim, keep("too late"))).applied
    await hand.apply(again, keep("second"))


@pytest.mark.parametrize("given_up", ["done", "next", "released", "reaped"])
async def test_reclaim_says_what_is_held_no_more(stores: Stores, hand: Hand, rival: Hand, given_up: str) -> None:
    claim = await hand.take(row("a"))
    if given_up == "done":
        await hand.apply(claim, done())
    elif given_up == "next":
        await hand.apply(claim, go())
    elif given_up == "released":
        await stores.store.release(hand.name, [claim])
        await rival.take()
    else:
        await expire(stores, rival)
        await stores.store.reap(10, max_crashes=10)
        await rival.take()
    before = await hand.view("a")
    assert await stores.store.reclaim(hand.name, [claim]) == [None]
    assert await hand.view("a") == before


async def test_reclaim_can_be_asked_again_when_its_own_reply_is_lost(hand: Hand, store: Store) -> None:
    """A row held at a later epoch than the claim's counts as held."""
    claim = await hand.take(row("a"))
    (lost,) = await store.reclaim(hand.name, [claim])
    (again,) = await store.reclaim(hand.name, [claim])
    assert lost is not None
    assert again is not None
    assert again.epoch == claim.epoch + 2
    assert not (await hand.commit(lost, done())).applied
    await hand.apply(again, done())


async def test_reclaim_answers_each_claim_in_order(hand: Hand, store: Store) -> None:
    await hand.insert(*(row(str(n)) for n in range(5)))
    claims = await hand.pick()
    await hand.flush(Commit(claims[1], (done(),)), Commit(claims[3], (keep("moved"),)))
    answers = await store.reclaim(hand.name, claims[::-1])
    assert [answer and (answer.promise, answer.revision) for answer in answers] == [
        (claims[4].promise, 0),
        (claims[3].promise, 1),
        (claims[2].promise, 0),
        None,
        (claims[0].promise, 0),
    ]
    assert await store.reclaim(hand.name, []) == []


async def test_reclaim_brings_the_inbox_and_a_cancel_up_to_date(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    await store.deliver([NewSignal(claim.promise, "go", "1")])
    await store.cancel([claim.promise])
    (again,) = await store.reclaim(hand.name, [claim])
    assert again is not None
    assert [signal.name for signal in again.inbox] == ["go"]
    assert again.cancel_requested
    assert again.attempt == claim.attempt, "nothing was run anew"
