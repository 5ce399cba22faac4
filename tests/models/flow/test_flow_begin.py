"""How a job begins: what may come between the row, its first pick, and the commit of its semaphore (ruling A8)."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast import App, Flow, FlowJob, RetryPolicy, Status
from holdfast.core.codec import decode_error
from holdfast.engine.settings import WorkerSettings
from holdfast.models.definitions import NamedStarter
from holdfast.models.flow.audit import audit_flows
from holdfast.models.options import Options
from holdfast.testing.crash import Simulation, crash_everywhere
from holdfast.testing.faults import FaultyStore, meanwhile, on_store
from holdfast.testing.stores import Stores
from tests.engine.rig import Rig
from tests.models.flow.test_flow_letters import sql


def declare(app: App, ran: Counter[str]) -> Flow:
    flow = app.flow("begun")

    @flow.activity
    async def left(n: int) -> int:
        ran["left"] += 1
        return n

    @flow.activity
    async def right(n: int) -> int:
        ran["right"] += 1
        return n

    @flow.on_complete
    async def complete(job: FlowJob) -> None:
        ran[job.status.value] += 1

    return flow


async def test_a_cancel_that_overtakes_the_commit_of_the_semaphore_is_not_lost(stores: Stores) -> None:
    """Rulings A8, A11: the job has begun or it has not; never messages of a job that has ended."""
    ran: Counter[str] = Counter()
    app = App("begin", store="unused.db")
    flow = declare(app, ran)
    faulty = FaultyStore(stores.store)
    async with on_store(app, faulty.as_store):
        handle = await flow.start(1)
        faulty.plan("flush", meanwhile(handle.cancel))
        worker = await app.make_worker(WorkerSettings())
        await worker.open()
        await worker.run_until_idle()
        await worker.stop()
        assert await handle.status() is Status.CANCELLED
        assert await audit_flows(stores.store) == []
        assert ran == {"cancelled": 1}


async def test_a_pause_that_overtakes_the_commit_of_the_semaphore_holds(stores: Stores) -> None:
    ran: Counter[str] = Counter()
    app = App("begin", store="unused.db")
    flow = declare(app, ran)
    faulty = FaultyStore(stores.store)
    async with on_store(app, faulty.as_store):
        handle = await flow.start(1)
        faulty.plan("flush", meanwhile(handle.pause))
        worker = await app.make_worker(WorkerSettings())
        await worker.open()
        await worker.run_until_idle()
        assert not ran
        await handle.resume()
        await worker.run_until_idle()
        await worker.stop()
        assert await handle.status() is Status.DONE
        assert ran == {"left": 1, "right": 1, "done": 1}
        assert await audit_flows(stores.store) == []


async def test_a_job_that_is_cancelled_before_its_first_pick_completes_as_cancelled(rig: Rig) -> None:
    """Ruling A11: no user code but the completion task, also of a job that nobody had begun; by name as well."""
    ran: Counter[str] = Counter()
    flow = declare(rig.app, ran)
    await rig.worker()
    for handle in (
        await flow.options(delay=3600).start(1),
        await rig.app.start_by_name("begun", {"n": 1}, delay=3600),
    ):
        await handle.cancel()
        await rig.run()
        assert await handle.status() is Status.CANCELLED
    assert ran == {"cancelled": 2}
    assert await audit_flows(await rig.store()) == []


async def test_a_deadline_before_the_first_pick_cancels(rig: Rig) -> None:
    ran: Counter[str] = Counter()
    handle = await declare(rig.app, ran).options(deadline=30).start(1)
    await handle.pause()
    await rig.run()
    assert await handle.status() is Status.RUNNABLE
    await rig.advance(31)
    await rig.run()
    assert await handle.status() is Status.CANCELLED
    assert ran == {"cancelled": 1}


async def test_a_job_waits_for_its_delay_and_for_the_end_of_a_pause(rig: Rig) -> None:
    ran: Counter[str] = Counter()
    handle = await declare(rig.app, ran).options(delay=60).start(1)
    await handle.pause()
    await rig.advance(61)
    await rig.run()
    assert await handle.status() is Status.RUNNABLE
    await handle.resume()
    await rig.run()
    assert ran == {"left": 1, "right": 1, "done": 1}
    assert await audit_flows(await rig.store()) == []


@pytest.mark.parametrize("is_flaky", [False, True])
async def test_a_job_whose_input_cannot_be_read_fails_and_its_completion_task_is_told(
    stores: Stores, is_flaky: bool
) -> None:
    """Section 13 and ruling A11, wherever the process dies: it ends like every other job."""
    app, told = App("unreadable", store="unused.db"), list[FlowJob]()
    flow = app.flow("unreadable")

    @flow.activity
    async def first(n: int) -> int:
        raise AssertionError("it has no input")

    @flow.activity
    async def second(n: int) -> int:
        raise AssertionError("it has no input")

    @flow.on_complete(retry=RetryPolicy(initial_delay=0, max_delay=0))
    async def complete(job: FlowJob) -> None:
        told.append(job)
        if is_flaky and len(told) == 1:
            raise ConnectionError("not now")

    async def scenario(sim: Simulation) -> None:
        told.clear()
        await sim.work()  # so that the flow is known by name
        by_name = NamedStarter(app._connection, "unreadable", Options(key="one"))  # as a process without the code does
        handle = await sim.call(lambda: by_name.start({"n": "no number"}))
        await sim.work()
        view = await handle.describe()
        assert view.status is Status.FAILED
        assert view.error is not None
        error = decode_error(view.error)
        assert "Expected `int`" in error.message
        assert told
        assert all(job.status is Status.FAILED and job.error == error for job in told)
        assert await audit_flows(stores.store) == []

    report = await crash_everywhere(app, scenario, stores=stores, settings=WorkerSettings(), points=["flush.after"])
    assert report.died_at["flush.after"] == report.reached["flush.after"] >= 5


async def test_a_dropped_letter_lets_the_completion_task_run_also_when_it_fails_at_first(rig: Rig) -> None:
    """Rulings A6 and A8: what was dropped is the letter, not the end of the job."""
    flow, told = rig.app.flow("dropped"), list[Status]()

    @flow.activity
    async def first(n: int) -> int:
        return n

    @flow.hook(after=first, signal="go")
    async def wait(n: int, by: int) -> int:
        return n

    @flow.on_complete(retry=RetryPolicy(initial_delay=0, max_delay=0))
    async def complete(job: FlowJob) -> None:
        told.append(job.status)
        if len(told) == 1:
            raise ConnectionError("not now")

    handle = await flow.start(1)
    await rig.run()
    records = await (await rig.store()).flow_records(handle.id.to_bytes())
    assert records is not None
    (letter,) = records.messages
    await sql(rig.stores, "update executions set state = '[]' where kind = 'message'")
    await handle.signal("go", 1)
    await rig.run()
    assert await handle.status() is Status.STRANDED
    await sql(rig.stores, f"update executions set state = '{letter.state}' where kind = 'message'")
    assert await (await rig.store()).drop_letter(letter.promise)
    await rig.run()
    assert told == [Status.FAILED, Status.FAILED]
    assert await handle.status() is Status.FAILED
    assert await audit_flows(await rig.store()) == []
