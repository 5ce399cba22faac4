"""Runners hear of what happens to rows they hold: nobody can wake a row that is executing."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.engine.watcher import Watcher
from holdfast.store.values import NewSignal
from holdfast.testing.hand import Hand, row
from holdfast.testing.stores import Stores
from tests.engine.rig import Faulty


async def test_a_runner_is_told_of_signals_and_cancels_of_what_it_holds(stores: Stores) -> None:
    hand = await Hand(stores.store).start()
    await hand.insert(row("signalled"), row("cancelled"), row("quiet"), row("unwatched"))
    claims = await hand.pick()
    told: list[int] = []
    watched: dict[int, Callable[[], None]] = {
        claim.row: lambda number=number: told.append(number)  # type: ignore[misc]
        for number, claim in enumerate(claims[:3])
    }
    watcher = Watcher(stores.store, watched, lambda: hand.name, 5.0)
    assert await watcher.run_once() == 5.0
    assert told == []
    await stores.store.deliver([NewSignal(claim.promise, "go", "1") for claim in (claims[0], claims[3])])
    await stores.store.cancel([claims[1].promise])
    await watcher.run_once()
    assert sorted(told) == [0, 1]


async def test_with_nothing_to_watch_the_store_is_left_alone(stores: Stores) -> None:
    faulty = Faulty(stores.store)
    watcher = Watcher(faulty.as_store(), {}, lambda: "w1", 5.0)
    assert await watcher.run_once() == 5.0
    assert faulty.calls.total() == 0
