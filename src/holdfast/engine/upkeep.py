"""Loops that every worker runs for all: the reaper, the timers, retention, and stranded runs that its code may mend.

Each pass is bounded and passes over what another worker has locked, so any number of workers may run them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence

from holdfast.core.clock import MICROSECONDS
from holdfast.core.identity import PromiseId
from holdfast.engine.observer import Observer
from holdfast.engine.service import Service
from holdfast.store.base import Store
from holdfast.store.values import Retention

log = logging.getLogger("holdfast.engine")

ROWS_A_PASS = 500
STRANDED_EVERY_SECONDS = 60.0
LATE = 1.5  # pauses of the reaper, of a third of a lease each: no lease runs out in less


class Reaper(Service):
    """Takes back what dead workers held, and strands what kills every worker that touches it.

    A pass that comes far too late finds leases that ran out of workers that are not dead: the whole machine slept, its
    clock was set forward, or the store was away. They get the time to extend them first, and this worker as well.
    """

    name = "reaper"

    def __init__(
        self,
        store: Store,
        *,
        every_seconds: float,
        max_crashes: int,
        on_released: Callable[[], None],
        beat: Callable[[], Awaitable[object]] | None = None,
        observer: Observer | None = None,
        registered_us: int | None = None,
    ) -> None:
        """`beat` extends this worker's own lease; it has just begun, if the store's time of that is known."""
        super().__init__()
        self._store = store
        self._every_seconds = every_seconds
        self._beat = beat
        self._due_us: int | None = None  # when the next pass is, by the store's clock; None: whenever it comes
        self._max_crashes = max_crashes
        self._on_released = on_released
        self._observer = observer
        self.released = 0  # rows of dead workers, so far
        self._registered_us = registered_us  # until the first pass

    async def run_once(self) -> float | None:
        now_us, self._registered_us = self._registered_us, None
        if now_us is None:
            if self._beat is not None:
                await self._beat()
            now_us = await self._store.now_us()
        late_seconds = 0.0 if self._due_us is None else (now_us - self._due_us) / MICROSECONDS
        if late_seconds > LATE * self._every_seconds:
            self._due_us = None  # whatever comes between: nobody gets this time twice in a row
            log.warning(
                "this worker was held up for %.1f s (the machine slept, its clock was set, the store was away, or code "
                "blocked the event loop): leases that ran out meanwhile may be extended for %.1f s more",
                late_seconds,
                self._every_seconds,
            )
            return self._every_seconds  # every heart beats at least once in it
        pause = await self.reap()
        self._due_us = now_us + round(pause * MICROSECONDS)
        return pause

    async def reap(self) -> float:
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
            self.released += reaped.released
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
        self._alarm: asyncio.Handle | None = None  # for the earliest deadline that was noted since the last pass
        self._alarm_at = 0.0  # not every handle says: uvloop's does not if it is due at once

    def note_deadline(self, seconds: float) -> None:
        """A deadline this worker committed is due then; a later one is found by the loop itself."""
        if seconds >= self._poll_seconds:
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        if self._alarm is not None:
            if self._alarm_at <= at:
                return
            self._alarm.cancel()
        self._alarm, self._alarm_at = loop.call_later(seconds, self._ring), at

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

    def __init__(self, store: Store, queues: Sequence[str], handlers: Iterable[int], release: str) -> None:
        super().__init__()
        self._store = store
        self._queues = tuple(queues)
        self._digests = dict.fromkeys(handlers, release)

    async def run_once(self) -> float | None:
        for queue in self._queues if self._digests else ():
            following: int | None = 0
            while following is not None:
                page = await self._store.retry_stranded(queue, self._digests, ROWS_A_PASS, following)
                following = page.following
                if page.retried:
                    log.warning("%d stranded runs of queue %s are tried again with this code", page.retried, queue)
        return STRANDED_EVERY_SECONDS * random.uniform(0.8, 1.2)
