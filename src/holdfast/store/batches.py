"""What crosses the seam to the store for batches: chunks of items, their counters, and the effects that move them.

A run is a row of `executions`; `batches` has its counters, its intake and the head of its commit lane, `chunks` its
items: a byte of state each (`State` in the low half, `FailClass` in the high one). COMMITTED is not written into the
bytes: commits are strictly in order, so an item is committed if and only if its seq is below the head (ruling D7).
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, TypeAlias

from msgspec import Struct

INTAKE: Final = "intake"  # the signal that a run is woken with when items were fed, or a chunk has moved

Which = Literal["", "whole", "undispatched", "failed"]
"""Of chunks: their short columns; all of them; those not yet dispatched; all of those with failed items."""


def bytes_of(text: str) -> int:
    """As the store keeps it."""
    return len(text) if text.isascii() else len(text.encode())


class NewChunk(Struct, frozen=True, gc=False):
    """Items [first, first + count) as they are taken in: UNSEEN. `inputs` is a JSON array."""

    first: int
    count: int
    inputs: str

    @property
    def size(self) -> int:
        return bytes_of(self.inputs)


class Counters(Struct, frozen=True, gc=False):
    """How many items are where, or by how much that changes. `succeeded` and its like count committed ones too."""

    dispatched: int = 0
    in_flight: int = 0
    succeeded: int = 0
    skipped: int = 0
    failed: int = 0
    cancelled: int = 0
    retries: int = 0

    @property
    def ended(self) -> int:
        return self.succeeded + self.skipped + self.failed + self.cancelled

    def minus(self, other: Counters) -> Counters:
        return Counters(
            self.dispatched - other.dispatched,
            self.in_flight - other.in_flight,
            self.succeeded - other.succeeded,
            self.skipped - other.skipped,
            self.failed - other.failed,
            self.cancelled - other.cancelled,
            self.retries - other.retries,
        )

    def plus(self, other: Counters) -> Counters:
        return self.minus(Counters().minus(other))


# ---------------------------------------------------------------------- effects


class TakeIn(Struct, frozen=True, gc=False, kw_only=True):
    """Take in items, and how far the source has been read, in one commit. The claim is the run's."""

    chunks: tuple[NewChunk, ...] = ()
    progress: str | None = None  # where the source goes on; None keeps
    closes: bool = False  # nothing more comes
    latches: bool = False  # the run is being cancelled: nothing more is dispatched
    digest: str | None = None  # over all that was taken in; None keeps
    expected: int | None = None  # how many there will be, where the source knows; None keeps


class DispatchChunks(Struct, frozen=True, gc=False):
    """Rule 1 for every item of these chunks. The claim is the run's; their executions are spawned beside it."""

    firsts: tuple[int, ...]


class MarkItems(Struct, frozen=True, gc=False, kw_only=True):
    """The items of a chunk as they are now. The claim is the chunk's, or with `own_run` the run's.

    The lease of the chunk is the lease of its items: whoever lost it changes no state and no counter (ruling D8).
    """

    first: int
    states: bytes
    attempts: bytes | None  # 16 bits an item, little-endian; None: no item was retried
    prefix: int  # so many items from the front are terminal
    changed: Counters
    notes: str | None = None  # JSON: why items failed or were skipped, by place
    ready_ms: str | None = None  # JSON: when those that wait for a retry may be tried, by place
    results: str | None = None  # JSON array, where they are asked for
    inputs: str | None = None  # with `is_final`: those still needed, as a JSON object by place
    is_final: bool = False  # every item is terminal
    own_run: bool = False


class CommitItems(Struct, frozen=True, gc=False):
    """Rules 8-11 for the items [start, stop): the lane's head moves. The claim is the run's."""

    start: int
    stop: int
    clear: tuple[int, ...] = ()  # chunks whose results have done their duty


BatchEffect: TypeAlias = TakeIn | DispatchChunks | MarkItems | CommitItems
BATCH_EFFECTS = (TakeIn, DispatchChunks, MarkItems, CommitItems)


# ---------------------------------------------------------------------- reading


class BatchView(Struct, frozen=True, kw_only=True):
    """A run's row of `batches`."""

    taken: int
    closed: bool
    latched: bool
    expected: int | None
    progress: str | None
    digest: str | None
    open_bytes: int  # of the inputs of chunks that have not ended
    head: int  # the lowest seq that is not committed
    counters: Counters
    updated_at: datetime
    has_ended: bool  # the run's own row: whatever is open here, nobody works on it any more

    @property
    def committed(self) -> int:
        return self.head

    @property
    def unseen(self) -> int:
        return self.taken - self.counters.dispatched - self.counters.in_flight - self.counters.ended

    @property
    def terminal(self) -> int:
        """Ended, and not committed yet."""
        return self.counters.ended - self.head


class ChunkView(Struct, frozen=True, kw_only=True):
    """A chunk; the long columns only where they were asked for."""

    first: int
    count: int
    size: int
    is_dispatched: bool
    ended: int
    failed: int
    prefix: int
    states: bytes | None = None
    attempts: bytes | None = None
    inputs: str | None = None
    results: str | None = None
    notes: str | None = None
    ready_ms: str | None = None

    @property
    def stop(self) -> int:
        return self.first + self.count


class Fed(Struct, frozen=True):
    """What became of a feed."""

    accepted: bool  # False: the run has ended, takes in nothing more, or has taken in another number of items
    view: BatchView | None  # as it is now; None: there is no such run
