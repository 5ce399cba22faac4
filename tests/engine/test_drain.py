"""Leaving in good order: a finished step is recorded, a cancelled one is not, and everything is given back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import Done, Handle, Machine, MachineContext, Next, Outcome, Status, step
from holdfast.core.errors import ConfigurationError, StoreUnavailableError
from holdfast.engine.settings import WorkerSettings
from holdfast.engine.stop_signals import heard_signals, stop_signals
from holdfast.engine.upkeep import Timers
from holdfast.engine.worker import Worker
from tests.engine.rig import Faulty, Rig


class Slow:
    """A machine that waits in its first step for `release`."""

    def __init__(self, rig: Rig) -> None:
        self.begun, self.release = asyncio.Event(), asyncio.Event()
        self.seen: list[str] = []
        outer = self

        @rig.app.machine(name="Slow")
        class Work(Machine[int]):
            @step(initial=True)
            async def first(self, ctx: MachineContext[int]) -> Outcome:
                outer.begun.set()
                try:
                    await outer.release.wait()
                except asyncio.CancelledError:
                    outer.seen.append("cancelled")
                    raise
                return Next(self.second, ctx.state + 1)

            @step
            async def second(self, ctx: MachineContext[int]) -> Outcome:
                outer.seen.append("second")
                return Done(ctx.state)

            async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
                outer.seen.append(f"handled {type(error).__name__}")
                return Done()

        self.machine = Work


async def begin(rig: Rig, slow: Slow) -> tuple[Handle[object], Worker, asyncio.Task[int]]:
    handle = await slow.machine.start(1)
    worker = await rig.make_worker()
    working = asyncio.create_task(worker.run_once())
    await slow.begun.wait()
    return handle, worker, working


async def test_a_step_that_finishes_in_time_is_recorded(rig: Rig) -> None:
    """And no other one is begun."""
    slow = Slow(rig)
    handle, worker, working = await begin(rig, slow)
    stopping = asyncio.create_task(rig.stop(worker))
    await asyncio.sleep(0)
    slow.release.set()
    await asyncio.gather(stopping, working)
    view = await rig.view(handle)
    assert (view.status, view.step, view.state, view.attempt) == (Status.RUNNABLE, "second", "2", 0)
    assert slow.seen == []


async def test_a_step_that_does_not_is_cancelled_and_not_recorded(rig: Rig) -> None:
    """DESIGN section 6: a task cancelled by draining is never recorded as an outcome; `attempt` is unchanged."""
    slow = Slow(rig)
    handle, worker, working = await begin(rig, slow)
    await rig.stop(worker, 0)
    await working
    assert slow.seen == ["cancelled"]
    view = await rig.view(handle)
    assert (view.status, view.step, view.state) == (Status.RUNNABLE, "first", "1")
    assert (view.attempt, view.crashes, view.revision, view.locked_by) == (0, 0, 0, None)
    slow.release.set()
    await rig.run()
    assert await handle.result() == 2


async def test_the_time_to_drain_is_bounded(rig: Rig) -> None:
    slow = Slow(rig)
    handle, worker, working = await begin(rig, slow)
    await rig.stop(worker, 0.001)
    await working
    assert slow.seen == ["cancelled"]
    assert await handle.status() is Status.RUNNABLE


async def test_a_thread_that_cannot_be_stopped_records_nothing_and_is_named(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    begun, release = threading.Event(), threading.Event()

    @rig.app.machine
    class Blocks(Machine[int]):
        @step(initial=True)
        def only(self, ctx: MachineContext[int]) -> Outcome:
            begun.set()
            release.wait(30)
            return Done("too late")

    handle = await Blocks.start(1)
    worker = await rig.make_worker()
    working = asyncio.create_task(worker.run_once())
    await asyncio.to_thread(begun.wait, 30)
    await rig.stop(worker, 0)
    assert "1 functions go on in threads" in caplog.text
    assert f"They are in: only ({__file__}:" in caplog.text
    release.set()
    await working
    view = await rig.view(handle)
    assert (view.status, view.attempt) == (Status.RUNNABLE, 0)


async def test_a_worker_starts_and_stops_while_user_code_hangs_in_all_threads_of_asyncio(rig: Rig) -> None:
    """`asyncio.to_thread` has a few, which tasks may have taken for good."""
    Slow(rig)
    loop, release, few = asyncio.get_running_loop(), threading.Event(), ThreadPoolExecutor(1)
    loop.set_default_executor(few)
    hanging = loop.run_in_executor(None, release.wait)
    try:
        async with asyncio.timeout(10):
            async with rig.app.worker():
                pass
            await rig.app.close()
    finally:
        release.set()
        await hanging
        few.shutdown()
        loop.set_default_executor(ThreadPoolExecutor())  # the loop is that of the tests to come, too


async def test_a_stopped_worker_is_gone_from_the_ledger(rig: Rig) -> None:
    slow = Slow(rig)
    await slow.machine.options(delay=1000).start(1)
    worker = await rig.make_worker()
    assert [info.id for info in await rig.stores.store.workers()] == [worker.id]
    await rig.stop(worker)
    assert await rig.stores.store.workers() == []


@pytest.mark.parametrize("error", [StoreUnavailableError("away"), ConfigurationError("read-only"), OSError("gone")])
async def test_a_worker_that_cannot_sign_off_stops_all_the_same(
    rig: Rig, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """Its lease runs out by itself."""
    faulty = Faulty(rig.stores.unopened())
    other = Rig(rig.stores, store=faulty.as_store())
    try:
        Slow(other)
        worker = await other.make_worker()
        faulty.fail("retire_worker", error)
        await other.stop(worker)
        assert "could not sign off" in caplog.text
    finally:
        await other.close()


async def test_a_worker_stops_while_the_store_is_away(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit whose fate nobody can tell is left to its lease: what was not written runs again."""
    monkeypatch.setattr("holdfast.engine.drain.CANCEL_SECONDS", 0.05)
    faulty = Faulty(rig.stores.unopened())
    other = Rig(rig.stores, store=faulty.as_store())
    try:
        slow = Slow(other)
        handle, worker, working = await begin(other, slow)
        asked = asyncio.Event()

        def away(name: str, arguments: tuple[object, ...]) -> None:
            if name in ("flush", "flush_now", "reclaim", "retire_worker"):
                if name == "reclaim":
                    asked.set()
                raise StoreUnavailableError("the server is down")

        faulty.check = away
        slow.release.set()
        await asked.wait()
        await other.stop(worker, 0.05)
        await working
        faulty.check = None
        view = await rig.view(handle)
        assert (view.status, view.step, view.locked_by) == (Status.EXECUTING, "first", worker.id)
    finally:
        await other.close()


async def test_a_worker_stops_while_the_store_is_silent(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that hangs, or a network that drops everything: no call fails, and none returns."""
    monkeypatch.setattr("holdfast.engine.drain.CANCEL_SECONDS", 0.05)
    monkeypatch.setattr("holdfast.engine.committer.LAST_COMMIT_SECONDS", 0.05)
    monkeypatch.setattr("holdfast.engine.worker.SIGN_OFF_SECONDS", 0.05)
    faulty = Faulty(rig.stores.unopened())
    faulty.inline = False
    other = Rig(rig.stores, store=faulty.as_store())
    try:
        slow = Slow(other)
        handle, worker, working = await begin(other, slow)
        asked = asyncio.Event()

        async def silence(*_: object) -> None:
            asked.set()
            await asyncio.Event().wait()

        faulty.on_call = {"flush": silence, "retire_worker": silence}
        slow.release.set()
        await asked.wait()
        async with asyncio.timeout(10):
            await other.stop(worker, 0.05)
        working.cancel()
        assert "could not sign off" in caplog.text
        view = await rig.view(handle)
        assert (view.status, view.step, view.locked_by) == (Status.EXECUTING, "first", worker.id)
    finally:
        await other.close()


async def test_stopping_twice_is_stopping(rig: Rig) -> None:
    Slow(rig)
    worker = await rig.make_worker()
    await rig.stop(worker)
    await worker.stop()


async def test_an_error_in_the_block_of_a_worker_stops_it_at_once(rig: Rig) -> None:
    slow = Slow(rig)
    handle = await slow.machine.start(1)

    async def block() -> None:
        async with rig.app.worker(drain_seconds=3600):
            await slow.begun.wait()
            raise ValueError("in the block")

    with pytest.raises(ValueError, match="in the block"):
        await block()
    assert slow.seen == ["cancelled"]
    assert await handle.status() is Status.RUNNABLE


# ---------------------------------------------------------------------- signals of the operating system


async def running(rig: Rig) -> tuple[asyncio.Task[None], asyncio.Event]:
    """A worker that runs until it is told to stop by a signal, and an event for when it has heard it."""
    worker, heard = await rig.app.make_worker(WorkerSettings(drain_seconds=3600)), asyncio.Event()
    stop = worker.stop

    async def stopping(drain_seconds: float | None = None) -> None:
        heard.set()
        await stop(drain_seconds)

    worker.stop = stopping  # type: ignore[method-assign]
    return asyncio.create_task(worker.run()), heard


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_the_first_signal_drains(rig: Rig, number: signal.Signals) -> None:
    slow = Slow(rig)
    handle = await slow.machine.start(1)
    run, heard = await running(rig)
    await slow.begun.wait()
    os.kill(os.getpid(), number)
    await heard.wait()
    slow.release.set()
    await run
    view = await rig.view(handle)
    assert (view.status, view.step) == (Status.RUNNABLE, "second")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "its handlers are taken away again"


async def test_the_second_signal_stops_at_once(rig: Rig) -> None:
    slow = Slow(rig)
    handle = await slow.machine.start(1)
    run, heard = await running(rig)
    await slow.begun.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await heard.wait()
    assert not run.done()
    os.kill(os.getpid(), signal.SIGTERM)
    await run
    assert slow.seen == ["cancelled"]
    view = await rig.view(handle)
    assert (view.status, view.attempt) == (Status.RUNNABLE, 0)


async def test_a_signal_ends_a_worker_that_is_still_starting(rig: Rig) -> None:
    """A lifespan that waits for a server that does not answer, say."""
    Slow(rig)
    opening, seen = asyncio.Event(), list[str]()

    @rig.app.lifespan
    async def server() -> AsyncIterator[int]:
        opening.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("closed")
        yield 1

    run, _ = await running(rig)
    await opening.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await run
    assert seen == ["closed"]
    assert await rig.stores.store.workers() == []


async def test_a_signal_ends_a_worker_that_cannot_say_what_it_has_code_for(rig: Rig) -> None:
    """The store does not answer: nothing is picked yet, and nothing waited for."""
    faulty = Faulty(rig.stores.unopened())
    other, telling = Rig(rig.stores, store=faulty.as_store()), asyncio.Event()

    async def hang(*_: object) -> None:
        telling.set()
        await asyncio.Event().wait()

    Slow(other)
    faulty.on_call["register_definitions"] = hang
    run, _ = await running(other)
    await telling.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await run
    assert faulty.calls["pick"] == 0
    assert await rig.stores.store.workers() == []
    await other.close()


async def test_the_third_signal_ends_a_worker_whose_loop_does_not_turn(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A body that never awaits would keep it from every signal but SIGKILL."""
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    with heard_signals() as asked:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            assert not left
            os.kill(os.getpid(), number)
        assert left == [128 + signal.SIGTERM]
        assert "left at once" in capfd.readouterr().err
        await asked.wait()  # and the loop has heard of them as well, once it turns


FORKS = """
import asyncio, os, signal
from holdfast.engine.stop_signals import heard_signals

async def main():
    with heard_signals() as asked:
        pid = os.fork()
        if not pid:
            signal.pause()
        os.kill(pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
        for _ in range(5):
            await asyncio.sleep(0.01)
        assert not asked.is_set()

asyncio.run(main())
"""


def test_a_signal_to_a_process_that_was_forked_is_not_the_workers() -> None:
    """A `multiprocessing.Pool` in a task ends its processes by SIGTERM, and the worker with them."""
    ran = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr


async def test_a_terminal_that_closes_tells_once_however_many_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system tells all that a terminal has in the foreground, and bash tells its jobs once more."""
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    with heard_signals() as asked:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0)
        await asyncio.wait_for(asked.wait(), 5)
        asked.clear()
        os.kill(os.getpid(), signal.SIGHUP)
        for _ in range(5):  # turns of the loop: it reads of the signal, and then calls who asked
            await asyncio.sleep(0)
        assert not asked.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(asked.wait(), 5)
    assert left == []


async def test_what_drains_may_print_though_its_terminal_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was an error of the step that printed, and recorded as that."""
    terminal, ours = os.openpty()
    monkeypatch.setattr("holdfast.engine.stop_signals._STANDARD", (ours,))
    with heard_signals() as asked:
        os.close(terminal)
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(asked.wait(), 5)
        assert os.write(ours, b"to nobody") == 9
    os.close(ours)


def test_a_worker_that_is_to_outlive_its_terminal_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert signal.SIGHUP in stop_signals()
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_IGN)
    assert signal.SIGHUP not in stop_signals()


async def test_a_step_that_swallows_its_cancel_does_not_hold_the_worker(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is given back; what it still returns is fenced."""
    monkeypatch.setattr("holdfast.engine.drain.CANCEL_SECONDS", 0.0)
    begun, release = asyncio.Event(), asyncio.Event()

    @rig.app.machine
    class Stubborn(Machine[int]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            begun.set()
            while not release.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await release.wait()
            return Done(ctx.state)

    handle = await Stubborn.start(1)
    worker = await rig.make_worker()
    working = asyncio.create_task(worker.run_once())
    await begun.wait()
    await rig.stop(worker, 0)
    assert worker.left_behind == 1
    assert "1 executions did not let themselves be cancelled" in caplog.text
    view = await rig.view(handle)
    assert (view.status, view.step, view.attempt, view.locked_by) == (Status.RUNNABLE, "first", 0, None)
    release.set()
    await working
    assert (await rig.view(handle)).status is Status.RUNNABLE


async def test_a_start_that_fails_leaves_nothing_behind(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """No heart goes on beating, no resource stays open, no worker is listed."""
    Slow(rig)
    seen: list[str] = []

    @rig.app.lifespan
    async def resource() -> AsyncIterator[str]:
        seen.append("opened")
        yield "resource"
        seen.append("closed")

    async def cancelled(service: Timers) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(Timers, "start", cancelled)
    worker = await rig.app.make_worker(WorkerSettings())
    with pytest.raises(asyncio.CancelledError):
        await worker.start()
    assert seen == ["opened", "closed"]
    assert await rig.stores.store.workers() == []
    assert "holdfast-heartbeat" not in {thread.name for thread in threading.enumerate()}
