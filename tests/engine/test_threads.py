"""The threads of plain functions: one that hangs takes nobody else's."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from holdfast.engine.threads import StepThreads, calls_at_work


class Hanging:
    """A function that does not return before it is told to."""

    def __init__(self) -> None:
        self.thread: Future[threading.Thread] = Future()  # that it runs in
        self._release = threading.Event()

    def __call__(self) -> str:
        self.thread.set_result(threading.current_thread())
        self._release.wait(30)
        return "returned"

    def release(self) -> None:
        self._release.set()


@pytest.fixture
def hanging() -> Iterator[list[Hanging]]:
    all_of_them = [Hanging() for _ in range(3)]
    yield all_of_them
    for one in all_of_them:
        one.release()


def names(prefix: str) -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith(prefix))


async def test_hung_functions_leave_room_for_the_next(hanging: list[Hanging], caplog: pytest.LogCaptureFixture) -> None:
    """Else a worker whose tasks time out in calls that never return runs no function any more, and nothing says so."""
    threads, loop = StepThreads(2, "test"), asyncio.get_running_loop()
    hung = [loop.run_in_executor(threads, function) for function in hanging[:2]]
    began_in = [await asyncio.wrap_future(function.thread) for function in hanging[:2]]
    waiting = loop.run_in_executor(threads, lambda: "ran")
    for one in hung:
        one.cancel()
    assert await asyncio.wait_for(waiting, 30) == "ran"
    assert "2 functions that were given up go on in their threads" in caplog.text
    assert f"__call__ ({__file__}:" in caplog.text
    for function, thread in zip(hanging, began_in, strict=False):
        function.release()
        thread.join(30)
        assert not thread.is_alive(), "another has its place"
    assert threads.submit(str, 1).result(30) == "1"
    threads.shutdown()


def test_more_hung_functions_than_are_borne_keep_their_threads(
    hanging: list[Hanging], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.threads.GIVEN_UP_MOST", 1)
    threads = StepThreads(1, "test-borne")
    for function in hanging[:2]:
        job = threads.submit(function)
        function.thread.result(30)
        assert not job.cancel()
    last = threads.submit(hanging[2])
    assert names("test-borne") == ["test-borne_0", "test-borne_1"]
    assert not last.running()
    hanging[1].release()
    assert hanging[2].thread.result(30) is hanging[1].thread.result(0)
    hanging[0].release()
    hanging[2].release()
    threads.shutdown()
    assert last.result(0) == "returned"


def test_a_call_that_is_given_up_when_it_is_over_makes_no_room(hanging: list[Hanging]) -> None:
    threads = StepThreads(1, "test-over")
    over = threads.submit(str)
    first = threads.submit(hanging[0])
    hanging[0].thread.result(30)
    threads.give_up(over)
    threads.submit(hanging[1])
    assert names("test-over") == ["test-over_0"]
    hanging[0].release()
    hanging[1].release()
    threads.shutdown()
    assert first.result(0) == "returned"


async def test_what_has_not_begun_is_cancelled() -> None:
    threads, loop = StepThreads(1, "test"), asyncio.get_running_loop()
    release = threading.Event()
    first = loop.run_in_executor(threads, release.wait)
    second = loop.run_in_executor(threads, pytest.fail, "it was cancelled before its turn")
    second.cancel()
    await asyncio.sleep(0)
    release.set()
    assert await first
    threads.shutdown()


def test_threads_are_made_when_calls_need_them_and_used_again(hanging: list[Hanging]) -> None:
    threads = StepThreads(2, "test-made")
    assert names("test-made") == []
    threads.submit(hanging[0])
    assert names("test-made") == ["test-made_0"]
    ran_in = {threads.submit(threading.current_thread).result(30) for _ in range(10)}
    assert len(ran_in) == 1
    assert names("test-made") == ["test-made_0", "test-made_1"]
    hanging[0].release()
    threads.shutdown()
    assert names("test-made") == []


def test_a_call_has_its_arguments_and_nobodys_context() -> None:
    """A thread that is made for one call runs the next as well, which may be of another execution."""
    mine: contextvars.ContextVar[str] = contextvars.ContextVar("mine", default="nobody's")
    mine.set("of whoever came first")
    threads = StepThreads(1, "test")
    assert threads.submit(int, "11", base=2).result(30) == 3
    assert threads.submit(mine.get).result(30) == "nobody's"
    threads.shutdown()


def test_a_thread_that_returns_while_it_is_looked_for_is_not_named(
    hanging: list[Hanging], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stack is read while it goes on; a worker that failed at it would leave all that it has open."""
    threads = StepThreads(1, "test")
    threads.submit(hanging[0])
    thread = hanging[0].thread.result(30).ident
    assert len(threads.at_work()) == 1
    gone = sys._getframe()  # of no function in there any more
    monkeypatch.setattr(sys, "_current_frames", lambda: {thread: gone})
    assert threads.at_work() == []
    hanging[0].release()
    threads.shutdown()


class Unheard(BaseException):
    pass


@pytest.mark.parametrize("error", [Unheard("no"), ValueError("no")])
def test_what_a_function_raises_is_its_callers_and_its_thread_goes_on(error: BaseException) -> None:
    def fail() -> None:
        raise error

    threads = StepThreads(1, "test")
    assert threads.submit(fail).exception(30) is error
    assert threads.submit(str, 1).result(30) == "1"
    threads.shutdown()


@pytest.mark.parametrize("error", [StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_no_future_can_carry_is_an_error(error: type[BaseException]) -> None:
    def leave() -> None:
        raise error("no")

    threads = StepThreads(1, "test")
    raised = threads.submit(leave).exception(30)
    assert isinstance(raised, RuntimeError)
    assert f"leave raised {error.__name__}: no" in str(raised)
    threads.shutdown()


class Thing:
    pass


@pytest.mark.parametrize("fails", [True, False])
def test_nothing_is_kept_of_a_call(fails: bool) -> None:
    """Not by a thread that waits for the next, and not by a circle, which may be found late in a busy worker."""

    def take(thing: Thing) -> None:
        if fails:
            raise ValueError(thing)

    threads, thing = StepThreads(1, "test"), Thing()
    kept = weakref.ref(thing)
    gc.disable()
    try:
        job = threads.submit(take, thing)
        assert isinstance(job.exception(30), ValueError) is fails
        threads.submit(str).result(30)  # the thread is through with the one before
        del job, thing
        assert kept() is None
    finally:
        gc.enable()
    threads.shutdown()


def test_shutting_down_waits_for_what_runs_and_for_what_is_queued() -> None:
    threads, release = StepThreads(1, "test"), threading.Event()
    first, second = threads.submit(release.wait, 30), threads.submit(str, 2)
    threads.shutdown(wait=False)
    assert not first.done()
    release.set()
    threads.shutdown()
    assert first.result(0)
    assert second.result(0) == "2"


def test_shutting_down_cancels_what_is_queued_if_told_to(hanging: list[Hanging]) -> None:
    threads = StepThreads(1, "test")
    running, queued = threads.submit(hanging[0]), threads.submit(hanging[1])
    hanging[0].thread.result(30)
    threads.shutdown(wait=False, cancel_futures=True)
    assert queued.cancelled()
    assert not running.cancel(), "nothing replaces its thread any more"
    hanging[0].release()
    threads.shutdown(cancel_futures=True)
    assert running.result(0) == "returned"


def test_a_call_that_comes_too_late_is_refused() -> None:
    threads = StepThreads(1, "test-late")
    threads.shutdown()
    with pytest.raises(RuntimeError, match="the threads test-late are shut down"):
        threads.submit(str)
    assert names("test-late") == []


# ---------------------------------------------------------------------- the end of Python

IDLE = """
threads.submit(str).result()
"""

BUSY = """
import atexit

def hang():
    input()
    print("returned")

threads.submit(hang)
threads.submit(print, "queued")
atexit.register(print, "ending", flush=True)
"""

FORKED = """
import os, sys, threading

release = threading.Event()
hung = threads.submit(release.wait, 30)
pid = os.fork()
if not pid:
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
release.set()
assert hung.result()
"""


def begin(program: str) -> subprocess.Popen[str]:
    made = "from holdfast.engine.threads import StepThreads\nthreads = StepThreads(1, 'test')\n"
    pipe = subprocess.PIPE
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", made + program]
    return subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe)


def test_python_ends_though_idle_threads_were_not_shut_down() -> None:
    with begin(IDLE) as process:
        assert (*process.communicate(timeout=60), process.returncode) == ("", "", 0)


def test_python_waits_at_its_end_for_calls_that_hang_or_are_queued() -> None:
    with begin(BUSY) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ending\n"
        assert process.poll() is None
        assert (*process.communicate("go on\n", timeout=60), process.returncode) == ("returned\nqueued\n", "", 0)


def test_a_forked_process_does_not_wait_for_calls_that_are_not_its_own() -> None:
    with begin(FORKED) as process:
        assert (*process.communicate(timeout=60), process.returncode) == ("", "", 0)


def test_a_function_is_at_work_until_it_returns_and_its_thread_idle_then() -> None:
    """A program with functions at work leaves without what Python does at its end; one with idle threads need not."""
    threads, began, release = StepThreads(1, "test-idle"), threading.Event(), threading.Event()

    def stay() -> bool:
        began.set()
        return release.wait(30)

    def is_at_work() -> bool:
        return any(where.startswith(f"stay ({__file__}:") for where in calls_at_work())

    job = threads.submit(stay)
    assert began.wait(30)
    assert is_at_work()
    release.set()
    assert job.result(30)
    assert not is_at_work()
    assert names("test-idle") == ["test-idle_0"]
    threads.shutdown()
