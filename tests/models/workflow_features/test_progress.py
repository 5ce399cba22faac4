"""`handle.progress()`: what tasks in flight say with their heartbeats, read from outside."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import Context, Handle, RetryPolicy, TaskFailed, current
from holdfast.core.errors import DecodeError, NotFoundError
from holdfast.models.workflow import runner as workflow_runner
from holdfast.models.workflow import task_runner
from holdfast.models.workflow.progress import CallProgress
from tests.models.workflow.kit import Gate, Rig


@dataclass
class Rows:
    done: int


@pytest.fixture(autouse=True)
def durable_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of about once a second."""
    monkeypatch.setattr(workflow_runner, "BEAT_COMMIT_SECONDS", 0)
    monkeypatch.setattr(task_runner, "BEAT_COMMIT_SECONDS", 0)


async def told(handle: Handle[Any], *progress: Any) -> list[CallProgress]:
    """What is said of it, once that is this."""
    async with asyncio.timeout(20):
        while True:
            found = await handle.progress()
            if [one.progress for one in found] == list(progress):
                return found
            await asyncio.sleep(0)


async def test_calls_in_flight_are_told_apart_and_say_nothing_once_they_have_ended(rig: Rig) -> None:
    gates = {name: Gate() for name in ("first", "second", "third")}

    @rig.app.task(name="load", retry=RetryPolicy(max_attempts=1))
    async def load(name: str) -> str:
        current().heartbeat({"at": name})
        await gates[name].wait()
        if name == "second":
            raise ValueError("torn")
        return name

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        first, second = ctx.invoke(load, "first"), ctx.invoke(load, "second")
        await first
        with contextlib.suppress(TaskFailed):
            await second
        return await load("third")

    handle = await work.start()
    assert await handle.progress() == [], "nobody has begun"
    working = rig.working(await rig.worker())
    first, second = await told(handle, {"at": "first"}, {"at": "second"})
    assert (first.id, first.name, first.attempt) == (handle.id.child(0), "load", 1)
    assert second.id == handle.id.child(1)
    gates["first"].opened.set()
    await told(handle, {"at": "second"})
    gates["second"].opened.set()
    await told(handle, {"at": "third"})
    assert (await handle.describe()).beats == '{".2":{"at":"third"}}', "what has ended is not kept"
    gates["third"].opened.set()
    await working
    assert await handle.progress() == []
    assert (await handle.describe()).beats == "{}"


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "called"])
async def test_a_task_with_an_execution_of_its_own_says_it_there(rig: Rig, alone: bool) -> None:
    gate = Gate()

    @rig.app.task(name="load", queue="remote", retry=RetryPolicy(initial_delay=0, jitter=0))
    async def load() -> str:
        if current().attempt == 1:
            current().heartbeat(Rows(3))
            raise ConnectionError("away")
        await gate.wait()
        return "loaded"

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        return await load()

    handle = await (load if alone else work).start()
    own = handle if alone else rig.app.handle(handle.id.child(0))
    working = rig.working(await rig.worker())
    await gate.reached.wait()
    (found,) = await told(own, {"done": 3})
    assert (found.id, found.name, found.attempt) == (own.id, "load", 2), "what the attempt before said last"
    assert found.progress_as(Rows) == Rows(3)
    with pytest.raises(DecodeError):
        found.progress_as(int)
    assert alone or await handle.progress() == [], "the caller's row knows nothing of it"
    gate.opened.set()
    await working
    assert await rig.result(handle) == "loaded"
    assert await own.progress() == []


async def test_progress_is_that_of_the_newest_run(rig: Rig) -> None:
    gate = Gate()

    @rig.app.task
    async def load() -> None:
        current().heartbeat(7)
        await gate.wait()

    @rig.app.workflow
    async def work(ctx: Context, again: bool) -> None:
        if again:
            ctx.continue_as_new(False)
        await load()

    handle = await work.start(True)
    working = rig.working(await rig.worker())
    (found,) = await told(handle, 7)
    assert found.id == (await handle.newest()).child(0)
    gate.opened.set()
    await working


async def test_a_heartbeat_that_says_nothing_is_no_progress(rig: Rig) -> None:
    gate = Gate()

    @rig.app.task
    async def load() -> None:
        current().heartbeat()
        await gate.wait()

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        await load()

    handle = await work.start()
    working = rig.working(await rig.worker())
    await gate.reached.wait()
    assert (await handle.describe()).beats is None
    assert await handle.progress() == []
    gate.opened.set()
    await working


async def test_who_does_not_exist_makes_no_progress(rig: Rig) -> None:
    with pytest.raises(NotFoundError):
        await rig.app.handle("work", key="nobody").progress()
