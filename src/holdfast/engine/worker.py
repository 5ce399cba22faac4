"""A worker: the loops put together, and what a runner sees of them.

`start` runs the loops; `open` without `start` leaves them to a test, which calls `run_once`. `stop` drains: nothing
new is picked, what is at work may finish its step, what does not in time is cancelled and given back, unrecorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from types import TracebackType
from typing import Any, Self

from holdfast.core.clock import MICROSECONDS
from holdfast.core.status import TERMINAL, Status
from holdfast.engine.active import ActiveClaims
from holdfast.engine.committer import Committer
from holdfast.engine.drain import Drain
from holdfast.engine.heartbeat import Heartbeat
from holdfast.engine.identity import Identity
from holdfast.engine.lifespan import Lifespan, Resources, open_resources
from holdfast.engine.lives import Lives
from holdfast.engine.notifier import Notifier
from holdfast.engine.observer import Observer
from holdfast.engine.picker import OrphanSweep, Picker
from holdfast.engine.processes import StepProcesses, refuse_in_import
from holdfast.engine.rescue import Rescue
from holdfast.engine.runner import Runner
from holdfast.engine.service import Service
from holdfast.engine.settings import WorkerSettings
from holdfast.engine.starting import begin_loops, done_before
from holdfast.engine.stop_signals import heard_signals
from holdfast.engine.threads import StepThreads
from holdfast.engine.upkeep import Reaper, RetentionSweep, Timers
from holdfast.engine.watcher import Watcher
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution, AppendJournal, Effect
from holdfast.store.values import ExecutionClaim, Receipt

log = logging.getLogger("holdfast.engine")

SIGN_OFF_SECONDS = 4.0
SETTLE_SECONDS = 1.0  # for a new name that is being taken, by a worker that leaves

Ended = Callable[[bytes, Status, str | None, str | None], None]


def _ignore_ended(promise: bytes, status: Status, result: str | None, error: str | None) -> None:
    """Nobody in this process waits for results."""


async def _tell_nothing() -> None:
    """The ledger is to know nothing of this code."""


class Worker:
    """Works on executions of one store. Implements the `Engine` that runners see."""

    def __init__(
        self,
        store: Store,
        runners: Sequence[Runner],
        settings: WorkerSettings | None = None,
        *,
        lifespans: tuple[Lifespan, ...] = (),
        on_ended: Ended = _ignore_ended,
        services: Sequence[Service] = (),
        observer: Observer | None = None,
        release: str = "",
        tell: Callable[[], Awaitable[None]] = _tell_nothing,
    ) -> None:
        """`tell`: what the ledger is to know of this code, once the worker is registered."""
        self.store = store
        self.release = release
        self._settings = settings or WorkerSettings()
        self._runners = {handler: runner for runner in runners for handler in runner.handlers}
        self._all_runners = tuple(runners)
        self._lifespans = lifespans
        self._on_ended = on_ended
        self._observer = observer
        if observer is not None:
            observer.attach(store)
        self._tell = tell
        self._services = tuple(services)  # loops of the models', run as this worker's own
        self._active = ActiveClaims()
        self._gate = asyncio.Lock()
        self._identity = Identity(
            store,
            self._active,
            self._gate,
            queues=list(self._settings.queue_limits()),
            lease_seconds=self._settings.lease_seconds,
            on_changed=self._wake_picker,
            observer=observer,
        )
        self._is_draining = False
        self._drain: Drain | None = None
        self._processes = StepProcesses()
        self._watched: dict[int, Callable[[], None]] = {}
        self._stack = contextlib.AsyncExitStack()
        self._resources = Resources()

    # ------------------------------------------------------------------ what a runner sees

    @property
    def id(self) -> str:
        """Random, made anew for each process and after each lost lease; never a process id."""
        return self._identity.current()

    @property
    def resources(self) -> Resources:
        return self._resources

    @property
    def threads(self) -> Executor:
        return self._threads

    @property
    def processes(self) -> StepProcesses:
        return self._processes

    def watch(self, claim: ExecutionClaim, stirred: Callable[[], None] | None) -> None:
        if stirred is None:
            if self._active.living.get(claim.row, claim) is claim:  # else a later claim of the row watches
                self._watched.pop(claim.row, None)
        else:
            self._watched[claim.row] = stirred

    def random(self) -> float:
        return random.random()

    def commit(self, claim: ExecutionClaim, *effects: Effect) -> asyncio.Future[Receipt]:
        if self._observer is not None:
            effects = self._observer.stamped_effects(effects)
        return self._committer.commit(claim, effects)

    def step(
        self, claim: ExecutionClaim, advance: AdvanceExecution, segment: AppendJournal
    ) -> int | Awaitable[Receipt]:
        if self._observer is not None:
            return self.commit(claim, advance, segment)
        return self._committer.step(claim, advance, segment)

    def conclude(self, claim: ExecutionClaim, *effects: Effect) -> None:
        if self._observer is not None:
            effects = self._observer.stamped_effects(effects)
        self._committer.send(claim, effects, self._lives.conclude(claim))

    async def transact(
        self,
        claim: ExecutionClaim,
        work: Callable[[Any], Any],
        effects_of: Callable[[Any], Sequence[Effect]],
        *,
        heeds_cancel: bool = False,
        heeds_pause: bool = False,
    ) -> Receipt:
        advances: list[AdvanceExecution] = []

        def remembered(value: Any) -> Sequence[Effect]:
            effects = effects_of(value)
            advances.append(effects[0])  # type: ignore[arg-type]  # see `Commit`
            return effects

        if not self._active.is_alive(claim):
            return Receipt(False)
        receipt = await self.store.transact(
            self.id, claim, work, remembered, heeds_cancel=heeds_cancel, heeds_pause=heeds_pause
        )
        if receipt.applied:
            claim.went_on(advances[0], receipt)
            if self._observer is not None:
                self._observer.advanced(claim, advances[0], receipt)
            if receipt.status is not Status.EXECUTING:
                self._released(claim, advances[0], receipt)
        elif not receipt.is_refused:
            self._lives.fenced(claim)
        return receipt

    def note_end(self, promise: bytes, kind: str, name: str, status: Status) -> None:
        if self._observer is not None:
            self._observer.ended(promise, kind, name, status)

    def note_retry(self, kind: str, name: str) -> None:
        if self._observer is not None:
            self._observer.retried(kind, name)

    def leave_to_others(self, seconds: float) -> None:
        self._picker.rest(seconds)

    def may_keep(self, claim: ExecutionClaim, steps: int, since: float) -> bool:
        if self._is_draining:
            return False
        if claim.partition_key is not None:  # kept until it parks or ends, or another of its key would slip in
            return True
        waiting = self._picker.waiting_priority
        if waiting is not None and waiting < claim.priority:
            return False
        if steps < self._settings.keep_steps and self.now() - since < self._settings.keep_seconds:
            return True
        return not self._picker.is_full

    @property
    def left_behind(self) -> int:
        """Steps that went on after a drain had cancelled them: their tasks are still on the loop."""
        return 0 if self._drain is None else self._drain.left_behind

    @property
    def active(self) -> int:
        """How many executions are at work here now."""
        return len(self._active)

    @property
    def counters(self) -> dict[str, int]:
        """Commits, flushes and picks so far, for benchmarks and metrics."""
        return {
            "commits": self._committer.commits,
            "flushes": self._committer.flushes,
            "picks": self._picker.picks,
        }

    # ------------------------------------------------------------------ life

    async def open(self) -> None:
        """Open resources and register; nothing is picked yet."""
        await self._open()
        try:
            await self._tell()
        except BaseException:
            await self.stop(0)
            raise

    async def _open(self) -> None:
        refuse_in_import()
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time
        settings, worker_id = self._settings, self._identity.current
        self._threads = StepThreads(settings.threads, thread_name_prefix="holdfast-step")
        try:
            self._resources = await self._stack.enter_async_context(open_resources(self._lifespans))
            for runner in self._all_runners:
                runner.check(self._resources)
            registered = await self._identity.take()
        except BaseException:
            self._threads.shutdown(wait=False)
            await self._stack.aclose()
            raise
        self._committer = Committer(
            self.store,
            self._active,
            self._gate,
            worker_id,
            flush_most=settings.flush_most,
            on_released=self._released,
            on_fenced=lambda claim: self._lives.fenced(claim),
            on_woke=self._wake_picker,
            observer=self._observer,
        )
        rescue = Rescue(self.store, worker_id, self.commit, self._active.is_alive, self._gate)
        self._sweep = OrphanSweep(
            self.store,
            self._active,
            self._gate,
            worker_id,
            settings.lease_seconds,
            on_released=self._wake_picker,
        )
        self._lives = Lives(self._active, rescue, on_over=self._wake_picker, on_fenced=self._sweep.wake)
        self._drain = Drain(self._active, self._committer)
        self._picker = Picker(
            self.store,
            self._active,
            self._gate,
            settings,
            worker_id,
            list(self._runners),
            begin=self._begin,
            on_idle=lambda: self._notifier.idle(),
            on_lost=self._identity.lost,
            observer=self._observer,
        )
        self._heartbeat = Heartbeat(self.store, worker_id, settings.lease_seconds, self._identity.lost)
        self._notifier = Notifier(self.store, now=self.now, on_work=self._heard_work)
        self._reaper = Reaper(
            self.store,
            every_seconds=settings.lease_seconds / 3,
            max_crashes=settings.max_crashes,
            on_released=self._wake_picker,
            beat=self._heartbeat.run_once,
            observer=self._observer,
            registered_us=registered.at_us,
        )
        self._timers = Timers(self.store, poll_seconds=settings.poll_seconds, on_fired=self._wake_picker)
        self._watcher = Watcher(self.store, self._watched, worker_id, settings.poll_seconds)
        first: list[Service] = [self._picker, self._reaper]
        if registered.is_after_others:  # what they held is most likely what this worker is started for
            first.reverse()
        self._loops: list[Service] = [*first, self._watcher, self._timers, self._sweep]
        self._loops += self._services
        if settings.retention:
            every, batch = settings.retention_every_seconds, settings.retention_batch
            self._loops.append(RetentionSweep(self.store, settings.retention, every_seconds=every, batch=batch))
        self._loops.append(self._notifier)  # last, because it sends the picker to look again

    async def start(self) -> None:
        """Open, and run the loops."""
        await self._open()
        await self._run_loops(asyncio.Event())

    async def _run_loops(self, asked: asyncio.Event) -> None:
        """`asked`: to stop. No further loop begins then."""

        async def tell() -> None:
            await done_before(asked, self._tell())

        try:
            await self._heartbeat.start()
            await begin_loops(self._loops, self.store, self._active, lambda: self._is_draining or asked.is_set(), tell)
        except BaseException:  # a cancelled start must not leave a heart beating, nor resources open
            await self.stop(0)
            raise

    async def stop(self, drain_seconds: float | None = None) -> None:
        """Leave in good order. `drain_seconds=0` cancels what is at work at once."""
        self._is_draining = True
        self._identity.leave()
        await self._picker.stop()
        assert self._drain is not None
        await self._drain.run(self._settings.drain_seconds if drain_seconds is None else drain_seconds)
        await self._identity.settle(SETTLE_SECONDS)
        for service in self._loops:
            await service.stop()
        for runner in self._all_runners:
            runner.close()
        try:
            async with asyncio.timeout(SIGN_OFF_SECONDS):
                await self.store.retire_worker(self.id)
        except Exception as error:  # whatever it is, what this worker has open is closed
            said = str(error) or type(error).__name__
            log.warning("could not sign off, the lease of %s will run out by itself: %s", self.id, said)
        await self._heartbeat.stop()
        if self._observer is not None:
            await self._observer.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if left := self._threads.at_work():
            log.warning(
                "%d functions go on in threads, which cannot be stopped, and Python itself ends only when they return; "
                "nothing of them is recorded. They are in: %s",
                len(left),
                ", ".join(left),
            )
        self._processes.stop()
        await self._stack.aclose()

    async def run(self) -> None:
        """Work until told to stop (`stop_signals`): the first drains, the second stops at once, the third ends it."""
        with heard_signals() as asked:
            if not await done_before(asked, self._open()):
                log.warning("told to stop before it had started")
                return
            await self._run_loops(asked)
            await asked.wait()
            asked.clear()
            if self.active:
                log.warning("stopping: %d executions may finish their step; a second signal stops at once", self.active)
            stopping = asyncio.ensure_future(self.stop())
            second = asyncio.ensure_future(asked.wait())
            await asyncio.wait([stopping, second], return_when=asyncio.FIRST_COMPLETED)
            if self._drain is not None:
                self._drain.hurry()
            second.cancel()
            await stopping

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(0 if kind is not None else None)

    # ------------------------------------------------------------------ by hand, for tests

    async def run_once(self) -> int:
        """Fire timers, pick once and work on what was picked until it is released; how many that was."""
        await self._timers.run_once()
        if self._is_draining:  # a worker that leaves picks nothing, by hand neither
            return 0
        await self._picker.run_once()
        count = len(self._active)
        while tasks := self._active.tasks():
            await asyncio.wait(tasks)
            await asyncio.sleep(0)
        await self._committer.idle()
        return count

    async def run_until_idle(self) -> int:
        """`run_once` until it finds nothing."""
        total = 0
        while count := await self.run_once():
            total += count
        return total

    async def reap_once(self) -> None:
        await self._reaper.reap()

    async def beat_once(self) -> bool:
        return await self._heartbeat.run_once()

    async def abandon(self) -> None:
        """Leave as a killed process does: nothing is recorded, given back or signed off."""
        self._is_draining = True
        self._identity.leave()
        self._active.cancel()
        await self._committer.abandon()
        for service in self._loops:
            await service.stop()
        await self._heartbeat.stop()
        while tasks := self._active.tasks():
            self._active.cancel()
            await asyncio.wait(tasks)
            await asyncio.sleep(0)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._processes.stop()
        await self._stack.aclose()

    # ------------------------------------------------------------------ what the loops tell

    def _begin(self, claim: ExecutionClaim) -> None:
        runner = self._runners[claim.handler]
        context: contextvars.Context | None = None
        if self._observer is not None:
            context = contextvars.copy_context()
            context.run(self._observer.enter, claim)
        is_answered = self._committer.is_under_way(claim.row)
        self._lives.begin(claim, runner.run(claim, self), context, is_answered=is_answered)

    def _released(self, claim: ExecutionClaim, advance: AdvanceExecution, receipt: Receipt) -> None:
        status = receipt.status
        self._active.let_go(claim)
        if status in TERMINAL and receipt.successor is None:  # else its end is told by the run that goes on
            self._on_ended(claim.promise, status, advance.result, advance.error)
        if advance.wake_at_us is not None:
            self._timers.note_deadline((advance.wake_at_us - receipt.at_us) / MICROSECONDS)
        elif advance.wake_after is not None:
            self._timers.note_deadline(advance.wake_after)
        if advance.delay > 0:
            self._picker.note_delay(advance.delay)

    def _wake_picker(self) -> None:
        self._picker.wake()

    def _heard_work(self) -> None:
        self._picker.wake()
        if self._active:  # else there is nobody to tell
            self._watcher.wake()
