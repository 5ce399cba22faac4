"""From a function and its settings to a node whose edges fit."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.core.codec import ErrorRecord
from holdfast.core.durations import Duration
from holdfast.core.errors import DefinitionError
from holdfast.core.identity import check_name
from holdfast.core.retry import RetryPolicy
from holdfast.models.flow.activity import Activity, NodeKind
from holdfast.models.flow.fitting import fits, shown
from holdfast.models.flow.graph import Node
from holdfast.models.flow.job import FlowJob
from holdfast.models.options import check_queue
from holdfast.models.workflow.task import Task
from holdfast.models.workflow.transaction import Transaction

if TYPE_CHECKING:
    from holdfast.models.flow.flow import Flow


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivitySettings:
    """What every kind of activity may be declared with."""

    name: str | None = None
    retry: RetryPolicy | None = None
    timeout: Duration | None = None
    queue: str | None = None
    transaction: bool = False

    def make(
        self, flow: Flow, function: Callable[..., Any], kind: NodeKind, *, is_completion: bool = False, **more: Any
    ) -> Activity[..., Any]:
        if not callable(function) or inspect.isclass(function):
            raise DefinitionError(f"an activity of {flow.name} is a function, not {function!r}")
        name = check_name(self.name or function.__name__)
        if "," in name or "=" in name:
            raise DefinitionError(f"{name!r} cannot name an activity")
        if self.retry is not None and self.retry.max_elapsed is not None:
            raise DefinitionError(f"the retry policy of {flow.name}.{name} has max_elapsed; use max_attempts")
        if is_completion:
            _annotate(function, skip=1 if self.transaction else 0)
        make_task = Transaction if self.transaction else Task
        task: Task[..., Any] = make_task(
            function,
            make_starter=_no_starter,
            payload_limit=flow.payload_limit,
            name=f"{flow.name}.{name}",
            retry=self.retry,
            timeout=self.timeout,
        )
        if is_completion and len(task.signature.names) != 1:
            raise DefinitionError(f"{flow.name}.{name} is a completion task and takes one parameter, the job")
        queue = None if self.queue is None else check_queue(self.queue)
        return Activity(name, kind, flow_name=flow.name, task=task, queue=queue, **more)


def _annotate(function: Callable[..., Any], skip: int) -> None:
    """A completion task need not say that it takes a FlowJob."""
    for parameter in list(inspect.signature(function).parameters.values())[skip : skip + 1]:
        if parameter.annotation is parameter.empty:
            function.__annotations__[parameter.name] = FlowJob


def _no_starter(definition: Any) -> Any:
    raise DefinitionError(f"{definition.name} is an activity: it cannot be started alone, start its flow")


def check_condition(flow: str, when: object, of: str) -> None:
    """A condition is a plain function: what is not callable fails when it is asked, and a coroutine is always true."""
    if when is None:
        return
    if not callable(when) or inspect.iscoroutinefunction(when):
        raise DefinitionError(
            f"`when` of {of} of {flow} is {when!r}; give a plain function that takes the answer before it and says "
            "True or False, such as `lambda answer: answer.ok`"
        )


def make_node(flow: Flow, node: Node, *, extra_source: Node | None = None) -> Node:
    """The node itself, once what it takes fits what it is given; `extra_source` leads a cycle back to it."""
    if node.subflow is not None:
        _check(node, [("its input", _parameters(_entry_of(node.subflow))[0][1])], [*node.sources])
        if extra_source is not None:
            _check(node, [("its input", _parameters(_entry_of(node.subflow))[0][1])], [extra_source])
        return node
    parameters = _parameters(node)
    if not node.sources:
        _check_entry(flow, node, parameters)
        if extra_source is not None:
            if len(parameters) != 1:
                raise DefinitionError(f"{node.label} has {len(parameters)} parameters: a cycle brings it one value")
            _check(node, parameters, [extra_source])
        return node
    most = {NodeKind.JOIN: len(node.sources), NodeKind.HOOK: 2}.get(node.kind, 1)
    if len(parameters) not in (0, most) and not (node.kind is NodeKind.HOOK and len(parameters) == 1):
        raise DefinitionError(
            f"{node.label} takes {len(parameters)} parameters, but is given {most}: "
            f"{', '.join(source.name for source in node.sources)}{' and the signal' if node.signal else ''}"
        )
    if node.kind is NodeKind.ERROR:
        for name, annotation in parameters:
            if not fits(ErrorRecord, annotation):
                raise DefinitionError(f"{node.label} takes an error as {name}: annotate it with ErrorRecord")
        return node
    _check(node, parameters[: len(node.sources)], [*node.sources])
    if extra_source is not None:
        _check(node, parameters[:1], [extra_source])
    return node


def _entry_of(flow: Flow) -> Node:
    return flow.graph.entries[0]


def _check_entry(flow: Flow, node: Node, parameters: list[tuple[str, Any]]) -> None:
    for other in flow.graph.entries:
        if other is not node and _parameters(other) != parameters:
            raise DefinitionError(
                f"{node.label} and {other.label} are both entries, but do not take the same: every entry gets the "
                "flow's input. Give them the same parameters, or declare one `after` the other"
            )


def _check(node: Node, parameters: list[tuple[str, Any]], sources: list[Node]) -> None:
    for (name, wanted), source in zip(parameters, sources, strict=False):
        given = source.result_annotation
        if source.name in node.optional and not fits(type(None), wanted):
            raise DefinitionError(
                f"{node.label} takes {source.name} as optional, but {name} is {shown(wanted)}: make it `| None`"
            )
        if not fits(given, wanted):
            raise DefinitionError(
                f"the edge from {source.name} to {node.name} of {node.flow_name} does not fit: {source.name} answers "
                f"{shown(given)}, and {name} of {node.name} is {shown(wanted)}"
            )


def _parameters(node: Node) -> list[tuple[str, Any]]:
    """The parameters that are input, and what they are annotated with."""
    task = node.task
    assert task is not None, "a sub-flow has no parameters of its own"
    return list(task.signature.annotations.items())
