"""What a store promises. SQLite and PostgreSQL keep it; one conformance suite holds them to it.

Every method that writes is one atomic commit. The store's clock decides leases and timers. Every writer of many
rows locks them in the order of their ids, or passes over what others have locked; so no two can deadlock.

Errors: what a caller may simply try again is `StoreUnavailableError` (connection lost, server restarting, lock
timeout, serialization failure). Of a write that raised it the caller does not know whether it was applied:
`insert` and `deliver` are idempotent by promise and dedup key; after `flush` ask `reclaim`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from holdfast.core.errors import InvalidArgumentError, NotFoundError
from holdfast.core.identity import IdQuery, PromiseId
from holdfast.core.status import Status
from holdfast.store.batches import BatchView, ChunkView, Fed, TakeIn, Which
from holdfast.store.effects import AdvanceExecution, AppendJournal, Commit, Effect
from holdfast.store.flow_contract import FlowLedger
from holdfast.store.health import Check, SchemaState
from holdfast.store.records import Oddities, Record, Written
from holdfast.store.schedules import Schedule, Tick
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
from holdfast.store.watching import Watching


def replaced_is_gone(promise: bytes) -> NotFoundError:
    """What `fork` raises of an execution that retention deleted while somebody looked at it."""
    return NotFoundError(
        f"there is no execution {PromiseId.from_bytes(promise).short} any more; it was deleted by retention"
    )


def trees_of(promises: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """The ranges of ids that a cascade from these takes in: what their first runs began, and all that went on as."""
    return [PromiseId.from_bytes(promise).origin.subtree_range() for promise in promises]


def child_was_retried(promise: bytes) -> InvalidArgumentError:
    """What `fork` raises of a child that somebody retried while somebody else looked at it and its caller."""
    return InvalidArgumentError(
        f"the child {PromiseId.from_bytes(promise).short} has just been retried by itself: wait for its end, then "
        "retry its caller"
    )


def was_retried(promise: bytes, successor: bytes) -> InvalidArgumentError:
    """What `fork` raises of an execution that somebody retried, with its caller, while somebody else looked at it."""
    return InvalidArgumentError(
        f"{PromiseId.from_bytes(promise).short} has just been retried with its caller, as "
        f"{PromiseId.from_bytes(successor).short}: that one goes on in its place"
    )


def handler_of(kind: str, name: str, version: int) -> int:
    """What a row needs of a worker, as one signed 64-bit number: pickers compare it instead of three columns."""
    digest = hashlib.sha256(f"{kind}\0{name}\0{version}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


class Ear(Protocol):
    """Hears of what other processes commit. A notification is a hint: losing one costs a poll, never a hang."""

    async def arm(self, topic: Topic) -> None:
        """Say that someone here is idle and wants to be woken; holds for `ARMED_SECONDS`, so repeat it."""

    async def close(self) -> None: ...


ARMED_SECONDS = 10.0
# A commit that is under way while an ear is armed may have looked for listeners before: who arms looks again then.
LATE_LOOK_SECONDS = 0.02

DEADLINE_EXCEEDED = "deadline exceeded"  # the reason of a cancel that an execution's own deadline requested


class WouldStall(Exception):  # noqa: N818  (no error: a caller's signal to go another way)
    """`flush_now` would have had to wait for others; nothing was written: `flush` waits beside the loop."""


class Store(FlowLedger, Watching, Protocol):
    # ------------------------------------------------------------------ life

    @property
    def url(self) -> str:
        """Where the ledger is, without secrets."""

    @property
    def commits_inline(self) -> bool:
        """Whether `flush_now` may be called on the event loop's thread just now without stalling it."""

    @property
    def flushes_at_once(self) -> int:
        """How many flushes it can write side by side."""

    @property
    def losses(self) -> int:
        """How many connections broke so far. After one, a replica that lacks the last commits may have taken over."""

    @property
    def commits_in_thread(self) -> bool:
        """Which kind of function `transact` takes."""

    async def open(self) -> None:
        """Connect and migrate. Safe when many processes do it at once; `SchemaTooNewError` if it is newer."""

    async def close(self) -> None: ...

    async def forsake(self) -> None:
        """`close`, on another event loop: the one that it was opened on is closed."""

    async def schema_state(self) -> SchemaState:
        """Which version the ledger has, before it is opened; creates and changes nothing."""

    async def examine(self) -> list[Check]:
        """How the store is: versions, settings that the promises lean on, space, indexes."""

    def sibling(self) -> Store:
        """Another, unopened store on the same ledger, for use in another thread's event loop.

        One of an open store is let in as that was, should a newer release have migrated the ledger since.
        """

    async def warm(self) -> None:
        """Make ready what a worker's first commit would otherwise wait for. Writes and locks nothing."""

    async def now_us(self) -> int:
        """The store's time, which alone decides leases and timers."""

    # ------------------------------------------------------------------ starting

    async def insert(self, rows: Sequence[NewExecution]) -> list[Inserted]:
        """Insert all that do not collide, in one commit.

        A promise that exists is found, not inserted again. A unique key that is occupied, in the table or earlier
        in the same call, refuses its row alone (seed section 7). Idempotent.
        """

    async def insert_with(self, connection: Any, rows: Sequence[NewExecution]) -> list[Inserted]:
        """The same inside a transaction of the caller's: started if and only if that commits."""

    async def insert_and_deliver(self, row: NewExecution, signal: NewSignal) -> tuple[Inserted, Delivery]:
        """Start it, or find it, and put a signal into its inbox, in one commit."""

    async def register_definitions(self, definitions: Sequence[Definition]) -> None:
        """Remember what workers have code for. Writes nothing where nothing has changed."""

    async def definitions(self, name: str | None = None) -> list[Definition]:
        """All of them, or the versions of one, by name and version."""

    async def put_schedule(self, name: str, spec: str, next_at: datetime, *, seen: Schedule | None = None) -> bool:
        """Create it, or change it from where it was `seen`; a paused one stays so.

        False: it is not as it was seen (None: not there) any more, and nothing is written. A tick that was started
        meanwhile is not to come again.
        """

    async def schedules(self, name: str | None = None) -> list[Schedule]:
        """All of them, or the one of this name."""

    async def pause_schedule(self, name: str, paused: bool) -> bool:
        """False: there is none."""

    async def delete_schedule(self, name: str) -> bool: ...

    async def tick(self, moved: Tick, rows: Sequence[NewExecution]) -> bool:
        """Move a schedule on and start `rows`, in one commit; False: another worker was first, nothing is written."""

    async def fork(
        self,
        row: NewExecution,
        past: JournalCopy | None,
        *,
        replaces: bytes | None = None,
        children: Sequence[ForkedChild] = (),
    ) -> Inserted:
        """Insert a row with a journal, in one commit; idempotent by promise.

        With `replaces`, that execution and the first of its runs name the new one as their successor, which shows what
        it showed, and takes over the signals that it has not read and the dedup keys that it knows. `NotFoundError` if
        it was deleted meanwhile: nothing would lead to the new one.

        `children` come with it, callers first, unless it was there already; their sources name them as successors too.
        `InvalidArgumentError` if one of these, or what is replaced, was retried meanwhile: that would be done twice.
        """

    # ------------------------------------------------------------------ working

    async def pick(self, worker: str, queues: Sequence[QueueRoom], handlers: Sequence[int], limit: int) -> Picked:
        """Lease up to `limit` rows: runnable, due, not paused, of these queues, with one of these handlers.

        By priority, then `eligible_at`, then id. At most one row of a partition key executes at a time, in that
        order within the key; a row refused by its key uses up nothing of the window (ruling E9). Limits of the
        queues hold over all workers. The cost does not grow with ended, parked, far-future or key-blocked rows.
        """

    async def flush(self, worker: str, commits: Sequence[Commit]) -> Flushed:
        """Apply each commit whose fence holds, all in one transaction; the others drop out alone.

        Two commits of one call never have the same claim.
        """

    def flush_now(self, worker: str, commits: Sequence[Commit]) -> Flushed:
        """The same on the calling thread, or `WouldStall`; only where `commits_inline` is true."""

    def step_now(self, worker: str, claim: ExecutionClaim, advance: AdvanceExecution, segment: AppendJournal) -> int:
        """One commit of these on the calling thread, at any time: the store's time of it, which is never 0.

        0, and nothing was written, unless that is done as quickly as it can be: its fence holds, nothing is asked of
        the run, its row can be left alone, and nobody else writes. `flush` sees to all else.
        """

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
        """Run `work` on the store's own connection, and commit what it wrote together with its effects.

        The fence is checked first, in the same transaction: a stale worker's code never runs. Nor does that of a row
        which is cancelled or paused, if that is to be heeded: the receipt says `is_refused`. What `work` raises is
        raised here, and nothing is written. Where `commits_in_thread`, it is a plain function and gets a
        sqlite3.Connection in the writer's thread, whose `interrupt_when` sets a limit; else it is a coroutine function
        and gets an asyncpg connection.
        """

    async def reclaim(self, worker: str, claims: Sequence[ExecutionClaim]) -> list[ExecutionClaim | None]:
        """After a commit whose reply was lost: lease anew what this worker still holds, at `epoch + 1`.

        Waits for whatever the old connection still does to the row, and fences it. Answers the row as it is now
        (its `revision` tells whether the commit was applied), or None where this worker holds it no more. A row
        held at a later epoch than the claim's counts as held: the reply of an earlier `reclaim` may be lost too.
        """

    async def disown(self, worker: str, keep: Sequence[int]) -> int:
        """Put back, as in `release`, whatever this worker holds besides the rows `keep`.

        After a pick whose reply was lost, the worker holds rows that it does not know of.
        """

    async def release(self, worker: str, claims: Sequence[ExecutionClaim]) -> int:
        """Put back claims that were not worked on: runnable, `attempt` and `crashes` as they were. Fenced."""

    async def stirred(self, worker: str, rows: Sequence[int]) -> list[int]:
        """Of these rows, which this worker holds, those with something in the inbox or a cancel requested."""

    async def waiting_priority(self, queues: Sequence[str], handlers: Sequence[int]) -> int | None:
        """The most urgent (smallest) priority of a due runnable row of these queues; None if there is none."""

    # ------------------------------------------------------------------ leases and timers

    async def register_worker(
        self, worker: str, *, host: str, pid: int, queues: Sequence[str], lease_seconds: float
    ) -> Registered:
        """Begin the lease of a worker. An id that is there already begins anew and keeps what it holds."""

    async def beat(self, worker: str, lease_seconds: float) -> bool:
        """Extend the lease. False: it was reaped, or never was; the worker must take a new identity."""

    async def retire_worker(self, worker: str) -> int:
        """A worker leaves in good order: what it still holds goes back as in `release`; how many that was."""

    async def reap(self, limit: int, max_crashes: int) -> Reaped:
        """Take back what workers with an expired lease held: `attempt + 1`, `crashes + 1` (seed section 4.3).

        At `max_crashes` a row is stranded instead, with an error that says so. Bounded by `limit` rows; a worker's
        row goes only after all it held is back.
        """

    async def fire_timers(self, limit: int) -> Fired:
        """Wake the parked rows whose `wake_at` has come: runnable, `timed_out` unless an awaited signal still comes."""

    # ------------------------------------------------------------------ from outside

    async def deliver(self, signals: Sequence[NewSignal]) -> list[Delivery]:
        """Insert into the inbox, then wake the target if it awaits the name (rulings E2, E5, E12)."""

    async def cancel(
        self, promises: Sequence[bytes], *, cascade: bool = False, reason: str | None = None, force: bool = False
    ) -> list[Status | None]:
        """End what nobody holds as `cancelled`; ask the holder of the rest. The status each now has.

        What `cleans_up` is never ended here: it is asked, and made runnable if it is parked. With `cascade` all
        descendants too (ruling E10), also those of the runs that it went on from; what of them has ended is passed
        over. None: there is no such execution. An ended one stays. The first reason stays.
        With `force` what nobody holds is ended as it stands, whatever it would clean up: for code that is gone.
        """

    async def pause(self, promise: bytes, paused: bool) -> bool:
        """Keep a live execution from being picked, or let it go on. False: unknown or ended."""

    async def resume(self, promise: bytes) -> bool:
        """Make a stranded execution runnable again, its crashes forgiven: 0, and out of `attempt`. False: it is not."""

    async def retry_stranded(self, queue: str, digests: Mapping[int, str], limit: int, after: int = 0) -> Retried:
        """Let another release try what one stranded, once (ruling B17); `digests` are this one's, by handler.

        Looks at a page of `limit` stranded rows. Runnable again, as by `resume`, is what was stranded for what its code
        did or lacked, by code of a digest that is not this one, and never by this one. Not what lost its workers.
        """

    async def purge(self, rule: Retention, limit: int) -> int:
        """Delete ended executions by one rule, with their signals and history, oldest first.

        Never a child of a live parent's current barrier round: the parent has still to read it.
        """

    # ------------------------------------------------------------------ queues

    async def configure_queue(self, settings: QueueSettings) -> None:
        """Replace every setting of a queue."""

    async def change_queue(self, name: str, change: QueueChange) -> QueueSettings:
        """Change what is named and nothing else, whoever changes the rest meanwhile: the settings as they are then."""

    async def queues(self, after: str = "", limit: int | None = None) -> list[QueueStats]:
        """Every queue with settings or live rows, in the order of their names; or so many of those after one."""

    async def workers(self) -> list[WorkerInfo]: ...

    # ------------------------------------------------------------------ reading

    async def get(self, promise: bytes) -> ExecutionView | None: ...

    async def get_many(self, promises: Sequence[bytes]) -> list[ExecutionView | None]: ...

    async def endings(self, promises: Sequence[bytes]) -> list[EndOf]:
        """Of these, in any order: the ended, the stranded, those that go on as another run, and the unknown."""

    async def shown(self, promises: Sequence[bytes]) -> list[Shown]:
        """Of these, in any order: those that have published something, and those that `endings` would name."""

    async def find(self, query: IdQuery, limit: int = 6) -> list[ExecutionView]:
        """Executions whose id starts as asked for."""

    async def browse(
        self, where: ExecutionFilter, limit: int, cursor: str | None = None, *, look_at: int | None = None
    ) -> Page:
        """Newest first. The messages of flows and the chunks of batches only if their kind or parent is asked for.

        With `look_at`, about so many rows at most are looked through for what no index finds (a queue, what is done):
        the page may then be short, or empty, although its cursor leads on.
        """

    async def cursor_before(self, at: datetime) -> str:
        """For `browse`: on from the newest that was started before `at`, but for what was being started just then.

        What was imported has its place where it came in, whenever it was started: beside it this is not exact.
        """

    async def count(self, where: ExecutionFilter) -> dict[Status, int]: ...

    async def children(self, promise: bytes, barrier_round: int | None = None) -> list[ExecutionView]:
        """In the order they were spawned; of one round of the barrier, or all."""

    async def inbox(self, promise: bytes) -> list[Signal]: ...

    async def journal(self, promise: bytes) -> list[str]:
        """The segments of its journal in order, in one indexed read."""

    async def history(self, promise: bytes) -> list[Transition]: ...

    # ------------------------------------------------------------------ whole ledgers

    async def read_records(
        self, take: Callable[[Sequence[Record]], None], *, within: tuple[bytes, bytes] | None = None
    ) -> None:
        """Hand over every record, in one consistent snapshot; or those of the executions with ids in `[low, high)`.

        Executions first, parents before children; then what belongs to them, in its order; then what belongs to the
        ledger as a whole. `take` may be called in another thread.
        """

    async def write_records(
        self, batches: Iterable[Sequence[Record]], *, skip_existing: bool = False, replace: bool = False
    ) -> Written:
        """Insert records, in the order of `read_records`, in one commit or not at all; `batches` is read meanwhile.

        An execution, a schedule or an occupied unique key that is in the way refuses all of it; with `skip_existing`
        an execution that is there stays as it is, with all that is its own. Queues and definitions always do. With
        `replace` a record takes the place of an execution that is paused or cancelled, has no parent and is not further
        than the record, with its whole tree, if nobody holds any of it.
        """

    async def survey(self, take: Callable[[Sequence[Record]], None], let_go: Callable[[], None]) -> Oddities:
        """The records of `read_records`, and what an audit asks for and no record shows, in one snapshot.

        Some executions at a time come with all that is theirs; then `let_go` is called, in the thread of `take`. So
        whoever looks need not keep a whole ledger in memory.
        """

    # ------------------------------------------------------------------ batches

    async def start_batch(self, row: NewExecution, taken: TakeIn) -> Inserted:
        """Insert a run and the first of its items, in one commit; a run that is there already takes in nothing."""

    async def feed_batch(self, promise: bytes, first: int, taken: TakeIn) -> Fed:
        """Take in more items from outside, the first of which has the seq `first`, and wake the run.

        So a feed whose reply was lost can be told from one that was not applied: `Fed.view.taken` has moved, or not.
        """

    async def batch_status(self, promise: bytes) -> BatchView | None:
        """The counters of a run; None where it has taken in nothing yet, or does not exist. Constant time."""

    async def batch_chunks(self, promise: bytes, start: int, limit: int, which: Which = "") -> list[ChunkView]:
        """Up to `limit` chunks in seq order, from the one that holds the seq `start` on."""

    # ------------------------------------------------------------------ being woken

    async def open_ear(self, hear: Callable[[Topic], None]) -> Ear:
        """Call `hear` on this loop for commits of this process and, while armed, of others.

        After a lost connection, or one that cannot be had yet, it subscribes again and calls `hear` for every topic:
        something may be missed.
        """
