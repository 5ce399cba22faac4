"""`SqliteStore`: the contract of `holdfast.store.base` on one file.

Writes go through `writer.Writer`, reads through `readers.Readers`. What each does is in the module of its topic:
`inserting`, `picking`, `flushing`, `signals`, `leases`, `control`, `queues`, `reading`, `wake`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import time_ns
from typing import TypeVar

from holdfast.core.clock import Clock
from holdfast.core.errors import StoreError
from holdfast.store.effects import Commit
from holdfast.store.sqlite import flushing, inserting, picking, reading, signals, workers
from holdfast.store.sqlite.connection import check_library
from holdfast.store.sqlite.migrate import migrate
from holdfast.store.sqlite.readers import Readers
from holdfast.store.sqlite.wake import Announcer, SqliteEar
from holdfast.store.sqlite.writer import Tx, Writer
from holdfast.store.values import (
    Delivery,
    ExecutionView,
    Flushed,
    Inserted,
    NewExecution,
    NewSignal,
    Picked,
    QueueRoom,
    Signal,
    Topic,
)

T = TypeVar("T")


class SystemClock:
    """The time of this machine, which all processes on one file share."""

    def now_us(self) -> int:
        return time_ns() // 1_000


class SqliteStore:
    """A ledger in one SQLite file; any number of processes of one machine may share it."""

    def __init__(self, path: str | Path, *, clock: Clock | None = None) -> None:
        self._path = Path(path).expanduser().absolute()
        self._clock = clock or SystemClock()
        self._writer: Writer | None = None
        self._readers: Readers | None = None
        self._announcer: Announcer | None = None

    # ------------------------------------------------------------------ life

    @property
    def url(self) -> str:
        return f"sqlite:///{self._path}"

    @property
    def commits_inline(self) -> bool:
        return self._writer is not None and self._writer.is_quick

    async def open(self) -> None:
        if self._writer is not None:
            return
        check_library()
        migrate(self._path, self._clock)
        self._announcer = Announcer(str(self._path.resolve()))
        self._writer = Writer(self._path, self._clock, self._announcer.announce)
        self._readers = Readers(self._path)

    async def close(self) -> None:
        if self._writer is not None and self._readers is not None and self._announcer is not None:
            self._readers.close()
            self._writer.close()
            self._announcer.close()
            self._writer = self._readers = self._announcer = None

    def sibling(self) -> SqliteStore:
        return SqliteStore(self._path, clock=self._clock)

    async def now_us(self) -> int:
        return self._clock.now_us()

    async def _write(self, point: str | None, work: Callable[[Tx], T]) -> T:
        return await self._opened().run(point, work)

    async def _read(self, work: Callable[[reading.Db], T]) -> T:
        if self._readers is None:
            raise self._closed()
        return await self._readers.run(work)

    def _opened(self) -> Writer:
        if self._writer is None:
            raise self._closed()
        return self._writer

    def _closed(self) -> StoreError:
        return StoreError(f"the store on {self._path} is not open: call `await store.open()` first")

    # ------------------------------------------------------------------ starting

    async def insert(self, rows: Sequence[NewExecution]) -> list[Inserted]:
        return await self._write("insert", lambda tx: inserting.insert(tx, rows))

    # ------------------------------------------------------------------ working

    async def pick(self, worker: str, queues: Sequence[QueueRoom], handlers: Sequence[int], limit: int) -> Picked:
        picked, more = await self._write("pick", lambda tx: picking.pick(tx, worker, queues, handlers, limit))
        while more and len(picked.claims) < limit:
            rest = limit - len(picked.claims)
            rooms = picking.rooms_left(queues, picked.claims)
            also, more = await self._write("pick", lambda tx: picking.pick(tx, worker, rooms, handlers, rest))
            picked = Picked([*picked.claims, *also.claims], also.next_due_seconds, also.worker_lost)
        return picked

    async def flush(self, worker: str, commits: Sequence[Commit]) -> Flushed:
        return await self._write("flush", lambda tx: flushing.flush(tx, worker, commits))

    def flush_now(self, worker: str, commits: Sequence[Commit]) -> Flushed:
        return self._opened().run_now("flush", lambda tx: flushing.flush(tx, worker, commits))

    # ------------------------------------------------------------------ leases and timers

    async def register_worker(
        self, worker: str, *, host: str, pid: int, queues: Sequence[str], lease_seconds: float
    ) -> None:
        await self._write(None, lambda tx: workers.register(tx, worker, host, pid, queues, lease_seconds))

    async def beat(self, worker: str, lease_seconds: float) -> bool:
        return await self._write(None, lambda tx: workers.beat(tx, worker, lease_seconds))

    # ------------------------------------------------------------------ from outside

    async def deliver(self, signals_: Sequence[NewSignal]) -> list[Delivery]:
        return await self._write("deliver", lambda tx: signals.deliver(tx, signals_))

    # ------------------------------------------------------------------ reading

    async def get(self, promise: bytes) -> ExecutionView | None:
        return await self._read(lambda db: reading.get(db, promise))

    async def get_many(self, promises: Sequence[bytes]) -> list[ExecutionView | None]:
        return await self._read(lambda db: [reading.get(db, promise) for promise in promises])

    async def inbox(self, promise: bytes) -> list[Signal]:
        return await self._read(lambda db: reading.inbox(db, promise))

    # ------------------------------------------------------------------ being woken

    async def open_ear(self, hear: Callable[[Topic], None]) -> SqliteEar:
        self._opened()
        return SqliteEar(str(self._path.resolve()), hear, lambda work: self._write(None, work), self._clock)
