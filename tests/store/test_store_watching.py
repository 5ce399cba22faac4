"""Watching a ledger: bounded counts, what ended lately, and a feed of ends that loses none (DESIGN section 1)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from holdfast.core.clock import to_us
from holdfast.core.errors import InvalidArgumentError
from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.effects import AppendJournal, RecordTransition
from holdfast.store.watching import FEED_STATUSES, Position
from holdfast.testing.hand import Hand, done, fail, keep, park, promise_of, row, strand
from holdfast.testing.stores import Stores


async def end(hand: Hand, key: str, *, failed: bool = False) -> bytes:
    await hand.apply(await hand.take(row(key)), fail() if failed else done())
    return promise_of(key)


async def keys(
    store: Store, position: str, limit: int = 10, *, least: int = 0, statuses: Sequence[Status] = FEED_STATUSES
) -> tuple[list[bytes], str]:
    """What the feed says, once it says enough: a commit of somebody else's may hold it back for a moment."""
    while True:
        feed = await store.ends(position, limit, statuses)
        if len(feed.items) >= least:
            return [item.view.promise for item in feed.items], feed.position


async def test_every_status_is_counted_up_to_a_bound(hand: Hand, store: Store) -> None:
    for key in "abc":
        await end(hand, key)
    await end(hand, "d", failed=True)
    await hand.apply(await hand.take(row("e")), park("x"))
    await hand.insert(row("f", queue="other"))
    await hand.insert(row("g", queue="other", paused=True))
    found = {tally.status: (tally.count, tally.capped) for tally in await store.tally()}
    wanted = {Status.DONE: 3, Status.FAILED: 1, Status.AWAITING_SIGNAL: 1, Status.RUNNABLE: 2}
    assert found == {status: (wanted.get(status, 0), False) for status in Status}
    bounded = {tally.status: (tally.count, tally.capped) for tally in await store.tally(1)}
    assert bounded[Status.RUNNABLE] == (1, True)
    assert bounded[Status.FAILED] == (1, False)
    assert bounded[Status.DONE][1]


async def test_failures_are_paged_from_the_latest_end(stores: Stores, hand: Hand, store: Store) -> None:
    for key in ("a", "b"):
        await end(hand, key, failed=True)  # the same moment on a clock that stands
    await stores.advance(60)
    await end(hand, "well")
    await end(hand, "c", failed=True)
    seen: list[bytes] = []
    cursor: str | None = None
    for _ in range(3):
        page = await store.failures(1, cursor)
        seen += [view.promise for view in page.items]
        cursor = page.cursor
    assert seen == [promise_of("c"), promise_of("b"), promise_of("a")]
    assert cursor is None
    assert (await store.failures(10)).cursor is None
    with pytest.raises(InvalidArgumentError, match="no cursor"):
        await store.failures(1, "x")


async def test_the_pace_counts_ends_by_time(stores: Stores, hand: Hand, store: Store) -> None:
    await end(hand, "old")
    await stores.advance(3_600)
    await end(hand, "a")
    await end(hand, "b", failed=True)
    pace = await store.pace(60, 30)
    assert [(bucket.done, bucket.failed, bucket.cancelled) for bucket in pace.buckets] == [(1, 1, 0)]
    assert (pace.until - pace.since).total_seconds() == 1_800
    assert pace.since < pace.buckets[0].at <= pace.until
    bounded = await store.pace(60, 90, 2)
    assert bounded.since > pace.since


async def test_the_feed_begins_now_and_goes_on_from_where_it_was_read(stores: Stores, hand: Hand, store: Store) -> None:
    await end(hand, "before")
    await stores.advance(1)
    start = (await store.ends(None, 10)).position
    assert await keys(store, start) == ([], start)
    first, second, third = [await end(hand, key, failed=key == "b") for key in "abc"]
    found, position = await keys(store, start, 2, least=2)
    assert found == [first, second]
    assert (await keys(store, position, least=1))[0] == [third]
    one, position = await keys(store, start, 1, least=1)
    assert one == [first]
    assert (await keys(store, position, least=2))[0] == [second, third]
    assert (await keys(store, start, least=1, statuses=[Status.FAILED]))[0] == [second]


async def test_strandings_are_in_the_feed_and_leave_it_when_resumed(stores: Stores, hand: Hand, store: Store) -> None:
    start = (await store.ends(None, 10)).position
    await stores.advance(1)
    claim = await hand.take(row("s"))
    await hand.apply(claim, strand())
    ended = await end(hand, "a")
    found, position = await keys(store, start, least=2)
    assert sorted(found) == sorted([promise_of("s"), ended])
    assert (await keys(store, position))[0] == []
    assert (await keys(store, start, least=1, statuses=[Status.STRANDED, Status.FAILED]))[0] == [promise_of("s")]
    await store.resume(promise_of("s"))
    assert (await keys(store, start, least=1))[0] == [ended]


async def test_a_place_in_the_feed_that_is_none_is_refused(store: Store) -> None:
    for text in ("", "1-2-3", "a-b-c-d", "1-2-3--4", "1-2-3-99999999999999999999"):
        with pytest.raises(InvalidArgumentError, match="no place in the feed"):
            await store.ends(text, 10)
    assert str(Position.parse("1-2-3-4")) == "1-2-3-4"


@pytest.mark.parametrize("text", ["{}-0-0-0", "0-0-{}-0", "1-1-1-1-1-{}-1", "1-1-1-1-1-{}-1-1"])
async def test_a_place_at_a_time_that_never_comes_is_refused(store: Store, text: str) -> None:
    """A client sends it back, and may send anything."""
    with pytest.raises(InvalidArgumentError, match="no place in the feed"):
        await store.ends(text.format("9" * 18), 10, starts=True)
    last = datetime.max.replace(tzinfo=UTC)
    assert (await store.ends(text.format(to_us(last)), 10, starts=True)).items == []
    with pytest.raises(InvalidArgumentError, match="no cursor"):
        await store.failures(10, f"{'9' * 18}-1")


async def test_one_reads_as_a_name_at_a_time_and_another_goes_on_where_it_was(stores: Stores, store: Store) -> None:
    assert await store.take_place("hook", "w1", 30, "1-1-1-1") == "1-1-1-1"
    assert await store.take_place("hook", "w2", 30, "9-9-9-9") is None
    assert await store.move_place("hook", "w1", 30, "2-2-2-2")
    await stores.advance(31)
    assert await store.take_place("hook", "w2", 30, "9-9-9-9") == "2-2-2-2"
    assert not await store.move_place("hook", "w1", 30, "3-3-3-3")
    await store.leave_place("hook", "w1")
    assert await store.take_place("hook", "w1", 30, "9-9-9-9") is None
    await store.leave_place("hook", "w2")
    assert await store.take_place("hook", "w1", 30, "9-9-9-9") == "2-2-2-2"


async def test_a_journal_is_read_from_where_one_was(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("j"))
    for first, count in ((0, 2), (2, 3), (5, 1)):
        await hand.apply(claim, keep(), AppendJournal(first, count, f'{{"first":{first}}}'))
    assert len(await store.journal_since(claim.promise, 0)) == 3
    assert await store.journal_since(claim.promise, 3) == ['{"first":2}', '{"first":5}']
    assert await store.journal_since(claim.promise, 5) == ['{"first":5}']
    assert await store.journal_since(promise_of("nobody"), 0) == []


async def test_a_history_is_read_from_where_one_was(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("h"))
    for step in ("one", "two", "three"):
        await hand.apply(claim, keep(step), RecordTransition(step, "next", None, 0))
    lines = await store.history(claim.promise)
    assert [line.step for line in lines] == ["one", "two", "three"]
    assert await store.history_since(claim.promise, lines[0].revision) == lines[1:]
    assert await store.history_since(claim.promise, lines[-1].revision) == []
