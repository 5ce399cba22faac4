"""The nodes of a flow: a function with the edges that lead to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from holdfast.core.codec import Codec, codec_for
from holdfast.core.errors import CallNotAllowedError, DefinitionError
from holdfast.models.workflow.task import Task
from holdfast.models.workflow.transaction import Transaction

if TYPE_CHECKING:
    from holdfast.models.flow.flow import Flow

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

Condition = Callable[[Any], bool]


class NodeKind(Enum):
    ACTIVITY = "activity"
    JOIN = "join"
    HOOK = "hook"  # waits for a signal between the legs
    ERROR = "error"  # takes the error of the activity it comes after
    SUBFLOW = "subflow"  # its work is a job of another flow


class Activity(Generic[P, R]):
    """A node. Outside a flow it can be called like the function that it was declared with, which is `fn`."""

    def __init__(
        self,
        name: str,
        kind: NodeKind,
        *,
        flow_name: str,
        task: Task[P, R] | None = None,
        sources: tuple[Activity[..., Any], ...] = (),
        when: Condition | None = None,
        optional: frozenset[str] = frozenset(),
        queue: str | None = None,
        signal: str | None = None,
        timeout_seconds: float | None = None,
        catches: tuple[type[BaseException], ...] = (),
        subflow: Flow | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.flow_name = flow_name
        self.task = task
        self.sources = sources
        self.when = when
        self.optional = optional
        self.queue = queue
        self.signal = signal
        self.timeout_seconds = timeout_seconds
        self.catches = catches
        self.subflow = subflow
        self.is_transaction = isinstance(task, Transaction)
        self.is_waiting = kind is NodeKind.HOOK or kind is NodeKind.SUBFLOW  # between the legs, for others
        self.__name__ = name
        self.__doc__ = None if task is None else task.__doc__

    @property
    def label(self) -> str:
        """`order.charge`, as errors and `current()` name it."""
        return f"{self.flow_name}.{self.name}"

    @property
    def fn(self) -> Callable[P, Awaitable[R] | R]:
        """The function as it was written."""
        if self.task is None:
            raise DefinitionError(f"{self.label} is a sub-flow and has no function of its own")
        return self.task.fn

    @property
    def result_annotation(self) -> Any:
        """What it answers, as far as it says."""
        if self.task is not None:
            return self.task.signature.result.annotation
        assert self.subflow is not None, "a node has a function or a flow"
        return self.subflow.result_annotation

    @property
    def result_codec(self) -> Codec[Any]:
        return codec_for(self.result_annotation)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        if self.task is None or self.is_transaction:
            raise CallNotAllowedError(f"{self.label} can only run in its flow; start it with `await flow.start(...)`")
        return self.task(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.kind.value} {self.label}>"
