"""Step 2: what follows from an outcome, edge by edge."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Raw

from holdfast.core.collation import Dimension
from holdfast.models.flow.activity import NodeKind
from holdfast.models.flow.graph import Graph, Node
from holdfast.models.flow.message import Letter, Letterhead
from holdfast.models.flow.outcome import Outcome
from holdfast.store.flows import Arrival
from holdfast.store.values import NewExecution


class Following(NamedTuple):
    """What Step 2 publishes: messages, and what joins hear."""

    letters: list[Letter]
    arrivals: list[Arrival]


def settle(graph: Graph, node: Node, dimension: Dimension, index: int, outcome: Outcome, head: Letterhead) -> Following:
    """Taken edges publish a message or arrive at a join; the others tell the joins behind them (ruling A10)."""
    letters: list[Letter] = []
    arrivals: list[Arrival] = []
    passed = outcome.value if outcome.error is None else outcome.error
    if passed is None:
        return Following(letters, arrivals)
    inside = graph.inside(node, dimension, index)
    given = [Raw(passed.encode())]
    for target in graph.targets(node):
        if not _is_taken(target, outcome):
            for skip in graph.skips(node, target):
                message = _filled(skip.join, inside, head) if skip.counts else None
                arrivals.append(_arrival(skip.join, inside, skip.source, None, message))
        elif target.kind is NodeKind.JOIN:
            message = _filled(target, inside, head)
            arrivals.append(_arrival(target, inside, node, passed, message))
        else:
            letters.append(head.leg1(target, inside, given))
    if outcome.error is None and outcome.taken:
        letters += _again(graph, node, inside, given, outcome, head)
    return Following(letters, arrivals)


def _is_taken(target: Node, outcome: Outcome) -> bool:
    if (target.kind is NodeKind.ERROR) is not (outcome.error is not None):
        return False
    if target.kind is not NodeKind.ERROR and target.when is None:
        return True
    return target.name in outcome.taken


def _again(
    graph: Graph, node: Node, inside: Dimension, given: list[Raw], outcome: Outcome, head: Letterhead
) -> list[Letter]:
    """Back edges make a new work request of the head's own instance (ruling A9)."""
    return [
        head.request(
            edge.head,
            inside.outside(edge.head.name),
            given,
            edge.iteration(inside, graph.back_count(edge.head)),
        )
        for edge in graph.back_from(node)
        if edge.key in outcome.taken
    ]


def _filled(join: Node, dimension: Dimension, head: Letterhead) -> NewExecution:
    return head.leg1(join, dimension, []).row


def _arrival(
    join: Node, dimension: Dimension, source: Node, value: str | None, message: NewExecution | None
) -> Arrival:
    return Arrival(join.name, str(dimension), source.name, value, len(join.sources), message)
