"""Step 3: how a job ended, and its completion task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw

from holdfast.core.codec import decode_error
from holdfast.core.collation import Dimension
from holdfast.core.identity import id_text
from holdfast.core.status import Status
from holdfast.models.flow.flow import Flow
from holdfast.models.flow.job import FlowJob
from holdfast.models.flow.outcome import read_outcome
from holdfast.store.flows import Answer, Closing, EndJob


def wanted_answers(flow: Flow) -> tuple[str, ...] | None:
    """The activities whose answers the end of a job needs; None: all, for the completion task is given them."""
    return None if flow.completion is not None else tuple(leaf.name for leaf in flow.graph.leaves)


def job_ending(flow: Flow, job: bytes, closing: Closing, *, dropped: str | None) -> FlowJob:
    """Cancelled if that was asked for, failed if an activity failed for good, else done."""
    error = dropped if dropped is not None else closing.error
    status = Status.CANCELLED if closing.cancel_requested else Status.DONE if error is None else Status.FAILED
    return FlowJob(
        id=id_text(job),
        flow=flow.name,
        status=status,
        error=None if error is None else decode_error(error),
        answers=_answers(closing.answers),
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


def _answers(answers: Sequence[Answer]) -> dict[str, Raw]:
    """Of an activity that ran several times, the last."""
    last: dict[str, tuple[tuple[tuple[tuple[str, int], ...], int], Raw]] = {}
    for answer in answers:
        value = read_outcome(answer.response).value
        place = (Dimension.parse(answer.dimension).path, answer.ordinal)
        if value is not None and (answer.activity not in last or last[answer.activity][0] <= place):
            last[answer.activity] = (place, Raw(value.encode()))
    return {name: value for name, (_, value) in last.items()}
