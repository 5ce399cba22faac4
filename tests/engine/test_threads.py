"""The threads of plain functions: one that hangs takes nobody else's."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.engine.threads import StepThreads


async def test_hung_functions_leave_room_for_the_next(caplog: pytest.LogCaptureFixture) -> None:
    """Else a worker whose tasks time out in calls that never return runs no function any more, and nothing says so."""
    threads, loop = StepThreads(2, "test"), asyncio.get_running_loop()
    begun, release = threading.Semaphore(0), threading.Event()

    def hang() -> None:
        begun.release()
        release.wait(30)

    hung = [loop.run_in_executor(threads, hang) for _ in range(2)]
    for _ in hung:
        assert await asyncio.to_thread(begun.acquire, timeout=30)
    waiting = loop.run_in_executor(threads, lambda: "ran")
    for one in hung:
        one.cancel()
    assert await asyncio.wait_for(waiting, 30) == "ran"
    assert "2 functions that were given up go on in their threads" in caplog.text
    assert f"hang ({__file__}:" in caplog.text
    release.set()
    threads.shutdown()
    assert threads._max_workers == 2, "what came back is no more than it was"


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
