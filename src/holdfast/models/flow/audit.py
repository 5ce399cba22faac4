"""Whether the ledgers, semaphores, messages and rows of every job agree; each violation is named.

`core.collation.audit` judges ledgers by themselves; here they meet what the store has beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from holdfast.core.collation import (
    ActivityLedger,
    GuidLedger,
    GuidRecord,
    Step,
    audit_activity,
    audit_guid,
    audit_job,
)
from holdfast.core.errors import HoldfastError
from holdfast.core.identity import PromiseId
from holdfast.core.status import TERMINAL, Status
from holdfast.models.flow.message import message_promise, peek_message
from holdfast.models.flow.outcome import read_outcome
from holdfast.store.base import Store
from holdfast.store.flows import FLOW, JOB_SEMAPHORE, WORK, JobRecords
from holdfast.store.values import ExecutionFilter, ExecutionView

PAGE = 200


async def audit_flows(store: Store) -> list[str]:
    """Every violation in every job of a store at rest: `order/4f7a9c21: section 9.1: ...`."""
    violations: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.browse(ExecutionFilter(kind=FLOW), PAGE, cursor)
        for view in page.items:
            violations += await audit_flow(store, view)
        cursor = page.cursor
        if cursor is None:
            return violations


async def audit_flow(store: Store, view: ExecutionView) -> list[str]:
    records = await store.flow_records(view.promise)
    if records is None:  # purged since
        return []
    label = PromiseId.from_bytes(view.promise).label(view.name)
    try:
        return [f"{label}: {violation}" for violation in _violations(view, records)]
    except (
        HoldfastError,
        msgspec.MsgspecError,
    ) as error:  # digits that no ledger can have, an answer that cannot be read
        return [f"{label}: {error}"]


def _violations(view: ExecutionView, records: JobRecords) -> Iterator[str]:
    semaphore = next((found.status for found in records.semaphores if found.activity == JOB_SEMAPHORE), None)
    if semaphore is None:
        yield from _not_begun(view, records)
        return
    guids = {found.guid: GuidRecord(GuidLedger(found.ledger), found.ordinal) for found in records.guids}
    for record in guids.values():
        yield from audit_guid(record)
    yield from _activities(records, guids)
    yield from _joins(records)
    yield from _answers(view, records, guids)
    yield from audit_job(semaphore, guids.values())
    yield from _obligations(view, records, semaphore, guids)
    yield from _end(view, records, semaphore, guids)


def _not_begun(view: ExecutionView, records: JobRecords) -> Iterator[str]:
    if view.status in (Status.DELEGATED, Status.DONE):
        yield f"ruling A8: it is {view.status}, but has no semaphore"
    if records.messages or records.guids or records.activities:
        yield "ruling A8: it has messages or ledgers, but no semaphore"


def _activities(records: JobRecords, guids: dict[bytes, GuidRecord]) -> Iterator[str]:
    entered: dict[tuple[str, str], list[GuidRecord]] = {}
    for found in records.guids:
        entered.setdefault((found.activity, found.dimension), []).append(guids[found.guid])
    ledgers = {(found.activity, found.dimension): ActivityLedger(found.ledger) for found in records.activities}
    for key, ledger in ledgers.items():
        for violation in audit_activity(ledger, entered.get(key, [])):
            yield f"{_place(*key)}: {violation}"
    for key, of_activity in entered.items():
        if key not in ledgers and any(record.ordinal for record in of_activity):
            yield f"{_place(*key)}: ruling A3: a GUID entered Leg2, but the activity has no ledger"
    for message in records.messages:
        key = _of(message.state)
        if message.step == WORK and not (key in ledgers and ledgers[key].leg1_done):
            yield f"{_place(*key)}: section 4.3: work was requested, but Leg1 is not done"


def _joins(records: JobRecords) -> Iterator[str]:
    """A join has a semaphore from its first arrival on, and each that counts takes 1 off it (ruling A10)."""
    under_way = {(found.activity, found.dimension) for found in records.activities}
    under_way |= {(found.activity, found.dimension) for found in records.guids}
    under_way |= {_of(message.state) for message in records.messages}
    came = Counter((found.activity, found.dimension) for found in records.arrivals if found.counts)
    joins = {(found.activity, found.dimension): found for found in records.semaphores}
    del joins[JOB_SEMAPHORE, ""]
    for key, join in joins.items():
        missing = join.status
        if missing == 0 and key not in under_way:
            yield f"{_place(*key)}: ruling A10: the join is full, but nothing was published for it"
        if missing > 0 and key in under_way:
            yield f"{_place(*key)}: ruling A10: the join began, but {missing} arrivals are missing"
        if not came[key] or missing + came[key] != join.needed:
            yield (
                f"{_place(*key)}: ruling A10: the join needs {join.needed} and has a semaphore of {missing}, "
                f"but {came[key]} arrivals count"
            )
    for key in came.keys() - joins.keys():
        yield f"{_place(*key)}: ruling A10: something arrived at the join, but it has no semaphore"


def _answers(view: ExecutionView, records: JobRecords, guids: dict[bytes, GuidRecord]) -> Iterator[str]:
    """What a GUID has committed says what the store has beside it."""
    there = {message.promise for message in records.messages}
    failed = {(found.activity, found.dimension) for found in records.failures}
    for found in records.guids:
        ledger, place = guids[found.guid].ledger, _place(found.activity, found.dimension)
        if ledger.next_step is not None and message_promise(view.promise, found.guid) not in there:
            yield f"{place}: Rule G: {ledger.next_step.value.name!r} is owed, but the message is gone ({ledger})"
        if not ledger.is_marked(Step.WORK):
            continue
        if found.response is None:
            yield f"{place}: section 11: the work is done, but there is no answer (GUID ledger {ledger})"
        elif (
            not view.cancel_requested
            and read_outcome(found.response).is_unhandled
            and (found.activity, found.dimension) not in failed
        ):
            yield f"{place}: ruling A8: no edge took its error, but the job has no failure of it"


def _obligations(
    view: ExecutionView, records: JobRecords, semaphore: int, guids: dict[bytes, GuidRecord]
) -> Iterator[str]:
    """Every message that has not had its Step 2 is one open obligation, and there is no other."""
    by_promise = {message_promise(view.promise, guid): record for guid, record in guids.items()}
    open_messages = 0
    for message in records.messages:
        record = by_promise.get(message.promise)
        is_open = record is None or not record.ledger.is_marked(Step.CHILDREN)
        open_messages += is_open
        if not is_open and record is not None and record.ledger.next_step is None and message.status.is_parked:
            yield "Rule G: a message owes nothing and was not acknowledged"
    if semaphore != open_messages:
        yield f"section 9.1: the semaphore is {semaphore}, but {open_messages} messages have an open obligation"
    letters = any(message.status is Status.STRANDED for message in records.messages)
    if letters is not (view.status is Status.STRANDED):
        yield f"ruling A6: it is {view.status}, and {'has' if letters else 'has no'} dead letters"


def _end(view: ExecutionView, records: JobRecords, semaphore: int, guids: dict[bytes, GuidRecord]) -> Iterator[str]:
    completions = sum(record.ledger.is_marked(Step.COMPLETION) for record in guids.values())
    has_ended = view.status in TERMINAL
    if completions > 1:
        yield f"section 13: the completion tasks were committed {completions} times"
    if has_ended is not (completions == 1):
        yield f"ruling A11: it is {view.status}, but {completions} GUIDs have committed the end of the job"
    if has_ended and semaphore:
        yield f"section 9.1: it has ended, but its semaphore is {semaphore}"
    if has_ended and records.messages:
        yield f"Rule G: it has ended, but {len(records.messages)} messages were not acknowledged"
    if view.status is Status.DONE and records.failures:
        yield "ruling A8: it is done, but an activity failed for good"


def _of(state: str) -> tuple[str, str]:
    message = peek_message(state)
    return message.activity, message.dimension


def _place(activity: str, dimension: str) -> str:
    return f"{activity}[{dimension}]" if dimension else activity
