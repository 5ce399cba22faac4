"""A directed graph as boxes and curves: layers from top to bottom, edges that go back drawn at the side.

Small graphs (steps of a machine, activities of a flow), so the methods are simple: layers by longest path once edges
that close a cycle are set aside, and a few passes that put each box near its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

CHARACTER_WIDTH = 7.4
BOX_HEIGHT = 34.0
BOX_MIN_WIDTH = 84.0
BOX_PADDING = 14.0
LAYER_GAP = 40.0
BOX_GAP = 26.0
MARGIN = 14.0
BACK_GAP = 26.0
PASSES = 4


class Node(Struct, frozen=True, kw_only=True):
    """A box; `tone` and `note` are for the template."""

    id: str
    label: str
    tone: str = ""
    note: str = ""
    href: str = ""


class Edge(Struct, frozen=True, kw_only=True):
    source: str
    target: str
    label: str = ""
    tone: str = ""


class Box(Struct, frozen=True, kw_only=True):
    node: Node
    x: float
    y: float
    width: float
    height: float


class Curve(Struct, frozen=True, kw_only=True):
    edge: Edge
    path: str
    label_x: float
    label_y: float


class Diagram(Struct, frozen=True, kw_only=True):
    width: float
    height: float
    boxes: list[Box]
    curves: list[Curve]


def layout(nodes: Sequence[Node], edges: Iterable[Edge]) -> Diagram:
    """Where everything is drawn. Edges to boxes that do not exist are left out."""
    known = {node.id: node for node in nodes}
    kept = [edge for edge in edges if edge.source in known and edge.target in known]
    back = _back_edges(list(known), kept)
    forward = [edge for at, edge in enumerate(kept) if at not in back]
    layers = _layers(list(known), forward)
    rows = _ordered(layers, forward)
    sides = {at: _side(kept[at], rows) for at in back}
    left = sum(side < 0 for side in sides.values())
    boxes = _placed(rows, known, MARGIN + (BACK_GAP * left + MARGIN if left else 0))
    right_edge = max((box.x + box.width for box in boxes.values()), default=0.0) + MARGIN
    left_edge = min((box.x for box in boxes.values()), default=0.0) - MARGIN
    curves: list[Curve] = []
    lanes = {-1: 0, 1: 0}
    for at, edge in enumerate(kept):
        if at in back:
            side = sides[at]
            lane = (right_edge if side > 0 else left_edge) + side * BACK_GAP * (lanes[side] + 0.5)
            lanes[side] += 1
            curves.append(_back_curve(edge, boxes, lane, side))
        else:
            curves.append(_curve(edge, boxes))
    height = max((box.y + box.height for box in boxes.values()), default=0.0) + MARGIN
    return Diagram(
        width=right_edge + (BACK_GAP * lanes[1] + MARGIN if lanes[1] else 0),
        height=height,
        boxes=list(boxes.values()),
        curves=curves,
    )


def _side(edge: Edge, rows: Sequence[Sequence[str]]) -> int:
    """-1 or 1: where an edge back passes fewer boxes; the right where it is the same."""
    before = after = 0
    for name in {edge.source, edge.target}:
        row = next(row for row in rows if name in row)
        before += row.index(name)
        after += len(row) - 1 - row.index(name)
    return -1 if before < after else 1


def _back_edges(ids: Sequence[str], edges: Sequence[Edge]) -> set[int]:
    """The edges that close a cycle when the graph is walked from its first node."""
    leaving: dict[str, list[int]] = {name: [] for name in ids}
    for at, edge in enumerate(edges):
        leaving[edge.source].append(at)
    found: set[int] = set()
    done: set[str] = set()
    for first in ids:
        path: list[str] = []
        stack: list[tuple[str, int]] = [(first, 0)] if first not in done else []
        while stack:
            name, following = stack.pop()
            if following == 0:
                path.append(name)
            if following < len(leaving[name]):
                stack.append((name, following + 1))
                at = leaving[name][following]
                target = edges[at].target
                if target in path:
                    found.add(at)
                elif target not in done:
                    stack.append((target, 0))
            else:
                path.pop()
                done.add(name)
    return found


def _layers(ids: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """The length of the longest way to each node."""
    layers = dict.fromkeys(ids, 0)
    for _ in ids:
        changed = False
        for edge in edges:
            if layers[edge.target] < layers[edge.source] + 1:
                layers[edge.target] = layers[edge.source] + 1
                changed = True
        if not changed:
            break
    return layers


def _ordered(layers: Mapping[str, int], edges: Sequence[Edge]) -> list[list[str]]:
    rows: list[list[str]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for name, layer in layers.items():
        rows[layer].append(name)
    for turn in range(PASSES):
        near: dict[str, list[str]] = {name: [] for name in layers}
        for edge in edges:
            first, second = (edge.target, edge.source) if turn % 2 == 0 else (edge.source, edge.target)
            near[first].append(second)
        place = {
            name: at / max(1, len(row) - 1) if len(row) > 1 else 0.5 for row in rows for at, name in enumerate(row)
        }
        for row in rows:
            row.sort(
                key=lambda name: sum(place[n] for n in near[name]) / len(near[name]) if near[name] else place[name]
            )
    return rows


def _placed(rows: Sequence[Sequence[str]], known: Mapping[str, Node], margin: float) -> dict[str, Box]:
    def width(name: str) -> float:
        node = known[name]
        longest = max(len(node.label), len(node.note))
        return max(BOX_MIN_WIDTH, longest * CHARACTER_WIDTH + 2 * BOX_PADDING)

    total = max((sum(map(width, row)) + BOX_GAP * (len(row) - 1) for row in rows), default=0.0)
    boxes: dict[str, Box] = {}
    y = MARGIN
    for row in rows:
        x = margin + (total - sum(map(width, row)) - BOX_GAP * (len(row) - 1)) / 2
        height = BOX_HEIGHT + (16 if any(known[name].note for name in row) else 0)
        for name in row:
            boxes[name] = Box(node=known[name], x=round(x, 1), y=y, width=round(width(name), 1), height=height)
            x += width(name) + BOX_GAP
        y += height + LAYER_GAP
    return boxes


def _curve(edge: Edge, boxes: Mapping[str, Box]) -> Curve:
    source, target = boxes[edge.source], boxes[edge.target]
    x1, y1 = source.x + source.width / 2, source.y + source.height
    x2, y2 = target.x + target.width / 2, target.y
    bend = max(16.0, (y2 - y1) / 2)
    path = f"M{x1:.1f} {y1:.1f}C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2 - 2:.1f}"
    return Curve(edge=edge, path=path, label_x=(x1 + x2) / 2, label_y=(y1 + y2) / 2 + 4)


def _back_curve(edge: Edge, boxes: Mapping[str, Box], lane: float, side: int) -> Curve:
    source, target = boxes[edge.source], boxes[edge.target]
    x1, x2 = (box.x + (box.width if side > 0 else 0) for box in (source, target))
    y1, y2 = source.y + source.height * 0.6, target.y + target.height * 0.4
    if edge.source == edge.target:
        y1, y2 = source.y + source.height * 0.75, source.y + source.height * 0.25
    middle = (y1 + y2) / 2
    path = (
        f"M{x1:.1f} {y1:.1f}C{lane:.1f} {y1:.1f} {lane:.1f} {y1:.1f} {lane:.1f} {middle:.1f}"
        f"C{lane:.1f} {y2:.1f} {lane:.1f} {y2:.1f} {x2 + 2 * side:.1f} {y2:.1f}"
    )
    return Curve(edge=edge, path=path, label_x=lane + 4 * side, label_y=middle)
