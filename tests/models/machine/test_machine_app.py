"""The app around machines: working in one process, the blocking facade, and a ledger that is opened when it is used."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    App,
    Await,
    Child,
    Collision,
    Done,
    Machine,
    MachineContext,
    Next,
    Outcome,
    ScheduleChildren,
    Status,
    Unique,
    step,
)
from holdfast.core.errors import ClosedError, ConfigurationError, ExecutionFailedError, InvalidArgumentError
from holdfast.store.values import Delivery
from tests.engine.rig import Rig


def declare(app: App) -> type[Machine[int]]:
    class Job(Machine[int]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            if ctx.state < 0:
                return Await("go", self.second, ctx.state)
            return Next(self.second, ctx.state + 1)

        @step
        async def second(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.state)

    return app.machine(name="Job")(Job)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "orders.db")


async def test_what_is_not_declared_is_named(path: str) -> None:
    async def bare(number: int) -> int:
        return number

    app: Any = App("orders", store=path)
    with pytest.raises(InvalidArgumentError, match=r"bare at .* is not declared on an app: decorate it"):
        await app.run(bare, 1)
    with pytest.raises(ConfigurationError, match="int is no machine"):
        await app.run(int, 1)


async def test_run_starts_works_and_returns_the_result(rig: Rig) -> None:
    machine = declare(rig.app)
    assert await rig.app.run(machine, 1) == 2
    assert await rig.app.run(machine.options(queue="elsewhere"), 5) == 6
    assert await rig.stores.store.workers() == [], "the worker was of this run alone"


async def test_run_works_on_the_queues_of_everything_declared(rig: Rig) -> None:
    """Or a child on a queue of its own would never be worked on."""

    @rig.app.machine(queue="leaves")
    class Leaf(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.state)

    @rig.app.machine
    class Tree(Machine[int]):
        @step(initial=True)
        async def split(self, ctx: MachineContext[int]) -> Outcome:
            return ScheduleChildren(self.join, [Child(Leaf, 1), Child(Leaf, 2)], ctx.state)

        @step
        async def join(self, ctx: MachineContext[int]) -> Outcome:
            return Done(sum(child.result for child in ctx.children))

    assert await rig.app.run(Tree, 0) == 3


async def test_run_raises_what_a_handle_raises(rig: Rig) -> None:
    @rig.app.machine
    class Fails(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            raise ValueError("no")

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            raise error

    with pytest.raises(ExecutionFailedError, match="ValueError: no"):
        await rig.app.run(Fails, 0)


def test_nothing_is_opened_until_it_is_used(path: str) -> None:
    app = App("orders", store=path)
    machine = declare(app)
    app.handle("Job", key="k")
    assert not Path(path).exists()
    app.sync.start(machine, 1)
    assert Path(path).exists()
    app.sync.close()


async def test_two_first_uses_at_once_open_one_store(path: str) -> None:
    async with App("orders", store=path) as app:
        machine = declare(app)
        started = await asyncio.gather(*(machine.start(n) for n in range(10)))
        assert len({handle.id for handle in started}) == 10
        assert len({id(store) for store in await asyncio.gather(*(app.store() for _ in range(5)))}) == 1


def test_an_app_outlives_the_event_loop_that_used_it_first(path: str) -> None:
    """A program may call `asyncio.run` several times."""
    app = App("orders", store=path)
    machine = declare(app)

    async def start() -> str:
        handle = await machine.options(key="k").start(1)
        await app.close()
        return str(handle.id)

    assert asyncio.run(start()) == asyncio.run(start())


def test_an_app_that_is_never_closed_lets_go_of_what_closed_loops_opened(path: str) -> None:
    app = App("orders", store=path)
    machine = declare(app)

    async def wait_in_vain() -> int:
        with pytest.raises(TimeoutError):
            await (await machine.start(1)).result(timeout=0.001)
        return len(os.listdir("/dev/fd"))

    first, *others = [asyncio.run(wait_in_vain()) for _ in range(4)]
    assert max(others) < first + 4, "each has more than that"
    app.sync.close()


def test_the_ledger_is_named_by_the_environment(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE", path)
    app = App("orders")
    machine = declare(app)

    async def start() -> None:
        async with app:
            await machine.start(1)

    asyncio.run(start())
    assert Path(path).exists()


# ---------------------------------------------------------------------- the blocking facade


def test_a_store_is_a_path_too_and_nothing_else(tmp_path: Path) -> None:
    app = App("orders", store=tmp_path / "orders.db")
    app.sync.start(declare(app), 1)
    assert (tmp_path / "orders.db").exists()
    app.sync.close()
    with pytest.raises(InvalidArgumentError, match="a path, a URL or a store, not 5"):
        App("orders", store=5)  # type: ignore[arg-type]


def test_a_path_is_from_the_folder_in_which_it_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that changes its folder would else have one ledger for each loop it opens it from."""
    monkeypatch.chdir(tmp_path)
    app = App("orders", store="orders.db")
    monkeypatch.chdir("/")
    for _ in range(2):
        assert app.sync.run(app.store()).url == f"sqlite:///{tmp_path}/orders.db"
        app.sync.close()


def test_a_program_without_an_event_loop(path: str) -> None:
    app = App("orders", store=path)
    machine = declare(app)
    sync = app.sync
    try:
        waits = sync.start(machine.options(key="w"), -5)
        assert waits.status() is Status.RUNNABLE
        assert asyncio.run(app.run(machine, 1)) == 2, "worked on beside it, on another loop"
        assert waits.signal("go", 1, dedup_key="d") is Delivery.DELIVERED
        assert waits.signal("go", 1, dedup_key="d") is Delivery.DUPLICATE
        assert asyncio.run(app.run(machine, 2)) == 3
        assert waits.result(int, timeout=30) == -5
        assert sync.handle("Job", key="w").id == waits.id
        assert sync.handle(waits.label).describe().status is Status.DONE
    finally:
        sync.close()


def test_many_are_started_without_an_event_loop(path: str) -> None:
    app = App("orders", store=path)
    machine = declare(app)
    sync = app.sync
    try:
        first, collision = sync.start_many(machine.options(unique=Unique(key="one")), [1, 2])
        assert not isinstance(first, Collision)
        assert collision == Collision(first.id, "unique")
        first.pause()
        assert first.describe().paused
        first.resume()
        assert first.cancel() is Status.CANCELLED
        assert first.history() == []
    finally:
        sync.close()


async def test_the_blocking_facade_is_closed_with_its_app(path: str) -> None:
    async with App("orders", store=path) as app:
        machine = declare(app)
        handle = await asyncio.to_thread(app.sync.start, machine, 1)
        assert await app.handle(handle.id).status() is Status.RUNNABLE
    with pytest.raises(ConfigurationError, match=r"the app was closed; use `app\.sync` again"):
        handle.status()


def test_a_closed_facade_is_opened_anew(path: str) -> None:
    app = App("orders", store=path)
    machine = declare(app)
    started = app.sync.start(machine, 1)
    app.sync.close()
    assert app.sync.handle(started.id).status() is Status.RUNNABLE
    app.sync.close()


async def test_closing_the_facade_lets_no_thread_wait_for_ever(path: str) -> None:
    app = App("orders", store=path)
    sync = app.sync
    handle = await asyncio.to_thread(sync.start, declare(app), 1)
    begun = threading.Semaphore(0)

    async def then(work: Coroutine[Any, Any, Any]) -> None:
        begun.release()
        await work

    calls = (handle.handle.result(), asyncio.Event().wait())
    waits = [asyncio.create_task(asyncio.to_thread(sync.run, then(call))) for call in calls]
    for _ in calls:
        assert await asyncio.to_thread(begun.acquire, timeout=30)
    await asyncio.to_thread(sync.close)
    for error in await asyncio.gather(*waits, return_exceptions=True):
        assert isinstance(error, ClosedError)
