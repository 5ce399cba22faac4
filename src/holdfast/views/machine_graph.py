"""The steps of a machine as a graph: from its code where this process has it, and from what runs recorded.

The code is read, never run: `Next(self.pack, state)` in the step `charge` is an edge from charge to pack. What is
computed at run time is not seen there; the history of a run shows what it took.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from msgspec import Struct

from holdfast.models.machine.definition import MachineDefinition
from holdfast.store.values import Transition

# The position of the step among the arguments of the outcomes that name one.
_STEP_AT: Final = {"Next": 0, "Await": 1, "ScheduleChildren": 0}
_ENDS: Final = {"Done": "done", "Stop": "failed"}


class StepEdge(Struct, frozen=True, order=True):
    """From a step to the next one; `target` is "done" or "failed" where it ends."""

    source: str
    target: str
    outcome: str
    times: int = 0  # how often the run took it


class StepGraph(Struct, frozen=True, kw_only=True):
    steps: list[str]  # the initial one first
    edges: list[StepEdge]
    is_from_code: bool


def step_graph(definition: MachineDefinition | None, history: Iterable[Transition], current: str) -> StepGraph:
    """What the code declares and what the history took, together."""
    steps: dict[str, None] = {}
    edges: dict[tuple[str, str], StepEdge] = {}
    if definition is not None:
        steps = dict.fromkeys([definition.initial, *definition.steps])
        for name, step in definition.steps.items():
            for target, outcome in _targets(step.function):
                edges.setdefault((name, target), StepEdge(name, target, outcome))
    for line in history:
        steps.setdefault(line.step)
        taken = line.next_step or _ENDS.get(line.outcome)
        if taken is None or (line.outcome == "Replay" and taken == line.step):
            continue
        if taken not in _ENDS.values():
            steps.setdefault(taken)
        known = edges.get((line.step, taken))
        times = 1 if known is None else known.times + 1
        edges[line.step, taken] = StepEdge(line.step, taken, line.outcome, times)
    if current:
        steps.setdefault(current)
    kept = [edge for edge in edges.values() if edge.target in steps or edge.target in _ENDS.values()]
    ends = [end for end in _ENDS.values() if any(edge.target == end for edge in kept)]
    return StepGraph(steps=[*steps, *(end for end in ends if end not in steps)], edges=kept,
                     is_from_code=definition is not None)  # fmt: skip


def _targets(function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):  # no source: typed at a prompt, or packed without it
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name in _ENDS:
            yield _ENDS[name], name
        elif name in _STEP_AT:
            given = [keyword.value for keyword in node.keywords if keyword.arg == "step"]
            at = _STEP_AT[name]
            step = given[0] if given else node.args[at] if len(node.args) > at else None
            if isinstance(step, ast.Attribute):
                yield step.attr, name
            elif isinstance(step, ast.Constant) and isinstance(step.value, str):
                yield step.value, name
