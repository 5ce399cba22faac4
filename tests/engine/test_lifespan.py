"""Resources of a worker: opened in order, closed in reverse, found by type."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast import Done, Machine, MachineContext, Outcome, step
from holdfast.core.errors import ConfigurationError
from holdfast.engine.lifespan import Lifespan, Resources, open_resources
from tests.engine.rig import Rig


class Pool: ...


class BigPool(Pool): ...


def lifespan(name: str, events: list[str]) -> Lifespan:
    async def opened() -> AsyncIterator[str]:
        events.append(f"open {name}")
        yield name
        events.append(f"close {name}")

    return opened


async def test_resources_are_opened_in_order_and_closed_in_reverse() -> None:
    events: list[str] = []
    async with open_resources((lifespan("a", events), lifespan("b", events))):
        assert events == ["open a", "open b"]
    assert events == ["open a", "open b", "close b", "close a"]


async def test_a_plain_generator_serves_as_well() -> None:
    def opened() -> Iterator[Pool]:
        yield Pool()

    async with open_resources((opened,)) as resources:
        assert isinstance(resources.find(Pool), Pool)


async def test_what_was_opened_is_closed_when_a_later_one_fails() -> None:
    events: list[str] = []

    async def fails() -> AsyncIterator[str]:
        if events:
            raise OSError("no database")
        yield ""

    with pytest.raises(OSError, match="no database"):
        async with open_resources((lifespan("a", events), fails)):
            raise AssertionError("never reached")
    assert events == ["open a", "close a"]


async def test_what_is_no_generator_is_refused() -> None:
    async def wrong() -> int:
        return 1

    with pytest.raises(ConfigurationError, match=r"wrong' is no generator function; write `async def`"):
        async with open_resources((wrong,)):  # type: ignore[arg-type]
            raise AssertionError("never reached")


def test_a_resource_is_found_by_its_type_or_a_base_of_it() -> None:
    big = BigPool()
    resources = Resources((big, "text"))
    assert resources.find(BigPool) is big
    assert resources.find(Pool) is big
    assert resources.find(str) == "text"
    assert resources.find(int) is None


def test_the_exact_type_wins_over_a_subclass() -> None:
    pool = Pool()
    assert Resources((BigPool(), pool)).find(Pool) is pool


def test_two_that_fit_are_one_too_many() -> None:
    with pytest.raises(ConfigurationError, match="2 resources fit the type Pool; ask for a more exact type"):
        Resources((Pool(), Pool())).find(Pool)


def test_a_missing_one_says_who_asks_and_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"Order.pack asks for a Pool, .* add `@app.lifespan`"):
        Resources().need(Pool, by="Order.pack")


async def test_a_worker_that_cannot_open_its_resources_does_not_start(rig: Rig) -> None:
    """And what it had opened is closed; nothing of it is in the ledger."""
    events: list[str] = []

    @rig.app.machine
    class Job(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done()

    rig.app.lifespan(lifespan("a", events))

    @rig.app.lifespan
    async def fails() -> AsyncIterator[Pool]:
        if events:
            raise OSError("no database")
        yield Pool()

    with pytest.raises(OSError, match="no database"):
        await rig.make_worker()
    assert events == ["open a", "close a"]
    assert await rig.stores.store.workers() == []


async def test_resources_are_closed_after_the_last_step(rig: Rig) -> None:
    events: list[str] = []

    @rig.app.machine
    class Job(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            events.append("step")
            return Done()

    rig.app.lifespan(lifespan("a", events))
    handle = await Job.start(0)
    async with rig.app.worker():
        await handle.result()
    assert events == ["open a", "step", "close a"]
