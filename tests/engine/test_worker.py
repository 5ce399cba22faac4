"""A worker as a whole: its loops at work, its limits, and what it does when the store or a runner fails."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import (
    Await,
    Child,
    Completed,
    Context,
    Done,
    Machine,
    MachineContext,
    Next,
    Outcome,
    Replay,
    ScheduleChildren,
    Status,
    step,
)
from holdfast.core.errors import ConfigurationError, NotFoundError, StoreUnavailableError
from holdfast.engine.settings import WorkerSettings
from holdfast.engine.worker import Worker
from holdfast.store.base import handler_of
from holdfast.testing.hand import Hand, row
from tests.engine.rig import LEASE_PASSED, Faulty, Rig, handles


@pytest.fixture
def machine(rig: Rig) -> type[Machine[int]]:
    @rig.app.machine
    class Walk(Machine[int]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            return Await("go", self.second, ctx.state) if ctx.state < 0 else Next(self.second, ctx.state + 1)

        @step
        async def second(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.state)

    return Walk


async def test_the_loops_do_the_work(rig: Rig, machine: type[Machine[int]]) -> None:
    async with rig.app.worker(concurrency=20):
        started = handles(await machine.start_many(range(200)))
        assert [await handle.result() for handle in started] == [n + 1 for n in range(200)]


@pytest.fixture
async def starting(rig: Rig) -> AsyncIterator[tuple[Worker, Faulty]]:
    """A worker that is about to start on a store whose calls can be held up."""
    faulty = Faulty(rig.stores.unopened())
    other = Rig(rig.stores, store=faulty.as_store())

    @other.app.workflow
    async def nothing(ctx: Context) -> None: ...

    yield await other.app.make_worker(WorkerSettings()), faulty
    await other.close()


def loops_at_work() -> list[str]:
    return sorted(task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("holdfast"))


async def test_a_worker_that_is_stopped_while_it_starts_begins_no_further_loop(
    starting: tuple[Worker, Faulty],
) -> None:
    worker, faulty = starting
    picking, forever = asyncio.Event(), asyncio.Event()

    async def hold(*_: Any) -> None:
        picking.set()
        await forever.wait()

    faulty.on_call["pick"] = hold
    start = asyncio.create_task(worker.start())
    await picking.wait()
    await worker.stop(0)
    await start
    assert loops_at_work() == []


async def test_a_start_that_is_cancelled_while_it_ends_its_warming_is_cancelled(
    starting: tuple[Worker, Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.starting.BEGIN_SECONDS", 0.0)
    worker, faulty = starting
    cleaning, cleaned = asyncio.Event(), asyncio.Event()

    async def slow_to_end(*_: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await cleaned.wait()

    faulty.on_call["warm"] = slow_to_end
    start = asyncio.create_task(worker.start())
    await cleaning.wait()
    start.cancel()
    cleaned.set()
    await asyncio.wait([start])
    assert start.cancelled()
    assert loops_at_work() == []


async def test_a_worker_whose_warming_fails_starts_all_the_same(
    starting: tuple[Worker, Faulty], caplog: pytest.LogCaptureFixture
) -> None:
    worker, faulty = starting
    faulty.fail("warm", RuntimeError("no such routine"))
    await worker.start()
    assert "could not be warmed, first calls are slower: no such routine" in caplog.text
    await worker.stop()


async def test_a_signal_wakes_what_a_running_worker_has_parked(rig: Rig, machine: type[Machine[int]]) -> None:
    async with rig.app.worker(poll_seconds=3600):
        handle = await machine.start(-1)
        await handle.signal("go")
        assert await handle.result() == -1


async def test_a_run_at_work_hears_of_a_signal_at_once(rig: Rig) -> None:
    began = asyncio.Event()

    @rig.app.task
    async def forever() -> str:
        began.set()
        await asyncio.Event().wait()
        return ""

    @rig.app.workflow
    async def either(ctx: Context) -> str:
        first: Completed[str] = await ctx.any(forever(), ctx.signal("go", str))
        return first.result()

    async with rig.app.worker(poll_seconds=3600):
        handle = await either.start()
        await began.wait()
        await handle.signal("go", "heard")
        assert await handle.result() == "heard"


async def test_deadlines_and_delays_pass_by_the_stores_clock(rig: Rig) -> None:
    """The worker's own clock decides nothing."""

    @rig.app.machine
    class Sleeps(Machine[int]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            return Await((), self.second, ctx.state, timeout=3600)

        @step
        async def second(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.timed_out) if ctx.attempt else Replay(ctx.state, delay=3600)

    async with rig.app.worker(poll_seconds=0.01):
        handle = await Sleeps.start(0)
        result = asyncio.create_task(handle.result())
        while not result.done():
            await rig.stores.advance(3600)
            await asyncio.wait([result], timeout=0.02)
        assert await result is True


async def test_two_workers_share_the_work(rig: Rig, machine: type[Machine[int]]) -> None:
    """No execution is worked on twice, and none is left."""
    one, two = await rig.make_worker(concurrency=10), await rig.make_worker(concurrency=10)
    started = handles(await machine.start_many(range(100)))
    await asyncio.gather(one.run_until_idle(), two.run_until_idle())
    assert [await handle.result() for handle in started] == [n + 1 for n in range(100)]
    assert one.counters["commits"] + two.counters["commits"] == 200
    assert {(await rig.view(handle)).revision for handle in started} == {2}


async def test_a_worker_holds_no_more_than_its_concurrency(rig: Rig) -> None:
    running, most = 0, 0

    @rig.app.machine
    class Job(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return Done()

    started = handles(await Job.start_many(range(50)))
    async with rig.app.worker(concurrency=7):
        for handle in started:
            await handle.result()
    assert 1 <= most <= 7


async def test_limits_of_a_queue_hold_over_all_workers(rig: Rig) -> None:
    begun, release = asyncio.Event(), asyncio.Event()
    running = 0

    @rig.app.machine
    class Job(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            nonlocal running
            running += 1
            begun.set()
            await release.wait()
            running -= 1
            return Done()

    await rig.app.configure_queue("default", concurrency=3)
    await Job.start_many(range(10))
    one, two = await rig.make_worker(), await rig.make_worker()
    working = asyncio.create_task(one.run_once())
    await begun.wait()
    assert await two.run_once() == 0
    assert running == 3
    release.set()
    assert await working == 3


async def test_a_rate_limits_how_many_are_begun(rig: Rig, machine: type[Machine[int]]) -> None:
    await rig.app.configure_queue("default", rate=4, rate_period=60)
    await machine.start_many(range(10))
    assert await rig.once() == 4
    assert await rig.once() == 0
    await rig.advance(30)
    assert await rig.once() == 2
    await rig.advance(600)
    assert await rig.once() == 4


async def test_a_paused_queue_waits(rig: Rig, machine: type[Machine[int]]) -> None:
    await rig.app.configure_queue("default", paused=True)
    handle = await machine.start(1)
    assert await rig.run() == 0
    await rig.app.configure_queue("default")
    await rig.run()
    assert await handle.result() == 2


# ---------------------------------------------------------------------- failures


async def faulty_rig(rig: Rig) -> tuple[Rig, Faulty]:
    faulty = Faulty(rig.stores.unopened())
    return Rig(rig.stores, store=faulty.as_store()), faulty


async def test_a_read_that_finds_the_store_away_costs_a_pause_not_the_execution(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The children of a barrier and a kept lease's inbox are read by the runner: nothing is lost or stranded."""
    monkeypatch.setattr("holdfast.engine.service.Backoff.take", lambda self: 0.0)
    other, faulty = await faulty_rig(rig)
    try:

        @other.app.machine
        class Leaf(Machine[int]):
            @step(initial=True)
            async def only(self, ctx: MachineContext[int]) -> Outcome:
                return Done(ctx.state)

        @other.app.machine
        class Tree(Machine[int]):
            @step(initial=True)
            async def split(self, ctx: MachineContext[int]) -> Outcome:
                return ScheduleChildren(self.join, [Child(Leaf, 1)], ctx.state)

            @step
            async def join(self, ctx: MachineContext[int]) -> Outcome:
                results = [child.result for child in ctx.children]
                await other.app.handle(ctx.id).signal("hello")
                return Next(self.end, sum(results) + 10 * ctx.attempt)

            @step
            async def end(self, ctx: MachineContext[int]) -> Outcome:
                return Done([ctx.state, len(ctx.inbox), ctx.attempt])

        handle = await Tree.start(0)
        faulty.fail("children")
        faulty.fail("inbox")
        faulty.fail("release")
        await other.run()
        assert await handle.result() == [1, 1, 0]
        assert faulty.pending() == 0
    finally:
        await other.close()


async def test_a_commit_whose_reply_is_lost_runs_no_step_twice(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.engine.service.Backoff.take", lambda self: 0.0)
    other, faulty = await faulty_rig(rig)
    faulty.inline = False
    ran: list[str] = []
    try:

        @other.app.machine
        class Walk(Machine[int]):
            @step(initial=True)
            async def first(self, ctx: MachineContext[int]) -> Outcome:
                ran.append("first")
                return Next(self.second, ctx.state + 1)

            @step
            async def second(self, ctx: MachineContext[int]) -> Outcome:
                ran.append("second")
                return Await("go", self.third, ctx.state + 1)

            @step
            async def third(self, ctx: MachineContext[int]) -> Outcome:
                ran.append("third")
                return Done(ctx.state + len(ctx.awaited))

        handle = await Walk.start(0)
        for applied in (True, True, False, True):
            faulty.fail("flush", applied=applied)
        await other.run()
        await handle.signal("go")
        await other.run()
        assert await handle.result() == 3
        assert ran == ["first", "second", "third"]
    finally:
        await other.close()


async def test_a_running_worker_survives_a_store_that_comes_and_goes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.engine.service.Backoff.take", lambda self: 0.0)
    other, faulty = await faulty_rig(rig)
    try:

        @other.app.machine
        class Walk(Machine[int]):
            @step(initial=True)
            async def first(self, ctx: MachineContext[int]) -> Outcome:
                return Next(self.second, ctx.state + 1)

            @step
            async def second(self, ctx: MachineContext[int]) -> Outcome:
                return Done(ctx.state)

        for name in ("pick", "flush", "flush_now", "fire_timers", "reap", "disown", "open_ear", "endings"):
            faulty.fail(name, applied=name in ("pick", "flush", "flush_now"))
            faulty.fail(name)
        async with other.app.worker(poll_seconds=0.01):
            started = handles(await Walk.start_many(range(20)))
            assert [await handle.result() for handle in started] == [n + 1 for n in range(20)]
        assert {(await other.view(handle)).revision for handle in started} == {2}
    finally:
        await other.close()


async def test_what_a_runner_cannot_take_is_stranded_and_the_worker_goes_on(
    rig: Rig, machine: type[Machine[int]], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of ours, not of the user's code: loud, and with its inputs kept."""
    handle = await machine.start(-1)
    await rig.run()
    await handle.signal("go", 5)
    runner = rig.app.runners()[0]
    run = type(runner).run

    async def broken(self: Any, claim: Any, engine: Any) -> None:
        if claim.step == "second":
            raise RuntimeError("a slip of ours")
        await run(self, claim, engine)

    other = await machine.start(1)
    with monkeypatch.context() as patched:
        patched.setattr(type(runner), "run", broken)
        with caplog.at_level(logging.ERROR, "holdfast.engine"):
            await rig.run()
    assert "could not be worked on and is stranded" in caplog.text
    view = await rig.view(handle)
    assert (view.status, view.step, view.awaits) == (Status.STRANDED, "second", ("go",))
    error = await handle.error()
    assert error is not None
    assert (error.type, error.message, error.kind) == ("RuntimeError", "a slip of ours", "internal")
    assert await other.result() == 2, "the worker goes on"
    await handle.resume()
    await rig.run()
    assert await handle.result() == -1


async def test_an_outcome_that_the_store_refuses_strands_its_execution_alone(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    other, faulty = await faulty_rig(rig)
    try:

        @other.app.machine
        class Job(Machine[int]):
            @step(initial=True)
            async def only(self, ctx: MachineContext[int]) -> Outcome:
                return Done(ctx.state)

        started = handles(await Job.start_many(range(3)))

        def refuse(name: str, arguments: tuple[Any, ...]) -> None:
            if name.startswith("flush"):
                for commit in arguments[1]:
                    if commit.claim.state == "1" and commit.effects[0].status is Status.DONE:
                        raise ValueError("cannot be written")

        faulty.check = refuse
        await other.run()
        assert [await handle.status() for handle in started] == [Status.DONE, Status.STRANDED, Status.DONE]
    finally:
        await other.close()


async def test_a_worker_that_cannot_reach_the_store_does_not_start(rig: Rig) -> None:
    other, faulty = await faulty_rig(rig)
    try:

        @other.app.machine
        class Job(Machine[int]):
            @step(initial=True)
            async def only(self, ctx: MachineContext[int]) -> Outcome:
                return Done()

        faulty.fail("register_worker")
        with pytest.raises(StoreUnavailableError):
            await other.make_worker()
    finally:
        await other.close()


async def test_a_worker_is_refused_in_what_a_process_for_tasks_imports(
    rig: Rig, machine: type[Machine[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program without `if __name__ == "__main__":` ran again in each of them, and its tasks never began."""
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(ConfigurationError, match="if __name__ == "):
        await rig.make_worker()


async def test_a_started_worker_has_looked_at_everything_once(rig: Rig) -> None:
    other, faulty = await faulty_rig(rig)
    try:
        other.app.machine(idle_machine())
        async with other.app.worker(poll_seconds=3600):
            assert faulty.calls["warm"] == 1
            for name in ("pick", "reap", "fire_timers", "disown", "open_ear"):
                assert faulty.calls[name] >= 1, name
    finally:
        await other.close()


async def test_a_worker_starts_though_a_loop_hangs_and_nothing_can_be_warmed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.starting.BEGIN_SECONDS", 0.01)
    other, faulty = await faulty_rig(rig)
    let_go, behind_it = asyncio.Event(), asyncio.Event()

    async def hang(*_: object) -> None:
        await let_go.wait()

    async def begin(*_: object) -> None:
        behind_it.set()

    try:
        other.app.machine(idle_machine())
        faulty.on_call |= {"reap": hang, "open_ear": begin}
        faulty.fail("warm")
        async with other.app.worker(poll_seconds=3600):
            await behind_it.wait()
            let_go.set()
    finally:
        await other.close()


async def test_what_the_first_pick_finds_is_past_its_step_before_the_other_loops_begin(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.starting.HEAD_START_SECONDS", 60.0)
    other, faulty = await faulty_rig(rig)
    order: list[str] = []

    async def reap(*_: object) -> None:
        order.append("reap")

    @other.app.machine
    class Job(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            await asyncio.sleep(0.01)
            order.append("step")
            return Done()

    try:
        handle = await Job.start(1)
        faulty.on_call["reap"] = reap
        async with other.app.worker(poll_seconds=3600):
            await handle.result()
    finally:
        await other.close()
    assert order[:2] == ["step", "reap"]


async def test_what_a_dead_worker_held_is_past_its_step_before_connections_are_warmed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts a worker anew after a crash waits for just that."""
    monkeypatch.setattr("holdfast.engine.starting.HEAD_START_SECONDS", 60.0)
    other, faulty = await faulty_rig(rig)
    order: list[str] = []
    begun, forever = asyncio.Event(), asyncio.Event()

    async def note(name: str) -> None:
        order.append(name)

    @other.app.machine
    class Job(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            if not begun.is_set():
                begun.set()
                await forever.wait()
            await asyncio.sleep(0.01)
            order.append("step")
            return Done()

    try:
        handle = await Job.start(1)
        dying = await other.make_worker()
        working = asyncio.ensure_future(dying.run_once())
        await begun.wait()
        other._workers.remove(dying)
        await dying.abandon()
        await working
        await rig.stores.advance(LEASE_PASSED)
        noted = ("reap", "pick", "register_definitions", "warm", "stirred")
        faulty.on_call |= {name: lambda *_, name=name: note(name) for name in noted}
        async with other.app.worker(poll_seconds=3600):
            await handle.result()
    finally:
        await other.close()
    assert list(dict.fromkeys(order))[:5] == ["reap", "register_definitions", "pick", "step", "warm"]


async def test_work_that_waited_for_a_worker_starts_by_name_what_this_one_brings(rig: Rig) -> None:
    @rig.app.task
    async def part() -> None: ...

    @rig.app.task
    async def whole() -> str:
        try:
            await rig.app.start_by_name(part.name)
        except NotFoundError as error:
            return str(error)
        return "started"

    started = await whole.start()
    async with rig.app.worker():
        assert await started.result() == "started"


async def test_a_worker_that_cannot_say_what_it_has_code_for_does_not_start(starting: tuple[Worker, Faulty]) -> None:
    worker, faulty = starting
    for start in (worker.start, worker.open):
        faulty.fail("register_definitions")
        with pytest.raises(StoreUnavailableError):
            await start()
        assert loops_at_work() == []
        assert await worker.store.workers() == []


async def test_work_that_takes_long_does_not_keep_the_other_loops_from_beginning(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.starting.HEAD_START_SECONDS", 0.01)
    begun = asyncio.Event()

    @rig.app.machine
    class Long(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            await begun.wait()
            return Done()

    handle = await Long.start(1)
    async with rig.app.worker(poll_seconds=3600):
        assert "holdfast-reaper" in loops_at_work()
        begun.set()
        await handle.result()


def idle_machine() -> type[Machine[int]]:
    class Job(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done()

    return Job


async def test_a_row_of_a_kind_without_code_here_is_left_alone(rig: Rig, machine: type[Machine[int]]) -> None:
    """Unknown definitions stay for the worker that knows them."""
    strange = row("x", kind="flow", handler=handler_of("flow", "Order", 1))
    await rig.stores.store.insert([strange])
    assert await rig.run() == 0
    hand = await Hand(rig.stores.store).start()
    assert (await hand.view(strange.promise)).status is Status.RUNNABLE
