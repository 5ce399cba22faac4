"""The graph of a flow: its edges, its cycles, and what is checked when it is declared.

Forward edges lead from what is declared to what is declared later, so they make no cycle; only a back edge does, and
it needs a condition. A *head* is the target of back edges. All that comes after a head lies in the dimension of one of
its iterations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from holdfast.core.collation import Dimension
from holdfast.core.errors import DecodeError, DefinitionError
from holdfast.models.flow.activity import Activity, Condition, NodeKind

Node: TypeAlias = Activity[..., Any]

INDEX_LIMIT = 10**8  # a dimensional index has at most eight digits


@dataclass(frozen=True, slots=True)
class BackEdge:
    """From the end of a cycle to its head; `number` tells the back edges of one head apart."""

    source: Node
    head: Node
    when: Condition
    number: int

    @property
    def key(self) -> str:
        """What a response says of a back edge that was taken."""
        return f"{self.head.name}#{self.number}"

    def iteration(self, inside: Dimension, count: int) -> int:
        """The number of the work request that it makes, from the dimension it is taken in.

        Of `count` back edges of one head, taken in any iteration of it and of cycles inside it, no two give the same.
        """
        path = [index for _, index in inside.path[len(inside.outside(self.head.name).path) :]]
        number = path[0] * count + self.number + 1
        for index in path[1:]:
            number = number * INDEX_LIMIT + index
        return number


@dataclass(frozen=True, slots=True)
class Skip:
    """A join that hears of an edge that was not taken; `counts`: its input may be missing."""

    join: Node
    source: Node
    counts: bool


class Graph:
    """Grows by one node or back edge at a time; each makes a new one, which is checked whole."""

    def __init__(self, nodes: dict[str, Node], back_edges: tuple[BackEdge, ...] = ()) -> None:
        self.nodes = nodes
        self.back_edges = back_edges
        self._skips: dict[tuple[str, str], tuple[Skip, ...]] = {}

    def find(self, name: str, flow: str) -> Node:
        found = self.nodes.get(name)
        if found is None:
            raise DecodeError(
                f"the flow {flow} has no activity {name!r} (any more); run the code that has it, or give the changed "
                "flow a new version"
            )
        return found

    def with_node(self, node: Node) -> Graph:
        if node.name in self.nodes:
            raise DefinitionError(f"{node.label} is declared twice; give one of them another name")
        grown = Graph({**self.nodes, node.name: node}, self.back_edges)
        if node.kind is NodeKind.JOIN:
            grown._check_cycles(node)
            grown._check_fates(node)
        return grown

    def with_back_edge(self, source: Node, head: Node, when: Condition) -> Graph:
        if head.kind is NodeKind.JOIN:
            raise DefinitionError(f"{head.label} is a join: a cycle cannot lead back to it; put an activity before it")
        if head.kind is NodeKind.ERROR:
            raise DefinitionError(f"{head.label} takes errors: a cycle cannot lead back to it")
        if source is not head and head.name not in {node.name for node in self.before(source)}:
            raise DefinitionError(
                f"{source.label} does not come after {head.label}, so that an edge back to it makes no cycle; "
                "declare it with `after`"
            )
        number = sum(edge.head is head for edge in self.back_edges)
        grown = Graph(self.nodes, (*self.back_edges, BackEdge(source, head, when, number)))
        for node in self.nodes.values():
            if node.kind is NodeKind.JOIN:
                grown._check_cycles(node)
        return grown

    # ------------------------------------------------------------------ reading

    @cached_property
    def entries(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes.values() if not node.sources)

    @cached_property
    def leaves(self) -> tuple[Node, ...]:
        """Where the graph ends in success: what nothing comes after, on no path that begins with an error."""
        return tuple(
            node
            for node in self.nodes.values()
            if all(target.kind is NodeKind.ERROR for target in self._targets[node.name])
            and all(n.kind is not NodeKind.ERROR for n in (node, *self.before(node)))
        )

    @cached_property
    def heads(self) -> frozenset[str]:
        return frozenset(edge.head.name for edge in self.back_edges)

    @cached_property
    def _targets(self) -> dict[str, tuple[Node, ...]]:
        found: dict[str, list[Node]] = {name: [] for name in self.nodes}
        for node in self.nodes.values():
            for source in node.sources:
                found[source.name].append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    def targets(self, node: Node) -> tuple[Node, ...]:
        """Where its forward edges lead, those for its errors included."""
        return self._targets[node.name]

    @cached_property
    def _back_from(self) -> dict[str, tuple[BackEdge, ...]]:
        found: dict[str, tuple[BackEdge, ...]] = dict.fromkeys(self.nodes, ())
        for edge in self.back_edges:
            found[edge.source.name] += (edge,)
        return found

    def back_from(self, node: Node) -> tuple[BackEdge, ...]:
        return self._back_from[node.name]

    @cached_property
    def _conditions(self) -> dict[str, tuple[tuple[str, Condition], ...]]:
        found: dict[str, list[tuple[str, Condition]]] = {}
        for name, targets in self._targets.items():
            plain = [(target.name, target.when) for target in targets if target.kind is not NodeKind.ERROR]
            found[name] = [(target, when) for target, when in plain if when is not None]
            found[name] += [(edge.key, edge.when) for edge in self._back_from[name]]
        return {name: tuple(conditions) for name, conditions in found.items()}

    def conditions(self, node: Node) -> tuple[tuple[str, Condition], ...]:
        """What is asked of its answer, and the edge that each decides: a target's name, or the key of a back edge."""
        return self._conditions[node.name]

    def back_count(self, head: Node) -> int:
        return sum(edge.head is head for edge in self.back_edges)

    def before(self, node: Node) -> list[Node]:
        """All that a node comes after."""
        found: dict[str, Node] = {}
        waiting = list(node.sources)
        while waiting:
            source = waiting.pop()
            if source.name not in found:
                found[source.name] = source
                waiting += source.sources
        return list(found.values())

    def is_certain(self, node: Node) -> bool:
        """Whether a job cannot be done without it: no condition and no error edge on the way to it."""
        return all(
            found.when is None and all(target.kind is not NodeKind.ERROR for target in self._targets[found.name])
            for found in (node, *self.before(node))
        )

    def inside(self, node: Node, dimension: Dimension, index: int) -> Dimension:
        """The dimension of what an entry of `node` spawns."""
        return dimension.descend(node.name, index) if node.name in self.heads else dimension

    def skips(self, source: Node, target: Node) -> tuple[Skip, ...]:
        """What joins hear if the edge is not taken (ruling A10); an activity that is skipped skips what is after it."""
        key = (source.name, target.name)
        if key not in self._skips:
            self._skips[key] = tuple(self._find_skips(source, target))
        return self._skips[key]

    def _find_skips(self, source: Node, target: Node) -> list[Skip]:
        found: dict[tuple[str, str], Skip] = {}
        waiting = [(source, target)]
        while waiting:
            source, target = waiting.pop()
            if target.kind is NodeKind.JOIN:
                if (target.name, source.name) in found:
                    continue
                skip = found[target.name, source.name] = Skip(target, source, source.name in target.optional)
                if skip.counts:
                    continue
            if target.name not in self.heads:  # what comes after a head lies in an iteration, and there is none
                waiting += [(target, following) for following in self._targets[target.name]]
        return list(found.values())

    # ------------------------------------------------------------------ checking

    @cached_property
    def _cycles(self) -> dict[str, tuple[str, ...]]:
        """By node: the heads in whose iterations all that it spawns lies, outermost first."""
        found: dict[str, tuple[str, ...]] = {}
        for name, node in self.nodes.items():  # sources come first
            around = found[node.sources[0].name] if node.sources else ()
            found[name] = (*around, name) if name in self.heads else around
        return found

    def _check_cycles(self, join: Node) -> None:
        first, *others = join.sources
        for other in others:
            if self._cycles[first.name] != self._cycles[other.name]:
                raise DefinitionError(
                    f"{join.label} cannot fill: {first.name} and {other.name} are not in the same cycles "
                    f"({_names(self._cycles[first.name])} and {_names(self._cycles[other.name])}), so that their "
                    "iterations never meet. Join inside the cycle, or make the cycle a flow of its own and use it "
                    "with `subflow`"
                )

    def _check_fates(self, join: Node) -> None:
        """Two inputs that need the same activity to have succeeded and to have failed never both come."""
        fates: dict[str, tuple[bool, str]] = {}
        for source in join.sources:
            if source.name in join.optional:
                continue
            for name, failed in self._fates(source).items():
                before = fates.setdefault(name, (failed, source.name))
                if before[0] is not failed:
                    raise DefinitionError(
                        f"{join.label} cannot fill: {before[1]} and {source.name} never both happen, one comes after "
                        f"{name} has succeeded and the other after it has failed. Make one of them `optional`"
                    )

    def _fates(self, node: Node) -> dict[str, bool]:
        """Of the activities whose errors are taken: whether they have failed where `node` happens."""
        watched = {other.sources[0].name for other in self.nodes.values() if other.kind is NodeKind.ERROR}
        found: dict[str, bool] = {}
        seen: set[tuple[str, bool]] = set()
        waiting = [(node, False)] if watched else []
        while waiting:
            current, failed = waiting.pop()
            if (current.name, failed) in seen:
                continue
            seen.add((current.name, failed))
            if current.name in watched:
                found[current.name] = failed
            waiting += [
                (source, current.kind is NodeKind.ERROR)
                for source in current.sources
                if source.name not in current.optional
            ]
        return found


def _names(names: Iterable[str]) -> str:
    return " > ".join(names) or "none"
