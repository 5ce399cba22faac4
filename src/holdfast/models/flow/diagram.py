"""A flow as Mermaid text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.models.flow.activity import NodeKind

if TYPE_CHECKING:
    from holdfast.models.flow.flow import Flow

_SHAPES: Final = {
    NodeKind.ACTIVITY: ("[", "]"),
    NodeKind.JOIN: ("{{", "}}"),
    NodeKind.HOOK: ("([", "])"),
    NodeKind.ERROR: (">", "]"),
    NodeKind.SUBFLOW: ("[[", "]]"),
}


def mermaid(flow: Flow) -> str:
    """`flowchart TD` with a line a node and a line an edge; conditions and error edges are dotted."""
    graph = flow.graph
    names = {name: f"n{number}" for number, name in enumerate(graph.nodes)}
    lines = ["flowchart TD"]
    for node in graph.nodes.values():
        before, after = _SHAPES[node.kind]
        label = f"{node.name}<br/>waits for {_quoted(node.signal)}" if node.signal is not None else node.name
        lines.append(f'    {names[node.name]}{before}"{label}"{after}')
    for node in graph.nodes.values():
        for source in node.sources:
            if node.kind is NodeKind.ERROR:
                arrow = f'-. "{_quoted(" or ".join(kind.__name__ for kind in node.catches))}" .->'
            elif node.when is not None:
                arrow = '-. "if" .->'
            else:
                arrow = "-. optional .->" if source.name in node.optional else "-->"
            lines.append(f"    {names[source.name]} {arrow} {names[node.name]}")
    lines += [f'    {names[edge.source.name]} == "again" ==> {names[edge.head.name]}' for edge in graph.back_edges]
    if flow.completion is not None:
        lines.append(f'    done(("{flow.completion.name}"))')
        lines += [f"    {names[leaf.name]} --> done" for leaf in graph.nodes.values() if not graph.targets(leaf)]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace('"', "#quot;")
