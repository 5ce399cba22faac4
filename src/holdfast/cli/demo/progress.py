"""How far the demo is: what ran by the audit, what stands where by the ledger."""

from __future__ import annotations

import time
from collections import Counter, deque

from holdfast.cli.demo.audit import AuditReader
from holdfast.cli.demo.machines import ORDER_STEPS, PARCEL_STEPS, PARCELS_AN_ORDER, STEPS_AN_ORDER
from holdfast.core.status import TERMINAL, Status
from holdfast.store.base import Store
from holdfast.store.values import ExecutionFilter

RATE_WINDOW_SECONDS = 1.0


class Progress:
    """The numbers; `refresh` brings them up to date."""

    def __init__(self, store: Store, queue: str, orders: int, audit: AuditReader) -> None:
        self._store = store
        self._queue = queue
        self._audit = audit
        self._seen: set[tuple[str, str]] = set()
        self._began = time.monotonic()
        self._recent: deque[tuple[float, int]] = deque([(self._began, 0)])
        self.orders = orders
        self.steps_total = orders * STEPS_AN_ORDER
        self.by_step: Counter[str] = Counter()
        self.statuses: Counter[Status] = Counter()
        self.orders_ended = 0
        self.orders_done = 0

    async def refresh(self) -> None:
        for run in self._audit.read():
            key = (run.execution, run.step)
            if key not in self._seen:
                self._seen.add(key)
                self.by_step[run.step] += 1
        now = time.monotonic()
        self._recent.append((now, self.steps))
        while len(self._recent) > 2 and now - self._recent[0][0] > RATE_WINDOW_SECONDS:
            self._recent.popleft()
        orders = await self._store.count(ExecutionFilter(name="Order", queue=self._queue))
        parcels = await self._store.count(ExecutionFilter(name="Parcel", queue=self._queue))
        self.statuses = Counter(orders) + Counter(parcels)
        self.orders_done = orders.get(Status.DONE, 0)
        self.orders_ended = sum(orders.get(status, 0) for status in TERMINAL)

    @property
    def steps(self) -> int:
        """Steps that have run, each counted once."""
        return len(self._seen)

    @property
    def percent(self) -> int:
        return 100 * self.steps // self.steps_total

    @property
    def steps_a_second(self) -> float:
        (then, before), (now, after) = self._recent[0], self._recent[-1]
        return (after - before) / (now - then) if now > then else 0.0

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self._began

    def bars(self) -> list[tuple[str, int, int]]:
        """Name, number, total: each step in the order it comes, then whole orders."""
        first, last = ORDER_STEPS[:-1], ORDER_STEPS[-1:]
        steps = [(name, self.orders) for name in first]
        steps += [(name, self.orders * PARCELS_AN_ORDER) for name in PARCEL_STEPS]
        steps += [(name, self.orders) for name in last]
        return [*((name, self.by_step[name], total) for name, total in steps), ("done", self.orders_done, self.orders)]
