"""Runs and chunks that were ended as they stood: who feeds, reads or waits for them does not do so for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast import Status
from holdfast.core.errors import NotFoundError
from holdfast.store.values import Retention
from tests.engine.rig import Rig
from tests.models.batch.kit import until


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
