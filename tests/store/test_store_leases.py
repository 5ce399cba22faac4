"""Leases: a worker's, beaten, released, reclaimed and reaped (seed section 4.3; DESIGN section 6; ruling E15)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.core.error_record import decode_error, type_name
from holdfast.core.errors import ExecutionStrandedError
from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.effects import Commit
from holdfast.store.values import NewSignal, Reaped
from holdfast.testing.hand import LEASE_SECONDS, Hand, done, go, keep, park, promise_of, replay, row
from holdfast.testing.stores import Stores


async def expire(stores: Stores, *survivors: Hand) -> None:
    """Let the leases of all but the survivors run out."""
    await stores.advance(LEASE_SECONDS - 1)
    for survivor in survivors:
        assert await survivor.beat()
    await stores.advance(2)


# ---------------------------------------------------------------------- beating


async def test_a_lease_that_is_beaten_lasts(stores: Stores, hand: Hand) -> None:
    """E15: one row of the worker, whatever it holds."""
    await hand.take(row("a"))
    for _ in range(4):
        await stores.advance(LEASE_SECONDS * 0.9)
        assert await hand.beat()
        assert await stores.store.reap(10, max_crashes=10) == Reaped()
    assert (await hand.view("a")).locked_by == hand.name


async def test_a_worker_that_never_was_cannot_beat(store: Store) -> None:
    assert not await store.beat("stranger", LEASE_SECONDS)


async def test_a_late_beat_is_in_time_if_nobody_took_the_lease(stores: Stores, hand: Hand) -> None:
    await stores.advance(LEASE_SECONDS * 2)
    assert await hand.beat()
    assert await stores.store.reap(10, max_crashes=10) == Reaped()


async def test_a_reaped_worker_cannot_beat_its_way_back(stores: Stores, hand: Hand) -> None:
    await expire(stores)
    await stores.store.reap(10, max_crashes=10)
    assert not await hand.beat()
    assert await stores.store.workers() == []


async def test_workers_are_listed_with_what_they_hold(stores: Stores, hand: Hand, rival: Hand) -> None:
    await stores.store.register_worker("w3", host="h", pid=42, queues=["q1", "q2"], lease_seconds=99)
    started = stores.clock.now
    await hand.insert(row("a"), row("b"), row("c"))
    await hand.pick(2)
    await expire(stores, hand)
    listed = {worker.id: worker for worker in await stores.store.workers()}
    assert sorted(listed) == ["w1", "w2", "w3"]
    assert [listed[name].executing for name in ("w1", "w2", "w3")] == [2, 0, 0]
    assert [listed[name].is_expired for name in ("w1", "w2", "w3")] == [False, True, False]
    third = listed["w3"]
    assert (third.host, third.pid, third.queues) == ("h", 42, ("q1", "q2"))
    assert (third.started_at, third.expires_at) == (started, started + timedelta(seconds=99))


async def test_registering_an_id_again_begins_its_lease_anew(stores: Stores, hand: Hand) -> None:
    await hand.take(row("a"))
    await stores.advance(5)
    await stores.store.register_worker(hand.name, host="h2", pid=43, queues=["q"], lease_seconds=99)
    (listed,) = await stores.store.workers()
    assert (listed.id, listed.host, listed.pid, listed.queues) == (hand.name, "h2", 43, ("q",))
    assert (listed.started_at, listed.executing) == (stores.clock.now, 1)
    assert listed.expires_at == stores.clock.now + timedelta(seconds=99)


# ---------------------------------------------------------------------- reaping


async def test_a_crashed_step_runs_again_from_scratch(stores: Stores, hand: Hand, rival: Hand) -> None:
    """Section 4.3: back to runnable, attempt + 1."""
    claim = await hand.take(row("a", step="pack", state='"s"'))
    await expire(stores, rival)
    assert await stores.store.reap(10, max_crashes=10) == Reaped(workers=("w1",), released=1)
    view = await rival.view("a")
    assert (view.status, view.step, view.state) == (Status.RUNNABLE, "pack", '"s"')
    assert (view.attempt, view.crashes, view.locked_by, view.revision) == (1, 1, None, 0)
    again = await rival.take()
    assert (again.attempt, again.crashes, again.epoch) == (1, 1, claim.epoch + 1)


async def test_a_crash_keeps_what_the_step_was_woken_with(stores: Stores, hand: Hand, rival: Hand) -> None:
    """Section 5: loss of a signal is not allowed."""
    await hand.apply(await hand.take(row("a")), park("go"))
    await stores.store.deliver([NewSignal(promise_of("a"), "go", "1")])
    claim = await hand.take()
    await expire(stores, rival)
    await stores.store.reap(10, max_crashes=10)
    again = await rival.take()
    assert (again.awaits, again.inbox) == (claim.awaits, claim.inbox)


async def test_the_living_are_not_reaped(stores: Stores, hand: Hand, rival: Hand) -> None:
    await hand.insert(row("a"), row("b"))
    await hand.pick(1)
    await rival.pick(1)
    await expire(stores, rival)
    assert (await stores.store.reap(10, max_crashes=10)).released == 1
    assert [(await hand.view(key)).status for key in "ab"] == [Status.RUNNABLE, Status.EXECUTING]


async def test_a_lease_is_good_until_it_expires(stores: Stores, hand: Hand) -> None:
    await hand.take(row("a"))
    await stores.advance(LEASE_SECONDS - 0.001)
    assert await stores.store.reap(10, max_crashes=10) == Reaped()


async def test_a_dead_worker_that_held_nothing_is_struck_off(stores: Stores, hand: Hand) -> None:
    await expire(stores)
    assert await stores.store.reap(10, max_crashes=10) == Reaped(workers=("w1",))
    assert await stores.store.workers() == []


async def test_a_pass_of_the_reaper_is_bounded_and_the_worker_goes_last(stores: Stores, hand: Hand) -> None:
    """A dead owner is never struck off before its work is back: nobody else would look for it."""
    await hand.insert(*(row(str(n)) for n in range(7)))
    await hand.pick(7)
    await expire(stores)
    first = await stores.store.reap(3, max_crashes=10)
    assert (first.released, first.more, first.workers) == (3, True, ())
    assert [worker.id for worker in await stores.store.workers()] == ["w1"]
    released = first.released
    workers: list[str] = []
    while first.more:
        first = await stores.store.reap(3, max_crashes=10)
        released += first.released
        workers += first.workers
        assert first.released <= 3
    assert (released, workers) == (7, ["w1"])
    assert await stores.store.workers() == []


async def test_several_dead_workers_are_reaped_together(stores: Stores, hand: Hand, rival: Hand) -> None:
    await hand.insert(row("a"), row("b"), row("c"))
    await hand.pick(2)
    await rival.pick(2)
    await expire(stores)
    reaped = await stores.store.reap(10, max_crashes=10)
    assert (sorted(reaped.workers), reaped.released) == (["w1", "w2"], 3)


async def test_a_claim_that_kills_every_worker_is_stranded(stores: Stores, store: Store) -> None:
    """DESIGN section 5: after `max_crashes` lease losses without progress, poison; loud, and resumable."""
    await store.insert([row("poison")])
    for turn in range(1, 4):
        worker = await Hand(store, f"victim{turn}").start()
        await worker.take()
        await expire(stores)
        reaped = await store.reap(10, max_crashes=3)
        assert reaped.stranded == ((promise_of("poison"),) if turn == 3 else ())
        assert reaped.released == (0 if turn == 3 else 1)
    view = await worker.view("poison")
    assert (view.status, view.crashes, view.locked_by) == (Status.STRANDED, 3, None)
    assert view.error is not None
    record = decode_error(view.error)
    assert (record.type, record.kind) == (type_name(ExecutionStrandedError), "internal")
    assert record.message == (
        f"its worker was lost 3 times in a row in step {view.step!r} without progress, the last was victim3: find "
        "what kills the worker there, then resume the execution"
    )
    assert view.ended_at is None


async def test_progress_clears_the_count_of_crashes(stores: Stores, store: Store) -> None:
    await store.insert([row("a")])
    for turn in range(4):
        worker = await Hand(store, f"victim{turn}").start()
        claim = await worker.take()
        assert claim.crashes == (0 if turn == 0 else 1)
        await worker.apply(claim, keep(f"s{turn}"))
        assert (await worker.view("a")).crashes == 0
        await expire(stores)
        assert (await store.reap(10, max_crashes=2)).stranded == ()


async def test_a_replay_is_no_progress(stores: Stores, store: Store) -> None:
    await store.insert([row("a")])
    first = await Hand(store, "victim").start()
    await first.take()
    await expire(stores)
    await store.reap(10, max_crashes=3)
    second = await Hand(store, "survivor").start()
    claim = await second.take()
    await second.apply(claim, replay(claim))
    assert (await second.view("a")).crashes == 1


async def test_a_paused_row_of_a_dead_worker_comes_back_paused(stores: Stores, hand: Hand, rival: Hand) -> None:
    await hand.take(row("a"))
    await stores.store.pause(promise_of("a"), True)
    await expire(stores, rival)
    await stores.store.reap(10, max_crashes=10)
    assert (await rival.view("a")).paused
    assert await rival.pick() == []


async def test_a_cancel_outlives_the_worker_that_was_asked(stores: Stores, hand: Hand, rival: Hand) -> None:
    await hand.take(row("a"))
    await stores.store.cancel([promise_of("a")])
    await expire(stores, rival)
    await stores.store.reap(10, max_crashes=10)
    assert (await rival.take()).cancel_requested


# ---------------------------------------------------------------------- giving back


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
    assert (again.epoch, again.revision) == (claim.epoch + 1, claim.revision + 1)
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
