"""The processes of computations: what is heard of them, what they raise, and that they end with their worker."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures.process import BrokenProcessPool
from typing import NoReturn

import pytest
import pytest_asyncio

from holdfast.engine.processes import StepProcesses, say

WAIT_SECONDS = 30


class DeclinedError(Exception):
    """As many are written: pickle calls it with one argument, and it takes two."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(f"{code}: {why}")
        self.code = code


class HoldingError(Exception):
    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.lock = threading.Lock()


def work(what: str) -> int:
    """In the other process."""
    if what == "declined":
        raise DeclinedError(5, "no money")
    if what == "holding":
        raise HoldingError("a lock")
    if what == "local":
        raise type("LocalError", (ValueError,), {})("nobody can import it")
    if what == "interrupt":
        raise KeyboardInterrupt
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "ctrl-c":
        os.kill(os.getpid(), signal.SIGINT)
    if what == "say":
        say("one")
        say("two")
    if what == "wait":
        say(str(os.getpid()))
        threading.Event().wait()
    return os.getpid()


@pytest_asyncio.fixture
async def processes() -> AsyncIterator[StepProcesses]:
    made = StepProcesses()
    yield made
    made.stop()


async def call(processes: StepProcesses, what: str) -> tuple[int, list[str]]:
    told: list[str] = []
    async with asyncio.timeout(WAIT_SECONDS):
        return await processes.call(lambda: None, told.append, work, what), told


async def test_what_is_said_is_heard_before_the_end(processes: StepProcesses) -> None:
    pid, told = await call(processes, "say")
    assert pid != os.getpid()
    assert told == ["one", "two"]


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("declined", DeclinedError, "^5: no money$"),
        ("holding", HoldingError, "^a lock$"),
        ("local", RuntimeError, "LocalError: nobody can import it"),
        ("interrupt", RuntimeError, "raised KeyboardInterrupt"),
    ],
)
async def test_an_error_that_pickle_cannot_carry_breaks_nothing(
    processes: StepProcesses, what: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        await call(processes, what)
    if what == "declined":
        assert getattr(raised.value, "code", None) == 5
    assert not processes.is_broken
    await call(processes, "ctrl-c")  # a terminal tells all its processes, and the worker drains


async def test_a_process_that_died_breaks_the_pool(processes: StepProcesses) -> None:
    with pytest.raises(BrokenProcessPool):
        await call(processes, "die")
    assert processes.is_broken
    with pytest.raises(BrokenProcessPool):
        await call(processes, "say")


async def test_whoever_gives_up_does_not_wait_and_stopping_ends_what_is_at_work(processes: StepProcesses) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hear(text: str) -> None:
        loop.call_soon_threadsafe(heard.put_nowait, text)

    async def give_up() -> NoReturn:
        await processes.call(begun.set, hear, work, "wait")
        raise AssertionError

    waiting = asyncio.create_task(give_up())
    async with asyncio.timeout(WAIT_SECONDS):
        await begun.wait()
        descriptor = os.pidfd_open(int(await heard.get()))
        waiting.cancel()
        await asyncio.wait([waiting])
    processes.stop()
    assert has_ended(descriptor)


def test_they_end_with_a_worker_that_was_killed() -> None:
    program = (
        "import asyncio\n"
        "from holdfast.engine.processes import StepProcesses\n"
        "from tests.engine.test_processes import work\n"
        "def hear(text): print(text, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    asyncio.run(StepProcesses().call(lambda: None, hear, work, 'wait'))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    worker = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # what cleans up after it says that there was something
        text=True,
        env=environment,
    )
    assert worker.stdout is not None
    with worker, worker.stdout:
        descriptor = os.pidfd_open(int(worker.stdout.readline()))
        worker.kill()
    assert has_ended(descriptor)


def has_ended(descriptor: int) -> bool:
    """Whether the process has, or does within the time of a test."""
    try:
        return bool(select.select([descriptor], [], [], WAIT_SECONDS)[0])
    finally:
        os.close(descriptor)
