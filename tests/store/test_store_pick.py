"""Picking: due runnable rows by priority, then time, leased in one short transaction (seed section 6, ruling E8)."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.status import Status
from holdfast.store.base import Store, handler_of
from holdfast.store.values import EXECUTIONS, ExecutionClaim, NewSignal, QueueRoom
from holdfast.testing.hand import HANDLER, LEASE_SECONDS, NAME, Hand, done, go, park, promise_of, row
from holdfast.testing.stores import Stores


def promises(claims: list[ExecutionClaim]) -> list[bytes]:
    return [claim.promise for claim in claims]


def of_keys(*keys: str) -> list[bytes]:
    return [promise_of(key) for key in keys]


async def test_a_picked_row_executes_under_a_lease(hand: Hand) -> None:
    claim = await hand.take(row("a"))
    view = await hand.view("a")
    assert view.status is Status.EXECUTING
    assert view.locked_by == hand.name
    assert view.lease_epoch == claim.epoch == 1


async def test_a_claim_carries_the_row_as_it_stands(hand: Hand) -> None:
    given = row("a", version=3, step="pack", state='{"x": 1}', priority=-2, partition_key="p", queue="vip", digest="d1")
    await hand.insert(given)
    (claim,) = await hand.pick(queues=["vip"], handlers=[given.handler])
    assert (claim.table, claim.promise, claim.kind, claim.name) == (EXECUTIONS, given.promise, "machine", NAME)
    assert (claim.version, claim.handler, claim.queue, claim.priority) == (3, given.handler, "vip", -2)
    assert (claim.step, claim.state, claim.partition_key, claim.digest) == ("pack", '{"x": 1}', "p", "d1")
    assert (claim.attempt, claim.crashes, claim.revision, claim.barrier_round, claim.next_child) == (0, 0, 0, 0, 0)
    assert (claim.awaits, claim.inbox, claim.parent_row) == (None, (), None)
    flags = (claim.timed_out, claim.children_ready, claim.cancel_requested, claim.has_parent)
    assert flags == (False, False, False, False)


async def test_a_claim_carries_the_inbox_in_the_order_of_delivery(hand: Hand, store: Store) -> None:
    """Section 5: the inbox is always fully visible to a step."""
    await hand.insert(row("a"), row("b"))
    for n in range(12):
        await store.deliver([NewSignal(promise_of("a"), f"s{n}", str(n))])
    first, second = await hand.pick()
    assert [(signal.name, signal.payload) for signal in first.inbox] == [(f"s{n}", str(n)) for n in range(12)]
    assert [signal.id for signal in first.inbox] == sorted(signal.id for signal in first.inbox)
    assert second.inbox == ()


async def test_every_claim_has_an_epoch_of_its_own(hand: Hand) -> None:
    """E1: the fencing token goes up at each claim."""
    await hand.insert(row("a"))
    for epoch in range(1, 4):
        claim = await hand.take()
        assert claim.epoch == epoch
        await hand.apply(claim, go())


async def test_a_leased_row_is_nobody_elses(hand: Hand, rival: Hand) -> None:
    await hand.take(row("a"))
    assert await rival.pick() == []
    assert await hand.pick() == []


async def test_lower_priorities_come_first(hand: Hand) -> None:
    await hand.insert(row("late", priority=5), row("soon", priority=0), row("first", priority=-7))
    assert promises(await hand.pick()) == of_keys("first", "soon", "late")


async def test_within_a_priority_the_longest_eligible_comes_first(stores: Stores, hand: Hand) -> None:
    await hand.insert(row("c", delay=3), row("a", delay=1), row("b", delay=2), row("urgent", delay=4, priority=-1))
    await stores.advance(10)
    assert promises(await hand.pick()) == of_keys("urgent", "a", "b", "c")


async def test_rows_of_one_batch_come_in_the_order_given(hand: Hand) -> None:
    keys = [str(n) for n in (5, 1, 4, 2, 3, 9, 0)]
    await hand.insert(*(row(key) for key in keys))
    assert promises(await hand.pick()) == of_keys(*keys)


async def test_the_limit_takes_the_first_and_leaves_the_rest(hand: Hand) -> None:
    await hand.insert(*(row(str(n), priority=n) for n in range(5)))
    assert promises(await hand.pick(2)) == of_keys("0", "1")
    assert promises(await hand.pick(2)) == of_keys("2", "3")
    assert promises(await hand.pick(2)) == of_keys("4")


async def test_a_delayed_row_waits_for_its_time(stores: Stores, hand: Hand) -> None:
    await hand.insert(row("a", delay=10))
    assert await hand.pick() == []
    await stores.advance(9.999)
    assert await hand.pick() == []
    await stores.advance(0.001)
    assert promises(await hand.pick()) == of_keys("a")


async def test_a_future_row_holds_up_nothing_behind_it(hand: Hand) -> None:
    await hand.insert(row("future", priority=-9, delay=1), row("now", priority=9))
    assert promises(await hand.pick()) == of_keys("now")


async def test_the_picker_says_when_the_next_row_is_due(stores: Stores, hand: Hand) -> None:
    await hand.insert(row("later", delay=30), row("sooner", delay=10, priority=5), row("now"))
    picked = await hand.ask()
    assert promises(picked.claims) == of_keys("now")
    assert picked.next_due_seconds == pytest.approx(10)
    await stores.advance(4)
    assert (await hand.ask()).next_due_seconds == pytest.approx(6)


async def test_the_next_due_row_is_one_of_the_queues_asked_for(hand: Hand) -> None:
    await hand.insert(row("elsewhere", delay=5, queue="other"), row("here", delay=50))
    assert (await hand.ask()).next_due_seconds == pytest.approx(50)


async def test_the_next_due_row_may_be_of_any_priority(hand: Hand) -> None:
    """Also of one whose other rows are picked just now, and of one between two of these."""
    await hand.insert(row("a", priority=-1), row("b", priority=1), row("c", priority=3))
    for priority, delay in ((-1, 40), (0, 30), (1, 20), (3, 50)):
        await hand.insert(row(f"in {delay}", priority=priority, delay=delay))
    picked = await hand.ask()
    assert promises(picked.claims) == of_keys("a", "b", "c")
    assert picked.next_due_seconds == pytest.approx(20)


async def test_with_nothing_to_come_no_time_is_named(hand: Hand) -> None:
    assert (await hand.ask()).next_due_seconds is None


async def test_only_known_definitions_are_picked(hand: Hand) -> None:
    """DESIGN section 6: unknown definitions stay for the worker that knows them."""
    await hand.insert(row("a", version=2), row("b", name="Other"), row("c"))
    assert promises(await hand.pick()) == of_keys("c")
    assert promises(await hand.pick(handlers=[handler_of("machine", NAME, 2)])) == of_keys("a")
    assert (await hand.view(promise_of("b", "Other"))).status is Status.RUNNABLE


async def test_any_number_of_unknown_rows_does_not_starve_the_known(hand: Hand) -> None:
    await hand.insert(*(row(str(n), name="Unknown", priority=-1) for n in range(300)), row("known"))
    assert promises(await hand.pick(1)) == of_keys("known")


async def test_a_worker_without_code_picks_nothing(hand: Hand) -> None:
    await hand.insert(row("a"))
    assert await hand.pick(handlers=[]) == []


@pytest.mark.parametrize("handler", [-(2**63), -1, 0, 2**63 - 1])
async def test_any_64_bit_handler_fits(hand: Hand, handler: int) -> None:
    await hand.insert(row("a", handler=handler))
    (claim,) = await hand.pick(handlers=[1, handler])
    assert claim.handler == handler


@pytest.mark.parametrize("priority", [-32_768, 32_767])
async def test_priorities_reach_to_both_ends_of_their_range(hand: Hand, priority: int) -> None:
    await hand.insert(row("a", priority=priority))
    assert (await hand.take()).priority == priority


async def test_only_the_queues_asked_for_are_served(hand: Hand) -> None:
    """Section 6: a pool subscribes to its queues."""
    await hand.insert(row("a", queue="one"), row("b", queue="two"))
    assert promises(await hand.pick(queues=["two"])) == of_keys("b")
    assert await hand.pick(queues=["three"]) == []
    assert await hand.pick(queues=[]) == []


async def test_several_queues_are_one_line_by_priority_and_time(stores: Stores, hand: Hand) -> None:
    await hand.insert(row("b", queue="one", delay=2), row("a", queue="two", delay=1), row("c", queue="one", delay=3))
    await hand.insert(row("first", queue="two", delay=9, priority=-1), row("last", queue="one", priority=1))
    await stores.advance(10)
    assert promises(await hand.pick(4, queues=["one", "two"])) == of_keys("first", "a", "b", "c")
    assert promises(await hand.pick(4, queues=["one", "two"])) == of_keys("last")


async def test_a_queue_gives_no_more_than_its_room(hand: Hand, store: Store) -> None:
    await hand.insert(*(row(f"a{n}", queue="one") for n in range(5)), *(row(f"b{n}", queue="two") for n in range(5)))
    rooms = [QueueRoom("one", 2), QueueRoom("two", 10)]
    picked = await store.pick(hand.name, rooms, [HANDLER], 6)
    assert sorted(claim.queue for claim in picked.claims) == ["one"] * 2 + ["two"] * 4
    none = await store.pick(hand.name, [QueueRoom("one", 0)], [HANDLER], 6)
    assert none.claims == []


async def test_a_paused_row_is_passed_over(hand: Hand) -> None:
    await hand.insert(row("paused", paused=True, priority=-1), row("a"))
    assert promises(await hand.pick()) == of_keys("a")


async def test_two_workers_share_the_work_without_overlap(stores: Stores, hand: Hand) -> None:
    """Section 6: concurrent executors with no coordination."""
    rival = await Hand(await stores.another(), "w2").start()
    await hand.insert(*(row(str(n)) for n in range(60)))
    taken: list[bytes] = []
    for _ in range(10):
        both = await asyncio.gather(hand.pick(7), rival.pick(7))
        taken += [claim.promise for claims in both for claim in claims]
    assert len(taken) == len(set(taken)) == 60


async def test_an_unregistered_worker_is_told_that_it_is_lost(hand: Hand, store: Store) -> None:
    """A row is never leased by a worker whose own row is gone: nobody would take it back."""
    await hand.insert(row("a"))
    picked = await Hand(store, "stranger").ask()
    assert picked.worker_lost
    assert picked.claims == []
    assert (await hand.view("a")).status is Status.RUNNABLE


async def test_a_reaped_worker_picks_no_more(stores: Stores, hand: Hand) -> None:
    await hand.insert(row("a"))
    await stores.advance(LEASE_SECONDS + 1)
    assert (await stores.store.reap(10, max_crashes=10)).workers == (hand.name,)
    assert (await hand.ask()).worker_lost


async def test_the_first_pick_is_the_start(stores: Stores, hand: Hand) -> None:
    await hand.insert(row("a"))
    await stores.advance(5)
    started = stores.clock.now
    await hand.apply(await hand.take(), go())
    await stores.advance(5)
    await hand.take()
    assert (await hand.view("a")).started_at == started


async def test_parked_and_ended_rows_are_never_picked(hand: Hand) -> None:
    await hand.apply(await hand.take(row("parked")), park("go"))
    await hand.apply(await hand.take(row("ended")), done())
    assert await hand.pick() == []


async def test_the_most_urgent_waiting_priority_is_known(stores: Stores, hand: Hand) -> None:
    """E11: waiting higher priorities are honoured between steps."""
    store = stores.store
    assert await store.waiting_priority(["default"], [HANDLER]) is None
    await hand.insert(row("a", priority=3), row("b", priority=1), row("soon", priority=-5, delay=10))
    await hand.insert(row("c", priority=-1, queue="other"), row("d", priority=-2, name="Unknown"))
    await hand.insert(row("e", priority=-3, paused=True))
    assert await store.waiting_priority(["default"], [HANDLER]) == 1
    assert await store.waiting_priority(["default", "other"], [HANDLER]) == -1
    await stores.advance(10)
    assert await store.waiting_priority(["default"], [HANDLER]) == -5
    await hand.pick()
    assert await store.waiting_priority(["default"], [HANDLER]) is None
