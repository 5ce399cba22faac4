"""A ledger as plain records, the same on both dialects: what `read_records` hands out and `write_records` takes.

One struct a table; its fields are the columns of the same name, except where it says otherwise. Surrogate ids never
leave a store: `id` is the execution a record belongs to, in its text form. Payloads are JSON text, exactly as stored.

A new column or table of the schema gets a field or a struct here, and a test says so.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from holdfast.core.errors import InvalidArgumentError
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status

BATCH: Final = 500  # records handed over at a time
WINDOW: Final = 10_000  # executions of a survey that are handed over with all that is theirs before the next ones come


class _Record(Struct, tag_field="record", omit_defaults=True, forbid_unknown_fields=True):
    """What all have in common; only `kw_only` is not inherited."""


class ExecutionRecord(_Record, tag="execution", kw_only=True):
    """A row of `executions`. `parent` is the id of its parent's row, None where that is gone or never was."""

    id: str
    kind: str
    name: str
    version: int
    status: Status
    step: str
    state: str
    input_hash: str
    queue: str
    inserted_at: datetime
    updated_at: datetime
    eligible_at: datetime
    parent: str | None = None
    parent_round: int | None = None
    handler: int = 0
    priority: int = 0
    partition_key: str | None = None
    key_blocked: bool = False
    result: str | None = None
    error: str | None = None
    awaits: tuple[str, ...] | None = None
    attempt: int = 0
    crashes: int = 0
    locked_by: str | None = None
    lease_epoch: int = 0
    revision: int = 0
    children_pending: int = 0
    barrier_round: int = 0
    next_child: int = 0
    successor: str | None = None
    timed_out: bool = False
    children_ready: bool = False
    unique_key: bytes | None = None
    unique_scope: tuple[str, ...] | None = None
    unique_released: bool = False
    cancel_requested: bool = False
    cancel_reason: str | None = None
    paused: bool = False
    reports: bool = False
    cleans_up: bool = False
    wake_at: datetime | None = None
    deadline_at: datetime | None = None
    journal_length: int = 0
    idempotency_key: str | None = None
    digest: str | None = None
    tried: tuple[str, ...] | None = None
    attributes: str | None = None
    published: str | None = None
    beats: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


class SignalRecord(_Record, tag="signal", kw_only=True):
    """A row of an inbox, in the order of delivery. `dedup_key` is the sender's; None where it gave none."""

    id: str
    kind: str
    name: str
    payload: str
    inserted_at: datetime
    dedup_key: str | None = None


class SignalKeyRecord(_Record, tag="signal_key", kw_only=True):
    """The sender's dedup key of a signal that was consumed (ruling E12)."""

    id: str
    dedup_key: str


class JournalRecord(_Record, tag="journal", kw_only=True):
    """A segment of a journal."""

    id: str
    first: int
    count: int
    body: str


class TransitionRecord(_Record, tag="transition", kw_only=True):
    """A line of a machine's history."""

    id: str
    revision: int
    at: datetime
    step: str
    outcome: str
    attempt: int
    next_step: str | None = None
    error: str | None = None


class BatchRecord(_Record, tag="batch", kw_only=True):
    """The counters of a batch's run."""

    id: str
    updated_at: datetime
    taken: int = 0
    closed: bool = False
    latched: bool = False
    expected: int | None = None
    progress: str | None = None
    digest: str | None = None
    open_bytes: int = 0
    head: int = 0
    dispatched: int = 0
    in_flight: int = 0
    succeeded: int = 0
    skipped: int = 0
    failed: int = 0
    cancelled: int = 0
    retries: int = 0


class ChunkRecord(_Record, tag="chunk", kw_only=True):
    """A chunk of a batch's items."""

    id: str
    first: int
    count: int
    size: int
    is_dispatched: bool = False
    ended: int = 0
    failed: int = 0
    prefix: int = 0
    states: bytes | None = None
    attempts: bytes | None = None
    inputs: str | None = None
    results: str | None = None
    notes: str | None = None
    ready_ms: str | None = None


class ActivityRecord(_Record, tag="activity", kw_only=True):
    """The collation ledger of an activity of a flow's job."""

    id: str
    activity: str
    dimension: str
    ledger: int


class GuidRecord(_Record, tag="guid", kw_only=True):
    """The collation ledger of a message of a flow's job, and the response that was taken."""

    id: str
    guid: bytes
    activity: str
    dimension: str
    ordinal: int
    ledger: int
    response: str | None = None


class SemaphoreRecord(_Record, tag="semaphore", kw_only=True):
    """What a flow's job, or one of its joins, still waits for."""

    id: str
    activity: str
    dimension: str
    status: int
    needed: int | None = None  # of a join: its arrivals in all


class ArrivalRecord(_Record, tag="arrival", kw_only=True):
    """What has come to a join."""

    id: str
    activity: str
    dimension: str
    source: str
    counts: bool
    value: str | None = None


class FailureRecord(_Record, tag="failure", kw_only=True):
    """An activity that failed for good."""

    id: str
    guid: bytes
    activity: str
    dimension: str
    error: str


class QueueRecord(_Record, tag="queue", kw_only=True):
    """The limits of a queue."""

    name: str
    paused: bool = False
    concurrency: int | None = None
    rate: float | None = None
    rate_seconds: float = 1.0


class DefinitionRecord(_Record, tag="definition", kw_only=True):
    """What workers have had code for."""

    name: str
    version: int
    kind: str
    step: str
    queue: str
    priority: int
    parameters: tuple[str, ...] = ()


class ScheduleRecord(_Record, tag="schedule", kw_only=True):
    """A schedule; `last` is the id of what its last tick started."""

    name: str
    spec: str
    next_at: datetime
    paused: bool = False
    buffered_at: datetime | None = None
    last_at: datetime | None = None
    last: str | None = None


OwnedRecord: TypeAlias = (
    SignalRecord
    | SignalKeyRecord
    | JournalRecord
    | TransitionRecord
    | BatchRecord
    | ChunkRecord
    | ActivityRecord
    | GuidRecord
    | SemaphoreRecord
    | ArrivalRecord
    | FailureRecord
)
SharedRecord: TypeAlias = QueueRecord | DefinitionRecord | ScheduleRecord
Record: TypeAlias = ExecutionRecord | OwnedRecord | SharedRecord


class Table(NamedTuple):
    """Where records live: their table, the column that says to which execution a row belongs, and the reading order.

    `{arrival}` in it is the order in which rows came, as the dialect has it.
    """

    name: str
    owner: str = ""
    order: str = ""


# What belongs to executions, in the order in which it is handed out after them.
OWNED: Final[tuple[type[OwnedRecord], ...]] = (
    *(SignalRecord, SignalKeyRecord, JournalRecord, TransitionRecord, BatchRecord, ChunkRecord),
    *(ActivityRecord, GuidRecord, SemaphoreRecord, ArrivalRecord, FailureRecord),
)
# What belongs to the ledger as a whole; left out where only one tree is asked for.
SHARED: Final[tuple[type[SharedRecord], ...]] = (QueueRecord, DefinitionRecord, ScheduleRecord)
TABLES: Final[dict[type[Record], Table]] = {
    ExecutionRecord: Table("executions"),
    SignalRecord: Table("signals", "target_id", "t.id"),
    SignalKeyRecord: Table("signal_keys", "target_id", "t.target_id, t.dedup_key"),
    JournalRecord: Table("journal", "execution_id", "t.execution_id, t.first"),
    TransitionRecord: Table("transitions", "execution_id", "t.execution_id, t.revision"),
    BatchRecord: Table("batches", "id", "t.id"),
    ChunkRecord: Table("chunks", "run_id", "t.run_id, t.first"),
    ActivityRecord: Table("activities", "job_id", "t.job_id, {arrival}"),
    GuidRecord: Table("guids", "job_id", "t.job_id, {arrival}"),
    SemaphoreRecord: Table("semaphores", "job_id", "t.job_id, {arrival}"),
    ArrivalRecord: Table("arrivals", "job_id", "t.job_id, {arrival}"),
    FailureRecord: Table("failures", "job_id", "t.job_id, {arrival}"),
    QueueRecord: Table("queues"),
    DefinitionRecord: Table("definitions"),
    ScheduleRecord: Table("schedules"),
}
# Fields that are no column of the same name: ids, which a store keeps as its own numbers, or as bytes.
NO_COLUMNS: Final = frozenset({"id", "parent"})


def columns_of(record: type[Record]) -> tuple[str, ...]:
    """The columns that a record's fields stand for, in their order."""
    return tuple(name for name in record.__struct_fields__ if name not in NO_COLUMNS)


def id_text(raw: bytes) -> str:
    """The text form of an id; of bytes that are none, their hex digits."""
    try:
        return str(PromiseId.from_bytes(raw))
    except InvalidArgumentError:
        return raw.hex()


def id_bytes(text: str) -> bytes:
    return PromiseId.parse(text).to_bytes()


class Existing(Struct, frozen=True):
    """What stands in the way of writing records; nothing was written."""

    ids: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()
    unique: tuple[tuple[str, str], ...] = ()  # a record, and the execution that occupies its unique key


class RefusedError(Exception):
    """Inside a store: something stands in the way, and the transaction is undone."""

    def __init__(self, existing: Existing) -> None:
        super().__init__(existing)
        self.existing = existing


class Written(Struct, frozen=True):
    """What `write_records` did."""

    executions: int = 0
    skipped: int = 0
    existing: Existing | None = None


class Oddities(Struct, frozen=True):
    """What an audit asks for and no record shows."""

    orphans: dict[str, int] = {}  # by table: rows that belong to no execution
    locks: dict[str, str | None] = {}  # by partition key: who holds it; None: released, "": nobody that is there
    workers: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()  # id and name, where the index of attributes is not what the row says
    unlisted: tuple[tuple[str, str], ...] = ()  # id and name of what no list by name would find
