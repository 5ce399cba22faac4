"""The shapes of what a ledger has besides executions: queues, workers, schedules, definitions; and it at a glance.

What `shapes` says of its own holds for these.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.models.schedule import CatchUp, Overlap, ScheduleSpec
from holdfast.store import schedules
from holdfast.store.sampling import Sample
from holdfast.store.values import Definition, QueueSettings, QueueStats, WorkerInfo
from holdfast.store.watching import Pace, Tally

_ESTIMATE = "Where `capped`: about how many there are, from a sample; null where that says too little"


class QueueLimits(Struct, frozen=True, kw_only=True):
    """The settings of a queue, which hold over all workers together."""

    name: str
    paused: bool
    concurrency: Annotated[int | None, Meta(description="Executions at work at most; null: any number")]
    rate: Annotated[float | None, Meta(description="Executions begun at most in `rate_seconds`; null: any number")]
    rate_seconds: float | None


class Queue(QueueLimits, frozen=True, kw_only=True):
    """A queue with its settings and what is in it."""

    runnable: Annotated[int, Meta(description="Counted up to a bound, see `capped`")]
    executing: int
    capped: Annotated[bool, Meta(description="There are more runnable ones than were counted")]
    estimate: Annotated[int | None, Meta(description=_ESTIMATE)]
    oldest_eligible_at: Annotated[datetime | None, Meta(description="Since when the oldest due execution waits")]


class Worker(Struct, frozen=True, kw_only=True):
    """A worker that has a lease, or had one and was not cleaned up after yet."""

    id: str
    host: str
    pid: int
    queues: list[str]
    executing: int
    is_expired: bool
    started_at: datetime
    expires_at: datetime


class ScheduleTerms(Struct, frozen=True, kw_only=True):
    """What a schedule starts, and by which rules."""

    cron: str
    definition: str
    timezone: str
    input: Raw
    queue: str | None
    overlap: Overlap
    catch_up: CatchUp
    window_seconds: float


class Schedule(Struct, frozen=True, kw_only=True):
    """What is started when."""

    name: str
    spec: Annotated[ScheduleTerms | None, Meta(description="Null: this release cannot read it, and starts nothing")]
    paused: bool
    next_at: datetime
    last_at: Annotated[datetime | None, Meta(description="The last tick that started something")]
    last: Annotated[str | None, Meta(description="The id of what it started")]


class DefinitionLine(Struct, frozen=True, kw_only=True):
    """What workers have code for, and can therefore be started by name."""

    kind: str
    name: str
    version: int
    queue: str
    priority: int
    parameters: Annotated[list[str], Meta(description="Of a function; a machine takes its state")]


class StatusCount(Struct, frozen=True, kw_only=True):
    """How many executions have a status."""

    status: Status
    count: Annotated[int, Meta(description="Counted up to a bound, see `capped`")]
    capped: Annotated[bool, Meta(description="There are more than were counted")]
    estimate: Annotated[int | None, Meta(description=_ESTIMATE)]


class Overview(Struct, frozen=True, kw_only=True):
    """A ledger at a glance; nothing in it costs more the more the ledger holds."""

    at: Annotated[datetime, Meta(description="The ledger's own time")]
    statuses: list[StatusCount]
    queues: list[Queue]
    workers: Annotated[int, Meta(description="Workers with a lease")]
    workers_expired: Annotated[int, Meta(description="Workers whose lease ran out and whose work is not back yet")]
    pace: Annotated[Pace, Meta(description="What ended lately")]


# ---------------------------------------------------------------------- from the store's values


def _limit_fields(settings: QueueSettings) -> dict[str, object]:
    return {
        "name": settings.name,
        "paused": settings.paused,
        "concurrency": settings.concurrency,
        "rate": settings.rate,
        "rate_seconds": None if settings.rate is None else settings.rate_seconds,
    }


def queue_limits(settings: QueueSettings) -> QueueLimits:
    return QueueLimits(**_limit_fields(settings))  # type: ignore[arg-type]


def status_count(tally: Tally, sample: Sample | None) -> StatusCount:
    estimate = sample.about(tally.count, tally.status) if tally.capped and sample is not None else None
    return StatusCount(status=tally.status, count=tally.count, capped=tally.capped, estimate=estimate)


def queue(stats: QueueStats, sample: Sample | None) -> Queue:
    estimate = None
    if stats.capped and sample is not None:
        estimate = sample.about(stats.runnable, Status.RUNNABLE, stats.settings.name)
    return Queue(
        **_limit_fields(stats.settings),  # type: ignore[arg-type]
        runnable=stats.runnable,
        executing=stats.executing,
        capped=stats.capped,
        estimate=estimate,
        oldest_eligible_at=stats.oldest_eligible_at,
    )


def worker(info: WorkerInfo) -> Worker:
    return Worker(
        id=info.id,
        host=info.host,
        pid=info.pid,
        queues=list(info.queues),
        executing=info.executing,
        is_expired=info.is_expired,
        started_at=info.started_at,
        expires_at=info.expires_at,
    )


_spec = msgspec.json.Decoder(ScheduleSpec).decode


def _terms(text: str) -> ScheduleTerms | None:
    try:
        spec = _spec(text)
    except msgspec.DecodeError:  # an import or another release brought it: the others are listed all the same
        return None
    return ScheduleTerms(
        cron=spec.cron,
        definition=spec.definition,
        timezone=spec.timezone,
        input=spec.input,
        queue=spec.queue,
        overlap=spec.overlap,
        catch_up=spec.catch_up,
        window_seconds=spec.window_seconds,
    )


def schedule(found: schedules.Schedule) -> Schedule:
    return Schedule(
        name=found.name,
        spec=_terms(found.spec),
        paused=found.paused,
        next_at=found.next_at,
        last_at=found.last_at,
        last=None if found.last is None else str(PromiseId.from_bytes(found.last)),
    )


def definition(found: Definition) -> DefinitionLine:
    return DefinitionLine(
        kind=found.kind,
        name=found.name,
        version=found.version,
        queue=found.queue,
        priority=found.priority,
        parameters=list(found.parameters),
    )
