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
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast.core.error_record import record_error
from holdfast.engine.processes import Pool, StepProcesses, say

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
        raise DeclinedError(5, "no money") from KeyError("card")
    if what == "plain":
        raise ValueError("no") from KeyError("card")
    if what == "holding":
        raise HoldingError("a lock")
    if what == "local":
        raise type("LocalError", (ValueError,), {})("nobody can import it")
    if what == "interrupt":
        raise KeyboardInterrupt
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "stop":
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)
        program = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
        say(str(subprocess.run([sys.executable, "-c", program], check=False).returncode))
    if what == "say":
        say("one")
        say("two")
    if what.startswith("wait"):
        say(str(os.getpid()))
        while not os.path.exists(what.removeprefix("wait ")):
            threading.Event().wait(0.01)
    return os.getpid()


@pytest_asyncio.fixture
async def processes() -> AsyncIterator[StepProcesses]:
    made = StepProcesses()
    yield made
    made.stop()


async def call(processes: StepProcesses, what: str) -> tuple[int, list[str | None]]:
    told: list[str | None] = []
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
    assert len(processes._pools) == 1


@pytest.mark.parametrize("what", ["plain", "declined"])
async def test_an_error_tells_what_it_was_raised_from_and_where(processes: StepProcesses, what: str) -> None:
    """As one of this process does: what Python's pool hangs on it is neither."""
    with pytest.raises((ValueError, DeclinedError)) as raised:
        await call(processes, what)
    record = record_error(raised.value)
    assert record.causes == ("KeyError: 'card'",)
    assert record.traceback[-1].endswith(" in work")
    assert not [name for name in record.fields if name != "code"]


async def test_what_stops_the_worker_lets_them_finish(processes: StepProcesses) -> None:
    """A terminal and a supervisor tell all processes of a group, and the worker drains; programs they run still end."""
    pid, told = await call(processes, "stop")
    assert pid != os.getpid()
    assert told == [str(-signal.SIGTERM)]


async def test_a_process_that_died_is_replaced(processes: StepProcesses) -> None:
    with pytest.raises(BrokenProcessPool):
        await call(processes, "die")
    assert (await call(processes, "say"))[1] == ["one", "two"]


async def test_a_pool_whose_process_died_at_rest_leaves_nothing_behind(processes: StepProcesses) -> None:
    pid, _ = await call(processes, "say")
    (pool,) = processes._pools
    os.kill(pid, signal.SIGKILL)
    noticing: Any = pool._executor_manager_thread
    await asyncio.to_thread(noticing.join, WAIT_SECONDS)
    await call(processes, "say")
    assert pool.is_stopped
    assert pool not in processes._pools


class Waiting:
    """A call that goes on until its file is there; `process` once it has begun."""

    def __init__(self, processes: StepProcesses | Pool, path: Path) -> None:
        self._begun = asyncio.Event()
        self._heard: asyncio.Queue[int] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self.task = asyncio.create_task(processes.call(self._begun.set, self._hear, work, f"wait {path}"))

    def _hear(self, pid: str | None) -> None:
        self._loop.call_soon_threadsafe(self._heard.put_nowait, int(pid or ""))

    async def process(self) -> int:
        async with asyncio.timeout(WAIT_SECONDS):
            await self._begun.wait()
            return os.pidfd_open(await self._heard.get())


async def test_stopping_ends_what_is_at_work(processes: StepProcesses, tmp_path: Path) -> None:
    waiting = Waiting(processes, tmp_path / "never")
    descriptor = await waiting.process()
    processes.stop()
    processes.stop()
    assert has_ended(descriptor)
    await asyncio.wait([waiting.task])


async def test_a_call_that_was_given_up_ends_when_its_neighbours_have(tmp_path: Path) -> None:
    pool = Pool(2)
    hung, neighbour = Waiting(pool, tmp_path / "never"), Waiting(pool, tmp_path / "go")
    descriptor, other = await hung.process(), await neighbour.process()
    hung.task.cancel()
    await asyncio.wait([hung.task])
    assert (pool.takes_calls, pool.is_stopped) == (False, False)
    (tmp_path / "go").touch()
    async with asyncio.timeout(WAIT_SECONDS):
        assert await neighbour.task != os.getpid()
    assert pool.is_stopped
    assert has_ended(descriptor)
    assert has_ended(other)


async def test_a_process_that_dies_beside_others_is_noticed_and_ends_them(tmp_path: Path) -> None:
    """Python's pool does not look at a process that it began last, until something else happens."""
    pool = Pool(2)
    neighbour = Waiting(pool, tmp_path / "never")
    descriptor = await neighbour.process()
    async with asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(BrokenProcessPool):
            await pool.call(lambda: None, lambda text: None, work, "die")
        with pytest.raises(BrokenProcessPool):
            await neighbour.task
    assert pool.is_stopped
    assert has_ended(descriptor)


async def test_hung_calls_leave_room_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    processes = StepProcesses()
    calls = [Waiting(processes, tmp_path / "never") for _ in range(2)]
    for waiting in calls:
        descriptor = await waiting.process()
        waiting.task.cancel()
        await asyncio.wait([waiting.task])
        assert has_ended(descriptor)
    assert (await call(processes, "say"))[1] == ["one", "two"]
    processes.stop()


def test_they_end_with_a_worker_that_was_killed() -> None:
    program = (
        "import asyncio\n"
        "from holdfast.engine.processes import Pool\n"
        "from tests.engine.test_processes import work\n"
        "def hear(text): print(text, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    asyncio.run(Pool(1).call(lambda: None, hear, work, 'wait'))\n"
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
