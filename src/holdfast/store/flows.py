"""What flows ask of a store, as data: the effects of their protocol, and what is read of them.

A job is an execution of kind `flow`. A message is an execution of kind `message`, a child of its job, whose promise is
the job's and its GUID: so there is at most one row of a GUID, and a duplicate is found, not inserted. It is deleted in
the commit that acknowledges it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import Struct

from holdfast.core.status import Status
from holdfast.store.values import NewExecution

FLOW: Final = "flow"
MESSAGE: Final = "message"
JOB_SEMAPHORE: Final = ""  # the semaphore of the job itself has no activity

# The steps of a message's row: which transition it stands for.
LEG1: Final = "leg1"
WORK: Final = "work"  # the work request between the legs: user code, a signal, a sub-flow
LEG2: Final = "leg2"
CLOSE: Final = "close"  # a dead letter that was dropped: its obligation is closed without its work


class OpenJob(Struct, frozen=True, gc=False):
    """The claim is a job: its semaphore and the messages of its entry activities (ruling A8)."""

    messages: tuple[NewExecution, ...]


class Arrival(Struct, frozen=True, gc=False):
    """An edge that leads into a join. The arrival that brings the join's semaphore to 0 publishes its message."""

    activity: str
    dimension: str
    source: str
    value: str | None  # None: it was skipped (ruling A10)
    needed: int  # the join's semaphore before its first arrival
    message: NewExecution | None  # None: it was skipped and was required, so that it counts for nothing


class Settle(Struct, frozen=True, gc=False):
    """Step 2: publish, move the job's semaphore by N - 1, and say on the GUID's ledger whether that closed the job."""

    children: tuple[NewExecution, ...] = ()
    arrivals: tuple[Arrival, ...] = ()
    threshold: int = 0
    onward: bool = False  # the first child takes the place of the message's own row, and its lease


class EndJob(Struct, frozen=True, gc=False):
    """Step 3: the job's terminal status, its result, and what rides on an end (ruling A11)."""

    status: Status
    result: str | None = None
    error: str | None = None


class Collate(Struct, frozen=True, gc=False, kw_only=True):
    """One step of the protocol, committed with the claim, which is a message.

    `add` goes to the activity's ledger as it is, `mark` only while its digit is 0 (ruling A2). `guid_add` goes to the
    GUID's ledger; a GUID that is new gets its ordinal: the activity's Leg2 entries after `add`, or 0 if it never
    enters Leg2 (ruling A3).
    """

    activity: str
    dimension: str
    guid: bytes
    add: int = 0
    mark: int = 0
    guid_add: int = 0
    response: str | None = None  # what the activity answered; None keeps
    failure: str | None = None  # JSON of an ErrorRecord: the job has failed (ruling A8)
    settle: Settle | None = None
    end: EndJob | None = None
    awaits: str | None = None  # parked: take the next signal of this name from the job's inbox
    acknowledge: bool = False  # delete the message's row; of a Step 2 that closed the job, keep it for Step 3


class LookKey(Struct, frozen=True, gc=False):
    """A claimed message, to look at."""

    row: int
    job: int
    activity: str
    dimension: str
    guid: bytes


class Look(Struct, frozen=True, gc=False):
    """All that the decision about a message needs."""

    step: str
    state: str
    job_status: Status
    job_cancelled: bool
    semaphore: int
    ledger: int
    guid_ledger: int | None
    ordinal: int | None
    response: str | None


class ClosingKey(Struct, frozen=True, gc=False):
    """A job that its last message has closed, and the activities whose answers are wanted; None: of all."""

    job: int
    activities: tuple[str, ...] | None


class Answer(Struct, frozen=True, gc=False):
    """What one GUID of an activity answered."""

    activity: str
    dimension: str
    ordinal: int
    response: str


class Closing(Struct, frozen=True, gc=False):
    """All that the end of a job needs; the answers in the order in which they came to be, and maybe others too."""

    cancel_requested: bool
    error: str | None  # of the activity that failed first
    answers: list[Answer]


class ActivityView(Struct, frozen=True, gc=False):
    activity: str
    dimension: str
    ledger: int


class GuidView(Struct, frozen=True, gc=False):
    guid: bytes
    activity: str
    dimension: str
    ordinal: int
    ledger: int
    response: str | None


class SemaphoreView(Struct, frozen=True, gc=False):
    activity: str  # JOB_SEMAPHORE: the job's own; else of a join
    dimension: str
    status: int
    needed: int | None = None  # of a join: its status before its first arrival


class ArrivalView(Struct, frozen=True, gc=False):
    activity: str
    dimension: str
    source: str
    value: str | None
    counts: bool = True  # False: it was skipped and was required, and the join never fills


class FailureView(Struct, frozen=True, gc=False):
    activity: str
    dimension: str
    error: str


class MessageView(Struct, frozen=True, kw_only=True):
    promise: bytes
    step: str
    status: Status
    state: str
    error: str | None
    attempt: int
    eligible_at: datetime


class JobRecords(Struct, frozen=True, kw_only=True):
    """Everything a store has of one job beside its execution; each list in the order in which it came to be."""

    activities: list[ActivityView]
    guids: list[GuidView]
    semaphores: list[SemaphoreView]
    arrivals: list[ArrivalView]
    failures: list[FailureView]
    messages: list[MessageView]
