"""What a program declares: `order = app.flow("order")`, and its activities as decorated functions.

Every declaration is checked when it is made; a flow that stands can run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar, Unpack, overload

import msgspec

from holdfast.core.codec import codec_for, fingerprint
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import CallNotAllowedError, DefinitionError, InvalidArgumentError
from holdfast.core.identity import PromiseId, check_name
from holdfast.core.journal.events import InvokeKind, Ok, Result
from holdfast.core.journal.quick import CallText
from holdfast.core.retry import RetryPolicy
from holdfast.core.searchable import is_text
from holdfast.models.flow.activity import Activity, Condition, NodeKind
from holdfast.models.flow.diagram import mermaid
from holdfast.models.flow.drawing import svg
from holdfast.models.flow.graph import Graph, Node
from holdfast.models.flow.making import ActivitySettings, check_condition, make_node
from holdfast.models.handle import SIGNAL_NAME_MAX_CHARS, Handle, uncollided
from holdfast.models.options import Options, StartOptions, check_priority, check_queue
from holdfast.models.starting import new_row
from holdfast.models.workflow.callee import CallSettings
from holdfast.models.workflow.control_flow import CURRENT
from holdfast.models.workflow.failures import exception_of
from holdfast.models.workflow.promise import CallPromise
from holdfast.models.workflow.signature import Signature
from holdfast.store.base import handler_of
from holdfast.store.flows import FLOW
from holdfast.store.values import NewExecution

if TYPE_CHECKING:
    from holdfast.models.flow.start import FlowStarter

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")

KIND: Final = FLOW


class ActivityDecorator(Protocol):
    """`@flow.activity(...)` and its like: keeps the signature of the function."""

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Activity[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Activity[P, R]: ...


class Flow:
    """A graph of activities. Declare it with the decorators, start it with `start`; a workflow calls and awaits it."""

    invoke_kind: InvokeKind = "Function"
    is_remote = True

    def __init__(
        self,
        name: str,
        *,
        version: int = 1,
        queue: str = "default",
        priority: int = 0,
        payload_limit: int,
        make_starter: Callable[[Flow], FlowStarter],
    ) -> None:
        self.name = check_name(name)
        if isinstance(version, bool) or not isinstance(version, int) or not 0 < version < 2**31:
            raise DefinitionError(f"the version of {self.name} must be a whole number from 1, not {version!r}")
        self.version = version
        self.queue = check_queue(queue)
        self.priority = check_priority(priority)
        self.payload_limit = payload_limit
        self.handler = handler_of(KIND, self.name, version)
        self.graph = Graph({})
        self.completion: Node | None = None
        self.settings = CallSettings(queue=self.queue).text()
        self.call_text = CallText(self.invoke_kind, self.name, self.settings)
        self._make_starter = make_starter

    # ------------------------------------------------------------------ declaring

    @overload
    def activity(self, function: Callable[P, Awaitable[R]], /) -> Activity[P, R]: ...
    @overload
    def activity(self, function: Callable[P, R], /) -> Activity[P, R]: ...
    @overload
    def activity(
        self,
        function: None = None,
        /,
        *,
        after: Activity[..., A] | None = None,
        when: Callable[[A], bool] | None = None,
        transaction: bool = False,
        name: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        queue: str | None = None,
    ) -> ActivityDecorator: ...
    def activity(self, function: Any = None, /, *, after: Any = None, when: Any = None, **settings: Any) -> Any:
        """Declare an activity. Without `after` it is an entry and takes the flow's input; else what `after` answered.

        `when` is asked of that answer: False, and the edge is not taken. With `transaction` it gets the store's
        connection first, and what it writes commits with its own record, exactly once.
        """
        sources = () if after is None else (after,)
        if when is not None and after is None:
            raise DefinitionError(f"an entry of {self.name} has a condition, but there is no answer to ask it of")
        return self._declare(function, NodeKind.ACTIVITY, sources, settings, when=when)

    def join(
        self,
        *,
        after: Sequence[Activity[..., Any]],
        optional: Sequence[Activity[..., Any]] = (),
        name: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        queue: str | None = None,
        transaction: bool = False,
    ) -> ActivityDecorator:
        """Declare an activity that takes the answers of several, in their order.

        If one of them is skipped or fails, so is the join skipped; unless it is `optional`: then it is None.
        """
        settings = {"name": name, "retry": retry, "timeout": timeout, "queue": queue, "transaction": transaction}
        if not isinstance(after, Sequence) or len(after) < 2:
            raise DefinitionError(f"a join of {self.name} comes after two activities or more; use `activity` for one")
        if len({id(source) for source in after}) < len(after):
            raise DefinitionError(f"a join of {self.name} names an activity twice in `after`")
        for one in optional:
            if one not in after:
                raise DefinitionError(f"a join of {self.name} has {one!r} as `optional`, but not in `after`")
        return self._declare(  # type: ignore[no-any-return]
            None, NodeKind.JOIN, tuple(after), settings, optional=frozenset(one.name for one in optional)
        )

    def hook(
        self,
        *,
        after: Activity[..., A],
        signal: str,
        timeout: Duration | None = None,
        when: Callable[[A], bool] | None = None,
        name: str | None = None,
        retry: RetryPolicy | None = None,
        queue: str | None = None,
    ) -> ActivityDecorator:
        """Declare an activity that waits for a signal, and takes what `after` answered and what the signal brought.

        A signal goes to one hook, the one that has waited longest. After `timeout` it fails with `TimeoutError`.
        """
        settings = {"name": name, "retry": retry, "queue": queue}
        limit = None if timeout is None else seconds(timeout, name="timeout")
        if not is_text(signal) or not 0 < len(signal) <= SIGNAL_NAME_MAX_CHARS:
            raise DefinitionError(
                f"a hook of {self.name} waits for {signal!r:.60}; give the name of a signal, of 1 to "
                f"{SIGNAL_NAME_MAX_CHARS} characters"
            )
        return self._declare(  # type: ignore[no-any-return]
            None, NodeKind.HOOK, (after,), settings, when=when, signal=signal, timeout_seconds=limit
        )

    def error(
        self,
        *,
        after: Activity[..., Any],
        catches: type[BaseException] | tuple[type[BaseException], ...] = Exception,
        name: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        queue: str | None = None,
        transaction: bool = False,
    ) -> ActivityDecorator:
        """Declare what takes the errors of an activity, as `ErrorRecord`: then they do not fail the job."""
        settings = {"name": name, "retry": retry, "timeout": timeout, "queue": queue, "transaction": transaction}
        caught = catches if isinstance(catches, tuple) else (catches,)
        if not caught or not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in caught):
            raise DefinitionError(f"an error edge of {self.name} catches {catches!r}; give classes of exceptions")
        return self._declare(None, NodeKind.ERROR, (after,), settings, catches=caught)  # type: ignore[no-any-return]

    def subflow(
        self,
        flow: Flow,
        *,
        after: Activity[..., A],
        when: Callable[[A], bool] | None = None,
        name: str | None = None,
    ) -> Activity[..., Any]:
        """Add a node whose work is a job of another flow, started with what `after` answered."""
        if not isinstance(flow, Flow):
            raise DefinitionError(f"subflow of {self.name} takes a flow, not {flow!r}")
        if not flow.graph.entries or len(flow.signature.names) != 1:
            raise DefinitionError(f"{flow.name} cannot be a sub-flow: it must have an entry, with one parameter")
        check_condition(self.name, when, "the sub-flow")
        if when is None and self.graph.is_certain(self._own(after)) and flow._always_starts(self):
            through = "" if flow is self else f", by way of {flow.name}"
            raise DefinitionError(
                f"{self.name} would start itself without end{through}; give `when`, which is False at some time"
            )
        made: Activity[..., Any] = Activity(
            check_name(name or flow.name),
            NodeKind.SUBFLOW,
            flow_name=self.name,
            sources=(self._own(after),),
            when=when,
            subflow=flow,
        )
        self._add(make_node(self, made))
        return made

    def _always_starts(self, other: Flow) -> bool:
        """Whether each of its jobs leads to one of `other`. No flow can be added that leads back to itself so."""
        return self is other or any(
            node.subflow is not None and self.graph.is_certain(node) and node.subflow._always_starts(other)
            for node in self.graph.nodes.values()
        )

    def repeat(self, *, after: Activity[..., A], to: Activity[..., Any], when: Callable[[A], bool]) -> None:
        """Make a cycle: while `when` holds of what `after` answered, `to` runs again with it, in a new iteration."""
        if when is None:
            raise DefinitionError(
                f"the cycle from {after!r} to {to!r} has no way out: give `when`, which becomes False at some time"
            )
        check_condition(self.name, when, f"the cycle from {after!r} to {to!r}")
        source, head = self._own(after), self._own(to)
        grown = self.graph.with_back_edge(source, head, when)
        make_node(self, head, extra_source=source)
        self.graph = grown

    @overload
    def on_complete(self, function: Callable[P, Awaitable[R]], /) -> Activity[P, R]: ...
    @overload
    def on_complete(self, function: Callable[P, R], /) -> Activity[P, R]: ...
    @overload
    def on_complete(
        self,
        function: None = None,
        /,
        *,
        transaction: bool = False,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
    ) -> ActivityDecorator: ...
    def on_complete(self, function: Any = None, /, **settings: Any) -> Any:
        """Declare the completion task: called with the `FlowJob` once nothing is left to do, whatever came of it."""

        def declare(function: Callable[..., Any]) -> Activity[..., Any]:
            if self.completion is not None:
                raise DefinitionError(f"{self.name} has a completion task already: {self.completion.name}")
            made = ActivitySettings(**settings).make(self, function, NodeKind.ACTIVITY, is_completion=True)
            self.completion = made
            return made

        return declare if function is None else declare(function)

    def diagram(self, form: str = "mermaid") -> str:
        """The graph as Mermaid text, or as `"svg"`."""
        if form not in ("mermaid", "svg"):
            raise InvalidArgumentError(f"a diagram is 'mermaid' or 'svg', not {form!r}")
        return mermaid(self) if form == "mermaid" else svg(self)

    def _declare(
        self,
        function: Callable[..., Any] | None,
        kind: NodeKind,
        sources: Iterable[object],
        settings: dict[str, Any],
        **more: Any,
    ) -> Any:
        owned = tuple(self._own(source) for source in sources)
        check_condition(self.name, more.get("when"), f"the {kind.value}")

        def declare(function: Callable[..., Any]) -> Activity[..., Any]:
            made = ActivitySettings(**settings).make(self, function, kind, sources=owned, **more)
            self._add(make_node(self, made))
            return made

        return declare if function is None else declare(function)

    def _add(self, node: Node) -> None:
        self.graph = self.graph.with_node(node)

    def _own(self, source: object) -> Node:
        if isinstance(source, (list, tuple, set)):
            raise DefinitionError(f"an activity of {self.name} comes after one other; after several, use `join`")
        if not isinstance(source, Activity) or self.graph.nodes.get(source.name) is not source:
            raise DefinitionError(
                f"{source!r} is no activity of the flow {self.name}, so that nothing of it can come after; "
                "declare it first, with a decorator of this flow"
            )
        return source

    # ------------------------------------------------------------------ what it takes and gives

    @property
    def signature(self) -> Signature:
        """Of its input: the parameters of its entries, which are all the same."""
        if not self.graph.entries:
            raise DefinitionError(f"the flow {self.name} has no activity yet; declare one with @{self.name}.activity")
        task = self.graph.entries[0].task
        assert task is not None, "an entry is a function"
        return task.signature

    @property
    def result_annotation(self) -> Any:
        """Of a flow with one leaf: what that answers, or None if it may be left out; of others: a mapping by name."""
        return self._annotation_within(())

    def _annotation_within(self, asking: tuple[Flow, ...]) -> Any:
        """Of one that ends in a job of its own, whether or not through others, nothing is known."""
        leaves = self.graph.leaves
        if len(leaves) != 1:
            return dict[str, Any]
        (leaf,) = leaves
        if leaf.subflow is None:
            found = leaf.result_annotation
        else:
            found = Any if self in asking else leaf.subflow._annotation_within((*asking, self))
        if self.graph.is_certain(leaf):
            return found
        return Any if found is Any else found | None if isinstance(found, type) else Any

    @property
    def digest(self) -> str:
        """Of the code of its activities."""
        found = hashlib.sha256()
        for node in self.graph.nodes.values():
            found.update(f"{node.name}:{'' if node.task is None else node.task.digest};".encode())
        return found.hexdigest()[:16]

    def queues(self) -> set[str]:
        """The queues of the flow and of its activities."""
        return {self.queue, *(node.queue for node in self.graph.nodes.values() if node.queue is not None)}

    # ------------------------------------------------------------------ starting

    def options(self, **options: Unpack[StartOptions]) -> FlowStarter:
        """How to start it: `key`, `queue`, `priority`, `delay`, `at`, `unique`, `attributes`, `deadline`."""
        return self._make_starter(self).options(**options)

    async def start(self, *args: Any, **kwargs: Any) -> Handle[Any]:
        """Start a job. Done when the ledger has it."""
        return await self._make_starter(self).start(*args, **kwargs)

    async def start_many(self, inputs: Iterable[Any]) -> list[Handle[Any]]:
        """Start one job for each input, in one commit."""
        return uncollided(await self._make_starter(self).start_many(inputs))

    def __call__(self, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        session = CURRENT.session
        if session is None:
            raise CallNotAllowedError(
                f"{self.name} is a flow: start it with `await {self.name}.start(...)`, or run it with app.run"
            )
        text = self.signature.encode(args, kwargs, self.payload_limit)
        return CallPromise(session, session.invoke(self, text), self)

    # ------------------------------------------------------------------ as a callee

    def rewrite(self, recorded: str) -> str:
        return self.signature.codec.rewrite(recorded)

    def open_result(self, result: Result) -> Any:
        if isinstance(result, Ok):
            return codec_for(self.result_annotation).decode(bytes(result.value))
        raise exception_of(result.error, (), self.name)

    def row(self, promise: PromiseId, text: str, options: Options, key: str | None) -> NewExecution:
        if options.partition_key is not None:
            raise InvalidArgumentError(
                f"{self.name} is a flow, whose activities run side by side: it takes no partition_key"
            )
        mark = fingerprint(text)
        return new_row(self, KIND, promise, text, mark, options, key, value=text, cleans_up=True)

    def first_state(self, text: str) -> str:
        return text

    def input_of(self, state: str) -> str:
        """The input that a row with this state began with."""
        return state

    def child_row(self, promise: PromiseId, text: str, queue: str, limit: int) -> NewExecution:
        row = self.row(promise, text, Options(), None)
        return msgspec.structs.replace(row, reports=True)

    def __repr__(self) -> str:
        return f"<Flow {self.name}>"


__all__ = ["KIND", "Condition", "Flow"]
