"""What happens in the demo, in order. `tell` is the whole of it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.cli.database import Database
from holdfast.cli.demo.audit import AuditReader
from holdfast.cli.demo.display import Display
from holdfast.cli.demo.evidence import executing, read_finished
from holdfast.cli.demo.machines import APPROVAL, PARCELS_AN_ORDER, STEPS_AN_ORDER, Order, OrderState, build_app
from holdfast.cli.demo.process import WorkerProcess
from holdfast.cli.demo.progress import Progress
from holdfast.cli.demo.proof import Proof, prove
from holdfast.cli.demo.worker import CONCURRENCY
from holdfast.cli.exits import CommandError
from holdfast.cli.output import counted
from holdfast.models.handle import Handle
from holdfast.store.base import Store

REFRESH_SECONDS = 0.05
WORK_SECONDS_IN_ALL = 4.0  # of the whole demo, if the machine cost nothing
WORK_SECONDS_LEAST, WORK_SECONDS_MOST = 0.001, 0.25  # of one step
STALLED_SECONDS = 30.0  # without any progress, something is wrong


@dataclass(frozen=True, slots=True)
class Place:
    """Where one run of the demo keeps its things."""

    database: str
    audit: Path
    log: Path


@dataclass(frozen=True, slots=True)
class Ending:
    """What the demo came to."""

    proof: Proof
    ledger: str
    killed_pid: int
    second_pid: int
    in_flight: int
    approvals: int
    seconds: float
    first_order: str


async def tell(place: Place, orders: int, display: Display) -> Ending:
    queue = f"demo-{secrets.token_hex(4)}"
    work_seconds = WORK_SECONDS_IN_ALL * CONCURRENCY / (orders * STEPS_AN_ORDER)
    work_seconds = min(max(work_seconds, WORK_SECONDS_LEAST), WORK_SECONDS_MOST)
    async with build_app(place.database, queue, place.audit, work_seconds) as app:
        story = _Story(place, queue, orders, work_seconds, display, await app.store())
        try:
            return await story.run()
        finally:
            story.end_workers()


class _Story:
    def __init__(
        self, place: Place, queue: str, orders: int, work_seconds: float, display: Display, store: Store
    ) -> None:
        self._place = place
        self._queue = queue
        self._orders = orders
        self._work_seconds = work_seconds
        self._display = display
        self._store = store
        self._ledger = shown_ledger(place.database, store.url)
        self._audit = AuditReader(place.audit)
        self._progress = Progress(store, queue, orders, self._audit)
        self._workers: list[WorkerProcess] = []

    async def run(self) -> Ending:
        began = time.monotonic()
        progress, event = self._progress, self._display.event
        event(f"ledger: {self._ledger}")
        handles = await _start(self._orders)
        event(f"started in one commit: {counted(self._orders, 'order')}, {progress.steps_total} steps of work")

        first = self._start_worker()
        event(f"worker {first.pid} begins")
        await self._follow(lambda: progress.steps * 3 >= progress.steps_total)
        await first.kill()
        in_flight = await executing(self._store, self._queue)
        event(
            f"SIGKILL: worker {first.pid} is dead, {progress.percent} % of the steps had begun, "
            f"and the ledger says that it held {counted(len(in_flight), 'execution')}",
            "bold red",
        )
        approvals = await _approve_large(handles)
        if approvals:
            event(f"sent while no worker is alive: {counted(approvals, 'approval')}, kept in the inboxes", "magenta")

        second = self._start_worker()
        event(f"worker {second.pid} begins; it takes over what the dead one held once that lease has run out")
        await self._follow(lambda: progress.orders_ended >= self._orders)
        await second.stop()
        await self._show()
        return Ending(
            proof=await self._prove(first.pid, in_flight),
            ledger=self._ledger,
            killed_pid=first.pid,
            second_pid=second.pid,
            in_flight=len(in_flight),
            approvals=approvals,
            seconds=time.monotonic() - began,
            first_order=handles[0].id.short,
        )

    def end_workers(self) -> None:
        for worker in self._workers:
            worker.end()

    def _start_worker(self) -> WorkerProcess:
        settings: dict[str, object] = {
            "queue": self._queue,
            "audit": str(self._place.audit),
            "work_seconds": self._work_seconds,
        }
        self._workers.append(WorkerProcess(self._place.database, settings, self._place.log))
        return self._workers[-1]

    async def _show(self) -> None:
        await self._progress.refresh()
        self._display.update(self._progress, self._workers)

    async def _follow(self, is_reached: Callable[[], bool]) -> None:
        """Watch until a condition holds, and that there is progress at all."""
        mark, since = (-1, -1), time.monotonic()
        while True:
            began = time.monotonic()
            await self._show()
            if is_reached():
                return
            self._workers[-1].check_alive()
            now = (self._progress.steps, self._progress.orders_ended)
            if now != mark:
                mark, since = now, time.monotonic()
            elif time.monotonic() - since > STALLED_SECONDS:
                raise CommandError(
                    f"the demo has made no progress for {STALLED_SECONDS:.0f} s, at step {now[0]} of "
                    f"{self._progress.steps_total}: see {self._place.log}"
                )
            # A large ledger takes longer to count; watching must not slow down what is watched.
            await asyncio.sleep(max(REFRESH_SECONDS, 4 * (time.monotonic() - began)))

    async def _prove(self, killed_pid: int, in_flight: frozenset[str]) -> Proof:
        self._audit.read()
        finished = await read_finished(self._store, self._queue)
        proof = prove(finished, self._audit.runs, killed_pid, in_flight)
        wanted = self._orders * (1 + PARCELS_AN_ORDER)
        if proof.executions != wanted:
            proof.faults.append(f"the ledger has {proof.executions} orders and parcels of this run, not {wanted}")
        return proof


def shown_ledger(database: str, url: str) -> str:
    """The path of a file, as people use it; else the URL without its password."""
    file = Database(database, "").file
    return url if file is None else str(file.absolute())


async def _start(count: int) -> list[Handle[Any]]:
    started = await Order.start_many([OrderState(number) for number in range(1, count + 1)])
    return [item for item in started if isinstance(item, Handle)]


async def _approve_large(handles: list[Handle[Any]]) -> int:
    """The n-th handle is that of order n, counted from 1."""
    large = [handle for number, handle in enumerate(handles, 1) if OrderState(number).is_large]
    await asyncio.gather(*(handle.signal(APPROVAL, {"by": "demo"}, dedup_key=APPROVAL) for handle in large))
    return len(large)
