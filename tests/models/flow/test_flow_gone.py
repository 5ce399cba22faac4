"""An activity that the code has no more, for good: what is to be closed needs its name alone (rulings A6, A8, A11)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast import App, Flow, FlowJob, Handle, Status
from holdfast.core.errors import ExecutionFailedError
from holdfast.engine.settings import WorkerSettings
from holdfast.models.flow.audit import audit_flows
from holdfast.store.values import ExecutionFilter
from holdfast.testing.crash import Simulation, crash_everywhere
from holdfast.testing.stores import Stores
from tests.engine.rig import Rig

told: list[str] = []


def declare(app: App, *, is_old: bool) -> Flow:
    """Two entries, of which the newer code has one; behind the other a hook and a sub-flow that waits."""
    told.clear()
    inner, flow = app.flow("inner"), app.flow("shrunk")

    @inner.activity
    async def work(n: int) -> int:
        return n

    @inner.hook(after=work, signal="never")
    async def wait(n: int, by: int) -> int:
        return by

    @flow.activity
    async def kept(n: int) -> int:
        return n

    if is_old:

        @flow.activity
        async def gone(n: int) -> int:
            return n

        @flow.hook(after=gone, signal="go")
        async def hook(n: int, by: int) -> int:
            return by

        flow.subflow(inner, after=gone, name="below")

    @flow.on_complete
    async def complete(job: FlowJob) -> None:
        told.append(job.status.value)

    return flow


async def begun(stores: Stores, *, rounds: int) -> Handle[Any]:
    """A job that code of the old release began, and took so far."""
    old = Rig(stores)
    try:
        handle = await declare(old.app, is_old=True).options(key="one").start(1)
        for _ in range(rounds):
            await old.once()
    finally:
        await old.close()
    return handle


@asynccontextmanager
async def new_release(stores: Stores) -> AsyncIterator[tuple[Rig, Handle[Any]]]:
    rig = Rig(stores)
    declare(rig.app, is_old=False)
    try:
        yield rig, rig.app.handle("shrunk", key="one")
        assert await audit_flows(await rig.store()) == []
    finally:
        await rig.close()


async def test_its_dead_letter_can_be_dropped(stores: Stores) -> None:
    await begun(stores, rounds=1)
    async with new_release(stores) as (rig, handle):
        await rig.run()
        (letter,) = (await rig.app.dead_letters.list()).items
        await rig.app.dead_letters.drop(letter.id)
        await rig.run()
        with pytest.raises(ExecutionFailedError, match="has no activity 'gone'"):
            await handle.result()
        assert told == ["failed"]


@pytest.mark.parametrize("is_letter", [True, False], ids=["a dead letter", "not tried yet"])
async def test_its_job_can_be_cancelled(stores: Stores, is_letter: bool) -> None:
    await begun(stores, rounds=1)
    async with new_release(stores) as (rig, handle):
        if is_letter:
            await rig.run()
            assert await handle.status() is Status.STRANDED
        await handle.cancel()
        assert {one.verdict async for one in rig.app.check()} == {"replays"}
        await rig.run()
        assert await handle.status() is Status.CANCELLED
        assert told == ["cancelled"]


async def test_a_cancel_reaches_what_waits_for_a_signal_and_the_sub_flow_that_is_gone(stores: Stores) -> None:
    await begun(stores, rounds=9)
    async with new_release(stores) as (rig, handle):
        await handle.cancel()
        await rig.run()
        jobs = (await (await rig.store()).browse(ExecutionFilter(kind="flow"), 10, None)).items
        assert {job.name: job.status for job in jobs} == {"inner": Status.CANCELLED, "shrunk": Status.CANCELLED}


async def test_a_crash_at_any_commit_of_its_end_leaves_no_new_dead_letter(stores: Stores) -> None:
    """Of the last of them too, which owes the completion task."""
    app = App("new", store="unused.db")
    flow = app.flow("shrinking")

    @flow.activity
    async def first(n: int) -> int:
        return n

    @flow.hook(after=first, signal="go")
    async def gone(n: int, by: int) -> int:
        return by

    @flow.on_complete
    async def complete(job: FlowJob) -> None:
        told.append(job.status.value)

    async def scenario(sim: Simulation) -> None:
        told.clear()
        flow.graph.nodes["gone"] = gone
        handle = await sim.call(lambda: flow.options(key="one").start(1))
        await sim.work()
        del flow.graph.nodes["gone"]
        await sim.call(lambda: handle.signal("go", 1, dedup_key="once"))
        await sim.work()
        (letter,) = (await sim.call(lambda: app.dead_letters.list())).items
        assert await sim.stores.store.drop_letter(letter.id.to_bytes())
        await sim.work()
        assert await handle.status() is Status.FAILED
        assert set(told) == {"failed"}
        assert await audit_flows(sim.stores.store) == []

    report = await crash_everywhere(app, scenario, stores=stores, settings=WorkerSettings(), points=["flush.after"])
    assert report.died_at["flush.after"] == report.reached["flush.after"]
