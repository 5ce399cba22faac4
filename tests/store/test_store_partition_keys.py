"""Partition keys: one row of a key at a time, in strict order, and no key starves another (seed section 6, E9)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.core.status import Status
from holdfast.store.base import Store, handler_of
from holdfast.store.effects import AdvanceExecution, SpawnExecutions
from holdfast.store.values import ExecutionClaim, NewExecution, NewSignal, QueueSettings
from holdfast.testing.hand import (
    HANDLER,
    LEASE_SECONDS,
    Hand,
    child_rows,
    done,
    fail,
    go,
    keep,
    park,
    promise_of,
    replay,
    row,
    strand,
    wait_children,
)
from holdfast.testing.stores import Stores
from holdfast.verify.auditor import audit


def keyed(key: str, partition_key: str = "k", **columns: object) -> NewExecution:
    return row(key, partition_key=partition_key, **columns)


async def picked_keys(hand: Hand, limit: int = 10, queues: tuple[str, ...] = ("default",)) -> list[bytes]:
    return [claim.promise for claim in await hand.pick(limit, queues=queues)]


async def drain(hand: Hand, limit: int = 10) -> list[bytes]:
    """Finish what can be picked, pick by pick; the order in which it was picked."""
    order = []
    while claims := await hand.pick(limit):
        for claim in claims:
            order.append(claim.promise)
            await hand.apply(claim, done())
    return order


async def test_one_row_of_a_key_executes_at_a_time(hand: Hand, rival: Hand) -> None:
    await hand.insert(keyed("a"), keyed("b"), keyed("c"))
    assert await picked_keys(hand) == [promise_of("a")]
    assert await picked_keys(hand) == []
    assert await picked_keys(rival) == []


async def test_keys_run_beside_each_other(hand: Hand) -> None:
    await hand.insert(keyed("a", "k1"), keyed("b", "k1"), keyed("c", "k2"), row("free"), keyed("d", "k2"))
    assert await picked_keys(hand) == [promise_of(key) for key in ("a", "c", "free")]


async def test_rows_of_a_key_run_in_the_order_they_came(hand: Hand) -> None:
    keys = [str(n) for n in range(12)]
    await hand.insert(*(keyed(key) for key in keys))
    assert await drain(hand) == [promise_of(key) for key in keys]


async def test_order_within_a_key_is_priority_then_time_then_id(stores: Stores, hand: Hand) -> None:
    """E9: (priority, eligible_at, id) among eligible rows."""
    await hand.insert(keyed("c", delay=2), keyed("b", delay=1), keyed("a", delay=9, priority=-1), keyed("d", delay=2))
    await stores.advance(10)
    assert await drain(hand) == [promise_of(key) for key in "abcd"]


@pytest.mark.parametrize("is_served", [True, False], ids=["paused", "not-served"])
async def test_a_queue_that_stands_still_holds_back_no_other(hand: Hand, store: Store, is_served: bool) -> None:
    """The best row behind the key is of a queue that gives nothing: those of the other queue go on."""
    both, one = ("halted", "moving"), ("moving",)
    await hand.insert(keyed("a", queue="moving"), keyed("b", queue="halted"), keyed("c", queue="moving"))
    await hand.insert(keyed("d", queue="moving"))
    (claim,) = await hand.pick(queues=both)
    assert await hand.pick(queues=both) == [], "the others are found to be waiting"
    await store.configure_queue(QueueSettings(name="halted", paused=is_served))
    served = both if is_served else one
    for key in "cd":
        await hand.apply(claim, done())
        (claim,) = await hand.pick(queues=served)
        assert claim.promise == promise_of(key)
    await hand.apply(claim, done())
    await store.configure_queue(QueueSettings(name="halted"))
    assert await picked_keys(hand, queues=both) == [promise_of("b")]


async def test_a_crowd_behind_a_row_that_nobody_here_knows_is_sound(hand: Hand, store: Store) -> None:
    """Its key is held for it on PostgreSQL: no fault, and it is given up with the row."""
    await hand.insert(keyed("a", name="Unknown"), *(keyed(str(n)) for n in range(1_200)))
    for _ in range(3):
        assert await hand.pick() == []
    assert (await audit(store, models=False))[0] == []
    assert await store.cancel([promise_of("a", "Unknown")]) == [Status.CANCELLED]
    assert await picked_keys(hand) == [promise_of("0")]


async def test_a_newcomer_with_a_better_place_goes_before_those_that_wait(hand: Hand) -> None:
    await hand.insert(keyed("a"), keyed("c"), keyed("d"))
    (claim,) = await hand.pick()
    assert await hand.pick() == [], "the others are found to be waiting"
    await hand.insert(keyed("b", priority=-1), keyed("e"))
    await hand.apply(claim, done())
    assert await drain(hand) == [promise_of(key) for key in "bcde"]


async def test_a_refused_row_uses_up_nothing_of_the_window(hand: Hand) -> None:
    """E9, and DESIGN section 6: one row refused by a key must not starve the rows behind it."""
    await hand.insert(*(keyed(f"hot{n}", priority=-1) for n in range(50)), row("x"), keyed("y", "other"), row("z"))
    assert await picked_keys(hand, 3) == [promise_of(key) for key in ("hot0", "x", "y")]
    assert await picked_keys(hand, 1) == [promise_of("z")]


async def test_a_hot_key_with_a_long_line_lets_the_others_by(hand: Hand) -> None:
    """E9: more waiting rows than any window a pick might look at, of a key that is held all the while."""
    await hand.insert(keyed("holder", priority=-2))
    await hand.take()
    await hand.insert(*(keyed(f"hot{n}", priority=-1) for n in range(1_500)))
    await hand.insert(*(row(str(n)) for n in range(3)))
    for n in range(3):
        assert await picked_keys(hand, 1) == [promise_of(str(n))]


async def test_many_keys_in_one_line_all_advance(hand: Hand) -> None:
    await hand.insert(*(keyed(f"{n}", f"k{n % 7}") for n in range(70)))
    order = await drain(hand, 5)
    assert len(order) == 70
    for start in range(7):
        mine = [promise_of(str(n)) for n in range(start, 70, 7)]
        assert [promise for promise in order if promise in set(mine)] == mine


async def test_a_key_holds_across_queues(hand: Hand) -> None:
    await hand.insert(keyed("a", queue="one"), keyed("b", queue="two"))
    (claim,) = await hand.pick(queues=["one"])
    assert await hand.pick(queues=["two"]) == []
    await hand.apply(claim, done())
    assert await picked_keys(hand, queues=("two",)) == [promise_of("b")]


async def test_one_pick_over_several_queues_takes_one_row_of_a_key(hand: Hand) -> None:
    await hand.insert(keyed("b", queue="one"), keyed("a", queue="two", priority=-1), row("c", queue="one"))
    assert await picked_keys(hand, queues=("one", "two")) == [promise_of("a"), promise_of("c")]


async def test_a_future_row_does_not_hold_its_key(stores: Stores, hand: Hand) -> None:
    await hand.insert(keyed("future", delay=10, priority=-1), keyed("a"))
    assert await picked_keys(hand) == [promise_of("a")]


async def test_a_paused_row_does_not_hold_its_key(hand: Hand) -> None:
    await hand.insert(keyed("paused", paused=True, priority=-1), keyed("a"), keyed("b"))
    assert await drain(hand) == [promise_of("a"), promise_of("b")]


async def test_a_row_of_unknown_code_at_the_head_holds_its_key(hand: Hand) -> None:
    """Order within a key is strict, whoever knows the code: the head waits for the worker that does."""
    foreign = keyed("foreign", version=2)
    await hand.insert(foreign, keyed("a"), row("free"))
    assert await picked_keys(hand) == [promise_of("free")]
    assert await hand.pick() == []
    (claim,) = await hand.pick(handlers=[handler_of("machine", "Order", 2)])
    assert claim.promise == foreign.promise
    await hand.apply(claim, done())
    assert await picked_keys(hand) == [promise_of("a")]


async def test_rows_that_waited_behind_unknown_code_go_on_when_it_is_cancelled(hand: Hand, store: Store) -> None:
    foreign = keyed("foreign", version=2)
    await hand.insert(foreign, keyed("a"))
    assert await hand.pick() == []
    await store.cancel([foreign.promise])
    assert await picked_keys(hand) == [promise_of("a")]


async def test_a_kept_lease_keeps_the_key(hand: Hand) -> None:
    """DESIGN section 6: rows with a partition key keep it until they park or end."""
    await hand.insert(keyed("a"), keyed("b"))
    (claim,) = await hand.pick()
    await hand.apply(claim, keep())
    assert await hand.pick() == []
    await hand.apply(claim, done())
    assert await picked_keys(hand) == [promise_of("b")]


# ---------------------------------------------------------------------- how a key is given up


def outcome(advance: AdvanceExecution) -> Callable[[Stores, Hand, ExecutionClaim], Awaitable[None]]:
    async def give_up(stores: Stores, hand: Hand, claim: ExecutionClaim) -> None:
        await hand.apply(claim, advance)

    return give_up


async def by_replay(stores: Stores, hand: Hand, claim: ExecutionClaim) -> None:
    await hand.apply(claim, replay(claim, delay=60))


async def by_children(stores: Stores, hand: Hand, claim: ExecutionClaim) -> None:
    await hand.apply(claim, wait_children(), SpawnExecutions(child_rows(claim, 1, queue="children")))


async def by_reaper(stores: Stores, hand: Hand, claim: ExecutionClaim) -> None:
    await stores.advance(LEASE_SECONDS + 1)
    await stores.store.reap(10, max_crashes=1)
    await hand.start()


async def by_release(stores: Stores, hand: Hand, claim: ExecutionClaim) -> None:
    await stores.store.pause(claim.promise, True)
    await stores.store.release(hand.name, [claim])


async def by_retiring(stores: Stores, hand: Hand, claim: ExecutionClaim) -> None:
    await stores.store.pause(claim.promise, True)
    await stores.store.retire_worker(hand.name)
    await hand.start()


async def by_disowning(stores: Stores, hand: Hand, claim: ExecutionClaim) -> None:
    await stores.store.pause(claim.promise, True)
    await stores.store.disown(hand.name, [])


async def by_pause_between_steps(stores: Stores, hand: Hand, claim: ExecutionClaim) -> None:
    await stores.store.pause(claim.promise, True)
    await hand.apply(claim, keep())


WAYS_TO_GIVE_UP = {
    "done": outcome(done()),
    "failed": outcome(fail()),
    "stranded": outcome(strand()),
    "next later": outcome(go(delay=60)),
    "await": outcome(park("go")),
    "replay": by_replay,
    "children": by_children,
    "reaper": by_reaper,
    "release": by_release,
    "retire": by_retiring,
    "disown": by_disowning,
    "pause": by_pause_between_steps,
}


@pytest.mark.parametrize("way", WAYS_TO_GIVE_UP)
@pytest.mark.parametrize("noticed", [True, False], ids=["waiting-row-noticed", "waiting-row-unnoticed"])
async def test_the_next_row_of_a_key_goes_on_when_the_holder_gives_it_up(
    stores: Stores, hand: Hand, way: str, noticed: bool
) -> None:
    """Section 6: serialised for the duration of the step; whether or not a pick met the waiting row before."""
    await hand.insert(keyed("a"))
    (claim,) = await hand.pick()
    await hand.insert(keyed("b"), keyed("c"))
    if noticed:
        assert await hand.pick() == []
    await WAYS_TO_GIVE_UP[way](stores, hand, claim)
    assert await picked_keys(hand) == [promise_of("b")]
    assert await picked_keys(hand) == []


async def test_a_row_that_goes_on_at_once_lines_up_behind_those_that_waited(stores: Stores, hand: Hand) -> None:
    """E9: `:next` makes it eligible now, and the others are so for longer."""
    await hand.insert(keyed("a"), keyed("b"))
    (claim,) = await hand.pick()
    await stores.advance(1)
    await hand.apply(claim, go())
    assert await drain(hand) == [promise_of("b"), promise_of("a")]


async def test_cancelling_the_holder_does_not_take_its_key(hand: Hand, store: Store) -> None:
    """The step still runs: its key is given up by the commit that ends it."""
    await hand.insert(keyed("a"), keyed("b"))
    (claim,) = await hand.pick()
    assert await store.cancel([claim.promise]) == [Status.EXECUTING]
    assert await hand.pick() == []
    await hand.apply(claim, AdvanceExecution(status=Status.CANCELLED))
    assert await picked_keys(hand) == [promise_of("b")]


async def test_a_fenced_commit_does_not_give_up_the_successors_key(stores: Stores, hand: Hand, rival: Hand) -> None:
    """E1: a stale worker changes nothing, the key of its successor included."""
    await hand.insert(keyed("a"))
    (stale,) = await hand.pick()
    await stores.advance(LEASE_SECONDS - 1)
    await rival.beat()
    await stores.advance(2)
    await stores.store.reap(10, max_crashes=10)
    assert await picked_keys(rival) == [promise_of("a")]
    await hand.insert(keyed("b"))
    assert not (await hand.commit(stale, done())).applied
    assert await rival.pick() == []


# ---------------------------------------------------------------------- the head of a key may leave before it is picked


async def cancel_it(store: Store, promise: bytes) -> None:
    assert await store.cancel([promise]) == [Status.CANCELLED]


async def pause_it(store: Store, promise: bytes) -> None:
    assert await store.pause(promise, True)


@pytest.mark.parametrize("leave", [cancel_it, pause_it])
@pytest.mark.parametrize("looked", [True, False], ids=["after-a-look", "without-a-look"])
async def test_the_line_moves_up_when_its_head_leaves(
    hand: Hand, store: Store, leave: Callable[[Store, bytes], Awaitable[None]], looked: bool
) -> None:
    """The key is free and its next row chosen, but not picked (its queue is not served here): then it is gone."""
    await hand.insert(keyed("a"), keyed("b", queue="unserved"), keyed("c"), keyed("d"))
    (claim,) = await hand.pick()
    assert await hand.pick(queues=["default", "unserved"]) == [], "everybody is found to be waiting"
    await hand.apply(claim, done())
    if looked:
        await hand.pick(queues=["nothing here"])
    await leave(store, promise_of("b"))
    assert await drain(hand) == [promise_of("c"), promise_of("d")]


async def test_the_line_moves_when_its_head_is_in_a_paused_queue(hand: Hand, store: Store) -> None:
    await hand.insert(keyed("a"), keyed("b", queue="held"), row("free"))
    (claim, free) = await hand.pick()
    assert await hand.pick(queues=["held"]) == []
    await store.configure_queue(QueueSettings(name="held", paused=True))
    await hand.apply(claim, done())
    await hand.apply(free, done())
    assert await hand.pick(queues=["default", "held"]) == []
    await store.configure_queue(QueueSettings(name="held", paused=False))
    assert await picked_keys(hand, queues=("held",)) == [promise_of("b")]


async def test_a_row_paused_while_it_waits_goes_on_when_it_is_let_go(hand: Hand, store: Store) -> None:
    await hand.insert(keyed("a"), keyed("b"), keyed("c"))
    (claim,) = await hand.pick()
    assert await hand.pick() == []
    await store.pause(promise_of("b"), True)
    await hand.apply(claim, done())
    (after,) = await hand.pick()
    assert after.promise == promise_of("c")
    assert await store.pause(promise_of("b"), False)
    assert await hand.pick() == []
    await hand.apply(after, done())
    assert await picked_keys(hand) == [promise_of("b")]


async def test_a_signalled_row_takes_its_place_in_the_line(hand: Hand, store: Store) -> None:
    await hand.insert(keyed("a"))
    await hand.apply(await hand.take(), park("go"))
    holder = await hand.take(keyed("b"))
    await store.deliver([NewSignal(promise_of("a"), "go", "1")])
    assert await hand.pick() == []
    await hand.apply(holder, done())
    assert await picked_keys(hand) == [promise_of("a")]


# ---------------------------------------------------------------------- several processes


async def test_racing_pickers_never_hold_a_key_twice(stores: Stores, hand: Hand) -> None:
    """E9: the key-lock table excludes, whatever picks race; the audit at the end counts executing rows by key."""
    rival = await Hand(await stores.another(), "w2").start()
    await hand.insert(*(keyed(str(n), f"k{n % 3}") for n in range(45)))
    finished: list[tuple[bytes, str | None]] = []
    while len(finished) < 45:
        both = await asyncio.gather(hand.pick(4), rival.pick(4))
        claims = [claim for some in both for claim in some]
        held = [claim.partition_key for claim in claims]
        assert len(held) == len(set(held))
        assert claims, "somebody can always go on"
        await asyncio.gather(
            *(hand.apply(claim, done()) for claim in both[0]), *(rival.apply(claim, done()) for claim in both[1])
        )
        finished += [(claim.promise, claim.partition_key) for claim in claims]
    for start in range(3):
        order = [promise for promise, key in finished if key == f"k{start}"]
        assert order == [promise_of(str(n)) for n in range(start, 45, 3)]


async def test_a_key_of_full_length_and_any_letters_is_one_key(hand: Hand) -> None:
    """255 characters are allowed above; case, spaces and quotes tell keys apart."""
    long = "ü" * 255
    await hand.insert(keyed("a", long), keyed("b", long), keyed("c", "K"), keyed("d", "k"), keyed("e", "k "))
    assert len(await hand.pick()) == 4


async def test_waiting_rows_of_a_held_key_are_not_waiting_work(hand: Hand, store: Store) -> None:
    """E11: a lease is not given up for a row that could not be picked anyway."""
    await hand.insert(keyed("a"), keyed("b"))
    await hand.take()
    assert await hand.pick() == []
    assert await store.waiting_priority(["default"], [HANDLER]) is None
