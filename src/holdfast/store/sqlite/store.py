"""`SqliteStore`: the contract of `holdfast.store.base` on one file.

Its life, and how it writes and reads, is in `ledger`. What each method does is in the module of its topic: `inserting`,
`picking`, `flushing`, `signalling`, `leases`, `working`, `control`, `queueing`, `reading`, `wake` and others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from holdfast.core.identity import IdQuery
from holdfast.core.status import Status
from holdfast.store.batches import BatchView, ChunkView, Fed, TakeIn, Which
from holdfast.store.behind import may_stay_behind
from holdfast.store.effects import AdvanceExecution, AppendJournal, Commit, Effect
from holdfast.store.health import Check, SchemaState
from holdfast.store.own_thread import in_own_thread
from holdfast.store.records import Oddities, Record, RefusedError, Written
from holdfast.store.sampling import Sample
from holdfast.store.schedules import Schedule, Tick
from holdfast.store.sqlite import (
    batching,
    continuing,
    control,
    defining,
    flushing,
    health,
    inserting,
    leases,
    picking,
    queueing,
    reading,
    recording,
    scheduling,
    signalling,
    transacting,
    watching,
    working,
)
from holdfast.store.sqlite.flowing import Flowing
from holdfast.store.sqlite.keeping import STEP, step_values
from holdfast.store.sqlite.wake import SqliteEar
from holdfast.store.sqlite.writer import WAIT_INLINE_SECONDS, Tx, often_switching
from holdfast.store.values import (
    Definition,
    Delivery,
    EndOf,
    ExecutionClaim,
    ExecutionFilter,
    ExecutionView,
    Fired,
    Flushed,
    ForkedChild,
    Inserted,
    JournalCopy,
    NewExecution,
    NewSignal,
    Page,
    Picked,
    QueueChange,
    QueueRoom,
    QueueSettings,
    QueueStats,
    Reaped,
    Receipt,
    Registered,
    Retention,
    Retried,
    Shown,
    Signal,
    Topic,
    Transition,
    WorkerInfo,
)
from holdfast.store.watching import COUNT_BOUND, FEED_STATUSES, Feed, Pace, Tally

_SMALL_ROWS: Final = 8  # a write of so few rows is little beside its commit
_MANY_ROWS: Final = 200  # statements on more of them would stall the event loop


class SqliteStore(Flowing):
    """A ledger in one SQLite file; any number of processes of one machine may share it."""

    # What the last pick found is the best guess at what the next one will.
    _last_picked = 0
    _leases_lag = True

    def sibling(self) -> SqliteStore:
        made = SqliteStore(self._path, clock=self._clock, busy_seconds=self._busy_seconds)
        made._is_let_in = self._is_let_in or self._writer is not None
        return made

    async def schema_state(self) -> SchemaState:
        return await in_own_thread(health.schema_state, self._path, self._busy_seconds)

    async def examine(self) -> list[Check]:
        return await self._read(lambda db: health.examine(db, self._path, self._clock.now_us()))

    # ------------------------------------------------------------------ starting

    async def insert(self, rows: Sequence[NewExecution]) -> list[Inserted]:
        if len(rows) > _MANY_ROWS:
            with often_switching:  # the caller may be making the next ones ready
                return await self._write("insert", lambda tx: inserting.insert(tx, rows))
        return await self._write("insert", lambda tx: inserting.insert(tx, rows), is_small=len(rows) <= _SMALL_ROWS)

    async def insert_with(self, connection: Any, rows: Sequence[NewExecution]) -> list[Inserted]:
        return transacting.insert_with(self._path, self._clock.now_us(), connection, rows)

    async def insert_and_deliver(self, row: NewExecution, signal: NewSignal) -> tuple[Inserted, Delivery]:
        def work(tx: Tx) -> tuple[Inserted, Delivery]:
            (inserted,) = inserting.insert(tx, [row])
            return inserted, signalling.deliver_one(tx, signal)[0]

        return await self._write("insert", work, is_small=True)

    async def register_definitions(self, definitions: Sequence[Definition]) -> None:
        if set(definitions) - set(await self.definitions()):
            await self._write("control", lambda tx: defining.register(tx, definitions))

    async def definitions(self, name: str | None = None) -> list[Definition]:
        return await self._read(lambda db: defining.definitions(db, name))

    async def put_schedule(self, name: str, spec: str, next_at: datetime, *, seen: Schedule | None = None) -> bool:
        return await self._write("control", lambda tx: scheduling.put(tx, name, spec, next_at, seen))

    async def schedules(self, name: str | None = None) -> list[Schedule]:
        return await self._read(lambda db: scheduling.schedules(db, name))

    async def pause_schedule(self, name: str, paused: bool) -> bool:
        return await self._write("control", lambda tx: scheduling.pause(tx, name, paused))

    async def delete_schedule(self, name: str) -> bool:
        return await self._write("control", lambda tx: scheduling.delete(tx, name))

    async def tick(self, moved: Tick, rows: Sequence[NewExecution]) -> bool:
        return await self._write("insert", lambda tx: scheduling.tick(tx, moved, rows))

    async def fork(
        self,
        row: NewExecution,
        past: JournalCopy | None,
        *,
        replaces: bytes | None = None,
        children: Sequence[ForkedChild] = (),
    ) -> Inserted:
        return await self._write("insert", lambda tx: continuing.fork(tx, row, past, replaces, children))

    # ------------------------------------------------------------------ working

    async def pick(self, worker: str, queues: Sequence[QueueRoom], handlers: Sequence[int], limit: int) -> Picked:
        order = picking.PickOrder(worker, queues, handlers, limit, self._leases_lag)
        while True:
            is_small = min(limit, self._last_picked) <= _MANY_ROWS
            picked, more = await self._write(
                "pick", order.run, is_small=is_small, may_lag=order.may_lag, gives_way=False
            )
            self._last_picked, self._leases_lag = len(picked.claims), order.may_lag
            if not more:
                return picked
            await asyncio.sleep(0)

    async def flush(self, worker: str, commits: Sequence[Commit]) -> Flushed:
        return await self._write("flush", lambda tx: flushing.flush(tx, worker, commits), is_small=True)

    def flush_now(self, worker: str, commits: Sequence[Commit]) -> Flushed:
        return self._opened().run_now(
            "flush", lambda tx: flushing.flush(tx, worker, commits), wait_seconds=WAIT_INLINE_SECONDS
        )

    def step_now(self, worker: str, claim: ExecutionClaim, advance: AdvanceExecution, segment: AppendJournal) -> int:
        now = self._clock.now_us()
        if not may_stay_behind(claim, advance, segment, now):
            return 0
        return now if self._opened().write_one("flush", STEP, step_values(worker, claim, advance, segment)) else 0

    async def transact(
        self,
        worker: str,
        claim: ExecutionClaim,
        work: Callable[[Any], Any],
        effects_of: Callable[[Any], Sequence[Effect]],
        *,
        heeds_cancel: bool = False,
        heeds_pause: bool = False,
    ) -> Receipt:
        heeds = heeds_cancel, heeds_pause
        try:
            return await self._write(
                "flush", lambda tx: transacting.transact(tx, self._file, worker, claim, work, effects_of, heeds)
            )
        except transacting.WorkFailed as failed:
            raise failed.error from None

    async def reclaim(self, worker: str, claims: Sequence[ExecutionClaim]) -> list[ExecutionClaim | None]:
        return await self._write("lease", lambda tx: leases.reclaim(tx, worker, claims))

    async def disown(self, worker: str, keep: Sequence[int]) -> int:
        return await self._write("release", lambda tx: leases.disown(tx, worker, keep))

    async def release(self, worker: str, claims: Sequence[ExecutionClaim]) -> int:
        return await self._write("release", lambda tx: leases.release(tx, worker, claims))

    async def stirred(self, worker: str, rows: Sequence[int]) -> list[int]:
        return self._read_now(lambda db: leases.stirred(db, worker, rows))

    async def waiting_priority(self, queues: Sequence[str], handlers: Sequence[int]) -> int | None:
        now = self._clock.now_us()
        return await self._read(lambda db: picking.waiting_priority(db, now, queues, handlers))

    # ------------------------------------------------------------------ leases and timers

    async def register_worker(
        self, worker: str, *, host: str, pid: int, queues: Sequence[str], lease_seconds: float
    ) -> Registered:
        return await self._write("lease", lambda tx: working.register(tx, worker, host, pid, queues, lease_seconds))

    async def beat(self, worker: str, lease_seconds: float) -> bool:
        return await self._write("lease", lambda tx: working.beat(tx, worker, lease_seconds))

    async def retire_worker(self, worker: str) -> int:
        return await self._write("release", lambda tx: leases.retire(tx, worker))

    async def reap(self, limit: int, max_crashes: int) -> Reaped:
        return await self._write("reap", lambda tx: leases.reap(tx, limit, max_crashes))

    async def fire_timers(self, limit: int) -> Fired:
        return await self._write("timers", lambda tx: leases.fire_timers(tx, limit))

    # ------------------------------------------------------------------ from outside

    async def deliver(self, signals: Sequence[NewSignal]) -> list[Delivery]:
        return await self._write(
            "deliver", lambda tx: signalling.deliver(tx, signals), is_small=len(signals) <= _SMALL_ROWS
        )

    async def cancel(
        self, promises: Sequence[bytes], *, cascade: bool = False, reason: str | None = None, force: bool = False
    ) -> list[Status | None]:
        return await self._write("cancel", lambda tx: control.cancel(tx, promises, cascade, reason, force))

    async def pause(self, promise: bytes, paused: bool) -> bool:
        return await self._write("control", lambda tx: control.pause(tx, promise, paused))

    async def resume(self, promise: bytes) -> bool:
        return await self._write("control", lambda tx: control.resume(tx, promise))

    async def retry_stranded(self, queue: str, digests: Mapping[int, str], limit: int, after: int = 0) -> Retried:
        rows, following = await self._read(lambda db: control.stranded(db, queue, digests, limit, after))
        retried = await self._write("control", lambda tx: control.retry_stranded(tx, rows)) if rows else 0
        return Retried(retried, following)

    async def purge(self, rule: Retention, limit: int) -> int:
        now = self._clock.now_us()
        rows = await self._read(lambda db: control.purgeable(db, now, rule, limit))
        return await self._write("purge", lambda tx: control.purge(tx, rows, now, rule)) if rows else 0

    # ------------------------------------------------------------------ queues

    async def configure_queue(self, settings: QueueSettings) -> None:
        await self._write("control", lambda tx: queueing.configure(tx, settings))

    async def change_queue(self, name: str, change: QueueChange) -> QueueSettings:
        return await self._write("control", lambda tx: queueing.change(tx, name, change))

    async def queues(self, after: str = "", limit: int | None = None) -> list[QueueStats]:
        return await self._read(lambda db: queueing.stats(db, after, limit))

    async def workers(self) -> list[WorkerInfo]:
        now = self._clock.now_us()
        return await self._read(lambda db: reading.workers(db, now))

    # ------------------------------------------------------------------ reading

    async def get(self, promise: bytes) -> ExecutionView | None:
        return self._read_now(lambda db: reading.get(db, promise))

    async def get_many(self, promises: Sequence[bytes]) -> list[ExecutionView | None]:
        return await self._read(lambda db: [reading.get(db, promise) for promise in promises])

    async def endings(self, promises: Sequence[bytes]) -> list[EndOf]:
        return await self._read(lambda db: reading.endings(db, promises))

    async def shown(self, promises: Sequence[bytes]) -> list[Shown]:
        return await self._read(lambda db: reading.shown(db, promises))

    async def find(self, query: IdQuery, limit: int = 6) -> list[ExecutionView]:
        return await self._read(lambda db: reading.find(db, query, limit))

    async def browse(
        self, where: ExecutionFilter, limit: int, cursor: str | None = None, *, look_at: int | None = None
    ) -> Page:
        return await self._read(lambda db: reading.browse(db, where, limit, cursor, look_at))

    async def cursor_before(self, at: datetime) -> str:
        return await self._read(lambda db: reading.cursor_before(db, at))

    async def count(self, where: ExecutionFilter) -> dict[Status, int]:
        return await self._read(lambda db: reading.count(db, where))

    async def children(self, promise: bytes, barrier_round: int | None = None) -> list[ExecutionView]:
        return await self._read(lambda db: reading.children(db, promise, barrier_round))

    async def inbox(self, promise: bytes) -> list[Signal]:
        return self._read_now(lambda db: reading.inbox(db, promise))

    async def journal(self, promise: bytes) -> list[str]:
        return self._read_now(lambda db: reading.journal(db, promise))

    async def history(self, promise: bytes) -> list[Transition]:
        return await self._read(lambda db: reading.history(db, promise))

    # ------------------------------------------------------------------ watching

    async def tally(self, bound: int = COUNT_BOUND) -> list[Tally]:
        return await self._read(lambda db: watching.tally(db, bound))

    async def sample(self) -> Sample:
        return await self._read(watching.sample)

    async def pace(self, bucket_seconds: float, buckets: int, bound: int = 2 * COUNT_BOUND) -> Pace:
        now = self._clock.now_us()
        return await self._read(lambda db: watching.pace(db, now, bucket_seconds, buckets, bound))

    async def ends(
        self, position: str | None, limit: int, statuses: Sequence[Status] = FEED_STATUSES, *, starts: bool = False
    ) -> Feed:
        now = self._clock.now_us()
        return await self._read(lambda db: watching.ends(db, now, position, limit, statuses, starts))

    async def failures(self, limit: int, cursor: str | None = None) -> Page:
        return await self._read(lambda db: watching.failures(db, limit, cursor))

    async def journal_since(self, promise: bytes, sequence: int) -> list[str]:
        return await self._read(lambda db: watching.journal_since(db, promise, sequence))

    async def history_since(self, promise: bytes, revision: int) -> list[Transition]:
        return await self._read(lambda db: watching.history_since(db, promise, revision))

    async def take_place(self, name: str, owner: str, lease_seconds: float, position: str) -> str | None:
        return await self._write(None, lambda tx: watching.take_place(tx, name, owner, lease_seconds, position))

    async def move_place(self, name: str, owner: str, lease_seconds: float, position: str) -> bool:
        return await self._write(None, lambda tx: watching.move_place(tx, name, owner, lease_seconds, position))

    async def leave_place(self, name: str, owner: str) -> None:
        await self._write(None, lambda tx: watching.leave_place(tx, name, owner))

    # ------------------------------------------------------------------ whole ledgers

    async def read_records(
        self, take: Callable[[Sequence[Record]], None], *, within: tuple[bytes, bytes] | None = None
    ) -> None:
        await self._read(lambda db: recording.read(db, take, within))

    async def write_records(
        self, batches: Iterable[Sequence[Record]], *, skip_existing: bool = False, replace: bool = False
    ) -> Written:
        try:
            return await self._write("insert", lambda tx: recording.write(tx, batches, skip_existing, replace))
        except RefusedError as refused:
            return Written(existing=refused.existing)

    async def survey(self, take: Callable[[Sequence[Record]], None], let_go: Callable[[], None]) -> Oddities:
        return await self._read(lambda db: recording.survey(db, take, let_go))

    # ------------------------------------------------------------------ batches

    async def start_batch(self, row: NewExecution, taken: TakeIn) -> Inserted:
        return await self._write("insert", lambda tx: batching.start(tx, row, taken))

    async def feed_batch(self, promise: bytes, first: int, taken: TakeIn) -> Fed:
        return await self._write("insert", lambda tx: batching.feed(tx, promise, first, taken))

    async def batch_status(self, promise: bytes) -> BatchView | None:
        return self._read_now(lambda db: batching.view(db, promise))

    async def batch_chunks(self, promise: bytes, start: int, limit: int, which: Which = "") -> list[ChunkView]:
        return await self._read(lambda db: batching.chunks(db, promise, start, limit, which))

    # ------------------------------------------------------------------ being woken

    async def open_ear(self, hear: Callable[[Topic], None]) -> SqliteEar:
        knocked = self._opened().is_free_soon
        return SqliteEar(self._file, hear, lambda work: self._write(None, work), self._clock, knocked)
