"""The loop around every service: waits, is woken, backs off while the store is away, and reports."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import pytest

from holdfast.core.errors import StoreUnavailableError
from holdfast.engine.service import Backoff, Service


class Script(Service):
    """Does one thing of a list at each pass: returns a delay, or raises."""

    name = "script"

    def __init__(self, *passes: float | Exception | None) -> None:
        super().__init__()
        self._passes = list(passes)
        self._backoff = Backoff(0, 0)
        self.count = 0
        self.made: dict[int, asyncio.Event] = {}

    async def run_once(self) -> float | None:
        self.count += 1
        self.event(self.count).set()
        action = self._passes.pop(0) if self._passes else None
        if isinstance(action, Exception):
            raise action
        return action

    def event(self, count: int) -> asyncio.Event:
        return self.made.setdefault(count, asyncio.Event())


Start: TypeAlias = Callable[..., Awaitable[Script]]


@pytest.fixture
async def started() -> AsyncIterator[Start]:
    services: list[Script] = []

    async def start(*passes: float | Exception | None) -> Script:
        service = Script(*passes)
        services.append(service)
        await service.start()
        return service

    yield start
    for service in services:
        await service.stop()


async def test_a_pass_that_wants_another_gets_it_at_once(started: Start) -> None:
    service = await started(0, 0, 0, None)
    await service.event(4).wait()
    assert service.count == 4


async def test_a_pass_that_returns_none_waits_to_be_woken(started: Start) -> None:
    service = await started(None, None)
    await service.event(1).wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert service.count == 1
    service.wake()
    await service.event(2).wait()


async def test_a_wait_ends_by_itself_or_by_a_wake(started: Start) -> None:
    service = await started(0.001, 3600, None)
    await service.event(2).wait()
    service.wake()
    await service.event(3).wait()


async def test_a_wake_during_a_pass_is_not_lost(started: Start) -> None:
    service = await started(0, None, None)
    service.wake()  # before the loop has even begun: its first pass clears it, and sees what it was about
    await service.event(2).wait()
    service.wake()
    await service.event(3).wait()


async def test_a_store_that_is_away_is_reported_once_and_tried_again(
    started: Start, caplog: pytest.LogCaptureFixture
) -> None:
    away = StoreUnavailableError("connection refused")
    with caplog.at_level(logging.WARNING, "holdfast.engine"):
        service = await started(away, away, away, 0, None)
        await service.event(5).wait()
    assert [record.getMessage() for record in caplog.records] == [
        "script: the store is unavailable, trying again: connection refused",
        "script: the store is back",
    ]


async def test_any_other_error_is_logged_and_the_loop_goes_on(started: Start, caplog: pytest.LogCaptureFixture) -> None:
    service = await started(ValueError("a slip"), 0, None)
    await service.event(3).wait()
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "a pass failed; the loop goes on" in record.getMessage()
    assert record.exc_info is not None


async def test_stop_ends_the_loop_and_may_be_called_again(started: Start) -> None:
    service = await started(None)
    await service.event(1).wait()
    await service.stop()
    await service.stop()
    service.wake()
    await asyncio.sleep(0)
    assert service.count == 1


async def test_start_twice_is_one_loop(started: Start) -> None:
    service = await started(None)
    await service.start()
    await service.event(1).wait()
    for _ in range(5):
        await asyncio.sleep(0)
    assert service.count == 1


def test_backoff_doubles_with_jitter_up_to_its_most_and_starts_anew() -> None:
    backoff = Backoff(first=1.0, most=5.0)
    delays = [backoff.take() for _ in range(6)]
    for delay, most in zip(delays, [1, 2, 4, 5, 5, 5], strict=True):
        assert most / 2 <= delay <= most
    backoff.reset()
    assert backoff.take() <= 1
