"""Kill a program at every commit it makes, and compare what it leaves behind with a calm run.

    async def scenario(sim: Simulation) -> None:
        order = await sim.call(lambda: Shipment.options(key="order-17").start(Parcel(3)))
        await sim.work()
        await sim.call(lambda: order.signal("carrier_ok", dedup_key="reply-1"))
        await sim.work()

    async def test_a_shipment_survives_every_crash() -> None:
        await crash_everywhere(app, scenario)

- `crash_everywhere`: once without a crash, then once for each time each crash point (`core.crashpoints`) is reached.
- `Simulation`: one process at a time on a virtual clock. When it dies, its lease runs out and another goes on.
- `Crash`: what dying looks like from inside; a `BaseException`, so that no `except Exception` survives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, cast

from holdfast.app import App
from holdfast.core import crashpoints
from holdfast.core.errors import HoldfastError
from holdfast.engine.settings import WorkerSettings
from holdfast.engine.worker import Worker
from holdfast.store.base import Store
from holdfast.testing.audit import audit
from holdfast.testing.faults import Borrowed
from holdfast.testing.snapshot import Snapshot, differences, snapshot
from holdfast.testing.stores import SqliteStores, Stores

T = TypeVar("T")

Occurrence: TypeAlias = tuple[str, int]  # the second time "flush.before" is reached: ("flush.before", 2)
Scenario: TypeAlias = Callable[["Simulation"], Awaitable[None]]

HANGS_AFTER_SECONDS: Final = 60.0
_OF_ATTEMPTS: Final = {"workflow": ("revision", "step"), "task": ("revision", "state")}


class Crash(BaseException):
    """The process died at `point`, when it reached it for the `occurrence`-th time."""

    def __init__(self, point: str, occurrence: int) -> None:
        super().__init__(point, occurrence)
        self.point = point
        self.occurrence = occurrence

    def __str__(self) -> str:
        return f"killed at {self.point}, time {self.occurrence}"


class CrashProofError(HoldfastError, AssertionError):
    """A run with a crash did not end as the run without one."""


class CrashPoints:
    """Counts how often each point is reached, and kills at the occurrences of `plan`, one after the other.

    Once dead, every further commit dies too, until `revive`: a killed process writes nothing more.
    """

    def __init__(self, plan: Sequence[Occurrence] = (), on_death: Callable[[], object] = lambda: None) -> None:
        self._plan = list(plan)
        self._on_death = on_death
        self._guard = threading.Lock()  # a store may commit on a thread of its own
        self._since_start: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()
        self.deaths: list[Occurrence] = []
        self.is_dead = False

    def __call__(self, point: str) -> None:
        with self._guard:
            if self.is_dead:
                raise Crash(point, 0)
            self.reached[point] += 1
            self._since_start[point] += 1
            here = (point, self._since_start[point])
            if not self._plan or self._plan[0] != here:
                return
            self.is_dead = True
            self.deaths.append(self._plan.pop(0))
        self._on_death()
        raise Crash(*here)

    def revive(self) -> None:
        """Another process starts; the occurrences of the rest of the plan count from here."""
        with self._guard:
            self.is_dead = False
            self._since_start.clear()

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        crashpoints.set_hook(self)
        try:
            yield
        finally:
            crashpoints.set_hook(None)


class Simulation:
    """A program and its worker in one process that may die at any commit; then another process takes its place."""

    def __init__(self, app: App, stores: Stores, settings: WorkerSettings, plan: Sequence[Occurrence] = ()) -> None:
        self.app = app
        self.stores = stores
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._died = asyncio.Event()
        self._worker: Worker | None = None
        self.points = CrashPoints(plan, lambda: self._loop.call_soon_threadsafe(self._died.set))

    async def call(self, action: Callable[[], Awaitable[T]]) -> T:
        """What a client does. If it dies in it, another one does it again; so name it by a key or dedup key."""
        return await self._until_alive(action)

    async def work(self) -> None:
        """Reap, fire timers, pick and run, until there is nothing to do at this time."""
        await self._until_alive(self._work)

    async def advance(self, seconds: float) -> None:
        """Move the ledger's clock; a living worker keeps its lease meanwhile."""
        await self.stores.advance(seconds)
        await self._until_alive(self._beat)

    async def restart(self) -> None:
        """Stop the worker in good order; the next `work` starts another."""
        await self._until_alive(self._stop_worker)

    async def store(self) -> Store:
        """The store of the process that lives now."""
        return await self.app.store()

    # ------------------------------------------------------------------ living and dying

    async def _until_alive(self, action: Callable[[], Awaitable[T]]) -> T:
        while True:
            acting = asyncio.ensure_future(action())
            try:
                async with _hang_is_an_error():
                    await self._end_or_death(acting)
                if not self.points.is_dead:
                    return await acting
            finally:
                acting.cancel()
                await asyncio.gather(acting, return_exceptions=True)
            await self._bury()

    async def _end_or_death(self, acting: asyncio.Future[T]) -> None:
        """A dead process often just never answers: what it had promised to its own tasks is not kept."""
        while not acting.done() and not self.points.is_dead:
            self._died.clear()
            dying = asyncio.ensure_future(self._died.wait())
            either: set[asyncio.Future[Any]] = {acting, dying}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            dying.cancel()

    async def _bury(self) -> None:
        """No clean-up: nothing is released or signed off, for every commit of the dead process fails."""
        await self._abandon()
        await self.app.close()
        async with _hang_is_an_error():
            await self.stores.settle()  # a row that it still has locked would be passed over by its successor
        self.app.use_store(_process_store(self.stores))
        await self.stores.advance(self._settings.lease_seconds + 1)
        self.points.revive()

    async def _abandon(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.abandon()

    async def _beat(self) -> None:
        if self._worker is not None:
            await self._worker.beat_once()

    async def _work(self) -> None:
        if self._worker is None:
            worker = await self.app.make_worker(self._settings)
            await worker.open()
            self._worker = worker
        await self._worker.reap_once()
        await self._worker.run_until_idle()

    async def _stop_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            try:
                await worker.stop()
            except BaseException:
                self._worker = worker
                raise

    async def close(self) -> None:
        await self._abandon()
        await self.app.close()


@dataclass
class CrashReport:
    """The `ledger` that every run left, how often the calm one `reached` each point, how many `runs` died at each."""

    ledger: Snapshot
    reached: Counter[str]
    runs: int = 0
    died_at: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class _Run:
    ledger: Snapshot
    faults: list[str]
    reached: Counter[str]
    deaths: list[Occurrence]


async def crash_everywhere(
    app: App,
    scenario: Scenario,
    *,
    stores: Stores | None = None,
    settings: WorkerSettings | None = None,
    points: Collection[str] = crashpoints.CRASH_POINTS,
    second: Collection[str] = (),
    ignore: Collection[str] = (),
) -> CrashReport:
    """Run `scenario` calmly, then with a crash at each point, each time it is reached; every run must end the same.

    The app works on `stores` meanwhile, which are open; or on a temporary SQLite file. Starts need a `key` and signals
    a `dedup_key`, so that a client that died can say the same again. `points` narrows where to crash. For each point of
    `second`, each crash is tried once more with a second one after it, the first time that point is reached again.
    `ignore` names facts of the `snapshot` that a crash may change, such as the `revision` of a machine that counts its
    attempts. How often workflows and tasks were committed, and where they stood then, is passed over anyway: an attempt
    that follows a crash has a commit of its own (ruling B15).
    """
    async with contextlib.AsyncExitStack() as stack:
        if stores is None:
            stores = await stack.enter_async_context(_temporary_stores())
        chosen = settings or WorkerSettings(queues=app.queues())
        calm = await _run(app, scenario, stores, chosen, ())
        if calm.faults:
            raise CrashProofError("the run without a crash broke the ledger's rules: " + "; ".join(calm.faults))
        report = CrashReport(calm.ledger, calm.reached)
        for plan in _plans(calm.reached, points, second):
            run = await _run(app, scenario, stores, chosen, plan)
            _compare(calm, run, plan, ignore)
            report.runs += bool(run.deaths)
            report.died_at.update(point for point, _ in run.deaths)
        return report


def _plans(reached: Counter[str], points: Collection[str], second: Collection[str]) -> Iterator[tuple[Occurrence, ...]]:
    for point in sorted(reached.keys() & set(points)):
        for occurrence in range(1, reached[point] + 1):
            yield ((point, occurrence),)
            for then in second:
                yield (point, occurrence), (then, 1)


async def _run(
    app: App, scenario: Scenario, stores: Stores, settings: WorkerSettings, plan: tuple[Occurrence, ...]
) -> _Run:
    await stores.reset()
    before = app._store
    app.use_store(_process_store(stores))  # it keeps its definitions and moves to this ledger
    simulation = Simulation(app, stores, settings, plan)
    try:
        with simulation.points.installed(), _dying_quietly():
            await scenario(simulation)
            ledger, faults = await snapshot(stores.store), await audit(stores.store)
            await simulation.close()
    finally:
        await app.close()
        app.use_store(before)
    return _Run(ledger, faults, simulation.points.reached, simulation.points.deaths)


def _process_store(stores: Stores) -> Store:
    """What a new process works with.

    A connection to PostgreSQL keeps nothing of the process that died, and a new one is dear: the server compiles
    every routine anew for it.
    """
    return cast(Store, Borrowed(stores.store)) if stores.backend == "postgres" else stores.unopened()


def _compare(calm: _Run, run: _Run, plan: tuple[Occurrence, ...], ignore: Collection[str]) -> None:
    faults = differences(_steady(calm.ledger), _steady(run.ledger), ignore) + run.faults
    if faults:
        where = ", then ".join(f"at {point} (time {occurrence})" for point, occurrence in plan)
        raise CrashProofError(f"after a crash {where}: " + "; ".join(faults))


def _steady(ledger: Snapshot) -> Snapshot:
    """Without what counts and dates the attempts of calls."""
    return {
        name: {fact: value for fact, value in facts.items() if fact not in _OF_ATTEMPTS.get(str(facts["kind"]), ())}
        for name, facts in ledger.items()
    }


@contextlib.asynccontextmanager
async def _temporary_stores() -> AsyncIterator[Stores]:
    with tempfile.TemporaryDirectory(prefix="holdfast-crash-") as folder:
        stores = SqliteStores(Path(folder))
        await stores.open()
        try:
            yield stores
        finally:
            await stores.close()


@contextlib.asynccontextmanager
async def _hang_is_an_error() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(HANGS_AFTER_SECONDS):
            yield
    except TimeoutError as error:
        raise CrashProofError(
            f"nothing moved for {HANGS_AFTER_SECONDS:g} s: a step waits for something that never comes, or a commit "
            "was lost"
        ) from error


@contextlib.contextmanager
def _dying_quietly() -> Iterator[None]:
    """A crash raised in a callback has no caller; the loop would print it. What is wanted is no news."""
    loop = asyncio.get_running_loop()
    earlier = loop.get_exception_handler()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), Crash):
            return
        if earlier is not None:
            earlier(loop, context)
        else:
            loop.default_exception_handler(context)

    def is_news(record: logging.LogRecord) -> bool:
        return record.exc_info is None or not isinstance(record.exc_info[1], Crash)

    engine_log = logging.getLogger("holdfast.engine")
    loop.set_exception_handler(handle)
    engine_log.addFilter(is_news)
    try:
        yield
    finally:
        engine_log.removeFilter(is_news)
        loop.set_exception_handler(earlier)
