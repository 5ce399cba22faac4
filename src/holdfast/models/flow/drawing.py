"""A flow as SVG: layers from top to bottom, in the order of the longest way to each activity."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from holdfast.models.flow.activity import NodeKind

if TYPE_CHECKING:
    from holdfast.models.flow.flow import Flow

_WIDTH: Final = 150
_HEIGHT: Final = 36
_GAP_X: Final = 30
_GAP_Y: Final = 50
_MARGIN: Final = 40

_STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#1b1f24;text-anchor:middle;dominant-baseline:central}"
    "rect{fill:#f6f8fa;stroke:#57606a}.join{fill:#ddf4ff}.hook{fill:#fff8c5}.error{fill:#ffebe9}.subflow{fill:#fbefff}"
    "path{fill:none;stroke:#57606a}.if{stroke-dasharray:5 4}.again{stroke:#8250df}"
)


def svg(flow: Flow) -> str:
    """A picture that needs nothing else to be seen."""
    graph = flow.graph
    depth: dict[str, int] = {}
    rows: dict[int, list[str]] = {}
    for name, node in graph.nodes.items():  # sources come first
        depth[name] = 1 + max((depth[source.name] for source in node.sources), default=-1)
        rows.setdefault(depth[name], []).append(name)
    widest = max((len(row) for row in rows.values()), default=1)
    width = 2 * _MARGIN + widest * (_WIDTH + _GAP_X)
    height = 2 * _MARGIN + max(1, len(rows)) * (_HEIGHT + _GAP_Y) - _GAP_Y
    at = {
        name: (
            round(width / 2 + (place - (len(row) - 1) / 2) * (_WIDTH + _GAP_X)),
            _MARGIN + level * (_HEIGHT + _GAP_Y) + _HEIGHT // 2,
        )
        for level, row in rows.items()
        for place, name in enumerate(row)
    }
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(flow.name)}">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z" style="fill:#57606a;stroke:none"/></marker></defs>',
    ]
    for node in graph.nodes.values():
        for source in node.sources:
            (x1, y1), (x2, y2) = at[source.name], at[node.name]
            dotted = ' class="if"' if node.when is not None or node.kind is NodeKind.ERROR else ""
            parts.append(
                f'<path{dotted} marker-end="url(#tip)" d="M{x1} {y1 + _HEIGHT // 2}L{x2} {y2 - _HEIGHT // 2}"/>'
            )
    for edge in graph.back_edges:
        (x1, y1), (x2, y2) = at[edge.source.name], at[edge.head.name]
        side = max(x1, x2) + _WIDTH // 2 + _GAP_X // 2
        parts.append(
            f'<path class="again" marker-end="url(#tip)" d="M{x1 + _WIDTH // 2} {y1}H{side}V{y2}H{x2 + _WIDTH // 2}"/>'
        )
    for name, (x, y) in at.items():
        kind = graph.nodes[name].kind.value
        left, top = x - _WIDTH // 2, y - _HEIGHT // 2
        parts.append(
            f'<g class="{kind}"><rect class="{kind}" x="{left}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>'
            f'<text x="{x}" y="{y}">{escape(name)}</text></g>'
        )
    return "".join(parts) + "</svg>\n"
