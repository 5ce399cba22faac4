"""Leases, timers, and what people ask of executions and queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET

from holdfast.core.crashpoints import reach
from holdfast.core.status import Status
from holdfast.store.base import DEADLINE_EXCEEDED, trees_of
from holdfast.store.postgres.ledger import Ledger
from holdfast.store.postgres.rows import queue_of, worker_of
from holdfast.store.values import (
    Fired,
    QueueChange,
    QueueSettings,
    QueueStats,
    Reaped,
    Registered,
    Retention,
    Retried,
    Topic,
    WorkerInfo,
)

# Counting further than this would make a look at the queues cost what the queues hold.
QUEUE_COUNT_BOUND = 10_000
BEAT_SECONDS_LEAST = 1.0


class Outside(Ledger):
    # ------------------------------------------------------------------ leases and timers

    async def register_worker(
        self, worker: str, *, host: str, pid: int, queues: Sequence[str], lease_seconds: float
    ) -> Registered:
        reach("lease.before")
        async with self._connections.any("register a worker") as connection:
            row = await connection.fetchrow(self._sql["worker_register"], worker, host, pid, queues, lease_seconds)
            assert row is not None, "an insert answers its row"
        self._connections.is_at_work = True
        reach("lease.after")
        return Registered(*row)

    async def beat(self, worker: str, lease_seconds: float) -> bool:
        reach("lease.before")
        async with self._connections.any("extend a lease") as connection:
            # A connection that has gone silent must be given up while there is time for a beat on another.
            seconds = max(BEAT_SECONDS_LEAST, lease_seconds / 2)
            beaten = await connection.fetchval(self._sql["worker_beat"], worker, lease_seconds, timeout=seconds)
        reach("lease.after")
        return beaten is not None

    async def retire_worker(self, worker: str) -> int:
        reach("release.before")
        async with self._connections.any("retire a worker") as connection:
            released: int = await connection.fetchval(self._sql["retire_worker"], worker)
        reach("release.after")
        if released:
            self._tell(Topic.WORK)
        return released

    async def reap(self, limit: int, max_crashes: int) -> Reaped:
        reach("reap.before")
        async with self._connections.any("reap") as connection:
            answer = await connection.fetchrow(self._sql["reap"], limit, max_crashes)
        reach("reap.after")
        assert answer is not None, "reap answers one row"
        reaped = Reaped(tuple(answer["workers"]), answer["released"], tuple(answer["stranded"]), answer["more"])
        if reaped.released:
            self._tell(Topic.WORK)
        if reaped.stranded:
            self._tell(Topic.ENDED)
        return reaped

    async def fire_timers(self, limit: int) -> Fired:
        reach("timers.before")
        async with self._connections.any("fire timers") as connection:
            answer = await connection.fetchrow(self._sql["fire_timers"], limit, DEADLINE_EXCEEDED)
        reach("timers.after")
        assert answer is not None, "fire_timers answers one row"
        if answer["woke"]:
            self._tell(Topic.WORK)
        if answer["ended"]:
            self._tell(Topic.ENDED)
        return Fired(answer["fired"], answer["next_due"], answer["fired"] >= limit)

    # ------------------------------------------------------------------ from outside

    async def cancel(
        self, promises: Sequence[bytes], *, cascade: bool = False, reason: str | None = None, force: bool = False
    ) -> list[Status | None]:
        ranges = trees_of(promises) if cascade else []
        whom = (promises, [low for low, _ in ranges], [high for _, high in ranges])
        reach("cancel.before")
        async with self._connections.any("cancel") as connection, connection.transaction():
            if force:
                await connection.execute(self._sql["cancel_force_lock"], *whom)
                await connection.execute(self._sql["cancel_force"], *whom)
            rows = await connection.fetch(self._sql["cancel"], *whom, reason)
        reach("cancel.after")
        self._tell(Topic.WORK, Topic.ENDED)
        return [None if row[0] is None else Status(row[0]) for row in rows]

    async def pause(self, promise: bytes, paused: bool) -> bool:
        reach("control.before")
        async with self._connections.any("pause") as connection:
            found: bool = await connection.fetchval(self._sql["pause"], promise, paused)
        reach("control.after")
        if found:
            self._tell(Topic.WORK)
        return found

    async def resume(self, promise: bytes) -> bool:
        reach("control.before")
        async with self._connections.any("resume") as connection:
            resumed: bool = await connection.fetchval(self._sql["resume"], promise)
        reach("control.after")
        if resumed:
            self._tell(Topic.WORK)
        return resumed

    async def retry_stranded(self, queue: str, digests: Mapping[int, str], limit: int, after: int = 0) -> Retried:
        reach("control.before")
        async with self._connections.any("try stranded runs again") as connection:
            answer = await connection.fetchrow(
                self._sql["retry_stranded"], queue, list(digests), list(digests.values()), limit, after
            )
        reach("control.after")
        assert answer is not None, "retry_stranded answers one row"
        if answer["retried"]:
            self._tell(Topic.WORK)
        return Retried(answer["retried"], answer["following"])

    async def purge(self, rule: Retention, limit: int) -> int:
        reach("purge.before")
        async with self._connections.any("purge") as connection:
            purged: int = await connection.fetchval(self._sql["purge"], rule.age_seconds, rule.queue, rule.name, limit)
        reach("purge.after")
        return purged

    # ------------------------------------------------------------------ queues

    async def configure_queue(self, settings: QueueSettings) -> None:
        reach("control.before")
        async with self._connections.any("configure a queue") as connection:
            await connection.execute(
                self._sql["queue_configure"],
                settings.name,
                settings.paused,
                settings.concurrency,
                settings.rate,
                settings.rate_seconds,
            )
        reach("control.after")
        self._tell(Topic.WORK)

    async def change_queue(self, name: str, change: QueueChange) -> QueueSettings:
        reach("control.before")
        async with self._connections.any("change a queue") as connection:
            (row,) = await connection.fetch(
                self._sql["queue_change"],
                name,
                None if change.paused is UNSET else change.paused,
                change.concurrency is not UNSET,
                None if change.concurrency is UNSET else change.concurrency,
                change.rate is not UNSET,
                None if change.rate is UNSET else change.rate,
                None if change.rate_seconds is UNSET else change.rate_seconds,
            )
        reach("control.after")
        self._tell(Topic.WORK)
        return QueueSettings(name=name, **row)

    async def queues(self, after: str = "", limit: int | None = None) -> list[QueueStats]:
        async with self._connections.any("look at the queues") as connection:
            rows = await connection.fetch(self._sql["queue_stats"], QUEUE_COUNT_BOUND, after, limit)
        return [queue_of(row, QUEUE_COUNT_BOUND) for row in rows]

    async def workers(self) -> list[WorkerInfo]:
        async with self._connections.any("look at the workers") as connection:
            return [worker_of(row) for row in await connection.fetch(self._sql["worker_list"])]
