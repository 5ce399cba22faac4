"""The rows and claims of the model, and how a row is compared with the store's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.core.status import PARKED, Status
from holdfast.store.values import ExecutionView, NewExecution

Sent = tuple[int, str, str, bool]  # number, name, payload, whether it is the end of a child


@dataclass
class Row:
    """One execution, as the model has it."""

    new: NewExecution
    number: int
    eligible_at: datetime | None  # None: not promised, to be read from the store
    step: str
    state: str
    status: Status = Status.RUNNABLE
    attempt: int | None = 0  # None: not promised
    crashes: int = 0
    epoch: int = 0
    revision: int = 0
    journal_length: int = 0
    locked_by: str | None = None
    awaits: tuple[str, ...] | None = None
    wake_at: datetime | None = None
    timed_out: bool = False
    children_ready: bool = False
    pending: int = 0
    barrier_round: int = 0
    next_child: int = 0
    parent: Row | None = None
    parent_round: int = 0
    cancel_requested: bool = False
    paused: bool = False
    is_released: bool = False  # its unique key, for good (ruling E14)
    result: str | None = None
    inbox: list[Sent] = field(default_factory=list)
    dedup_keys: set[str] = field(default_factory=set)

    @property
    def is_occupying(self) -> bool:
        return not self.is_released and self.status in self.new.unique_scope

    def move(self, status: Status) -> None:
        was_occupying = self.is_occupying
        self.status = status
        if status is not Status.EXECUTING:
            self.locked_by = None
        if status not in PARKED:
            self.wake_at = None
        if was_occupying and not self.is_occupying:
            self.is_released = True


@dataclass(frozen=True)
class Claim:
    """What the holder of a claim knows."""

    worker: str
    row: Row
    epoch: int
    attempt: int
    next_child: int
    inbox: tuple[Sent, ...]
    knows_of_cancel: bool


def compared(row: Row, view: ExecutionView, now: datetime) -> Iterator[tuple[str, object, object]]:
    """Column by column: what the store has, and what it should have."""
    if row.eligible_at is None and view.eligible_at <= now:
        row.eligible_at = view.eligible_at
    if row.attempt is None:
        row.attempt = view.attempt
    yield "status", view.status, row.status
    yield "step", view.step, row.step
    yield "state", view.state, row.state
    yield "attempt", view.attempt, row.attempt
    yield "crashes", view.crashes, row.crashes
    yield "revision", view.revision, row.revision
    yield "journal_length", view.journal_length, row.journal_length
    yield "lease_epoch", view.lease_epoch, row.epoch
    yield "locked_by", view.locked_by, row.locked_by
    yield "barrier_round", view.barrier_round, row.barrier_round
    yield "result", view.result, row.result
    yield "parent", view.parent, row.parent and row.parent.new.promise
    yield "wake_at", view.wake_at, row.wake_at
    if not row.status.is_terminal:
        yield "cancel_requested", view.cancel_requested, row.cancel_requested
        yield "paused", view.paused, row.paused
    if row.status is Status.RUNNABLE:
        yield "eligible_at", view.eligible_at, row.eligible_at
    if row.status is Status.AWAITING_SIGNAL:
        yield "awaits", view.awaits, row.awaits
    if row.status is Status.AWAITING_CHILDREN:
        yield "children_pending", view.children_pending, row.pending
