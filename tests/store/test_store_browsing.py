"""Pages of executions: whatever is asked for, and however little is looked at for a page, nothing is left out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import chain, product

import pytest

from holdfast.core.status import Status
from holdfast.store.base import Store, handler_of
from holdfast.store.browsing import INTERNAL_KINDS, Merge
from holdfast.store.values import ExecutionFilter, ExecutionView, Retention
from holdfast.testing.hand import Hand, done, promise_of, row
from holdfast.testing.stores import Stores

KINDS = ("workflow", "task", "machine", "message", "chunk")
NAMES = ("a", "b", "c")
QUEUES = ("default", "slow")


def definitions(count: int) -> list[tuple[str, str]]:
    """Many of one, few of the others, the few in between."""
    return [("task", "a") if n % 4 else (KINDS[n // 4 % 5], NAMES[n // 4 % 3]) for n in range(count)]


async def fill(hand: Hand, count: int) -> None:
    """Some are done."""
    for n, (kind, name) in enumerate(definitions(count)):
        await hand.insert(row(str(n), kind=kind, name=name, queue=QUEUES[n % 3 == 0]))
    handlers = [handler_of(kind, name, 1) for kind, name in product(KINDS, NAMES)]
    picked = await hand.ask(20, queues=QUEUES, handlers=handlers)
    for claim in picked.claims:
        await hand.apply(claim, done())


async def pages(store: Store, where: ExecutionFilter, limit: int, look_at: int | None) -> list[list[ExecutionView]]:
    found = []
    cursor: str | None = None
    while True:
        page = await store.browse(where, limit, cursor, look_at=look_at)
        assert len(page.items) <= limit
        found.append(page.items)
        cursor = page.cursor
        if cursor is None:
            return found


def fits(view: ExecutionView, where: ExecutionFilter) -> bool:
    is_hidden = where.kind is None and view.kind in INTERNAL_KINDS
    return (
        not is_hidden
        and where.kind in (None, view.kind)
        and where.name in (None, view.name)
        and where.queue in (None, view.queue)
        and (not where.statuses or view.status in where.statuses)
    )


@pytest.mark.parametrize("few", [0, 20_000])
@pytest.mark.parametrize("limit", [3, 100])
async def test_pages_of_any_filter_hold_everything_once(
    hand: Hand, store: Store, limit: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.postgres.reading.FEW", few)  # what is up for picking is found in two ways
    await fill(hand, 60)
    assert await store.pause(promise_of("50", definitions(60)[50][1]), True)
    everything = [view for kind in KINDS for view in chain(*await pages(store, ExecutionFilter(kind=kind), 99, None))]
    newest_first = [promise_of(str(n), name) for n, (_, name) in reversed(list(enumerate(definitions(60))))]
    assert sorted(view.promise for view in everything) == sorted(newest_first)
    some: tuple[tuple[Status, ...], ...] = ((), (Status.DONE,), (Status.RUNNABLE, Status.EXECUTING), (Status.FAILED,))
    for kind, name, queue, statuses in product((None, "task", "chunk", "flow"), (None, "a", "c"), (None, "slow"), some):
        where = ExecutionFilter(kind=kind, name=name, queue=queue, statuses=statuses)
        wanted = {view.promise for view in everything if fits(view, where)}
        for look_at in (None, 5):
            found = [view.promise for view in chain(*await pages(store, where, limit, look_at))]
            assert found == [promise for promise in newest_first if promise in wanted], (where, look_at)


async def test_what_was_started_in_bulk_is_found_by_name_in_its_place(hand: Hand, store: Store) -> None:
    """On PostgreSQL it has no entry in the index of names."""
    made: list[tuple[str, str]] = []
    for number, count in enumerate((1, 300, 2, 64, 63, 1, 700, 1)):
        name = "ab"[number % 3 == 1]
        keys = [f"{number}-{n}" for n in range(count)]
        assert {one.created for one in await hand.insert(*(row(key, name=name) for key in keys))} == {True}
        made += [(key, name) for key in keys]
    for claim in (await hand.ask(150, handlers=[handler_of("machine", name, 1) for name in "ab"])).claims:
        await hand.apply(claim, done())
    everything = [view.promise for view in chain(*await pages(store, ExecutionFilter(), 500, None))]
    assert everything == [promise_of(key, name) for key, name in reversed(made)]
    assert [await store.purge(Retention(age_seconds=0), limit) for limit in (70, 7)] == [70, 7]
    everything = [view.promise for view in chain(*await pages(store, ExecutionFilter(), 500, None))]
    assert len(everything) == len(made) - 77
    by_id = dict(zip(everything, await store.get_many(everything), strict=True))
    for name, statuses in product(("a", "b", "none"), ((), (Status.DONE,), (Status.RUNNABLE, Status.DONE))):
        where = ExecutionFilter(name=name, statuses=statuses)
        wanted = [promise for promise in everything if (view := by_id[promise]) is not None and fits(view, where)]
        for limit, look_at in ((7, None), (300, None), (7, 40), (1, 5)):
            assert [view.promise for view in chain(*await pages(store, where, limit, look_at))] == wanted


async def test_a_page_is_short_rather_than_slow(hand: Hand, store: Store) -> None:
    """What no index finds is looked for among so many rows; the cursor leads on, and the next page finds it."""
    await hand.insert(row("old", name="a", queue="rare"))
    await hand.insert(*(row(str(n), name="a") for n in range(20)))
    where = ExecutionFilter(queue="rare")
    first = await store.browse(where, 10, look_at=15)
    assert (first.items, first.cursor is None) == ([], False)
    second = await store.browse(where, 10, first.cursor, look_at=15)
    assert ([view.queue for view in second.items], second.cursor) == (["rare"], None)


async def test_a_rare_definition_is_found_at_once_however_old(hand: Hand, store: Store) -> None:
    await hand.insert(row("old", kind="flow", name="rare"))
    await hand.insert(*(row(str(n)) for n in range(20)))
    await hand.insert(*(row(f"c{n}", kind="chunk") for n in range(20)))
    for where in (ExecutionFilter(kind="flow"), ExecutionFilter(name="rare")):
        assert [view.name for view in (await store.browse(where, 10, look_at=3)).items] == ["rare"]
    assert len((await store.browse(ExecutionFilter(), 30, look_at=3)).items) == 21  # past all the chunks


async def test_a_list_can_begin_at_a_time(hand: Hand, store: Store, stores: Stores) -> None:
    times: list[datetime] = []
    for number in range(40):
        await stores.advance(60)
        times.append(stores.clock.now)
        # Gaps among the numbers, as retention leaves them; and some of one moment.
        await hand.insert(*(row(f"{number}-{twin}") for twin in range(1 + number % 3)))
        if number % 4 == 1:
            await store.cancel([promise_of(f"{number}-0")])
            await store.purge(Retention(age_seconds=0), 1)
    everything = (await store.browse(ExecutionFilter(), 100)).items
    second = timedelta(seconds=1)
    for at in (times[0] - second, *times, *(time + second for time in times)):
        cursor = await store.cursor_before(at)
        found = (await store.browse(ExecutionFilter(), 100, cursor)).items
        assert found == [view for view in everything if view.inserted_at < at]


async def test_a_time_is_found_in_an_empty_ledger(store: Store) -> None:
    assert (await store.browse(ExecutionFilter(), 10, await store.cursor_before(datetime.now(UTC)))).items == []


def test_a_page_ends_at_the_highest_floor() -> None:
    merge: Merge[str] = Merge(3)
    merge.add([(9, "i"), (5, "e")], 4)
    assert not merge.is_below(8)
    merge.add([(8, "h")], 6)
    assert merge.is_below(6)
    assert merge.page() == (["i", "h"], "7")  # e comes with the rows that are below 7
