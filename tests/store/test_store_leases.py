"""Leases: a worker's, beaten, released, reclaimed and reaped (seed section 4.3; DESIGN section 6; ruling E15)."""

from __future__ import annotations

from datetime import timedelta

from holdfast.core.error_record import decode_error, type_name
from holdfast.core.errors import ExecutionStrandedError
from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.values import NewSignal, Reaped, Registered
from holdfast.testing.hand import LEASE_SECONDS, Hand, keep, park, promise_of, replay, row
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


async def test_who_registers_is_told_the_time_and_whether_a_lease_has_run_out(stores: Stores, hand: Hand) -> None:
    async def register(name: str) -> Registered:
        return await stores.store.register_worker(name, host="h", pid=1, queues=["q"], lease_seconds=LEASE_SECONDS * 2)

    assert await register("w2") == Registered(await stores.store.now_us(), False)
    await expire(stores)
    assert await register("w3") == Registered(await stores.store.now_us(), True)
    await stores.store.reap(10, max_crashes=10)
    assert not (await register("w4")).is_after_others


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
