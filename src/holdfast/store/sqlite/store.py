"""`SqliteStore`: the contract of `holdfast.store.base` on one file.

Writes go through `writer.Writer`, reads through `readers.Readers`. What each does is in the module of its topic:
`inserting`, `picking`, `flushing`, `signalling`, `leases`, `working`, `control`, `queueing`, `reading`, `wake`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import time_ns
from typing import TypeVar

from holdfast.core.clock import Clock
from holdfast.core.errors import StoreError
from holdfast.core.identity import IdQuery
from holdfast.core.status import Status
from holdfast.store.effects import Commit
from holdfast.store.sqlite import (
    control,
    flushing,
    inserting,
    leases,
    picking,
    queueing,
    reading,
    signalling,
    working,
)
from holdfast.store.sqlite.connection import check_library
from holdfast.store.sqlite.migrate import migrate
from holdfast.store.sqlite.readers import Readers
from holdfast.store.sqlite.wake import Announcer, SqliteEar
from holdfast.store.sqlite.writer import Tx, Writer
from holdfast.store.values import (
    Delivery,
    ExecutionClaim,
    ExecutionFilter,
    ExecutionView,
    Fired,
    Flushed,
    Inserted,
    NewExecution,
    NewSignal,
    Page,
    Picked,
    QueueRoom,
    QueueSettings,
    QueueStats,
    Reaped,
    Retention,
    Signal,
    Topic,
    Transition,
    WorkerInfo,
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
        order = picking.PickOrder(worker, queues, handlers, limit)
        while True:
            picked, more = await self._write("pick", order.run)
            if not more:
                return picked

    async def flush(self, worker: str, commits: Sequence[Commit]) -> Flushed:
        return await self._write("flush", lambda tx: flushing.flush(tx, worker, commits))

    def flush_now(self, worker: str, commits: Sequence[Commit]) -> Flushed:
        return self._opened().run_now("flush", lambda tx: flushing.flush(tx, worker, commits))

    async def reclaim(self, worker: str, claims: Sequence[ExecutionClaim]) -> list[ExecutionClaim | None]:
        return await self._write("release", lambda tx: leases.reclaim(tx, worker, claims))

    async def disown(self, worker: str, keep: Sequence[int]) -> int:
        return await self._write("release", lambda tx: leases.disown(tx, worker, keep))

    async def release(self, worker: str, claims: Sequence[ExecutionClaim]) -> int:
        return await self._write("release", lambda tx: leases.release(tx, worker, claims))

    async def waiting_priority(self, queues: Sequence[str], handlers: Sequence[int]) -> int | None:
        now = self._clock.now_us()
        return await self._read(lambda db: picking.waiting_priority(db, now, queues, handlers))

    # ------------------------------------------------------------------ leases and timers

    async def register_worker(
        self, worker: str, *, host: str, pid: int, queues: Sequence[str], lease_seconds: float
    ) -> None:
        await self._write(None, lambda tx: working.register(tx, worker, host, pid, queues, lease_seconds))

    async def beat(self, worker: str, lease_seconds: float) -> bool:
        return await self._write(None, lambda tx: working.beat(tx, worker, lease_seconds))

    async def retire_worker(self, worker: str) -> int:
        return await self._write("release", lambda tx: leases.retire(tx, worker))

    async def reap(self, limit: int, max_crashes: int) -> Reaped:
        return await self._write("reap", lambda tx: leases.reap(tx, limit, max_crashes))

    async def fire_timers(self, limit: int) -> Fired:
        return await self._write("timers", lambda tx: leases.fire_timers(tx, limit))

    # ------------------------------------------------------------------ from outside

    async def deliver(self, signals: Sequence[NewSignal]) -> list[Delivery]:
        return await self._write("deliver", lambda tx: signalling.deliver(tx, signals))

    async def cancel(self, promises: Sequence[bytes], *, cascade: bool = False) -> list[Status | None]:
        return await self._write("cancel", lambda tx: control.cancel(tx, promises, cascade))

    async def pause(self, promise: bytes, paused: bool) -> bool:
        return await self._write(None, lambda tx: control.pause(tx, promise, paused))

    async def resume(self, promise: bytes) -> bool:
        return await self._write(None, lambda tx: control.resume(tx, promise))

    async def purge(self, rule: Retention, limit: int) -> int:
        return await self._write("purge", lambda tx: control.purge(tx, rule, limit))

    # ------------------------------------------------------------------ queues

    async def configure_queue(self, settings: QueueSettings) -> None:
        await self._write(None, lambda tx: queueing.configure(tx, settings))

    async def queues(self) -> list[QueueStats]:
        return await self._read(queueing.stats)

    async def workers(self) -> list[WorkerInfo]:
        now = self._clock.now_us()
        return await self._read(lambda db: reading.workers(db, now))

    # ------------------------------------------------------------------ reading

    async def get(self, promise: bytes) -> ExecutionView | None:
        return await self._read(lambda db: reading.get(db, promise))

    async def get_many(self, promises: Sequence[bytes]) -> list[ExecutionView | None]:
        return await self._read(lambda db: [reading.get(db, promise) for promise in promises])

    async def find(self, query: IdQuery, limit: int = 6) -> list[ExecutionView]:
        return await self._read(lambda db: reading.find(db, query, limit))

    async def browse(self, where: ExecutionFilter, limit: int, cursor: str | None = None) -> Page:
        return await self._read(lambda db: reading.browse(db, where, limit, cursor))

    async def count(self, where: ExecutionFilter) -> dict[Status, int]:
        return await self._read(lambda db: reading.count(db, where))

    async def children(self, promise: bytes, barrier_round: int | None = None) -> list[ExecutionView]:
        return await self._read(lambda db: reading.children(db, promise, barrier_round))

    async def inbox(self, promise: bytes) -> list[Signal]:
        return await self._read(lambda db: reading.inbox(db, promise))

    async def history(self, promise: bytes) -> list[Transition]:
        return await self._read(lambda db: reading.history(db, promise))

    # ------------------------------------------------------------------ being woken

    async def open_ear(self, hear: Callable[[Topic], None]) -> SqliteEar:
        self._opened()
        return SqliteEar(str(self._path.resolve()), hear, lambda work: self._write(None, work), self._clock)
