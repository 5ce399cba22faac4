"""An app on a ledger with a virtual clock, its workers driven by hand, and a store whose calls can be made to fail.

- `Rig`: what most tests of engine and machines use; `rig` is the fixture of it, on both stores.
- `no_hang`: a fixture that turns a test that would wait for ever into one that fails.
- `Faulty`: a wrapper around a real store; `fail` makes chosen calls raise, before or after they were carried out.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, cast

import pytest
import pytest_asyncio

from holdfast import App, Collision, Handle
from holdfast.core.errors import StoreUnavailableError
from holdfast.engine.settings import WorkerSettings
from holdfast.engine.worker import Worker
from holdfast.store.base import Store
from holdfast.store.values import ExecutionView
from holdfast.testing.stores import Stores

LEASE_PASSED = 31
HANGS_AFTER_SECONDS = 120


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """A lost wake-up is a failure with a traceback, not a run that never ends."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"the test was not done after {HANGS_AFTER_SECONDS} s: something is waited for in vain")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(HANGS_AFTER_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class Rig:
    """`worker` is made at its first use, after the test has declared its machines."""

    def __init__(self, stores: Stores, *, store: Store | None = None, **app: Any) -> None:
        self.stores = stores
        self.app = App("test", store=store or stores.unopened(), **app)
        self._workers: list[Worker] = []

    async def make_worker(self, **settings: Any) -> Worker:
        """Another worker, open and idle: it works when told to."""
        worker = await self.app.make_worker(WorkerSettings(**settings))
        await worker.open()
        self._workers.append(worker)
        return worker

    async def worker(self) -> Worker:
        return self._workers[0] if self._workers else await self.make_worker()

    async def once(self) -> int:
        """One pick and all it leads to."""
        return await (await self.worker()).run_once()

    async def run(self) -> int:
        """Work until nothing is due."""
        return await (await self.worker()).run_until_idle()

    async def advance(self, seconds: float) -> None:
        """Move the ledger's time; the workers that live beat their hearts."""
        await self.stores.advance(seconds)
        for worker in self._workers:
            await worker.beat_once()

    @property
    def now(self) -> datetime:
        return self.stores.clock.now

    async def store(self) -> Store:
        return await self.app.store()

    async def view(self, handle: Handle[Any]) -> ExecutionView:
        return await handle.describe()

    async def stop(self, worker: Worker, drain_seconds: float | None = None) -> None:
        """Stop one that the test has no more use for."""
        self._workers.remove(worker)
        await worker.stop(drain_seconds)

    async def kill(self, worker: Worker, working: asyncio.Task[int]) -> None:
        """As if its process had been killed while `working`, and another had then taken back what it held."""
        self._workers.remove(worker)
        await worker.abandon()
        await working
        await self.advance(LEASE_PASSED)
        await (await self.worker()).reap_once()

    async def close(self) -> None:
        for worker in self._workers:
            await worker.stop(0)
        await self.app.close()


@pytest_asyncio.fixture
async def rig(stores: Stores) -> AsyncIterator[Rig]:
    made = Rig(stores)
    try:
        yield made
    finally:
        await made.close()


async def renamed(worker: Worker) -> None:
    """Until a worker that has just learned that its lease is lost goes by another name."""
    await asyncio.sleep(0)
    await worker._identity.settle()


def handles(started: Sequence[Handle[Any] | Collision]) -> list[Handle[Any]]:
    """Of a `start_many` that must not collide."""
    assert not any(isinstance(item, Collision) for item in started)
    return cast("list[Handle[Any]]", started)


class Faulty:
    """Passes everything on to a real store, counts calls, and fails the ones a test chose.

    `check` sees every call and may raise; `on_call` may hold one up.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()
        self._before: defaultdict[str, list[Exception]] = defaultdict(list)
        self._after: defaultdict[str, list[Exception]] = defaultdict(list)
        self.on_call: dict[str, Callable[..., Awaitable[None]]] = {}
        self.check: Callable[[str, tuple[Any, ...]], None] | None = None
        self.inline: bool | None = None  # None: as the store says

    def as_store(self) -> Store:
        return cast("Store", self)

    def fail(self, name: str, *errors: Exception, applied: bool = False) -> None:
        """The next calls of `name` raise these; with `applied`, after the store has carried them out."""
        chosen = errors or (StoreUnavailableError("the connection was cut"),)
        (self._after if applied else self._before)[name].extend(chosen)

    def pending(self) -> int:
        """Failures that were ordered and have not happened."""
        return sum(map(len, self._before.values())) + sum(map(len, self._after.values()))

    @property
    def commits_inline(self) -> bool:
        return self._store.commits_inline if self.inline is None else self.inline

    def flush_now(self, *arguments: Any) -> Any:
        self._enter("flush_now", arguments)
        result = self._store.flush_now(*arguments)
        self._leave("flush_now")
        return result

    def step_now(self, *arguments: Any) -> int:
        """A flush like any other to whoever counts and fails them; what is to fail before it, fails at that."""
        if not self.commits_inline or self._before["flush_now"]:
            return 0
        at_us = self._store.step_now(*arguments)
        if at_us:
            self._enter("flush_now", arguments)
            self._leave("flush_now")
        return at_us

    def sibling(self) -> Store:
        return self._store.sibling()

    def __getattr__(self, name: str) -> Any:
        target = getattr(self._store, name)
        if not callable(target):
            return target

        async def call(*arguments: Any, **keywords: Any) -> Any:
            self._enter(name, arguments)
            if name in self.on_call:
                await self.on_call[name](*arguments, **keywords)
            result = await target(*arguments, **keywords)
            self._leave(name)
            return result

        return call

    def _enter(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.calls[name] += 1
        if self.check is not None:
            self.check(name, arguments)
        if self._before[name]:
            raise self._before[name].pop(0)

    def _leave(self, name: str) -> None:
        if self._after[name]:
            raise self._after[name].pop(0)
