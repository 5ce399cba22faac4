"""The crash kit finds what it is for: programs that remember in memory, ledgers that differ, scenarios that hang."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import App, Await, Context, Done, Machine, Next, step
from holdfast.core import crashpoints
from holdfast.testing import crash
from holdfast.testing.crash import Crash, CrashPoints, CrashProofError, Simulation, crash_everywhere
from holdfast.testing.snapshot import Snapshot, differences

app = App("kit", store="unused.db")
numbers = itertools.count()


@dataclass(frozen=True)
class Nothing:
    n: int = 0


@app.machine
class Honest(Machine[Nothing]):
    @step(initial=True)
    async def one(self, ctx: Any) -> Any:
        return Next(self.two, Nothing(1))

    @step
    async def two(self, ctx: Any) -> Any:
        return Done(ctx.state.n)


@app.machine
class Forgetful(Machine[Nothing]):
    """Its result depends on how often it ran in this process."""

    @step(initial=True)
    async def one(self, ctx: Any) -> Any:
        return Done(next(numbers))


@app.machine
class Stuck(Machine[Nothing]):
    @step(initial=True)
    async def one(self, ctx: Any) -> Any:
        return Await("never", self.one, ctx.state)


async def test_without_stores_it_runs_on_a_temporary_file() -> None:
    async def scenario(sim: Simulation) -> None:
        await sim.call(lambda: Honest.options(key="a").start(Nothing()))
        await sim.work()

    report = await crash_everywhere(app, scenario)
    assert report.died_at == report.reached
    assert report.runs == sum(report.reached.values())
    (facts,) = report.ledger.values()
    assert facts["result"] == "1"


async def test_an_attempt_more_of_a_call_is_no_difference() -> None:
    """After a crash the attempt is recorded before it runs: one commit more, and the step that it was at."""
    calls = App("calls", store="unused.db")

    @calls.task
    async def near(number: int) -> int:
        return number

    @calls.task(queue="far")
    async def far(number: int) -> int:
        return number

    @calls.workflow
    async def child(ctx: Context) -> int:
        return await near(1)

    @calls.workflow
    async def parent(ctx: Context) -> list[int]:
        return [await child(), await far(2)]

    async def scenario(sim: Simulation) -> None:
        await sim.call(lambda: parent.options(key="a").start())
        await sim.work()

    report = await crash_everywhere(calls, scenario, points=["flush.before"])
    assert report.runs == report.reached["flush.before"]


async def test_the_app_is_back_on_its_own_store_afterwards() -> None:
    async def scenario(sim: Simulation) -> None:
        await sim.call(lambda: Honest.options(key="a").start(Nothing()))

    before = app._store
    await crash_everywhere(app, scenario)
    assert app._store is before


async def test_a_result_that_depends_on_the_process_is_found() -> None:
    async def scenario(sim: Simulation) -> None:
        await sim.call(lambda: Forgetful.options(key="a").start(Nothing()))
        await sim.work()

    with pytest.raises(CrashProofError, match=r"after a crash at .*: Forgetful/.* result should be"):
        await crash_everywhere(app, scenario)


async def test_a_start_without_a_key_is_found() -> None:
    """A client that died and starts again without a key starts a second one."""

    async def scenario(sim: Simulation) -> None:
        await sim.call(lambda: Honest.start(Nothing()))

    with pytest.raises(CrashProofError, match="should not exist"):
        await crash_everywhere(app, scenario)


async def test_a_call_that_never_ends_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash, "HANGS_AFTER_SECONDS", 0.05)

    async def scenario(sim: Simulation) -> None:
        stuck = await sim.call(lambda: Stuck.options(key="a").start(Nothing()))
        await sim.work()
        await sim.call(lambda: stuck.result())

    with pytest.raises(CrashProofError, match="nothing moved"):
        await crash_everywhere(app, scenario)


def test_a_crash_passes_through_except_exception() -> None:
    assert not issubclass(Crash, Exception)
    assert str(Crash("flush.before", 2)) == "killed at flush.before, time 2"


def test_a_dead_process_commits_nothing_more() -> None:
    points = CrashPoints([("flush.before", 2)])
    with points.installed():
        crashpoints.reach("flush.before")
        with pytest.raises(Crash):
            crashpoints.reach("flush.before")
        with pytest.raises(Crash):
            crashpoints.reach("deliver.before")
        points.revive()
        crashpoints.reach("deliver.before")
    crashpoints.reach("flush.before")
    assert points.deaths == [("flush.before", 2)]
    assert points.reached == {"flush.before": 2, "deliver.before": 1}


def test_differences_name_the_execution_and_the_fact() -> None:
    calm: Snapshot = {"ab12cd34.0": {"name": "Leaf", "status": "done", "revision": 2}, "ff": {"name": "Root"}}
    other: Snapshot = {"ab12cd34.0": {"name": "Leaf", "status": "failed", "revision": 3}, "ee": {"name": "Other"}}
    assert differences(calm, other, ignore={"revision"}) == [
        "Root/ff is missing",
        "Other/ee should not exist",
        "Leaf/ab12cd34.0: status should be 'done' and is 'failed'",
    ]
