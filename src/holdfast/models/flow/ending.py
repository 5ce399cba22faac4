"""Step 3: how a job ended, and its completion task."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from holdfast.core.codec import decode_error
from holdfast.core.collation import Dimension, GuidLedger, Step
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.models.flow.flow import Flow
from holdfast.models.flow.job import FlowJob
from holdfast.models.flow.outcome import read_outcome
from holdfast.store.flows import EndJob, JobRecords


def job_ending(flow: Flow, job: bytes, records: JobRecords, *, cancelled: bool, dropped: str | None) -> FlowJob:
    """Cancelled if that was asked for, failed if an activity failed for good, else done."""
    error = dropped if dropped is not None else records.failures[0].error if records.failures else None
    status = Status.CANCELLED if cancelled else Status.DONE if error is None else Status.FAILED
    return FlowJob(
        id=str(PromiseId.from_bytes(job)),
        flow=flow.name,
        status=status,
        error=None if error is None else decode_error(error),
        answers=_answers(records),
    )


def end_of(flow: Flow, ending: FlowJob, failure: str | None, error: str | None) -> EndJob:
    """`failure` is the completion task's own: it fails a job that would be done."""
    if ending.status is Status.CANCELLED:
        return EndJob(Status.CANCELLED)
    if ending.status is Status.FAILED or failure is not None:
        return EndJob(Status.FAILED, None, error if ending.status is Status.FAILED else failure)
    return EndJob(Status.DONE, _result(flow, ending.answers))


def _result(flow: Flow, answers: Mapping[str, Raw]) -> str:
    leaves = flow.graph.leaves
    if len(leaves) == 1:
        return bytes(answers.get(leaves[0].name, Raw(b"null"))).decode()
    return msgspec.json.encode({leaf.name: answers[leaf.name] for leaf in leaves if leaf.name in answers}).decode()


def _answers(records: JobRecords) -> dict[str, Raw]:
    last: dict[str, tuple[tuple[tuple[tuple[str, int], ...], int], Raw]] = {}
    for guid in records.guids:
        if guid.response is None or not GuidLedger(guid.ledger).is_marked(Step.WORK):
            continue
        value = read_outcome(guid.response).value
        place = (Dimension.parse(guid.dimension).path, guid.ordinal)
        if value is not None and (guid.activity not in last or last[guid.activity][0] <= place):
            last[guid.activity] = (place, Raw(value.encode()))
    return {name: value for name, (_, value) in last.items()}
