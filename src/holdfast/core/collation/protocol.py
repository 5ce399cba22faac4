"""What to do with a message, decided from its ledgers alone.

- `receive_leg1`, `receive_leg2`: the (re-)entry decision, as one of the frozen values below.
- `commit_step` moves both ledgers past a step; `set_status_and_collate` is the primitive of Step 2.

Pure: the caller has read the ledgers under the message's lease and writes what comes back in one commit.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from holdfast.core.collation.ledger import (
    JOB_CLOSED,
    ActivityLedger,
    Field,
    GuidLedger,
    GuidRecord,
    Step,
)
from holdfast.core.errors import InvalidArgumentError, LedgerCeilingError, LedgerError


class JobPhase(Enum):
    """All that a decision needs to know of the job."""

    OPEN = "open"
    CLOSING = "closing"  # cancel was asked for: obligations close without running user code (ruling A11)
    CLOSED = "closed"  # the semaphore has reached 0


class RunLeg1(Struct, frozen=True, gc=False):
    """Leg1's work is owed; the entry has been counted."""

    activity: ActivityLedger


class Proceed(Struct, frozen=True, gc=False):
    """Resume at `step`; the entry has been counted.

    With `abandon`, Step 1 runs nothing of the user's and Step 2 spawns nothing (N=0), ruling A11.
    """

    activity: ActivityLedger
    record: GuidRecord
    step: Step
    abandon: bool = False


class Acknowledge(Struct, frozen=True, gc=False):
    """Nothing is owed: delete the message. The delivery is counted unless a counter is full."""

    activity: ActivityLedger
    record: GuidRecord | None
    reason: str


class PutBack(Struct, frozen=True, gc=False):
    """Not yet: leave the message for a short while; nothing is counted (ruling A5)."""

    reason: str


class Close(Struct, frozen=True, gc=False):
    """Never: the message ends without a step, for there is no obligation left behind it (ruling A5)."""

    reason: str


class DeadLetter(Struct, frozen=True):  # its error has a traceback, and so may be part of a cycle
    """The protocol cannot process it: the obligation stays open and the job is stranded (ruling A6)."""

    error: LedgerCeilingError


Leg1Decision = RunLeg1 | Proceed | Acknowledge | Close | DeadLetter
Leg2Decision = Proceed | Acknowledge | PutBack | Close | DeadLetter


def receive_leg1(
    activity: str,
    ledger: ActivityLedger,
    *,
    record: GuidRecord | None = None,
    job: JobPhase = JobPhase.OPEN,
) -> Leg1Decision:
    """Section 4. `record` exists only if this message was already being closed without its work."""
    if record is not None:  # ruling A4: it may still owe Step 3 although the job is closed
        return _go_on_closing(activity, ledger, record)
    if ledger.leg1_done:
        return Acknowledge(_counted_leg1(activity, ledger), None, "Leg1 has already completed (4.2)")
    if job is JobPhase.CLOSED:
        return Close("the job has ended")
    if job is JobPhase.CLOSING:
        return _go_on_closing(activity, ledger, GuidRecord(GuidLedger(), ordinal=0))
    try:
        return RunLeg1(ledger.enter_leg1(activity))
    except LedgerCeilingError as error:
        return DeadLetter(error)


def receive_leg2(
    activity: str,
    ledger: ActivityLedger,
    record: GuidRecord | None,
    *,
    job: JobPhase = JobPhase.OPEN,
    leg1_failed: bool = False,
) -> Leg2Decision:
    """Sections 7 and 10. The GUID is consulted first (ruling A4), then the job, then Leg1 (ruling A5)."""
    if record is None:
        if job is JobPhase.CLOSED:
            return Close("the job has ended")
        if not ledger.leg1_done:
            return Close("Leg1 failed") if leg1_failed else PutBack("Leg1 has not committed yet")
    step = Step.WORK if record is None else record.ledger.next_step
    try:
        entered, entry = enter_leg2(activity, ledger, record)
    except LedgerCeilingError as error:
        if record is not None and step is None:
            return Acknowledge(ledger, record, "every step of this GUID has been committed")
        return DeadLetter(error)
    if step is None:
        return Acknowledge(entered, entry, "every step of this GUID has been committed")
    return Proceed(entered, entry, step, abandon=job is JobPhase.CLOSING)


def enter_leg2(activity: str, ledger: ActivityLedger, record: GuidRecord | None) -> tuple[ActivityLedger, GuidRecord]:
    """Count one delivery in both ledgers, or, at a ceiling, in neither (7.1, 7.2, ruling A3)."""
    entered = ledger.enter_leg2(activity)
    if record is None:
        return entered, GuidRecord(GuidLedger().enter(activity), ordinal=entered.leg2_entries)
    return entered, GuidRecord(record.ledger.enter(activity), record.ordinal)


def commit_step(
    ledger: ActivityLedger, record: GuidRecord, step: Step, *, job_closed: bool = False
) -> tuple[ActivityLedger, GuidRecord]:
    """Both ledgers after `step` committed. The GUID's marker is the proof, the activity's the overview."""
    if job_closed and step is not Step.CHILDREN:
        raise LedgerError(f"the job closed snapshot is taken by Step 2, not by {step.value.name!r}")
    if step is Step.WORK:
        guid = record.ledger.commit_work()
    elif step is Step.CHILDREN:
        guid = record.ledger.commit_children(job_closed=job_closed)
    else:
        guid = record.ledger.commit_completion()
    # A message closed before Leg1 committed leaves no trace in the activity's Leg2 digits.
    marked = ledger if record.ordinal == 0 else ledger.mark(step)
    return marked, GuidRecord(guid, record.ordinal)


def semaphore_delta(children: int) -> int:
    """N - 1: the parent closes, its children open (9.2)."""
    if children < 0:
        raise InvalidArgumentError(f"an activity cannot spawn {children} children")
    return children - 1


def set_status_and_collate(
    status: int, delta: int, threshold: int, guid: GuidLedger, weight: Field | None = JOB_CLOSED
) -> tuple[int, GuidLedger, bool]:
    """The compound primitive of 12.2 on values: the status after, the GUID ledger after, threshold hit.

    A join counts its arrivals with it too; its hit closes no job, so it passes no weight (ruling A10).
    """
    after = status + delta
    if after < 0:
        raise LedgerError(
            f"a semaphore of {status} cannot move by {delta}: an obligation was closed twice (GUID ledger {guid})"
        )
    hit = after == threshold
    return after, guid.set_marker(weight) if hit and weight is not None else guid, hit


def _go_on_closing(activity: str, ledger: ActivityLedger, record: GuidRecord) -> Leg1Decision:
    step = record.ledger.next_step
    if step is None:
        return Acknowledge(ledger, record, "the message has already been closed")
    try:
        return Proceed(ledger, GuidRecord(record.ledger.enter(activity), record.ordinal), step, abandon=True)
    except LedgerCeilingError as error:
        return DeadLetter(error)


def _counted_leg1(activity: str, ledger: ActivityLedger) -> ActivityLedger:
    try:
        return ledger.enter_leg1(activity)
    except LedgerCeilingError:
        return ledger  # a stale message owes nothing: no reason to strand its job
