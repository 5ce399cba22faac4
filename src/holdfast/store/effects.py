"""Durable primitives as data: what a runner asks the store to commit.

A `Commit` is a claim and a list of effects. It is applied whole, and only if the claim's fence still holds: the row
is `executing`, locked by this worker, at this epoch (ruling E1), and at the revision that the claim knows, so that
nobody writes from a memory that is not the ledger's. Everything in it rides on that guard.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

from holdfast.core.status import Status
from holdfast.store.batches import BatchEffect
from holdfast.store.flows import Collate, OpenJob
from holdfast.store.values import ExecutionClaim, NewExecution, NewSignal


class AdvanceExecution(Struct, frozen=True, gc=False, kw_only=True):
    """Write the claim's own row. At most one a commit; `revision` goes up by one.

    `status=executing` keeps the lease: the row stays with this worker and no indexed column changes (ruling E11).
    Every other status releases the lease and the partition key.

    `progress=True` (all but replay): `awaits`, `timed_out` and `children_ready` are set anew, `crashes` is 0 again.
    `progress=False` (replay): the three are kept, so that the redo sees the same inputs (ruling E4). With
    `status=executing` it says that a step is on its way, and keeps the lease of a paused row until that has ended.

    A terminal status deletes the whole inbox, releases the parent's barrier and sets `ended_at`. But `failed` keeps the
    signals that nobody read, the dedup keys, and what the step was woken by: a retry takes them over.
    """

    status: Status
    step: str | None = None  # None keeps
    state: str | None = None  # None keeps (the outcome of done carries no state)
    result: str | None = None
    error: str | None = None  # JSON of an ErrorRecord; None keeps nothing: last_error is cleared on progress
    attempt: int = 0
    delay: float = 0.0  # eligible again after so many seconds, where status is runnable
    awaits: tuple[str, ...] | None = None
    ignore: tuple[int, ...] = ()  # signal ids that the re-check at parking passes over (ruling E3)
    wake_after: float | None = None  # deadline of the park, in seconds
    wake_at_us: int | None = None  # or as a moment of the store's clock, which goes before
    progress: bool = True
    digest: str | None = None  # of the code that ran; None keeps
    # With awaiting_promise: wake when so many ends of children are in the inbox; 0: they do not wake it.
    wait_children: int = 0
    # Columns of a workflow's row, as JSON; None keeps them.
    beats: str | None = None  # the last heartbeat of each call in flight, by promise
    published: str | None = None  # named values that the outside may read
    attributes: str | None = None  # what it is searched by


def strand(claim: ExecutionClaim, error: str, release: str | None = None) -> AdvanceExecution:
    """Nothing is recorded but why: `release` is the code that could not go on, if other code might (ruling B17)."""
    return AdvanceExecution(status=Status.STRANDED, attempt=claim.attempt, progress=False, error=error, digest=release)


# Of most commits of workflows: the lease is kept, and nothing but the journal changes.
GO_ON: Final = AdvanceExecution(status=Status.EXECUTING)


class ConsumeSignals(Struct, frozen=True, gc=False):
    """Delete exactly these rows of the claim's own inbox; their dedup keys stay known (ruling E12)."""

    ids: tuple[int, ...]


class SpawnExecutions(Struct, frozen=True, gc=False):
    """Insert children of the claim's row, and set its barrier on those that were really inserted.

    Their promises are `parent.child(next_child + i)`, which the runner has computed; `next_child` moves on by their
    number. The barrier opens a new round. It is released when `quorum` of the inserted (all, if None) have ended;
    with none inserted the row becomes runnable at once, whatever the advance asked for.
    """

    rows: tuple[NewExecution, ...]
    quorum: int | None = None
    barrier: bool = True  # False: only insert them; they report by themselves


class AppendJournal(Struct, frozen=True, gc=False):
    """Add one segment to the claim's journal: `count` events, the first of which has the sequence `first`."""

    first: int
    count: int
    body: str  # JSON of a core.journal Segment


class ContinueExecution(Struct, frozen=True, gc=False):
    """The claim's row ends here (its advance is to `done`) and goes on as `row`, in one commit.

    The new row takes over its place: parent, round and report, deadline, unique key, a cancel or pause, what it
    published, and the signals that were not consumed with all dedup keys. The old one neither reports nor counts down
    a barrier; it names the new one as its successor, which whoever waits for the result follows, and so does the first
    of all of them.
    """

    row: NewExecution


class DeliverSignal(Struct, frozen=True, gc=False):
    """Deliver a signal in the same commit."""

    signal: NewSignal


class RecordTransition(Struct, frozen=True, gc=False):
    """Add a line to the execution's history, at the revision that this commit makes."""

    step: str
    outcome: str
    next_step: str | None
    attempt: int
    error: str | None = None


Effect: TypeAlias = (
    AdvanceExecution
    | ConsumeSignals
    | SpawnExecutions
    | AppendJournal
    | ContinueExecution
    | DeliverSignal
    | RecordTransition
    | BatchEffect
    | OpenJob
    | Collate
)


class Commit(Struct, frozen=True, gc=False):
    """The first effect is always the `AdvanceExecution`: every commit moves the row's revision.

    Where a cancel was requested, a commit that would park or delay the row makes it runnable instead. A row that
    `cleans_up` may park once its holder knows: `claim.cancel_requested`, which the holder sets after such a receipt.
    """

    claim: ExecutionClaim
    effects: tuple[Effect, ...]
