"""An app on a ledger whose time stands still until a test moves it: a month passes in no time.

    async with virtual_time(app) as time:
        handle = await reminder.start()
        await time.advance(timedelta(days=30))
        assert await time.result(handle) == "a month later"

- `virtual_time`: the app, with all its definitions, on a temporary ledger and a worker that works when told to.
- `VirtualTime`: `settle` works until nothing is due, `advance` goes on through every timer on the way.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeVar, overload

from holdfast.app import App
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import HoldfastError
from holdfast.core.status import Status
from holdfast.engine.settings import WorkerSettings
from holdfast.engine.worker import Worker
from holdfast.models.batch.definition import BatchResult
from holdfast.models.batch.run import BatchRun
from holdfast.models.handle import Handle
from holdfast.models.schedule import Scheduler
from holdfast.store.values import ExecutionFilter, ExecutionView
from holdfast.testing.faults import on_store
from holdfast.testing.stores import SqliteStores, Stores

T = TypeVar("T")

PAGE: Final = 500
_FORM: Final = "%Y-%m-%d %H:%M:%S UTC"
LIVE: Final = tuple(status for status in Status if not status.is_terminal and status is not Status.STRANDED)


class NotEndedError(HoldfastError, AssertionError):
    """A result was asked for that nobody will give while time stands still."""


class VirtualTime:
    """Made by `virtual_time`."""

    def __init__(self, stores: Stores, worker: Worker, scheduler: Scheduler | None) -> None:
        self.stores = stores
        self.worker = worker
        self._scheduler = scheduler
        self._longest = 0.0  # seconds that work has really taken at once

    @property
    def now(self) -> datetime:
        """What the ledger's clock says."""
        return self.stores.clock.now

    async def settle(self) -> None:
        """Work until nothing is left that is due now."""
        began = monotonic()
        if self._scheduler is not None:
            await self._scheduler.run_once()
        await self.worker.run_until_idle()
        while self._scheduler is not None and await self._starts_more(self._scheduler):
            await self.worker.run_until_idle()
        self._longest = max(self._longest, monotonic() - began)

    async def _starts_more(self, scheduler: Scheduler) -> bool:
        """Whether a tick that waited for the last run to end, as `buffer_one` has it, was started by now."""
        store = self.stores.store
        before = await store.schedules()
        if all(one.buffered_at is None for one in before):
            return False
        await scheduler.run_once()
        return await store.schedules() != before

    async def advance(self, length: Duration) -> None:
        """Let time pass, and stop to work at every moment at which something falls due: a timer, a retry, a delay.

        A run that is at work counts the time that this really takes: what it sets falls due some milliseconds later
        than the ledger's clock has it, and belongs to this length nevertheless.
        """
        end = self.now + timedelta(seconds=seconds(length, name="length"))
        await self.settle()
        while (due := await self._next_due()) is not None and due <= end + timedelta(seconds=self._longest):
            await self._go_to(due)
        if self.now < end:
            await self._go_to(end)

    @overload
    async def result(self, handle: Handle[T]) -> T: ...
    @overload
    async def result(self, handle: BatchRun[Any]) -> BatchResult: ...
    async def result(self, handle: Handle[Any] | BatchRun[Any]) -> Any:
        """Work, then the result of an execution, which must have one by now: nobody waits while time stands still."""
        await self.settle()
        view = await (handle.describe() if isinstance(handle, BatchRun) else handle._newest_view())
        if not view.status.is_terminal and view.status is not Status.STRANDED:
            waits = f" for {', '.join(view.awaits)}" if view.awaits else f" at {view.step}" if view.step else ""
            until = "" if view.wake_at is None else f", until {view.wake_at:{_FORM}}"
            raise NotEndedError(
                f"{handle.label} is {view.status}{waits}{until}, and nothing is due at {self.now:{_FORM}}: "
                "advance the time, or send what it waits for"
            )
        return await handle.result()

    async def _go_to(self, moment: datetime) -> None:
        await self.stores.advance((moment - self.now).total_seconds())
        await self.worker.beat_once()  # or its lease would have run out meanwhile
        await self.settle()

    async def _next_due(self) -> datetime | None:
        """The first moment after now at which there is something to do."""
        moments = [moment async for view in self._live() if (moment := _due(view)) is not None]
        if (seconds_left := self.worker._picker.next_due_seconds) is not None:  # the next turn of a queue with a rate
            moments.append(self.now + timedelta(microseconds=ceil(seconds_left * 1e6)))
        if self._scheduler is not None:
            moments += [one.next_at for one in await self.stores.store.schedules() if not one.paused]
        return min((moment for moment in moments if moment > self.now), default=None)

    async def _live(self) -> AsyncIterator[ExecutionView]:
        for kind in (None, "message", "chunk"):  # the last two are listed only if they are asked for
            cursor: str | None = None
            while True:
                page = await self.stores.store.browse(ExecutionFilter(kind=kind, statuses=LIVE), PAGE, cursor)
                for view in page.items:
                    yield view
                if (cursor := page.cursor) is None:
                    break


def _due(view: ExecutionView) -> datetime | None:
    if view.paused:
        return None
    moments = [view.wake_at, view.deadline_at, view.eligible_at if view.status is Status.RUNNABLE else None]
    return min((moment for moment in moments if moment is not None), default=None)


@contextlib.asynccontextmanager
async def virtual_time(
    app: App, *, stores: Stores | None = None, schedules: bool = False, settings: WorkerSettings | None = None
) -> AsyncIterator[VirtualTime]:
    """The app on `stores`, which are open, or on a temporary SQLite ledger; afterwards it is where it was.

    Its worker serves all queues of the app. Schedules of the app tick only with `schedules=True`.
    """
    async with contextlib.AsyncExitStack() as stack:
        if stores is None:
            stores = SqliteStores(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-time-"))))
            stack.push_async_callback(stores.close)
            await stores.open()
        await stack.enter_async_context(on_store(app, stores.store))
        chosen = settings or WorkerSettings(queues=sorted({"default", *app.queues()}))
        worker = await app.make_worker(chosen)
        stack.push_async_callback(worker.stop)
        await worker.open()
        yield VirtualTime(stores, worker, Scheduler(app._connection) if schedules else None)
