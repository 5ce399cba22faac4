"""A job as people see it: every activity's ledgers decoded, its semaphores, what is on its way."""

from __future__ import annotations

from msgspec import Raw, Struct

from holdfast.core.collation import ActivityLedger, GuidLedger, Step
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.models.flow.message import peek_message
from holdfast.models.flow.outcome import read_outcome
from holdfast.store.base import Store
from holdfast.store.flows import JOB_SEMAPHORE, ActivityView, GuidView, JobRecords

_NULL = Raw(b"null")


class EntryState(Struct, frozen=True, kw_only=True):
    """One GUID of an activity: one entry of its Leg2, an iteration where there is a cycle."""

    guid: str
    ordinal: int
    ledger: str  # fifteen digits, as the seed writes them
    attempts: int
    work_done: bool
    children_spawned: bool
    job_closed: bool
    completion_done: bool
    value: Raw  # what it answered; null if nothing, or an error
    error: Raw  # an ErrorRecord, or null
    taken: tuple[str, ...]  # the edges with a condition, and the errors' edges, that were taken


class ActivityState(Struct, frozen=True, kw_only=True):
    """An activity instance: its ledger and all that has entered it."""

    activity: str
    dimension: str
    ledger: str
    leg1_attempts: int
    leg1_done: bool
    work_done: bool
    children_spawned: bool
    completion_done: bool
    leg2_entries: int
    entries: list[EntryState]


class JoinState(Struct, frozen=True, kw_only=True):
    activity: str
    dimension: str
    missing: int | None  # arrivals until it fills; None: nothing that counts has come
    arrived: list[str]
    skipped: list[str]


class MessageState(Struct, frozen=True, kw_only=True):
    id: str
    activity: str
    dimension: str
    step: str  # leg1, work or leg2; close: a dead letter that was dropped
    status: Status
    attempt: int
    error: Raw


class JobState(Struct, frozen=True, kw_only=True):
    id: str
    flow: str
    version: int
    status: Status
    semaphore: int | None  # open obligations; None: the job has not begun
    activities: list[ActivityState]
    joins: list[JoinState]
    messages: list[MessageState]
    failures: list[Raw]


async def read_job(store: Store, promise: bytes) -> JobState | None:
    """None: there is no such execution."""
    view, records = await store.get(promise), await store.flow_records(promise)
    if view is None or records is None:
        return None
    semaphores = {(found.activity, found.dimension): found.status for found in records.semaphores}
    return JobState(
        id=str(PromiseId.from_bytes(promise)),
        flow=view.name,
        version=view.version,
        status=view.status,
        semaphore=semaphores.pop((JOB_SEMAPHORE, ""), None),
        activities=_activities(records),
        joins=_joins(records, semaphores),
        messages=_messages(records),
        failures=[Raw(failure.error.encode()) for failure in records.failures],
    )


def _activities(records: JobRecords) -> list[ActivityState]:
    entries: dict[tuple[str, str], list[EntryState]] = {}
    for guid in records.guids:
        entries.setdefault((guid.activity, guid.dimension), []).append(_entry(guid))
    known = {(found.activity, found.dimension): found for found in records.activities}
    for key in entries:  # what was closed before its Leg1 has no ledger of its own
        known.setdefault(key, ActivityView(*key, 0))
    return [_activity(found, entries.get(key, [])) for key, found in known.items()]


def _activity(found: ActivityView, entries: list[EntryState]) -> ActivityState:
    ledger = ActivityLedger(found.ledger)
    return ActivityState(
        activity=found.activity,
        dimension=found.dimension,
        ledger=str(ledger),
        leg1_attempts=ledger.leg1_attempts,
        leg1_done=ledger.leg1_done,
        work_done=ledger.is_marked(Step.WORK),
        children_spawned=ledger.is_marked(Step.CHILDREN),
        completion_done=ledger.is_marked(Step.COMPLETION),
        leg2_entries=ledger.leg2_entries,
        entries=sorted(entries, key=lambda entry: entry.ordinal),
    )


def _entry(guid: GuidView) -> EntryState:
    ledger = GuidLedger(guid.ledger)
    outcome = None if guid.response is None else read_outcome(guid.response)
    return EntryState(
        guid=guid.guid.hex(),
        ordinal=guid.ordinal,
        ledger=str(ledger),
        attempts=ledger.attempts,
        work_done=ledger.is_marked(Step.WORK),
        children_spawned=ledger.is_marked(Step.CHILDREN),
        job_closed=ledger.job_closed,
        completion_done=ledger.is_marked(Step.COMPLETION),
        value=_raw(None if outcome is None else outcome.value),
        error=_raw(None if outcome is None else outcome.error),
        taken=() if outcome is None else outcome.taken,
    )


def _joins(records: JobRecords, semaphores: dict[tuple[str, str], int]) -> list[JoinState]:
    arrived: dict[tuple[str, str], tuple[list[str], list[str]]] = {key: ([], []) for key in semaphores}
    for arrival in records.arrivals:
        came, skipped = arrived.setdefault((arrival.activity, arrival.dimension), ([], []))
        (skipped if arrival.value is None else came).append(arrival.source)
    return [
        JoinState(activity=key[0], dimension=key[1], missing=semaphores.get(key), arrived=came, skipped=skipped)
        for key, (came, skipped) in arrived.items()
    ]


def _messages(records: JobRecords) -> list[MessageState]:
    found = []
    for view in records.messages:
        message = peek_message(view.state)
        found.append(
            MessageState(
                id=str(PromiseId.from_bytes(view.promise)),
                activity=message.activity,
                dimension=message.dimension,
                step=view.step,
                status=view.status,
                attempt=view.attempt,
                error=_raw(view.error),
            )
        )
    return found


def _raw(text: str | None) -> Raw:
    return _NULL if text is None else Raw(text.encode())
