"""The values that cross the seam between the store and everything above it.

Payloads are JSON text. A `row` is the store's own surrogate: opaque, never shown, never kept past a claim. Times
that decide anything are relative (seconds from the store's now); absolute times are for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.json import encode as encode_json

from holdfast.core.errors import InvalidArgumentError
from holdfast.core.searchable import is_searchable, is_text, shown
from holdfast.core.status import Status

if TYPE_CHECKING:
    from holdfast.store.effects import AdvanceExecution

EXECUTIONS: Final = "executions"


class Topic(StrEnum):
    """What a listener wants to be woken for."""

    WORK = "work"  # an execution became runnable
    ENDED = "ended"  # an execution reached a terminal status, or was stranded
    PUBLISHED = "published"  # an execution shows another value of itself


class NewExecution(Struct, frozen=True, gc=False, kw_only=True):
    """A row to insert. `handler` is what pickers match: see `handler_of`."""

    promise: bytes
    kind: str
    name: str
    version: int
    handler: int
    step: str
    state: str
    input_hash: str  # the same promise with another hash is a key conflict (ruling B6)
    queue: str = "default"
    priority: int = 0
    partition_key: str | None = None
    delay: float = 0.0
    at: datetime | None = None  # absolute start; the later of `delay` and `at` holds
    unique_key: bytes | None = None
    unique_scope: tuple[str, ...] = ()
    digest: str | None = None
    attributes: str | None = None  # JSON object
    paused: bool = False
    idempotency_key: str | None = None  # as the caller gave it, for people and the journal
    reports: bool = False  # its end is put into its parent's inbox (a workflow's child), not only into a barrier
    cleans_up: bool = False  # a cancel asks its holder and lets it run to its end, instead of ending it at once
    deadline: float | None = None  # seconds after the start: then its cancel is requested


class Inserted(Struct, frozen=True, gc=False):
    """What became of one `NewExecution`, in the order given."""

    promise: bytes  # of the row that now stands for the request: the new one, or the one found
    created: bool
    collided: bool = False  # refused: `promise` occupies its unique key
    key_conflict: bool = False  # found under the same promise, but started with another input


class Definition(Struct, frozen=True, kw_only=True):
    """What is known of a definition without its code."""

    kind: str
    name: str
    version: int
    step: str  # the first
    queue: str
    priority: int = 0
    parameters: tuple[str, ...] = ()  # of a function, in their order


class JournalCopy(Struct, frozen=True, gc=False):
    """The past that a fork begins with, as one segment."""

    count: int
    body: str


class ForkedChild(Struct, frozen=True, gc=False):
    """A child that is forked in one commit with its caller, whose new run waits for it."""

    row: NewExecution  # which reports
    past: JournalCopy | None
    source: bytes  # the run that failed; what was sent to it goes along
    parent: bytes  # the fork of its caller, which may be such a child itself


SIGNAL: Final = "signal"
CHILD: Final = "child"


class Signal(Struct, frozen=True, gc=False):
    """A row of an inbox. `id` increases in the order of delivery to one target.

    Of kind `child` it is the end of a child that reports: `name` is its promise in hex, and the payload a `ChildEnd`.
    """

    id: int
    name: str
    payload: str
    kind: str = SIGNAL


class ChildEnd(Struct, frozen=True, gc=False):
    """The payload of an inbox row of kind `child`, as the store writes it from the child's row."""

    status: Status
    result: Raw
    error: Raw
    state: Raw  # of a task: its attempts
    reason: str | None = None  # of its cancel


class NewSignal(Struct, frozen=True, gc=False):
    """A signal to deliver. Without a `dedup_key` of the sender's, the store makes one for its own retries."""

    target: bytes  # promise
    name: str
    payload: str
    dedup_key: str | None = None


class Delivery(StrEnum):
    """The typed answer of delivering one signal (ruling E5)."""

    DELIVERED = "delivered"
    DUPLICATE = "duplicate"  # its dedup key was seen before by this target (ruling E12)
    ENDED = "ended"  # refused: the target is finished
    UNKNOWN = "unknown"  # refused: there is no such execution


class Claim(Struct, gc=False, kw_only=True):
    """A leased row of any claimable table. Writes under it apply only while its fence holds."""

    table: str
    row: int
    epoch: int
    kind: str
    name: str
    version: int
    handler: int
    queue: str
    priority: int
    attempt: int
    partition_key: str | None = None


class Untold(Struct, gc=False):
    """What a held row does not say itself, for the segments of its journal do."""

    commits: int
    events: int
    step: str | None  # None: the row's own


class ExecutionClaim(Claim, gc=False, kw_only=True):
    """A leased execution, as it stood when it was picked; `revision` and what follows it move with each commit."""

    promise: bytes
    revision: int
    step: str
    state: str
    crashes: int = 0
    digest: str | None = None
    awaits: tuple[str, ...] | None = None
    inbox: tuple[Signal, ...] = ()
    timed_out: bool = False  # woken by its deadline; neither progress nor an awaited signal has come since
    children_ready: bool = False  # its barrier was released, and it has not progressed since
    barrier_round: int = 0
    next_child: int = 0
    cancel_requested: bool = False
    cancel_reason: str | None = None
    has_parent: bool = False
    parent_row: int | None = None
    parent: bytes | None = None  # its parent's promise
    journal_length: int = 0
    idempotency_key: str | None = None
    picked_at_us: int = 0  # the store's time of the pick
    beats: str | None = None  # JSON: the last heartbeat of each call in flight
    published: str | None = None
    attributes: str | None = None
    # A store may leave the row alone at a commit that adds to the journal, and changes at most the step.
    untold: Untold | None = None
    told_at_us: int = 0  # when the row was last written, if that was under this claim and with progress

    def went_on(self, advance: AdvanceExecution, receipt: Receipt) -> None:
        """A commit was applied."""
        if receipt.untold:
            self.stepped(receipt.untold, advance.step)
            return
        self.revision += 1
        self.untold = None
        self.told_at_us = receipt.at_us if advance.progress else 0

    def stepped(self, events: int, step: str | None) -> None:
        """A commit was applied that added so many events and left the row alone."""
        self.revision += 1
        untold = self.untold
        if untold is None:
            self.untold = Untold(1, events, step)
        else:
            untold.commits += 1
            untold.events += events
            if step is not None:
                untold.step = step

    @property
    def told_revision(self) -> int:
        """The revision that the row itself says."""
        untold = self.untold
        return self.revision if untold is None else self.revision - untold.commits

    @property
    def untold_events(self) -> int:
        """How many events of its journal the row does not tell of."""
        return 0 if self.untold is None else self.untold.events

    def told(self, events: int, step: str | None) -> tuple[int, int, str | None]:
        """How many commits and events the row is told of by a commit that writes it, and what it says of the step."""
        if (untold := self.untold) is None:
            return 1, events, step
        return untold.commits + 1, untold.events + events, untold.step if step is None else step

    def renewed_as(self, held: ExecutionClaim) -> None:
        """It was leased anew, one epoch later; the row tells everything then."""
        self.epoch, self.revision, self.untold, self.told_at_us = held.epoch, held.revision, None, 0


class Registered(Struct, frozen=True):
    """Of a worker that has just begun its lease."""

    at_us: int  # the store's time
    is_after_others: bool  # there are leases that have run out: what their workers held can be taken back


class Picked(Struct, frozen=True):
    claims: list[ExecutionClaim]
    next_due_seconds: float | None = None  # until the earliest not-yet-eligible row of these queues
    worker_lost: bool = False  # this worker's lease is gone: nothing was picked, take a new identity


class Collated(Struct, frozen=True, gc=False):
    """What a `Collate` left behind."""

    ledger: int
    guid_ledger: int
    ordinal: int
    closed: bool = False  # this very commit brought the job's semaphore to its threshold
    onward: bool = False  # the claim's row is that of the first child now


class Receipt(Struct, gc=False):
    """What a commit did. `applied` false means fenced: nothing of it was written.

    `status` is the one the row has now. It differs from the one asked for where a signal was already in the inbox
    (parked -> runnable), no child was inserted, the row was paused or its cancel was requested.
    """

    applied: bool
    status: Status | None = None
    cancel_requested: bool = False
    has_inbox: bool = False  # signals are in the inbox after this commit: a holder that goes on reads them anew
    at_us: int = 0  # the store's time of the commit
    untold: int = 0  # the events that it added, where the row was left alone
    is_refused: bool = False  # of a transaction: not fenced, but cancelled or paused; nothing ran, and it is still held
    children: tuple[Inserted, ...] = ()
    successor: bytes | None = None  # the run that goes on in its place
    collated: Collated | None = None  # of a commit with `Collate`


def refusal(*, cancel_requested: bool) -> Receipt:
    """Of a transaction that was to heed a cancel, or a pause."""
    return Receipt(False, Status.EXECUTING, cancel_requested=cancel_requested, is_refused=True)


class Flushed(Struct, frozen=True):
    receipts: list[Receipt]
    woke: bool = False  # something became runnable that a picker may want at once
    at_us: int = 0  # the store's time of the commit


class Reaped(Struct, frozen=True):
    """What one pass of the reaper did."""

    workers: tuple[str, ...] = ()  # whose lease had run out, and who now hold nothing
    released: int = 0  # rows back to runnable, attempt + 1
    stranded: tuple[bytes, ...] = ()  # promises of rows that reached `max_crashes`
    more: bool = False


class Fired(Struct, frozen=True):
    """What one pass of the timers did."""

    fired: int = 0
    next_due_seconds: float | None = None
    more: bool = False


class Retried(Struct, frozen=True):
    """What one page of stranded runs gave."""

    retried: int = 0
    following: int | None = None  # where the next page begins; None: this was the last


class QueueRoom(Struct, frozen=True, gc=False):
    """A queue this worker serves and how many more rows of it it can take now."""

    name: str
    room: int


class QueueSettings(Struct, frozen=True, kw_only=True):
    """Limits of a queue that hold for all workers together."""

    name: str
    paused: bool = False
    concurrency: int | None = None  # executing rows at most, over all workers
    rate: float | None = None  # picks per `rate_seconds`, over all workers: a token bucket with a burst of `rate`
    rate_seconds: float = 1.0


class QueueChange(Struct, frozen=True, kw_only=True):
    """New settings of a queue; what is left out stays as it is, None lifts a limit."""

    paused: bool | UnsetType = UNSET
    concurrency: int | UnsetType | None = UNSET
    rate: float | UnsetType | None = UNSET
    rate_seconds: float | UnsetType = UNSET


class QueueStats(Struct, frozen=True, kw_only=True):
    settings: QueueSettings
    runnable: int  # due or not; counted up to a bound, see `capped`
    executing: int
    oldest_eligible_at: datetime | None
    capped: bool = False


class WorkerInfo(Struct, frozen=True, kw_only=True):
    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    started_at: datetime
    expires_at: datetime
    is_expired: bool
    executing: int


class ExecutionView(Struct, frozen=True, kw_only=True):
    """An execution as people and clients see it."""

    promise: bytes
    kind: str
    name: str
    version: int
    step: str
    status: Status
    state: str
    result: str | None
    error: str | None  # JSON of an ErrorRecord
    queue: str
    priority: int
    partition_key: str | None
    attempt: int
    crashes: int
    revision: int
    lease_epoch: int
    locked_by: str | None
    awaits: tuple[str, ...] | None
    children_pending: int
    barrier_round: int
    parent: bytes | None
    cancel_requested: bool
    paused: bool
    unique_key: bytes | None
    digest: str | None
    attributes: str | None
    eligible_at: datetime
    wake_at: datetime | None
    inserted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    updated_at: datetime
    idempotency_key: str | None = None
    cancel_reason: str | None = None
    deadline_at: datetime | None = None
    journal_length: int = 0
    reports: bool = False
    published: str | None = None  # JSON
    beats: str | None = None  # JSON: a task's last heartbeat; of a workflow that of each call in flight, by its number
    # The run that goes on in its place; of the first of several runs, always the newest of them.
    successor: bytes | None = None


class EndOf(Struct, frozen=True, gc=False):
    """How one execution ended; `status` is None if there is no such execution."""

    promise: bytes
    status: Status | None
    result: str | None = None
    error: str | None = None
    successor: bytes | None = None  # the run that goes on in its place
    cancel_reason: str | None = None


class Shown(Struct, frozen=True, gc=False):
    """What one execution shows of itself; `status` is None if there is no such execution."""

    promise: bytes
    status: Status | None
    published: str | None = None  # JSON, by name
    successor: bytes | None = None  # the run that goes on in its place, and shows the same


class Transition(Struct, frozen=True, kw_only=True):
    """One line of a machine's optional history."""

    revision: int
    at: datetime
    step: str
    outcome: str
    next_step: str | None
    attempt: int
    error: str | None


class ExecutionFilter(Struct, frozen=True, kw_only=True):
    """What to list; every given field narrows."""

    kind: str | None = None
    name: str | None = None
    queue: str | None = None
    statuses: tuple[Status, ...] = ()
    parent: bytes | None = None
    attributes: Mapping[str, str | int | float | bool] | None = None  # it has all of these

    def __post_init__(self) -> None:
        for text in (self.kind, self.name, self.queue):
            if text is not None and not is_text(text):
                raise InvalidArgumentError(f"{text!r:.100} can be in no ledger: it holds a NUL or is no valid Unicode")
        for name, value in (self.attributes or {}).items():
            if not is_text(name) or not is_searchable(value):
                raise InvalidArgumentError(
                    f"no execution has an attribute {name!r:.100} of {shown(value)}: attributes are text, booleans, or "
                    "finite numbers of 64 bits"
                )


class Page(Struct, frozen=True):
    """Newest first; `cursor` continues after the last one, None at the end."""

    items: list[ExecutionView]
    cursor: str | None = None


class Retention(Struct, frozen=True, kw_only=True):
    """Delete ended executions older than `age_seconds`; a rule may name a queue, a definition, or neither."""

    age_seconds: float
    queue: str | None = None
    name: str | None = None


def attributes_json(attributes: Mapping[str, str | int | float | bool]) -> str:
    return encode_json(attributes).decode()
