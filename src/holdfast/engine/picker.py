"""Leases work for this worker: as much as it has room for, of what it has code for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter

from holdfast.core.errors import StoreUnavailableError
from holdfast.engine.active import ActiveClaims
from holdfast.engine.observer import Observer
from holdfast.engine.service import Service
from holdfast.engine.settings import WorkerSettings
from holdfast.store.base import Store
from holdfast.store.values import ExecutionClaim, QueueRoom

FIRST_POLL_SECONDS = 0.02
SWEEPS_APART_SECONDS = 0.25
INLINE_MOST = 200  # rows that are leased on the loop's thread: more of them would keep others waiting


class Picker(Service):
    """A pick takes at most half of the worker's room, so that picking and committing overlap.

    Where the store writes on the loop's thread nothing does, so that it takes more: fewer commits wait for the disk.
    """

    name = "picker"

    def __init__(
        self,
        store: Store,
        active: ActiveClaims,
        gate: asyncio.Lock,
        settings: WorkerSettings,
        worker_id: Callable[[], str],
        handlers: Sequence[int],
        *,
        begin: Callable[[ExecutionClaim], None],
        on_idle: Callable[[], None],
        on_lost: Callable[[str], None],
        observer: Observer | None = None,
    ) -> None:
        super().__init__()
        self._store = store
        self._active = active
        self._gate = gate
        self._settings = settings
        self._limits = settings.queue_limits()
        self._worker_id = worker_id
        self._handlers = list(handlers)
        self._begin = begin
        self._on_idle = on_idle
        self._on_lost = on_lost
        self._observer = observer
        self._poll_seconds = FIRST_POLL_SECONDS
        self._is_unsure = False
        self._rests_until = 0.0
        self.waiting_priority: int | None = None  # the most urgent that waits while this worker is full
        self.next_due_seconds: float | None = None  # as the last pick had it: a row that is due then, or a rate's turn
        self.picks = 0

    @property
    def is_full(self) -> bool:
        return self._active.running >= self._settings.concurrency

    def note_delay(self, seconds: float) -> None:
        """Something this worker committed is due then: look in time, however long the poll has become.

        What is due later than the longest poll is found by it: a million long delays must not be a million timers.
        """
        if seconds < self._settings.poll_seconds:
            asyncio.get_running_loop().call_later(seconds, self.wake)

    def rest(self, seconds: float) -> None:
        """A worker hears of what it gives back before all others, and would always be the first to take it."""
        self._rests_until = asyncio.get_running_loop().time() + seconds

    async def run_once(self) -> float | None:
        if self._is_unsure:
            await self._disown_unknown()
        if self._rests_until and (left := self._rests_until - asyncio.get_running_loop().time()) > 0:
            return left
        rooms, limit = self._rooms()
        if limit <= 0:
            if len(self._active) < 2 * self._settings.concurrency:  # else last commits have to be written first
                self.waiting_priority = await self._store.waiting_priority(list(self._limits), self._handlers)
            return self._settings.poll_seconds  # a finished claim wakes this loop at once
        self.waiting_priority = None
        async with self._gate:
            began = perf_counter()
            worker = self._worker_id()  # behind the gate: it may just have taken a new name
            try:
                picked = await self._store.pick(worker, rooms, self._handlers, limit)
            except StoreUnavailableError:
                self._is_unsure = True
                raise
            self.picks += 1
            self.next_due_seconds = picked.next_due_seconds
            if self._observer is not None:
                self._observer.picked(len(picked.claims), perf_counter() - began)
            for claim in await self._anew(worker, picked.claims):
                self._begin(claim)
        if picked.worker_lost:
            self._on_lost(worker)
            return self._settings.poll_seconds
        if len(picked.claims) == limit:
            self._poll_seconds = FIRST_POLL_SECONDS
            return 0 if not self.is_full else self._settings.poll_seconds
        return self._idle_wait(bool(picked.claims), picked.next_due_seconds)

    async def _give_way(self) -> None:
        """Not before a store beside the loop is sent the next pick: it is at it while what was picked runs."""
        if self._store.commits_inline:
            await super()._give_way()

    async def _anew(self, worker: str, claims: list[ExecutionClaim]) -> list[ExecutionClaim]:
        """Of what a failover forgot, and the server granted again with the same epoch, a lease of its own.

        The earlier claim is at work here: nothing of it that is on its way may land under the later one's lease.
        """
        living = self._active.living
        forgotten = [c for c in claims if (known := living.get(c.row)) is not None and known.epoch >= c.epoch]
        if not forgotten:
            return claims
        try:
            held = await self._store.reclaim(worker, forgotten)
        except StoreUnavailableError:
            self._is_unsure = True
            raise
        rows = {claim.row for claim in forgotten}
        return [claim for claim in claims if claim.row not in rows] + [claim for claim in held if claim is not None]

    def _rooms(self) -> tuple[list[QueueRoom], int]:
        # What has only its last commit to wait for leaves its place to others, up to a bound: a store that is slow, or
        # away, must not let it pile up.
        places = self._settings.concurrency
        at_once = max(1, places // 2)
        if self._store.commits_inline:
            at_once = max(at_once, min(places, INLINE_MOST))
        free = min(at_once, places - self._active.running, 2 * places - len(self._active))
        rooms = []
        for queue, most in self._limits.items():
            room = free if most is None else min(free, most - self._active.of_queue(queue))
            if room > 0:
                rooms.append(QueueRoom(queue, room))
        return rooms, min(free, sum(room.room for room in rooms))

    def _idle_wait(self, found: bool, next_due_seconds: float | None) -> float:
        if found:
            self._poll_seconds = FIRST_POLL_SECONDS
        else:
            self._on_idle()
            self._poll_seconds = min(self._settings.poll_seconds, self._poll_seconds * 2)
        if next_due_seconds is None:
            return self._poll_seconds
        return max(0.001, min(self._poll_seconds, next_due_seconds))

    async def _disown_unknown(self) -> None:
        """A pick whose reply was lost may have leased rows that nobody here knows of: put them back."""
        async with self._gate:
            await self._store.disown(self._worker_id(), self._active.rows())
            self._is_unsure = False


class OrphanSweep(Service):
    """Puts back what this worker holds without knowing it: now and then, and once a claim that was fenced is over.

    A pick sent over a connection that then broke can be carried out after its worker asked what it holds. And a
    server that forgot commits may have the row of a fenced claim as leased to its worker still. However many are
    fenced, sweeps are apart.
    """

    name = "orphan-sweep"

    def __init__(
        self,
        store: Store,
        active: ActiveClaims,
        gate: asyncio.Lock,
        worker_id: Callable[[], str],
        every_seconds: float,
        *,
        on_released: Callable[[], None],
    ) -> None:
        super().__init__()
        self._store = store
        self._active = active
        self._gate = gate
        self._worker_id = worker_id
        self._every_seconds = every_seconds
        self._on_released = on_released
        self._rests_until = 0.0

    async def run_once(self) -> float | None:
        now = asyncio.get_running_loop().time
        if (left := self._rests_until - now()) > 0:
            return left
        async with self._gate:
            released = await self._store.disown(self._worker_id(), self._active.rows())
        self._rests_until = now() + SWEEPS_APART_SECONDS
        if released:
            self._on_released()
        return self._every_seconds
