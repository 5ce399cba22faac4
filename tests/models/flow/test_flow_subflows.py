"""Sub-flows where things go wrong: their failure, their cancel, their parent's cancel, conditions that raise."""

from __future__ import annotations

from collections import Counter
from io import BytesIO

import pytest

from holdfast import App, ErrorRecord, Flow, FlowJob, PromiseId, Status
from holdfast.core.errors import ExecutionFailedError
from holdfast.engine.settings import WorkerSettings
from holdfast.models.flow import attempts
from holdfast.models.flow.audit import audit_flows
from holdfast.models.flow.reading import read_job
from holdfast.store.values import ExecutionFilter, ExecutionView
from holdfast.testing.crash import Simulation, crash_everywhere
from holdfast.testing.stores import Stores
from holdfast.transfer.exporting import export
from holdfast.transfer.importing import check
from holdfast.verify.auditor import audit
from tests.engine.rig import Rig


def declare(app: App, ran: Counter[str], *, handles: bool = False) -> Flow:
    """A flow whose only way on is a sub-flow that waits for a signal."""
    inner = app.flow("inner")

    @inner.activity
    async def work(n: int) -> int:
        return n

    @inner.hook(after=work, signal="go")
    async def wait(n: int, by: int) -> int:
        return by

    @inner.on_complete
    async def inner_ended(job: FlowJob) -> None:
        ran[f"inner {job.status.value}"] += 1

    outer = app.flow("outer")

    @outer.activity
    async def begin(n: int) -> int:
        return n

    sub = outer.subflow(inner, after=begin)

    @outer.activity(after=sub, when=lambda n: 1 // n > 0)
    async def after(n: int | None) -> int:
        ran["after"] += 1
        return n or 0

    if handles:

        @outer.error(after=sub)
        async def caught(error: ErrorRecord) -> str:
            ran["caught"] += 1
            return error.message

    @outer.on_complete
    async def outer_ended(job: FlowJob) -> None:
        ran[f"outer {job.status.value}"] += 1

    return outer


async def inner_of(rig: Rig) -> ExecutionView:
    page = await (await rig.store()).browse(ExecutionFilter(kind="flow", name="inner"), 10, None)
    (found,) = page.items
    return found


async def test_cancelling_a_job_cancels_the_job_of_its_sub_flow(rig: Rig) -> None:
    """Ruling A11, one level down: nothing goes on for a parent that has ended."""
    ran: Counter[str] = Counter()
    handle = await declare(rig.app, ran, handles=True).start(1)
    await rig.run()
    await handle.cancel()
    await rig.run()
    assert await handle.status() is Status.CANCELLED
    assert (await inner_of(rig)).status is Status.CANCELLED
    assert ran == {"inner cancelled": 1, "outer cancelled": 1}
    assert await audit_flows(await rig.store()) == []


async def test_a_sub_flow_that_was_cancelled_alone_is_a_failure_of_its_activity(rig: Rig) -> None:
    ran: Counter[str] = Counter()
    handle = await declare(rig.app, ran, handles=True).start(1)
    await rig.run()
    await rig.app.handle(PromiseId.from_bytes((await inner_of(rig)).promise)).cancel()
    await rig.run()
    assert await handle.status() is Status.DONE
    assert ran == {"inner cancelled": 1, "caught": 1, "outer done": 1}
    assert await audit_flows(await rig.store()) == []


async def test_a_condition_that_raises_after_a_sub_flow_fails_the_job(rig: Rig) -> None:
    ran: Counter[str] = Counter()
    handle = await declare(rig.app, ran).start(1)
    await rig.run()
    await rig.app.handle(PromiseId.from_bytes((await inner_of(rig)).promise)).signal("go", 0)
    await rig.run()
    with pytest.raises(ExecutionFailedError, match="ZeroDivisionError"):
        await handle.result()
    assert ran == {"inner done": 1, "outer failed": 1}
    assert await audit_flows(await rig.store()) == []


async def test_a_crash_at_any_commit_of_a_cancel_reaches_the_sub_flow(stores: Stores) -> None:
    ran: Counter[str] = Counter()
    app = App("sub", store="unused.db")
    outer = declare(app, ran)

    async def scenario(sim: Simulation) -> None:
        ran.clear()
        handle = await sim.call(lambda: outer.options(key="one").start(1))
        await sim.work()
        await sim.call(lambda: handle.cancel())
        await sim.work()
        assert set(ran) == {"inner cancelled", "outer cancelled"}
        assert await audit_flows(sim.stores.store) == []

    points = ["flush.after", "cancel.after"]
    report = await crash_everywhere(app, scenario, stores=stores, settings=WorkerSettings(), points=points)
    assert report.died_at["flush.after"] == report.reached["flush.after"]
    assert report.died_at["cancel.after"] == report.reached["cancel.after"] == 2


async def test_flows_that_start_each_other_without_end_fail_at_some_depth(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "DEPTH_MOST", 3)  # of 64
    ping, pong = rig.app.flow("ping"), rig.app.flow("pong")

    @ping.activity
    async def begin(n: int) -> int:
        return n + 1

    @pong.activity(name="begin")
    async def begin_too(n: int) -> int:
        return n + 1

    ping.subflow(pong, after=begin, when=lambda n: True)
    pong.subflow(ping, after=begin_too, when=lambda n: True)
    handle = await ping.start(0)
    await rig.run()
    with pytest.raises(ExecutionFailedError, match="would start a job below 3 others"):
        await handle.result(timeout=0)
    found = await (await rig.store()).browse(ExecutionFilter(kind="flow"), 10, None)
    assert sorted(view.name for view in found.items) == ["ping", "ping", "pong", "pong"]
    assert {view.status for view in found.items} == {Status.FAILED}
    assert await audit_flows(await rig.store()) == []


async def test_a_flow_that_ends_in_itself_can_be_started(rig: Rig) -> None:
    """What it answers is known when it has: its annotation would be its own."""
    flow = rig.app.flow("countdown")

    @flow.activity
    async def step(n: int) -> int:
        return n - 1

    flow.subflow(flow, after=step, when=lambda n: n > 0, name="again")
    handle = await flow.start(3)
    await rig.run()
    assert await handle.status() is Status.DONE
    assert await audit_flows(await rig.store()) == []


async def test_two_flows_that_end_in_each_other_can_be_started(rig: Rig) -> None:
    ran: list[str] = []
    ping, pong = rig.app.flow("ping"), rig.app.flow("pong")

    @ping.activity
    async def to(n: int) -> int:
        ran.append("to")
        return n - 1

    @pong.activity
    async def fro(n: int) -> int:
        ran.append("fro")
        return n - 1

    ping.subflow(pong, after=to, when=lambda n: n > 0)
    pong.subflow(ping, after=fro, when=lambda n: n > 0)
    handle = await ping.start(4)
    await rig.run()
    assert await handle.result() is None
    assert ran == ["to", "fro", "to", "fro"]


async def test_a_job_that_goes_on_after_its_sub_flow_is_sound_and_can_be_moved(rig: Rig) -> None:
    """The job of the sub-flow is the child of the message that waited for it, not of one that came after."""
    inner, outer = rig.app.flow("inner"), rig.app.flow("outer")

    @inner.activity
    async def work(n: int) -> int:
        return n

    @outer.activity
    async def begin(n: int) -> int:
        return n

    @outer.hook(after=outer.subflow(inner, after=begin), signal="later")
    async def later(n: int, by: int) -> int:
        return n + by

    handle = await outer.start(1)
    await rig.run()
    store = await rig.store()
    job = await read_job(store, handle.id.to_bytes())
    assert job is not None
    assert [message.activity for message in job.messages] == ["later"]
    assert (await audit(store))[0] == []
    lines: list[bytes] = []
    await export(store, lines.append, version="test")
    assert check(BytesIO(b"".join(lines)), "the export").faults == []
