"""Queues: limits over all workers, pause, and what waits in them (issue's engine section; seed section 6)."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.durations import MAX_SECONDS
from holdfast.models.options import RATE_LEAST, RATE_MOST, RATE_PERIOD_LEAST
from holdfast.store.base import Store
from holdfast.store.values import QueueChange, QueueRoom, QueueSettings
from holdfast.testing.hand import HANDLER, Hand, done, go, keep, park, promise_of, row
from holdfast.testing.stores import Stores


async def test_a_paused_queue_gives_nothing_until_it_goes_on(hand: Hand, store: Store) -> None:
    await store.configure_queue(QueueSettings(name="default", paused=True))
    await hand.insert(row("a"), row("b", queue="other"))
    assert [claim.promise for claim in await hand.pick(queues=["default", "other"])] == [promise_of("b")]
    await store.configure_queue(QueueSettings(name="default"))
    assert [claim.promise for claim in await hand.pick()] == [promise_of("a")]


async def test_a_concurrency_limit_holds_over_all_workers(hand: Hand, rival: Hand, store: Store) -> None:
    await store.configure_queue(QueueSettings(name="default", concurrency=3))
    await hand.insert(*(row(str(n)) for n in range(6)))
    first = await hand.pick(2)
    second = await rival.pick(5)
    assert (len(first), len(second)) == (2, 1)
    assert await hand.pick() == []
    await hand.apply(first[0], done())
    assert len(await rival.pick()) == 1


@pytest.mark.parametrize("advance", [done(), go(delay=60), park("x")], ids=["done", "next-later", "await"])
async def test_a_place_is_free_again_when_the_row_is_given_up(hand: Hand, store: Store, advance: object) -> None:
    await store.configure_queue(QueueSettings(name="default", concurrency=1))
    await hand.insert(row("a"), row("b"))
    claim = await hand.take()
    await hand.apply(claim, keep())
    assert await hand.pick() == [], "a kept lease keeps its place"
    await hand.apply(claim, advance)  # type: ignore[arg-type]
    assert len(await hand.pick()) == 1


async def test_racing_pickers_stay_within_the_limit(stores: Stores, hand: Hand) -> None:
    rival = await Hand(await stores.another(), "w2").start()
    await stores.store.configure_queue(QueueSettings(name="default", concurrency=5))
    await hand.insert(*(row(str(n)) for n in range(20)))
    for _ in range(3):
        both = await asyncio.gather(hand.pick(4), rival.pick(4))
        assert sum(map(len, both)) == 5
        for worker, claims in zip((hand, rival), both, strict=True):
            for claim in claims:
                await worker.apply(claim, done())


async def test_a_limit_of_one_queue_is_not_one_of_the_others(hand: Hand, store: Store) -> None:
    await store.configure_queue(QueueSettings(name="slow", concurrency=1))
    await hand.insert(*(row(f"s{n}", queue="slow", priority=-1) for n in range(3)), *(row(f"f{n}") for n in range(3)))
    queues = [claim.queue for claim in await hand.pick(queues=["slow", "default"])]
    assert sorted(queues) == ["default"] * 3 + ["slow"]


async def test_a_limit_taken_away_is_gone(hand: Hand, store: Store) -> None:
    await store.configure_queue(QueueSettings(name="default", concurrency=1, rate=1, rate_seconds=60))
    await hand.insert(*(row(str(n)) for n in range(5)))
    assert len(await hand.pick()) == 1
    await store.configure_queue(QueueSettings(name="default"))
    assert len(await hand.pick()) == 4


async def test_a_lowered_limit_lets_the_running_finish(hand: Hand, store: Store) -> None:
    await hand.insert(*(row(str(n)) for n in range(6)))
    claims = await hand.pick(3)
    await store.configure_queue(QueueSettings(name="default", concurrency=2))
    assert await hand.pick() == []
    await hand.apply(claims[0], done())
    assert await hand.pick() == []
    await hand.apply(claims[1], done())
    assert len(await hand.pick()) == 1


async def test_a_rate_is_a_bucket_that_fills_with_time(stores: Stores, hand: Hand, rival: Hand) -> None:
    """A burst of `rate`, then `rate` a period, over all workers."""
    await stores.store.configure_queue(QueueSettings(name="default", rate=4, rate_seconds=8))
    await hand.insert(*(row(str(n)) for n in range(30)))
    assert len(await hand.pick(3)) == 3
    assert len(await rival.pick(3)) == 1
    assert await hand.pick() == []
    await stores.advance(2)
    assert len(await hand.pick()) == 1
    await stores.advance(6)
    assert len(await hand.pick()) == 3


async def test_a_bucket_holds_no_more_than_one_period(stores: Stores, hand: Hand) -> None:
    await stores.store.configure_queue(QueueSettings(name="default", rate=3))
    await hand.insert(*(row(str(n)) for n in range(10)))
    await stores.advance(20)
    assert len(await hand.pick()) == 3


@pytest.mark.parametrize(
    ("rate", "period", "at_once"),
    [(RATE_LEAST, MAX_SECONDS, 1), (RATE_MOST, RATE_PERIOD_LEAST, 3), (RATE_LEAST, RATE_PERIOD_LEAST, 1)],
)
async def test_the_most_extreme_rates_can_be_reckoned_with(
    stores: Stores, hand: Hand, rate: float, period: float, at_once: int
) -> None:
    await stores.store.change_queue("default", QueueChange(rate=rate, rate_seconds=period, concurrency=2**31 - 1))
    await hand.insert(*(row(str(n)) for n in range(9)))
    assert len(await hand.pick(3)) == at_once
    picked = await stores.store.pick(hand.name, [QueueRoom("default", 3)], [HANDLER], 3)
    assert len(picked.claims) == (3 if at_once == 3 else 0)
    assert at_once == 3 or picked.next_due_seconds is not None


@pytest.mark.parametrize("rate", [1e-12, 1e-300])
async def test_a_rate_of_next_to_nothing_keeps_nobody_from_other_queues(
    stores: Stores, hand: Hand, rate: float
) -> None:
    await stores.store.configure_queue(QueueSettings(name="slow", rate=rate, rate_seconds=1e7))
    await hand.insert(row("a", queue="slow"), row("b", queue="slow"))
    assert len(await hand.pick(queues=["slow"])) == 1
    await hand.insert(row("c"))
    assert [claim.queue for claim in await hand.pick(queues=["slow", "default"])] == ["default"]


async def test_a_bucket_fills_again_after_the_clock_was_set_back(stores: Stores, hand: Hand) -> None:
    """As when it ran ahead for a moment in which a token was taken: the queue must not wait until then."""
    now = stores.clock.now_us()
    await stores.advance(86_400)
    await hand.beat()
    await stores.store.configure_queue(QueueSettings(name="default", rate=1, rate_seconds=10))
    await hand.insert(row("a"))
    assert len(await hand.pick()) == 1
    stores.clock._now_us = now
    await stores.advance(0)
    await hand.insert(row("b"))
    assert await hand.pick() == []
    await stores.advance(10)
    assert len(await hand.pick()) == 1


async def test_looking_at_an_empty_queue_uses_up_nothing(stores: Stores, hand: Hand) -> None:
    await stores.store.configure_queue(QueueSettings(name="default", rate=2, rate_seconds=60))
    for _ in range(5):
        assert await hand.pick() == []
    await hand.insert(*(row(str(n)) for n in range(5)))
    assert len(await hand.pick()) == 2


async def test_settings_stay_as_they_were_last_given(hand: Hand, store: Store) -> None:
    first = QueueSettings(name="q", paused=True, concurrency=3, rate=2.5, rate_seconds=10)
    await store.configure_queue(first)
    assert [stats.settings for stats in await store.queues()] == [first]
    second = QueueSettings(name="q", concurrency=4)
    await store.configure_queue(second)
    assert [stats.settings for stats in await store.queues()] == [second]


async def test_a_change_leaves_what_it_does_not_name(store: Store) -> None:
    assert await store.change_queue("q", QueueChange(concurrency=3)) == QueueSettings(name="q", concurrency=3)
    await store.change_queue("q", QueueChange(rate=2.5, rate_seconds=10))
    await store.change_queue("q", QueueChange(paused=True))
    whole = QueueSettings(name="q", paused=True, concurrency=3, rate=2.5, rate_seconds=10)
    assert await store.change_queue("q", QueueChange()) == whole
    lifted = await store.change_queue("q", QueueChange(concurrency=None, rate=None))
    assert lifted == QueueSettings(name="q", paused=True, rate_seconds=10)
    assert [stats.settings for stats in await store.queues()] == [lifted]


async def test_changes_at_the_same_time_are_all_kept(stores: Stores) -> None:
    """Two processes, each of which changes another setting of one queue, again and again."""
    other = await stores.another()
    for number in range(1, 6):
        await asyncio.gather(
            stores.store.change_queue("q", QueueChange(concurrency=number)),
            other.change_queue("q", QueueChange(rate=float(number))),
            stores.store.change_queue("q", QueueChange(paused=number % 2 == 1)),
            other.change_queue("q", QueueChange(rate_seconds=number + 1.0)),
        )
        expected = QueueSettings(
            name="q", paused=number % 2 == 1, concurrency=number, rate=float(number), rate_seconds=number + 1.0
        )
        assert [stats.settings for stats in await stores.store.queues()] == [expected]


async def test_a_change_refills_the_bucket_only_with_a_new_rate(stores: Stores, hand: Hand) -> None:
    await stores.store.change_queue("default", QueueChange(rate=2, rate_seconds=60))
    await hand.insert(*(row(str(n)) for n in range(9)))
    assert len(await hand.pick()) == 2
    await stores.store.change_queue("default", QueueChange(concurrency=100))
    await stores.store.change_queue("default", QueueChange(rate=2))
    assert await hand.pick() == []
    await stores.store.change_queue("default", QueueChange(rate=3))
    assert len(await hand.pick()) == 3


async def test_a_rate_set_again_does_not_refill_the_bucket(stores: Stores, hand: Hand) -> None:
    """Every worker may configure its queues when it starts."""
    settings = QueueSettings(name="default", rate=2, rate_seconds=60)
    await stores.store.configure_queue(settings)
    await hand.insert(*(row(str(n)) for n in range(5)))
    assert len(await hand.pick()) == 2
    await stores.store.configure_queue(settings)
    assert await hand.pick() == []


async def test_queues_are_listed_with_what_waits_in_them(stores: Stores, hand: Hand) -> None:
    oldest = stores.clock.now
    await hand.insert(row("a"), row("b", delay=60), row("c"), row("x", queue="one"), row("y", queue="ended"))
    await hand.insert(row("p", queue="parked"))
    await hand.apply(await hand.take(queues=["ended"]), done())
    await hand.apply(await hand.take(queues=["parked"]), park("go"))
    await hand.take(queues=["one"])
    await stores.advance(5)
    await stores.store.configure_queue(QueueSettings(name="empty", concurrency=1))
    stats = {one.settings.name: one for one in await stores.store.queues()}
    assert set(stats) == {"default", "one", "empty", "parked"}, "every queue with settings or live rows"
    counts = {name: (one.runnable, one.executing) for name, one in stats.items()}
    assert counts == {"default": (3, 0), "one": (0, 1), "empty": (0, 0), "parked": (0, 0)}
    assert stats["default"].oldest_eligible_at == oldest
    assert stats["one"].oldest_eligible_at is None
    assert stats["default"].settings == QueueSettings(name="default")
    assert not any(one.capped for one in stats.values())


async def test_some_queues_after_a_name_are_listed(hand: Hand, store: Store) -> None:
    await hand.insert(row("x", queue="b"), row("y", queue="d"))
    for name in ("a", "c", "e"):
        await store.configure_queue(QueueSettings(name=name, concurrency=1))
    for after, limit, expected in (("", 2, "ab"), ("b", 2, "cd"), ("d", 2, "e"), ("e", 2, ""), ("b", None, "cde")):
        assert [one.settings.name for one in await store.queues(after, limit)] == list(expected)


async def test_a_ledger_without_work_has_no_queues(store: Store) -> None:
    assert await store.queues() == []
