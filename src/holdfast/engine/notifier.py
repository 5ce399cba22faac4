"""Keeps an ear on the store while this worker is idle, so that new work is begun at once.

A notification is only a hint, and costs the one who commits; so a worker asks for it only while it is idle, and
looks once more after asking, and again a moment later: what was committed in between would otherwise wait for the next
poll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.engine.service import Service
from holdfast.store.base import ARMED_SECONDS, LATE_LOOK_SECONDS, Ear, Store
from holdfast.store.values import Topic


class Notifier(Service):
    name = "notifier"

    def __init__(self, store: Store, *, now: Callable[[], float], on_work: Callable[[], None]) -> None:
        super().__init__()
        self._store = store
        self._now = now
        self._on_work = on_work
        self._ear: Ear | None = None
        self._armed_at = float("-inf")
        self._late_look: asyncio.TimerHandle | None = None
        self._is_idle = False

    def idle(self) -> None:
        """The picker found nothing: make sure that whoever commits work says so."""
        self._is_idle = True
        if self._now() - self._armed_at > ARMED_SECONDS / 2:
            self.wake()

    async def run_once(self) -> float | None:
        if self._ear is None:
            self._ear = await self._store.open_ear(self._hear)
        if self._is_idle:
            self._is_idle = False
            was_armed = self._now() - self._armed_at < ARMED_SECONDS
            await self._ear.arm(Topic.WORK)
            self._armed_at = self._now()
            self._on_work()
            if not was_armed:
                self._late_look = asyncio.get_running_loop().call_later(LATE_LOOK_SECONDS, self._on_work)
            return ARMED_SECONDS / 2  # still idle then: say so again, however long the poll
        return None

    async def stop(self) -> None:
        if self._late_look is not None:
            self._late_look.cancel()
        await super().stop()
        ear, self._ear = self._ear, None
        if ear is not None:
            await ear.close()

    def _hear(self, topic: Topic) -> None:
        if topic is Topic.WORK:
            self._on_work()
