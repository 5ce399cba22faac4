"""Starts in the feed: each is told once, before its end, however the reader is cut off (DESIGN section 1)."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.errors import InvalidArgumentError
from holdfast.store.base import Store
from holdfast.store.effects import SpawnExecutions
from holdfast.store.values import Retention
from holdfast.store.watching import Feed, Position, Seen
from holdfast.testing.hand import Hand, child_rows, done, keep, promise_of, row, strand
from holdfast.testing.stores import Stores


async def begin(store: Store, position: str | None = None) -> str:
    """Where starts are read from now on; a transaction of somebody else's may hold it back for a moment."""
    while True:
        feed = await store.ends(position, 0, (), starts=True)
        if feed.is_settled:
            return feed.position
        position = feed.position


async def started(store: Store, position: str, count: int, limit: int = 10) -> tuple[list[bytes], str]:
    """So many starts, each page from the position of the last thing that was told."""
    found: list[bytes] = []
    while len(found) < count:
        feed = await store.ends(position, limit, (), starts=True)
        found += [start.view.promise for start in feed.started]
        position = feed.position
    return found, position


async def test_starts_are_told_from_now_on_and_once(hand: Hand, store: Store) -> None:
    await hand.insert(row("before"))
    position = await begin(store)
    assert (await store.ends(position, 10, starts=True)).started == []
    keys = [f"k{number}" for number in range(7)]
    await hand.insert(*(row(key) for key in keys[:3]))
    for key in keys[3:]:
        await hand.insert(row(key))
    wanted = [promise_of(key) for key in keys]
    for limit in (1, 2, 3, 10):
        assert (await started(store, position, 7, limit))[0] == wanted
    _, last = await started(store, position, 7)
    assert (await store.ends(last, 10, starts=True)).started == []
    await hand.insert(row(keys[0]))  # the same again starts nothing
    assert (await store.ends(last, 10, starts=True)).started == []


async def test_a_reader_goes_on_after_any_start_it_was_told(hand: Hand, store: Store) -> None:
    position = await begin(store)
    await hand.insert(*(row(f"k{number}") for number in range(5)))
    feed = await store.ends(position, 10, starts=True)
    while not feed.started:
        feed = await store.ends(feed.position, 10, starts=True)
    wanted = [start.view.promise for start in feed.started]
    assert len(wanted) == 5
    for number, start in enumerate(feed.started[:-1]):
        assert (await started(store, start.position, 4 - number))[0] == wanted[number + 1 :]
        assert start.at == start.view.inserted_at


async def test_a_start_is_told_before_its_end(stores: Stores, hand: Hand, store: Store) -> None:
    position = await begin(store)
    told: list[tuple[str, bytes]] = []

    def take(feed: Feed) -> str:
        told.extend(("started", start.view.promise) for start in feed.started)
        told.extend((item.status.value, item.view.promise) for item in feed.items)
        return feed.position

    for key in "abcd":
        await hand.apply(await hand.take(row(key)), strand() if key == "c" else done())
    await stores.advance(1)
    while len(told) < 8:
        position = take(await store.ends(position, 1, starts=True))
    for key in "abcd":
        end = "stranded" if key == "c" else "done"
        assert told.index(("started", promise_of(key))) < told.index((end, promise_of(key)))
    assert len(set(told)) == 8


async def test_an_end_waits_until_its_start_was_told(stores: Stores, hand: Hand, store: Store) -> None:
    position = await begin(store)
    for key in "abc":
        await hand.insert(row(key))
    _, position = await started(store, position, 1, 1)
    for claim in await hand.pick():
        await hand.apply(claim, done())
    await stores.advance(1)
    ends: list[bytes] = []
    while len(ends) < 3:
        feed = await store.ends(position, 1, starts=True)
        place = Position.parse(feed.position)
        assert place.started_row is not None
        assert place.ended_row <= place.started_row
        ends += [item.view.promise for item in feed.items]
        position = feed.position
    assert sorted(ends) == sorted(promise_of(key) for key in "abc")


async def test_children_are_told_and_what_flows_and_batches_are_made_of_is_not(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    position = await begin(store)
    children = child_rows(parent, 2)
    await hand.apply(parent, keep(), SpawnExecutions(children))
    await hand.insert(row("m", kind="message"), row("c", kind="chunk"), row("last"))
    found, position = await started(store, position, 3)
    assert found == [*(child.promise for child in children), promise_of("last")]
    assert (await store.ends(position, 10, starts=True)).started == []


async def test_a_place_from_before_there_were_starts_gets_one_among_them(
    stores: Stores, hand: Hand, store: Store
) -> None:
    old = (await store.ends(None, 10)).position
    assert Position.parse(old).seen is None
    await hand.apply(await hand.take(row("a")), done())
    await stores.advance(1)
    position = await begin(store, old)
    await hand.insert(row("b"))
    ended: list[bytes] = []
    begun: list[bytes] = []
    while not (ended and begun):
        feed = await store.ends(position, 10, starts=True)
        ended += [item.view.promise for item in feed.items]
        begun += [start.view.promise for start in feed.started]
        position = feed.position
    assert (ended, begun) == ([promise_of("a")], [promise_of("b")])


async def test_a_reader_that_leaves_starts_out_keeps_its_place_among_them(
    stores: Stores, hand: Hand, store: Store
) -> None:
    position = await begin(store)
    await hand.apply(await hand.take(row("a")), done())
    await stores.advance(1)
    ended: list[bytes] = []
    while not ended:
        feed = await store.ends(position, 10)
        assert feed.started == []
        ended += [item.view.promise for item in feed.items]
        position = feed.position
    assert (await started(store, position, 1))[0] == [promise_of("a")]


async def test_what_was_deleted_holds_nothing_up(stores: Stores, hand: Hand, store: Store) -> None:
    position = await begin(store)
    await hand.apply(await hand.take(row("a")), done())
    found, position = await started(store, position, 1)
    assert found == [promise_of("a")]
    await stores.advance(60)
    assert await store.purge(Retention(age_seconds=30), 10) == 1
    position = (await store.ends(position, 10, starts=True)).position
    await hand.insert(row("b"))
    assert (await started(store, position, 1))[0] == [promise_of("b")]


async def test_many_writers_at_once_lose_no_start(stores: Stores, store: Store) -> None:
    position = await begin(store)
    others = [await stores.another() for _ in range(4)]
    writing = [
        asyncio.ensure_future(other.insert([row(f"w{number}-{turn}-{one}") for one in range(1 + (turn + number) % 4)]))
        for number, other in enumerate(others)
        for turn in range(15)
    ]
    wanted = {
        promise_of(f"w{number}-{turn}-{one}")
        for number in range(4)
        for turn in range(15)
        for one in range(1 + (turn + number) % 4)
    }
    found: list[bytes] = []
    looks = 0
    while looks < 50:  # and more than enough once all is written
        feed = await store.ends(position, 7, starts=True)
        found += [start.view.promise for start in feed.started]
        position = feed.position
        looks += all(write.done() for write in writing)
        await asyncio.sleep(0)
    await asyncio.gather(*writing)
    assert len(found) == len(wanted)
    assert set(found) == wanted
    assert (await store.ends(position, 7, starts=True)).started == []


async def test_a_place_is_read_as_it_was_written(store: Store) -> None:
    for text in ("1-2-3-4", "1-2-3-4-5-6-7", "1-2-3-4-5-6-7-8"):
        assert str(Position.parse(text)) == text
    assert Position.parse("1-2-3-4-5-6-7-8").seen == Seen(5, 6, 7)
    for text in ("1-2-3-4-5", "1-2-3-4-5-6", "1-2-3-4-5-6-7-x", "1-2-3-4-5-6-7-8-9"):
        with pytest.raises(InvalidArgumentError, match="no place in the feed"):
            await store.ends(text, 10, starts=True)
