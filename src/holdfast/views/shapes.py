"""The shapes of executions, one struct each, and how each is made from the store's values.

They are the one source of the CLI's `--json`, of the HTTP API's answers and of its OpenAPI schemas; field names are
never changed. Times are RFC 3339 in UTC. Payloads (state, result, signals, errors) are the JSON they are, as
`msgspec.Raw`: nothing here looks into them, so whatever was written comes out as it was.

`ledger_shapes` has the shapes of what else a ledger holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from holdfast.core.identity import PromiseId
from holdfast.core.journal.events import Event
from holdfast.core.status import Status
from holdfast.models.workflow import progress
from holdfast.store import values
from holdfast.store.flows import FLOW
from holdfast.store.values import Delivery, ExecutionView

_EMPTY = Raw(b"{}")
NextCursor: TypeAlias = Annotated[str | None, Meta(description="Continues after the last one; null at the end")]


class Summary(Struct, frozen=True, kw_only=True):
    """An execution in one line: what lists say of it."""

    id: Annotated[str, Meta(description="The whole id: 64 hex digits, then .n for each level below the root")]
    label: Annotated[str, Meta(description="The form people see, `name/4f7a9c21.2`")]
    kind: Annotated[str, Meta(description="workflow, task, machine, flow or batch")]
    name: Annotated[str, Meta(description="The definition")]
    version: Annotated[int, Meta(description="Of the definition, at the start")]
    idempotency_key: Annotated[str | None, Meta(description="The key it was started with")]
    status: Status
    step: Annotated[str, Meta(description="Of a machine, the step it is at; else what the kind calls its place")]
    attempt: Annotated[int, Meta(description="How often the current step was tried before, crashes included")]
    queue: str
    priority: Annotated[int, Meta(description="Smaller is earlier")]
    partition_key: Annotated[str | None, Meta(description="At most one execution of a key is at work at a time")]
    paused: bool
    cancel_requested: bool
    parent: Annotated[str | None, Meta(description="The id of the execution that started it")]
    successor: Annotated[str | None, Meta(description="The id of the run that goes on in its place")]
    error: Annotated[Raw | None, Meta(description="The last recorded one: `type`, `message` and more; or null")]
    attributes: Annotated[Raw, Meta(description="A flat object of what it can be searched by")]
    inserted_at: datetime
    started_at: Annotated[datetime | None, Meta(description="When a worker took it first")]
    ended_at: datetime | None
    updated_at: datetime


class InboxSignal(Struct, frozen=True, kw_only=True):
    """A signal that was delivered and not read yet."""

    name: str
    payload: Raw


class Newest(Struct, frozen=True, kw_only=True):
    """The run that stands for one that has ended: what its key and its result mean now."""

    id: str
    label: str
    status: Status
    how: Annotated[str, Meta(description="`retried`, or `continued` as new")]


class CallProgress(Struct, frozen=True, kw_only=True):
    """What a task in flight said with its last heartbeat."""

    id: Annotated[str, Meta(description="Of the call; of a task with an execution of its own, that one's")]
    name: Annotated[str, Meta(description="The task")]
    attempt: Annotated[int, Meta(description="From 1")]
    progress: Raw


class Details(Summary, frozen=True, kw_only=True):
    """An execution with all that its row says, its inbox and its children."""

    state: Annotated[Raw, Meta(description="Of a machine its state, else its input")]
    result: Annotated[Raw | None, Meta(description="null until it is done")]
    crashes: Annotated[int, Meta(description="Leases lost without progress; at a limit it is stranded")]
    revision: Annotated[int, Meta(description="Goes up by one with every commit of a worker")]
    locked_by: Annotated[str | None, Meta(description="The worker that holds it")]
    awaits: Annotated[tuple[str, ...] | None, Meta(description="Names of signals that wake it")]
    children_pending: int
    unique_key: str | None
    digest: Annotated[str | None, Meta(description="Of the code that ran it last")]
    eligible_at: datetime
    wake_at: datetime | None
    cancel_reason: str | None
    deadline_at: datetime | None
    journal_length: Annotated[int, Meta(description="How many events its journal holds")]
    published: Annotated[Raw | None, Meta(description="What a workflow shows of itself")]
    progress: Annotated[list[CallProgress], Meta(description="What its tasks in flight say of how far they are")]
    newest: Annotated[Newest | None, Meta(description="The last of those, and how it stands; null where there is none")]
    inbox: list[InboxSignal]
    children: list[Summary]


class ExecutionPage(Struct, frozen=True, kw_only=True):
    """Executions, newest first."""

    executions: list[Summary]
    cursor: NextCursor


class TransitionLine(Struct, frozen=True, kw_only=True):
    """One committed step of a machine that keeps its history."""

    revision: int
    at: datetime
    step: str
    attempt: int
    outcome: str
    next_step: str | None
    error: Raw | None


class History(Struct, frozen=True, kw_only=True):
    """The committed steps of a machine declared with `history=True`, oldest first."""

    id: str
    label: str
    transitions: list[TransitionLine]


class Journal(Struct, frozen=True, kw_only=True):
    """The events of a workflow, in their order."""

    id: str
    label: str
    events: list[Event]


class Started(Struct, frozen=True, kw_only=True):
    """An execution that now stands for a request."""

    id: str
    label: str


Arrival: TypeAlias = Annotated[Delivery, Meta(description="`delivered`, or `duplicate`: its dedup key was seen before")]


class StartedByName(Started, frozen=True, kw_only=True):
    """A new one, or the one that the same key had started before. `delivery` is there if a signal was sent with it."""

    existing: bool
    delivery: Arrival | UnsetType = UNSET


class Delivered(Struct, frozen=True, kw_only=True):
    """What became of a signal."""

    id: str
    label: str
    signal: str
    delivery: Arrival


class Standing(Struct, frozen=True, kw_only=True):
    """How an execution stands after it was steered."""

    id: str
    label: str
    status: Status
    paused: bool


# ---------------------------------------------------------------------- from the store's values


def _raw(text: str | None) -> Raw | None:
    return None if text is None else Raw(text)


def id_of(view: ExecutionView) -> PromiseId:
    return PromiseId.from_bytes(view.promise)


def label_of(view: ExecutionView) -> str:
    return id_of(view).label(view.name)


def step_of(view: ExecutionView) -> str:
    """Where it is. A job of a flow that has ended is nowhere: its row still says that it runs."""
    return "" if view.kind == FLOW and view.status.is_terminal else view.step


def _id_text(promise: bytes | None) -> str | None:
    return None if promise is None else str(PromiseId.from_bytes(promise))


def _summary_fields(view: ExecutionView) -> dict[str, object]:
    found = id_of(view)
    return {
        "id": str(found),
        "label": found.label(view.name),
        "kind": view.kind,
        "name": view.name,
        "version": view.version,
        "idempotency_key": view.idempotency_key,
        "status": view.status,
        "step": step_of(view),
        "attempt": view.attempt,
        "queue": view.queue,
        "priority": view.priority,
        "partition_key": view.partition_key,
        "paused": view.paused,
        "cancel_requested": view.cancel_requested,
        "parent": _id_text(view.parent),
        "successor": _id_text(view.successor),
        "error": _raw(view.error),
        "attributes": _raw(view.attributes) or _EMPTY,
        "inserted_at": view.inserted_at,
        "started_at": view.started_at,
        "ended_at": view.ended_at,
        "updated_at": view.updated_at,
    }


def summary(view: ExecutionView) -> Summary:
    return Summary(**_summary_fields(view))  # type: ignore[arg-type]


def newest(view: ExecutionView, found: ExecutionView) -> Newest:
    """`found` goes on in the place of `view`."""
    how = "retried" if view.status is Status.FAILED else "continued"
    return Newest(id=str(id_of(found)), label=label_of(found), status=found.status, how=how)


def details(
    view: ExecutionView,
    inbox: Sequence[values.Signal],
    children: Sequence[ExecutionView],
    last: ExecutionView | None,
    told: Sequence[progress.CallProgress],
) -> Details:
    """`last` is the run that stands for it now, if it is another one; `told` is what its tasks in flight said."""
    return Details(
        **_summary_fields(view),  # type: ignore[arg-type]
        state=Raw(view.state),
        result=_raw(view.result),
        crashes=view.crashes,
        revision=view.revision,
        locked_by=view.locked_by,
        awaits=None if view.status.is_terminal else view.awaits,  # a failed one keeps them for a retry
        children_pending=view.children_pending,
        unique_key=None if view.unique_key is None else view.unique_key.decode("utf-8", "backslashreplace"),
        digest=view.digest,
        eligible_at=view.eligible_at,
        wake_at=view.wake_at,
        cancel_reason=view.cancel_reason,
        deadline_at=view.deadline_at,
        journal_length=view.journal_length,
        published=_raw(view.published),
        progress=[call_progress(found) for found in told],
        newest=None if last is None else newest(view, last),
        inbox=[signal(found) for found in inbox],
        children=[summary(child) for child in children],
    )


def call_progress(found: progress.CallProgress) -> CallProgress:
    return CallProgress(id=str(found.id), name=found.name, attempt=found.attempt, progress=Raw(found.text))


def signal(found: values.Signal) -> InboxSignal:
    return InboxSignal(name=found.name, payload=Raw(found.payload))


def transition(line: values.Transition) -> TransitionLine:
    return TransitionLine(
        revision=line.revision,
        at=line.at,
        step=line.step,
        attempt=line.attempt,
        outcome=line.outcome,
        next_step=line.next_step,
        error=_raw(line.error),
    )
