"""Runs and chunks that were ended as they stood: who feeds, reads or waits for them does not do so for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import Status
from holdfast.core.errors import ExecutionCancelledError, NotFoundError
from holdfast.models.batch.items import BatchItem
from holdfast.models.batch.run import BatchRun
from holdfast.store.values import Retention
from tests.engine.rig import LEASE_PASSED, Rig
from tests.models.batch.kit import AT_ONCE, outcomes, until


async def end_by_force(rig: Rig, promise: bytes) -> None:
    assert await (await rig.store()).cancel([promise], force=True) == [Status.CANCELLED]


async def test_a_feed_that_waits_for_room_ends_with_its_run(rig: Rig) -> None:
    @rig.app.batch(chunk=5, window=10)
    async def work(number: int) -> None: ...

    run = await work.start(range(1000))
    await end_by_force(rig, run.id.to_bytes())
    await run.fed()
    assert (await run.status()).taken < 1000


async def test_what_is_fed_to_a_run_that_has_ended_is_offered_once(rig: Rig) -> None:
    @rig.app.batch
    async def work(number: int) -> None: ...

    has_ended = asyncio.Event()

    async def source() -> AsyncIterator[int]:
        yield 1
        await has_ended.wait()
        yield 2

    run = await work.start(source())

    async def has_taken_one() -> bool:
        return (await run.status()).taken == 1

    await until(has_taken_one)
    await end_by_force(rig, run.id.to_bytes())
    has_ended.set()
    await run.fed()
    assert await has_taken_one()


async def test_a_reader_hears_that_the_run_was_deleted_under_it(rig: Rig) -> None:
    @rig.app.batch(chunk=2)
    async def work(number: int) -> None: ...

    run = await work.start(range(100))
    await rig.run()
    await rig.advance(100)
    items = run.committed()
    seen = [(await anext(items)).seq]
    await (await rig.store()).purge(Retention(age_seconds=10), 1000)
    with pytest.raises(NotFoundError, match="retention"):
        seen.extend([item.seq async for item in items])
    assert seen == [0]


async def test_the_items_of_a_chunk_that_was_ended_by_force_are_cancelled_by_its_run(rig: Rig) -> None:
    """D7: they would hold up the lane for ever, for no worker comes to them again."""

    @rig.app.batch(chunk=2)
    async def work(number: int) -> None: ...

    run = await work.start(range(6))
    await rig.once()
    await end_by_force(rig, run.id.child(2).to_bytes())
    await rig.run()
    assert await outcomes(run) == ["success", "success", "cancel", "cancel", "success", "success"]
    assert (await run.result()).cancelled == 2


async def test_they_are_not_forgotten_while_the_sink_fails(rig: Rig) -> None:
    landed: list[str] = []
    calls: list[int] = []

    async def sink(items: list[BatchItem[int]]) -> None:
        calls.append(items[0].seq)
        if len(calls) == 1:
            raise OSError("not now")
        landed.extend(item.outcome for item in items)

    @rig.app.batch(chunk=2, sink=sink)
    async def work(number: int) -> int:
        return number

    run = await work.start(range(6))
    await rig.once()
    await end_by_force(rig, run.id.child(2).to_bytes())
    await rig.run()
    assert (await run.status()).committed == 0
    await rig.advance(60)
    await rig.run()
    assert landed == ["success", "success", "cancel", "cancel", "success", "success"]
    assert calls[0] == calls[1]


async def strand_chunks(rig: Rig, run: BatchRun[Any], begun: asyncio.Event) -> None:
    """Their worker is lost once, which is once too often here."""
    rescuer, victim = await rig.make_worker(max_crashes=1), await rig.make_worker()
    working = asyncio.create_task(victim.run_until_idle())
    await begun.wait()
    rig._workers.remove(victim)
    await victim.abandon()
    await working
    await rig.advance(LEASE_PASSED)
    await rescuer.reap_once()
    chunks = await (await rig.store()).children(run.id.to_bytes())
    assert {chunk.status for chunk in chunks} == {Status.STRANDED}


async def test_a_cancel_ends_the_items_of_stranded_chunks_too(rig: Rig) -> None:
    """Rules 6 and 7: every item ends, and is committed; a stranded chunk hears of no cancel."""
    begun = asyncio.Event()

    @rig.app.batch(chunk=2, retry=AT_ONCE)
    async def work(number: int) -> None:
        begun.set()
        await asyncio.Event().wait()

    run = await work.start(range(6))
    await strand_chunks(rig, run, begun)
    await run.cancel()
    await rig.run()
    assert await outcomes(run) == ["cancel"] * 6
    with pytest.raises(ExecutionCancelledError):
        await run.result()
