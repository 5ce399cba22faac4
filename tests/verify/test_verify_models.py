"""The audits of flows and batches are part of the whole: damage to what is theirs is found and named."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from holdfast.testing.stores import Stores
from holdfast.verify.auditor import audit
from tests.engine.rig import Rig
from tests.models.flow.test_flow_letters import declare, sql


@pytest_asyncio.fixture
async def rig(stores: Stores) -> AsyncIterator[Rig]:
    made = Rig(stores)
    yield made
    await made.close()


async def test_a_semaphore_that_is_off_is_found(rig: Rig) -> None:
    job = await declare(rig).start(1)
    await rig.run()
    assert (await audit(await rig.store()))[0] == []
    await sql(rig.stores, "update semaphores set status = 2 where activity = ''")
    (fault,) = (await audit(await rig.store()))[0]
    assert (fault.rule, fault.id, fault.label) == ("flow", str(job.id), job.label)
    assert fault.found == "section 9.1: the semaphore is 2, but 1 messages have an open obligation"


async def test_a_counter_that_is_off_is_found(rig: Rig) -> None:
    @rig.app.batch(chunk=4)
    async def work(number: int) -> int:
        return number

    run = await work.start(range(10))
    assert (await audit(await rig.store()))[0] == []
    await sql(rig.stores, "update batches set taken = taken + 1")
    faults = (await audit(await rig.store()))[0]
    assert {(fault.rule, fault.id) for fault in faults} == {("batch", str(run.id))}
    assert [fault.found for fault in faults] == ["it has taken in 11 items, and its chunks hold 10"]
