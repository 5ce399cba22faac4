"""What flows and batches have beyond their execution: ledgers of a job, dead letters, counters of a run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from holdfast.core.error_record import ErrorRecord
from holdfast.core.errors import InvalidArgumentError, NotFoundError
from holdfast.models.batch.run import BatchRun
from holdfast.models.batch.status import BatchStatus, find_head, rate_of, status_of
from holdfast.models.flow.letters import DeadLetter
from holdfast.models.flow.reading import JobState, read_job
from holdfast.store.values import ExecutionView
from holdfast.views import finding, shapes
from holdfast.web.problems import Problem
from holdfast.web.requests import FailedQuery, LettersQuery
from holdfast.web.security import Role
from holdfast.web.table import Call, Route


class Letter(Struct, frozen=True, kw_only=True):
    """A message of a flow that could not be processed; its job is stranded until it is retried or dropped."""

    id: str
    job: Annotated[str, Meta(description="The id of the flow's execution")]
    flow: str
    activity: str
    dimension: str
    step: str
    error: ErrorRecord | None
    since: datetime
    can_retry: Annotated[bool, Meta(description="A full counter can only be dropped")]


class LetterPage(Struct, frozen=True, kw_only=True):
    """Dead letters, newest first."""

    letters: list[Letter]
    cursor: shapes.NextCursor


class LetterDone(Struct, frozen=True, kw_only=True):
    """What is no dead letter any more."""

    id: str


class FailedItem(Struct, frozen=True, kw_only=True):
    """An item of a batch that failed, with what it was given."""

    seq: int
    error: Annotated[str | None, Meta(description="Type and message")]
    fail_class: Annotated[str | None, Meta(description="permanent, retryable, lease_expired or timeout")]
    attempts: int
    input: Any


class FailedPage(Struct, frozen=True, kw_only=True):
    """Failed items in their order."""

    items: list[FailedItem]
    more: bool


async def letters(call: Call) -> LetterPage:
    query: LettersQuery = call.query
    page = await call.app.dead_letters.list(flow=query.flow, limit=query.limit, cursor=query.cursor)
    return LetterPage(letters=[_letter(item) for item in page.items], cursor=page.cursor)


def _letter(item: DeadLetter) -> Letter:
    return Letter(
        id=str(item.id),
        job=str(item.job),
        flow=item.flow,
        activity=item.activity,
        dimension=item.dimension,
        step=item.step,
        error=item.error,
        since=item.since,
        can_retry=item.can_retry,
    )


async def retry_letter(call: Call) -> LetterDone:
    id = shapes.id_of(await finding.find(call.store, call.part("id")))
    try:
        await call.app.dead_letters.retry(id)
    except ValueError as error:  # its counter is full
        raise Problem(409, "refused", str(error)) from error
    return LetterDone(id=str(id))


async def drop_letter(call: Call) -> LetterDone:
    id = shapes.id_of(await finding.find(call.store, call.part("id")))
    await call.app.dead_letters.drop(id)
    return LetterDone(id=str(id))


async def job(call: Call) -> JobState:
    view = await finding.find(call.store, call.part("id"))
    found = await read_job(call.store, view.promise) if view.kind == "flow" else None
    if found is None:
        raise NotFoundError(f"{shapes.label_of(view)} is a {view.kind}, not a flow")
    return found


async def batch(call: Call) -> BatchStatus:
    view = await _batch_view(call)
    run = await call.store.batch_status(view.promise)
    return status_of(view, run, await find_head(call.store, view, run), rate_of(view, run))


async def failed_items(call: Call) -> FailedPage:
    query: FailedQuery = call.query
    found = await (await _batch_run(call)).failed(query.after, query.limit + 1)
    items = [
        FailedItem(seq=item.seq, error=item.error, fail_class=item.fail_class, attempts=item.attempts, input=item.input)
        for item in found[: query.limit]
    ]
    return FailedPage(items=items, more=len(found) > query.limit)


async def retry_failed(call: Call) -> shapes.Started:
    try:
        again = await (await _batch_run(call)).retry_failed()
    except InvalidArgumentError as error:  # it has not ended
        raise Problem(409, "refused", str(error)) from error
    return shapes.Started(id=str(again.id), label=again.label)


async def _batch_view(call: Call) -> ExecutionView:
    view = await finding.find(call.store, call.part("id"))
    if view.kind != "batch":
        raise NotFoundError(f"{shapes.label_of(view)} is a {view.kind}, not a batch")
    return view


async def _batch_run(call: Call) -> BatchRun[Any]:
    return call.app.batch_run(shapes.id_of(await _batch_view(call)))


def _route(method: Any, path: str, name: str, role: Role, summary: str, handler: Any, answer: type, **more: Any) -> Any:
    return Route(
        method=method,
        path=path,
        name=name,
        tag="flows and batches",
        role=role,
        summary=summary,
        handler=handler,
        answer=answer,
        problems=(404, 409),
        **more,
    )


ROUTES: Final[tuple[Route, ...]] = (
    _route(
        *("GET", "/dead-letters", "list_dead_letters", Role.READ, "Messages of flows that could not be processed"),
        handler=letters,
        answer=LetterPage,
        query=LettersQuery,
    ),
    _route(
        *("POST", "/dead-letters/{id}/retry", "retry_dead_letter", Role.OPERATE, "Put it back to work"),
        handler=retry_letter,
        answer=LetterDone,
    ),
    _route(
        *("POST", "/dead-letters/{id}/drop", "drop_dead_letter", Role.OPERATE, "Close its obligation without its work"),
        handler=drop_letter,
        answer=LetterDone,
    ),
    _route(
        *("GET", "/executions/{id}/flow", "show_flow_job", Role.READ, "Every ledger of a flow's job, decoded"),
        handler=job,
        answer=JobState,
    ),
    _route(
        *("GET", "/executions/{id}/batch", "show_batch_run", Role.READ, "The counters of a batch's run"),
        handler=batch,
        answer=BatchStatus,
    ),
    _route(
        *("GET", "/executions/{id}/batch/failed", "list_failed_items", Role.READ, "Its failed items, in order"),
        handler=failed_items,
        answer=FailedPage,
        query=FailedQuery,
    ),
    _route(
        *("POST", "/executions/{id}/batch/retry-failed", "retry_failed_items", Role.OPERATE),
        "Run over its failed items again, as another run",
        handler=retry_failed,
        answer=shapes.Started,
        status=201,
    ),
)
