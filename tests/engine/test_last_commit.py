"""The commit that ends a run: its runner has returned, and the worker alone sees to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from holdfast import Context, Handle, Status
from holdfast.core.errors import StoreUnavailableError
from holdfast.engine.worker import Worker
from tests.engine.rig import Faulty, Rig, handles


class Held(NamedTuple):
    """A rig whose flushes wait until they are let go."""

    rig: Rig
    faulty: Faulty
    flushing: asyncio.Event
    let_go: asyncio.Event


@pytest.fixture
async def held(rig: Rig) -> AsyncIterator[Held]:
    faulty = Faulty(rig.stores.unopened())
    other = Rig(rig.stores, store=faulty.as_store())
    faulty.inline = False
    flushing, let_go = asyncio.Event(), asyncio.Event()

    async def wait(*_: Any, **__: Any) -> None:
        flushing.set()
        await let_go.wait()

    faulty.on_call["flush"] = wait
    yield Held(other, faulty, flushing, let_go)
    let_go.set()
    await other.close()


async def started(rig: Rig, count: int) -> list[Handle[Any]]:
    @rig.app.workflow
    async def double(ctx: Context, number: int) -> int:
        return number * 2

    return handles(await double.start_many(range(count)))


async def test_a_run_that_ended_keeps_its_place_until_that_is_durable(held: Held) -> None:
    rig, _, flushing, let_go = held
    handle, *_ = await started(rig, 1)
    worker = await rig.worker()
    working = asyncio.create_task(worker.run_once())
    await flushing.wait()
    assert (worker.active, await handle.status()) == (1, Status.EXECUTING)
    let_go.set()
    assert await working == 1
    assert (worker.active, await handle.result()) == (0, 0)


async def leave_while_it_flushes(held: Held, worker: Worker) -> None:
    """The worker is told to stop during the first flush of what it picks, which is let go only then."""
    working = asyncio.create_task(worker.run_once())
    await held.flushing.wait()
    leaving = asyncio.create_task(held.rig.stop(worker))
    await asyncio.sleep(0)
    held.let_go.set()
    await leaving
    await working


async def test_a_worker_that_leaves_waits_for_it(held: Held) -> None:
    rig = held.rig
    handle, *_ = await started(rig, 1)
    await leave_while_it_flushes(held, await rig.worker())
    assert await handle.status() is Status.DONE


async def test_a_worker_that_leaves_writes_what_waits_for_a_commit_under_way(held: Held) -> None:
    rig = held.rig
    runs = await started(rig, 5)
    worker = await rig.make_worker(concurrency=4, flush_most=1)
    await leave_while_it_flushes(held, worker)
    ended = [handle for handle in runs if await handle.status() is Status.DONE]
    assert len(ended) == 2, "a pick takes half of the room"
    assert worker.active == 0


async def test_a_worker_that_leaves_at_once_waits_neither_for_a_store_that_is_away_nor_for_last_commits(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.service.Backoff.take", lambda self: 0.0)
    rig, faulty, *_ = held
    (handle,) = await started(rig, 1)
    worker = await rig.worker()
    asked = asyncio.Event()

    def refuse(name: str, _: tuple[Any, ...]) -> None:
        if name in ("flush", "reclaim"):
            if name == "reclaim":
                asked.set()
            raise StoreUnavailableError("away")

    faulty.check = refuse
    working = asyncio.create_task(worker.run_once())
    await asked.wait()
    await worker.stop(0)
    await working
    faulty.check = None
    assert (worker.active, await handle.status()) == (0, Status.RUNNABLE)


async def test_one_that_the_store_refuses_strands_its_run_alone(held: Held) -> None:
    rig, faulty, _, let_go = held
    runs = await started(rig, 3)

    def refuse(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "flush" and any(commit.effects[0].result == "2" for commit in arguments[1]):
            raise ValueError("cannot be written")

    faulty.check = refuse
    let_go.set()
    await rig.run()
    assert [await handle.status() for handle in runs] == [Status.DONE, Status.STRANDED, Status.DONE]


@pytest.mark.parametrize("applied", [True, False])
async def test_one_whose_reply_is_lost_ends_its_run_once(
    held: Held, applied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.service.Backoff.take", lambda self: 0.0)
    rig, faulty, _, let_go = held
    runs = await started(rig, 3)
    faulty.fail("flush", applied=applied)
    let_go.set()
    worker = await rig.worker()
    await worker.run_until_idle()
    views = [await handle.describe() for handle in runs]
    assert [(view.status, view.result, view.lease_epoch) for view in views] == [
        (Status.DONE, str(2 * number), 1 if applied else 2) for number in range(3)
    ]
    assert (worker.active, faulty.pending()) == (0, 0)
