"""A schedule that is changed just when a worker moves it on: one start per tick, by what it says then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import App, Context
from holdfast.models.schedule import Scheduler
from tests.models.workflow.kit import Rig

MINUTE = 60.0


async def after_reading(monkeypatch: pytest.MonkeyPatch, app: App, race: Callable[[], Awaitable[Any]]) -> None:
    """Whoever reads schedules through this app next acts on what has changed since."""
    store = await app.store()
    read, raced = store.schedules, [race]

    async def reading(name: str | None = None) -> Any:
        found = await read(name)
        if raced:
            await raced.pop()()
        return found

    monkeypatch.setattr(store, "schedules", reading)


async def declared(rig: Rig) -> tuple[App, Scheduler]:
    """Two definitions, one on a schedule with a tick that is due; a client, and the loop of a worker elsewhere."""
    for name in ("old", "new"):

        @rig.app.workflow(name=name)
        async def body(ctx: Context) -> None: ...

    await rig.app.register()
    await rig.app.schedules.create("minutely", "* * * * *", "old", overlap="allow")
    await rig.stores.advance(MINUTE)
    return rig.app, Scheduler(rig.another_app()._connection)


async def ran(app: App) -> list[tuple[str, str]]:
    views = [await handle.describe() for handle in await app.search({"schedule": "minutely"})]
    return sorted(((view.idempotency_key or "").partition("T")[2], view.name) for view in views)


@pytest.mark.parametrize("cron", ["* * * * *", "*/1 * * * *"], ids=["the same times", "other times"])
async def test_a_change_does_not_bring_back_a_tick_that_was_started_meanwhile(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, cron: str
) -> None:
    app, scheduler = await declared(rig)

    async def tick() -> None:
        await rig.stores.advance(MINUTE)  # so that the next one after what the client saw is due as well
        await scheduler.run_once()

    await after_reading(monkeypatch, app, tick)
    await app.schedules.create("minutely", cron, "new", overlap="allow", catch_up="all")
    await scheduler.run_once()
    assert await ran(app) == [("00:02:00Z", "old")]
    await rig.stores.advance(MINUTE)
    await scheduler.run_once()
    assert await ran(app) == [("00:02:00Z", "old"), ("00:03:00Z", "new")]


async def test_a_worker_that_read_it_before_a_change_starts_nothing_by_what_it_was(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, scheduler = await declared(rig)
    worker = rig.another_app()
    await after_reading(monkeypatch, worker, lambda: app.schedules.create("minutely", "* * * * *", "new"))
    await Scheduler(worker._connection).run_once()
    assert await ran(app) == []
    await scheduler.run_once()
    assert await ran(app) == [("00:01:00Z", "new")]
