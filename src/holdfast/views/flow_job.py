"""A job of a flow as people read it: every activity's ledger decoded, its messages, its semaphore, its graph.

The graph is the flow's own where this process has its code; otherwise what was recorded shows which activities there
are, and the arrivals at joins show edges.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Raw, Struct

from holdfast.core.collation.ledger import (
    CHILDREN_SPAWNED,
    COMPLETION_DONE,
    LEG1_ATTEMPTS,
    LEG1_DONE,
    LEG2_ENTRIES,
    WORK_DONE,
    ActivityLedger,
    Field,
)
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.models.flow.activity import NodeKind
from holdfast.models.flow.flow import Flow
from holdfast.models.flow.message import peek_message
from holdfast.store.flows import JOB_SEMAPHORE, JobRecords, MessageView

# The fifteen digits from left to right, as they are written.
DIGITS: tuple[Field, ...] = (LEG1_ATTEMPTS, LEG1_DONE, WORK_DONE, CHILDREN_SPAWNED, COMPLETION_DONE, LEG2_ENTRIES)


class Digits(Struct, frozen=True):
    """A part of a ledger: its name, its digits as written, its value."""

    name: str
    text: str
    value: int
    is_marker: bool


class MessageLine(Struct, frozen=True, kw_only=True):
    """A message that is still there: what is owed."""

    id: str
    activity: str
    dimension: str
    step: str
    status: Status
    attempt: int
    error: str | None
    is_dead: bool


class ActivityLine(Struct, frozen=True, kw_only=True):
    """An activity in one dimension, by its ledger and its messages."""

    activity: str
    dimension: str
    digits: list[Digits]
    state: str  # waiting, working, done, failed, dead
    answers: list[str]  # JSON, in the order of their entries
    error: str | None
    messages: int


class SemaphoreLine(Struct, frozen=True):
    """What a join in a dimension still waits for; of the job itself, how many obligations are open."""

    activity: str
    dimension: str
    value: int
    arrived: list[str]


class FlowEdge(Struct, frozen=True):
    source: str
    target: str
    kind: str  # plain, if, error, optional, again, arrived


class FlowNode(Struct, frozen=True):
    name: str
    kind: str
    note: str = ""


class FlowGraph(Struct, frozen=True):
    nodes: list[FlowNode]
    edges: list[FlowEdge]
    is_from_code: bool


class FlowPicture(Struct, frozen=True, kw_only=True):
    activities: list[ActivityLine]
    messages: list[MessageLine]
    joins: list[SemaphoreLine]
    semaphore: int | None
    graph: FlowGraph

    @property
    def dead_letters(self) -> list[MessageLine]:
        return [message for message in self.messages if message.is_dead]

    @property
    def has_dimensions(self) -> bool:
        return any(line.dimension for line in self.activities)


def picture_of(records: JobRecords, flow: Flow | None) -> FlowPicture:
    messages = [_message(found) for found in records.messages]
    failures = {(found.activity, found.dimension): found.error for found in records.failures}
    answers: dict[tuple[str, str], list[str]] = {}
    for guid in sorted(records.guids, key=lambda found: found.ordinal):
        if guid.response is not None:
            answers.setdefault((guid.activity, guid.dimension), []).append(_value_of(guid.response))
    messages_of: dict[tuple[str, str], list[MessageLine]] = {}
    for message in messages:
        messages_of.setdefault((message.activity, message.dimension), []).append(message)
    lines: list[ActivityLine] = []
    for found in records.activities:
        key = (found.activity, found.dimension)
        own = messages_of.get(key, [])
        ledger = ActivityLedger(found.ledger)
        lines.append(
            ActivityLine(
                activity=found.activity,
                dimension=found.dimension,
                digits=decoded(ledger),
                state=_state(own, key in failures),
                answers=answers.get(key, []),
                error=failures.get(key),
                messages=len(own),
            )
        )
    known = {(line.activity, line.dimension) for line in lines}
    arrived: dict[tuple[str, str], list[str]] = {}
    for arrival in records.arrivals:
        text = arrival.source if arrival.value is not None else f"{arrival.source} (skipped)"
        arrived.setdefault((arrival.activity, arrival.dimension), []).append(text)
    joins = [
        SemaphoreLine(found.activity, found.dimension, found.status, arrived.get((found.activity, found.dimension), []))
        for found in records.semaphores
        if found.activity != JOB_SEMAPHORE
    ]
    job = next((found.status for found in records.semaphores if found.activity == JOB_SEMAPHORE), None)
    waiting = [message for message in messages if (message.activity, message.dimension) not in known]
    names = [*(line.activity for line in lines), *(message.activity for message in waiting)]
    return FlowPicture(
        activities=lines,
        messages=messages,
        joins=joins,
        semaphore=job,
        graph=graph_of(flow) if flow is not None else _recorded_graph(names, records),
    )


def decoded(ledger: ActivityLedger) -> list[Digits]:
    """The fifteen digits in their groups."""
    return [
        Digits(field.name, f"{ledger.read(field):0{field.digits}d}", ledger.read(field), field.digits == 1)
        for field in DIGITS
    ]


def graph_of(flow: Flow) -> FlowGraph:
    """As it is declared."""
    graph = flow.graph
    nodes = [
        FlowNode(node.name, node.kind.value, f"waits for {node.signal}" if node.signal is not None else "")
        for node in graph.nodes.values()
    ]
    edges: list[FlowEdge] = []
    for node in graph.nodes.values():
        for source in node.sources:
            kind = "plain"
            if node.kind is NodeKind.ERROR:
                kind = "error"
            elif node.when is not None:
                kind = "if"
            elif source.name in node.optional:
                kind = "optional"
            edges.append(FlowEdge(source.name, node.name, kind))
    edges += [FlowEdge(edge.source.name, edge.head.name, "again") for edge in graph.back_edges]
    return FlowGraph(nodes, edges, True)


def _recorded_graph(names: Iterable[str], records: JobRecords) -> FlowGraph:
    nodes = [FlowNode(name, "activity") for name in dict.fromkeys(names)]
    edges = {
        (found.source, found.activity): FlowEdge(found.source, found.activity, "arrived") for found in records.arrivals
    }
    return FlowGraph(nodes, list(edges.values()), False)


def _value_of(response: str) -> str:
    """The answer itself; the ledger keeps beside it which edges it took."""
    try:
        kept = msgspec.json.decode(response, type=dict[str, Raw])
    except msgspec.DecodeError:
        return response
    return bytes(kept["value"]).decode() if "value" in kept else response


def _message(found: MessageView) -> MessageLine:
    message = peek_message(found.state)  # one that cannot be read is a dead letter, and is what people come to see
    return MessageLine(
        id=str(PromiseId.from_bytes(found.promise)),
        activity=message.activity,
        dimension=message.dimension,
        step=found.step,
        status=found.status,
        attempt=found.attempt,
        error=found.error,
        is_dead=found.status is Status.STRANDED,
    )


def _state(messages: list[MessageLine], is_failed: bool) -> str:
    if any(message.is_dead for message in messages):
        return "dead"
    if is_failed:
        return "failed"
    if messages:
        return "working" if any(message.status is Status.EXECUTING for message in messages) else "waiting"
    return "done"
