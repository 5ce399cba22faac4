"""Uniqueness: a key, and the statuses in which it is occupied (seed section 7, ruling E14)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.core.status import LIVE, Status
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution, Commit, SpawnExecutions
from holdfast.store.values import ExecutionClaim, Inserted, NewExecution, NewSignal, QueueRoom
from holdfast.testing.hand import (
    HANDLER,
    LEASE_SECONDS,
    Hand,
    child_rows,
    done,
    go,
    park,
    promise_of,
    replay,
    row,
    strand,
    wait_children,
)
from holdfast.testing.stores import Stores

ALL_LIVE = tuple(sorted(LIVE))


def unique(key: str, unique_key: bytes = b"k", scope: tuple[str, ...] = ALL_LIVE, **columns: object) -> NewExecution:
    return row(key, unique_key=unique_key, unique_scope=scope, **columns)


async def test_an_occupied_key_refuses_the_row_and_names_the_occupant(hand: Hand) -> None:
    await hand.insert(unique("a"))
    assert await hand.insert(unique("b")) == [Inserted(promise_of("a"), created=False, collided=True)]
    assert await hand.store.get(promise_of("b")) is None


async def test_a_refused_row_is_refused_alone(hand: Hand) -> None:
    await hand.insert(unique("a"))
    answers = await hand.insert(row("c"), unique("b"), unique("d", b"other"))
    assert [answer.created for answer in answers] == [True, False, True]


async def test_the_first_of_a_batch_takes_the_key(hand: Hand) -> None:
    """Section 10: one index catches duplicates within the batch itself."""
    answers = await hand.insert(unique("a"), unique("b"), unique("c", b"other"), unique("d"))
    assert [answer.created for answer in answers] == [True, False, True, False]
    assert [answer.promise for answer in answers if answer.collided] == [promise_of("a")] * 2


async def test_rows_without_a_key_do_not_collide(hand: Hand) -> None:
    assert all(answer.created for answer in await hand.insert(*(row(str(n)) for n in range(5))))


async def test_a_key_is_compared_verbatim(hand: Hand) -> None:
    answers = await hand.insert(unique("a", b"k"), unique("b", b"K"), unique("c", b"k\x00"), unique("d", b""))
    assert [answer.created for answer in answers] == [True] * 4


async def test_the_promise_is_looked_at_before_the_unique_key(hand: Hand) -> None:
    """Starting the same thing again finds it; it does not collide with itself."""
    await hand.insert(unique("a"))
    assert await hand.insert(unique("a")) == [Inserted(promise_of("a"), created=False)]


async def test_an_ended_occupant_leaves_the_key_free(hand: Hand) -> None:
    await hand.apply(await hand.take(unique("a")), done())
    assert (await hand.insert(unique("b")))[0].created


async def test_a_scope_of_ended_statuses_holds_the_key_after_the_end(hand: Hand) -> None:
    """Section 7: the scope is the user's; here at most one that succeeded."""
    await hand.apply(await hand.take(unique("a", scope=("runnable", "executing", "done"))), done())
    assert (await hand.insert(unique("b")))[0].collided


async def test_the_scope_that_counts_is_the_occupants(hand: Hand) -> None:
    """Section 7: rejected if a row with the key sits in a status that *it* considers occupied."""
    await hand.take(unique("a", scope=("runnable",)))
    assert (await hand.insert(unique("b")))[0].created, "the occupant is executing, outside its own scope"


async def test_an_empty_scope_occupies_nothing(hand: Hand) -> None:
    answers = await hand.insert(unique("a", scope=()), unique("b", scope=()))
    assert [answer.created for answer in answers] == [True, True]


@pytest.mark.parametrize("status", [Status.RUNNABLE, Status.EXECUTING, Status.AWAITING_SIGNAL, Status.STRANDED])
async def test_the_guard_is_recomputed_on_every_transition(hand: Hand, status: Status) -> None:
    """Section 7: occupied exactly while the row's status is in the scope (until it left the scope, E14)."""
    everything_before: dict[Status, tuple[str, ...]] = {
        Status.RUNNABLE: ("runnable",),
        Status.EXECUTING: ("runnable", "executing"),
        Status.AWAITING_SIGNAL: ("runnable", "executing", "awaiting_signal"),
        Status.STRANDED: ("runnable", "executing", "stranded"),
    }
    await hand.insert(unique("a", scope=everything_before[status]))
    if status is not Status.RUNNABLE:
        claim = await hand.take()
        if status is Status.AWAITING_SIGNAL:
            await hand.apply(claim, park("go"))
        elif status is Status.STRANDED:
            await hand.apply(claim, strand())
    assert (await hand.view("a")).status is status
    assert (await hand.insert(unique("b")))[0].collided
    await hand.store.cancel([promise_of("a")])
    if status is Status.EXECUTING:
        await hand.apply(claim, done())
    assert (await hand.insert(unique("c")))[0].created


async def test_two_processes_racing_for_keys_share_them_out(stores: Stores) -> None:
    """Section 10: concurrent inserts are handled by the constraint; opposite orders do not deadlock."""
    other = await stores.another()
    mine = [unique(f"a{n}", str(n).encode()) for n in range(40)]
    theirs = [unique(f"b{n}", str(n).encode()) for n in reversed(range(40))]
    first, second = await asyncio.gather(stores.store.insert(mine), other.insert(theirs))
    by_key = dict(zip(range(40), first, strict=True))
    for n, answer in zip(reversed(range(40)), second, strict=True):
        assert answer.created != by_key[n].created
        winner, loser = (by_key[n], answer) if by_key[n].created else (answer, by_key[n])
        assert loser.collided
        assert loser.promise == winner.promise


async def test_children_are_deduplicated_like_any_row(hand: Hand) -> None:
    """Section 11: per-child uniqueness may drop some."""
    await hand.insert(unique("occupant", queue="elsewhere"))
    claim = await hand.take(row("parent"))
    rows = (
        *child_rows(claim, 1, queue="q"),
        *child_rows(claim, 2, queue="q", unique_key=b"k", unique_scope=ALL_LIVE)[1:],
    )
    receipt = await hand.apply(claim, wait_children(), SpawnExecutions(rows))
    assert [child.created for child in receipt.children] == [True, False]
    assert receipt.children[1] == Inserted(promise_of("occupant"), created=False, collided=True)


@pytest.mark.parametrize("advance", [done(), park("go"), strand()], ids=["done", "await", "stranded"])
async def test_a_key_given_up_in_a_flush_is_free_for_a_child_of_the_same_flush(
    hand: Hand, advance: AdvanceExecution
) -> None:
    """Own rows are written before children are inserted, in whichever order the commits came."""
    for order in (1, -1):
        scope = ("runnable", "executing")
        await hand.insert(unique(f"occupant{order}", str(order).encode(), scope), row(f"parent{order}"))
        occupant, parent = await hand.pick()
        columns = {"queue": "children", "unique_key": str(order).encode(), "unique_scope": scope}
        spawn = Commit(parent, (wait_children(), SpawnExecutions(child_rows(parent, 2, **columns))))
        flushed = await hand.flush(*[Commit(occupant, (advance,)), spawn][::order])
        receipt = flushed.receipts[::order][1]
        assert [child.created for child in receipt.children] == [True, False]
        assert receipt.status is Status.AWAITING_CHILDREN


# ---------------------------------------------------------------------- E14: a key, once left, is left for good


async def back_by_next(stores: Stores, hand: Hand, claim: ExecutionClaim) -> None:
    await hand.apply(claim, go())


async def back_by_replay(stores: Stores, hand: Hand, claim: ExecutionClaim) -> None:
    await hand.apply(claim, replay(claim))


async def back_by_signal(stores: Stores, hand: Hand, claim: ExecutionClaim) -> None:
    await hand.apply(claim, park("go"))
    await stores.store.deliver([NewSignal(claim.promise, "go", "1")])


async def back_by_deadline(stores: Stores, hand: Hand, claim: ExecutionClaim) -> None:
    await hand.apply(claim, park("go", wake_after=5))
    await stores.advance(6)
    await stores.store.fire_timers(10)


async def back_by_barrier(stores: Stores, hand: Hand, claim: ExecutionClaim) -> None:
    await hand.apply(claim, wait_children(), SpawnExecutions(child_rows(claim, 1, queue="children")))
    await hand.apply(await hand.take(queues=["children"]), done())


async def back_by_reaper(stores: Stores, hand: Hand, claim: ExecutionClaim) -> None:
    await stores.advance(LEASE_SECONDS + 1)
    await stores.store.reap(10, max_crashes=10)


async def back_by_release(stores: Stores, hand: Hand, claim: ExecutionClaim) -> None:
    await stores.store.release(hand.name, [claim])


async def back_by_retiring(stores: Stores, hand: Hand, claim: ExecutionClaim) -> None:
    await stores.store.retire_worker(hand.name)


async def back_by_resume(stores: Stores, hand: Hand, claim: ExecutionClaim) -> None:
    await hand.apply(claim, strand())
    await stores.store.resume(claim.promise)


WAYS_BACK = (
    back_by_next,
    back_by_replay,
    back_by_signal,
    back_by_deadline,
    back_by_barrier,
    back_by_reaper,
    back_by_release,
    back_by_retiring,
    back_by_resume,
)


@pytest.mark.parametrize("come_back", WAYS_BACK)
async def test_a_row_that_comes_back_into_its_scope_does_not_take_the_key_again(
    stores: Stores, hand: Hand, come_back: Callable[[Stores, Hand, ExecutionClaim], Awaitable[None]]
) -> None:
    """E14: another took the key meanwhile; the returning row must not abort the statement that brings it back."""
    claim = await hand.take(unique("a", scope=("runnable",)))
    rival = unique("b", scope=("runnable",), queue="elsewhere")
    assert (await stores.store.insert([rival]))[0].created, "picked, and so out of its scope"
    await come_back(stores, hand, claim)
    assert (await hand.view("a")).status is Status.RUNNABLE
    assert (await stores.store.insert([unique("c")]))[0].promise == rival.promise
    await stores.store.cancel([rival.promise])
    assert (await stores.store.insert([unique("d", queue="elsewhere")]))[0].created, "released for good"


async def test_one_returning_row_does_not_abort_the_flush_of_the_others(hand: Hand) -> None:
    """E14, as reproduced: a flush in which one row re-enters its scope."""
    await hand.insert(unique("a", scope=("runnable",)), *(row(str(n)) for n in range(5)))
    claims = await hand.pick()
    await hand.insert(unique("b", scope=("runnable",), queue="elsewhere"))
    flushed = await hand.flush(*(Commit(claim, (go(),)) for claim in claims))
    assert all(receipt.applied for receipt in flushed.receipts)


async def test_the_reaper_brings_back_all_when_one_lost_its_key(stores: Stores, hand: Hand) -> None:
    """E14, as reproduced: the reaper's batch."""
    await hand.insert(unique("a", scope=("runnable",)), *(row(str(n)) for n in range(5)))
    await hand.pick()
    await hand.insert(unique("b", scope=("runnable",), queue="elsewhere"))
    await stores.advance(LEASE_SECONDS + 1)
    assert (await stores.store.reap(100, max_crashes=10)).released == 6


async def test_a_scope_that_begins_later_never_aborts_a_pick(hand: Hand, store: Store) -> None:
    """E14's hazard from the other side: rows outside their scope at insertion may hold equal keys when picked."""
    await hand.insert(unique("a", scope=("executing",)), unique("b", scope=("executing",)), row("c"))
    finished: set[bytes] = set()
    for _ in range(3):
        picked = await store.pick(hand.name, [QueueRoom("default", 10)], [HANDLER], 10)
        for claim in picked.claims:
            await hand.apply(claim, done())
            finished.add(claim.promise)
    assert finished == {promise_of("a"), promise_of("b"), promise_of("c")}


async def test_a_park_that_did_not_park_never_left_the_scope(hand: Hand, store: Store) -> None:
    """Section 5: it commits as runnable instead of awaiting, so that its key was occupied all the while."""
    claim = await hand.take(unique("a", scope=("runnable", "executing")))
    await store.deliver([NewSignal(claim.promise, "go", "1")])
    assert (await hand.apply(claim, park("go"))).status is Status.RUNNABLE
    assert (await hand.insert(unique("b")))[0].collided


async def test_a_barrier_without_children_never_left_the_scope(hand: Hand) -> None:
    """Section 11: pre-satisfied, the parent goes straight to its next step."""
    claim = await hand.take(unique("a", scope=("runnable", "executing")))
    assert (await hand.apply(claim, wait_children(), SpawnExecutions(()))).status is Status.RUNNABLE
    assert (await hand.insert(unique("b")))[0].collided
