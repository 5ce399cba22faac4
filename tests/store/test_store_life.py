"""Opening, closing, and several store objects on one ledger (DESIGN section 6, time; issue's store section)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from msgspec import structs

from holdfast.core.crashpoints import CRASH_POINTS, set_hook
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.store.base import Store, handler_of
from holdfast.store.health import Check, Level
from holdfast.store.records import ExecutionRecord, Record
from holdfast.store.values import NewSignal, Retention
from holdfast.testing.hand import Hand, done, promise_of, row
from holdfast.testing.snapshot import differences, snapshot
from holdfast.testing.stores import Stores


async def test_the_stores_time_is_its_clocks(stores: Stores) -> None:
    assert await stores.store.now_us() == stores.clock.now_us()
    await stores.advance(1.5)
    assert await stores.store.now_us() == stores.clock.now_us()


async def test_times_ahead_of_the_clock_are_found(stores: Stores, hand: Hand) -> None:
    """It was set back since: what was due then is not due for as long."""

    async def times() -> Check:
        (found,) = [check for check in await stores.store.examine() if check.name == "times"]
        return found

    assert (await times()).level is Level.OK
    await hand.apply(await hand.take(row("a")), done())
    await stores.advance(30)
    assert (await times()).level is Level.OK
    records: list[Record] = []
    await stores.store.read_records(records.extend)
    (ended,) = [record for record in records if isinstance(record, ExecutionRecord)]
    later = stores.clock.now + timedelta(hours=1)
    ahead = structs.replace(ended, id=str(PromiseId.of("ahead", "b")), ended_at=later)
    await stores.store.write_records([[ahead]])
    found = await times()
    assert (found.level, found.found) == (Level.BAD, "up to 3600 s ahead of its clock")


async def test_warming_changes_nothing(stores: Stores, hand: Hand) -> None:
    held = await hand.take(row("held"))
    await stores.store.insert([row("waiting")])
    before = await snapshot(stores.store)
    await stores.store.warm()
    assert differences(before, await snapshot(stores.store)) == []
    assert (await hand.apply(held, done())).applied, "its lease is what it was"


async def test_many_may_open_one_ledger_at_once(stores: Stores) -> None:
    opened = [stores.unopened() for _ in range(5)]
    await asyncio.gather(*(store.open() for store in opened))
    await asyncio.gather(*(store.insert([row(str(n))]) for n, store in enumerate(opened)))
    views = await stores.store.get_many([promise_of(str(n)) for n in range(5)])
    assert all(view is not None for view in views)
    await asyncio.gather(*(store.close() for store in opened))


async def test_a_sibling_is_another_store_on_the_same_ledger(stores: Stores) -> None:
    await stores.store.insert([row("a")])
    sibling = stores.store.sibling()
    assert sibling is not stores.store
    assert sibling.url == stores.store.url
    await sibling.open()
    try:
        assert await sibling.get(promise_of("a")) is not None
    finally:
        await sibling.close()
    assert await stores.store.get(promise_of("a")) is not None, "closing it closes nothing else"


async def test_a_sibling_works_in_the_loop_of_another_thread(stores: Stores, hand: Hand) -> None:
    """The heartbeat has a thread and a connection of its own."""
    sibling = stores.store.sibling()

    def beat_elsewhere() -> bool:
        async def beat() -> bool:
            await sibling.open()
            try:
                return await sibling.beat(hand.name, 60)
            finally:
                await sibling.close()

        return asyncio.run(beat())

    assert await asyncio.to_thread(beat_elsewhere)


async def test_closing_leaves_leases_and_rows_as_they_are(stores: Stores) -> None:
    """A closed store is a process that went away: the reaper decides, not the closing."""
    store = stores.unopened()
    await store.open()
    worker = await Hand(store, "gone").start()
    claim = await worker.take(row("a"))
    await store.close()
    view = await stores.store.get(claim.promise)
    assert view is not None
    assert (view.status, view.locked_by) == (Status.EXECUTING, "gone")
    assert (await Hand(stores.store, "gone").commit(claim, done())).applied


async def test_what_a_row_needs_of_a_worker_is_one_64_bit_number(store: Store) -> None:
    numbers = {handler_of(kind, name, version) for kind in ("a", "b") for name in ("x", "y") for version in (1, 2)}
    assert len(numbers) == 8
    assert all(-(2**63) <= number < 2**63 for number in numbers)
    assert handler_of("a", "x", 1) == handler_of("a", "x", 1)


async def test_every_commit_passes_its_crash_points(stores: Stores, hand: Hand) -> None:
    """Before and after, in that order: what a test may kill is what the store does."""
    store = stores.store
    passed: list[str] = []
    set_hook(passed.append)
    try:
        await store.insert([row("a")])
        assert await hand.beat()
        assert await store.pause(promise_of("a"), False)
        first = await hand.take()
        await store.release(hand.name, [first])
        await store.deliver([NewSignal(promise_of("a"), "x", "1")])
        await hand.apply(await hand.take(), done())
        await store.reap(10, max_crashes=10)
        await store.fire_timers(10)
        await store.cancel([promise_of("a")])
        await store.purge(Retention(age_seconds=0), 10)
    finally:
        set_hook(None)
    assert set(passed) >= set(CRASH_POINTS)
    for before, after in zip(passed[::2], passed[1::2], strict=True):
        assert before.endswith(".before")
        assert after == before.replace(".before", ".after")
