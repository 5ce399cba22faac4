"""Loops that every worker runs for all: the reaper, the timers, retention, and stranded runs that its code may mend.

Each pass is bounded and passes over what another worker has locked, so any number of workers may run them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence

from holdfast.core.identity import PromiseId
from holdfast.engine.observer import Observer
from holdfast.engine.service import Service
from holdfast.store.base import Store
from holdfast.store.values import Retention

log = logging.getLogger("holdfast.engine")

ROWS_A_PASS = 500
STRANDED_EVERY_SECONDS = 60.0


class Reaper(Service):
    """Takes back what dead workers held, and strands what kills every worker that touches it."""

    name = "reaper"

    def __init__(
        self,
        store: Store,
        *,
        every_seconds: float,
        max_crashes: int,
        on_released: Callable[[], None],
        observer: Observer | None = None,
    ) -> None:
        super().__init__()
        self._store = store
        self._every_seconds = every_seconds
        self._max_crashes = max_crashes
        self._on_released = on_released
        self._observer = observer

    async def run_once(self) -> float | None:
        reaped = await self._store.reap(ROWS_A_PASS, self._max_crashes)
        for worker in reaped.workers:
            log.warning("the lease of worker %s ran out; what it held has been taken back", worker)
        for promise in reaped.stranded:
            log.error(
                "%s lost its worker %d times without progress and is stranded; mend the cause, then resume it",
                PromiseId.from_bytes(promise).short,
                self._max_crashes,
            )
        if self._observer is not None:
            self._observer.reaped(reaped)
        if reaped.released:
            self._on_released()
        return 0 if reaped.more else self._every_seconds * random.uniform(0.8, 1.2)


class Timers(Service):
    """Wakes what is parked when its deadline comes."""

    name = "timers"

    def __init__(self, store: Store, *, poll_seconds: float, on_fired: Callable[[], None]) -> None:
        super().__init__()
        self._store = store
        self._poll_seconds = poll_seconds
        self._on_fired = on_fired
        self._alarm: asyncio.TimerHandle | None = None  # for the earliest deadline that was noted since the last pass

    def note_deadline(self, seconds: float) -> None:
        """A deadline this worker committed is due then; a later one is found by the loop itself."""
        if seconds >= self._poll_seconds:
            return
        loop = asyncio.get_running_loop()
        if self._alarm is not None:
            if self._alarm.when() <= loop.time() + seconds:
                return
            self._alarm.cancel()
        self._alarm = loop.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.wake()

    async def run_once(self) -> float | None:
        fired = await self._store.fire_timers(ROWS_A_PASS)
        if fired.fired:
            self._on_fired()
        if fired.more:
            return 0
        if fired.next_due_seconds is None:
            return self._poll_seconds
        return max(0.001, min(self._poll_seconds, fired.next_due_seconds))


class RetentionSweep(Service):
    """Deletes what ended long enough ago, in bounded batches."""

    name = "retention"

    def __init__(self, store: Store, rules: Sequence[Retention], *, every_seconds: float, batch: int) -> None:
        super().__init__()
        self._store = store
        self._rules = tuple(rules)
        self._every_seconds = every_seconds
        self._batch = batch

    async def run_once(self) -> float | None:
        is_full = False
        for rule in self._rules:
            deleted = await self._store.purge(rule, self._batch)
            is_full = is_full or deleted >= self._batch
        return 0 if is_full else self._every_seconds * random.uniform(0.8, 1.2)


class StrandedSweep(Service):
    """Tries again, once, what other code stranded: when a worker starts, and now and then while releases change."""

    name = "stranded"

    def __init__(self, store: Store, queues: Sequence[str], digests: Mapping[int, str]) -> None:
        super().__init__()
        self._store = store
        self._queues = tuple(queues)
        self._digests = dict(digests)

    async def run_once(self) -> float | None:
        for queue in self._queues if self._digests else ():
            following: int | None = 0
            while following is not None:
                page = await self._store.retry_stranded(queue, self._digests, ROWS_A_PASS, following)
                following = page.following
                if page.retried:
                    log.warning("%d stranded runs of queue %s are tried again with this code", page.retried, queue)
        return STRANDED_EVERY_SECONDS * random.uniform(0.8, 1.2)
