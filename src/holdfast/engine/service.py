"""A background loop with a body that a test can call once.

Every loop of the engine is a `Service`: `run_once()` does one pass and says when it wants the next; the loop around
it waits, is woken early, backs off while the store is away, and reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from abc import ABC, abstractmethod

from holdfast.core.errors import StoreUnavailableError

log = logging.getLogger("holdfast.engine")


class Backoff:
    """Exponential, with full jitter above half, so that a fleet does not come back in step."""

    def __init__(self, first: float = 0.05, most: float = 5.0) -> None:
        self._first = first
        self._most = most
        self._next = first

    def reset(self) -> None:
        self._next = self._first

    def take(self) -> float:
        delay = self._next
        self._next = min(self._most, self._next * 2)
        return delay * random.uniform(0.5, 1.0)


class Service(ABC):
    """One loop. `name` appears in logs."""

    name: str = "service"

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self._has_passed = asyncio.Event()
        self.passes = 0
        self._task: asyncio.Task[None] | None = None
        self._backoff = Backoff()
        self._in_trouble = False

    @abstractmethod
    async def run_once(self) -> float | None:
        """One pass. Seconds until the next one is wanted at the latest; None waits to be woken."""

    def wake(self) -> None:
        """Ask for a pass as soon as possible."""
        self._woken.set()

    async def start(self) -> None:
        self.begin()

    def begin(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._loop(), name=f"holdfast-{self.name}")

    async def passed(self, more_than: int, within_seconds: float) -> None:
        """Wait until the loop has made more passes than these, well or badly, but not for longer than this."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_seconds):
                while self.passes <= more_than:
                    self._has_passed.clear()
                    await self._has_passed.wait()

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _loop(self) -> None:
        while True:
            self._woken.clear()
            delay = await self._guarded_pass()
            self.passes += 1
            self._has_passed.set()
            if delay == 0:
                await self._give_way()
                continue
            await self._wait(delay)

    async def _guarded_pass(self) -> float | None:
        try:
            delay = await self.run_once()
        except StoreUnavailableError as error:
            pause = self._backoff.take()
            if not self._in_trouble:
                log.warning("%s: the store is unavailable, trying again: %s", self.name, error)
            self._in_trouble = True
            await asyncio.sleep(pause)  # not to be cut short by wake-ups: the store is down
            return 0
        except Exception:
            log.exception("%s: a pass failed; the loop goes on", self.name)
            await asyncio.sleep(self._backoff.take())
            return 0
        if self._in_trouble:
            log.warning("%s: the store is back", self.name)
            self._in_trouble = False
        self._backoff.reset()
        return delay

    async def _give_way(self) -> None:
        """Others run between two passes."""
        await asyncio.sleep(0)

    async def _wait(self, delay: float | None) -> None:
        if delay is None:
            await self._woken.wait()
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_later(delay, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()
