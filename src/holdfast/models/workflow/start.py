"""Starting workflows and tasks: from arguments and options to a row of the ledger.

- `FunctionStarter`: what `.options(...)` gives; `start` from outside, a call in a workflow's body.
- `CallWithOptions`: such a call, as the body's session sees it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar, Unpack

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from holdfast.core.codec import fingerprint
from holdfast.core.errors import HoldfastError
from holdfast.core.identity import PromiseId
from holdfast.core.journal.events import InvokeKind, Result
from holdfast.core.journal.quick import CallText
from holdfast.models.connection import Connection
from holdfast.models.fresh_ids import fresh_id, fresh_ids
from holdfast.models.handle import Collision, Handle
from holdfast.models.options import Options, StartOptions
from holdfast.models.starting import Declared, Starting
from holdfast.models.workflow.callee import CallSettings, refuse_names, session_of_call
from holdfast.models.workflow.promise import CallPromise
from holdfast.models.workflow.signature import Signature
from holdfast.store.values import NewExecution

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

_ANY: Final = PromiseId.of("any", "any")


class Startable(Declared, Protocol):
    """A task or a workflow, to its starter."""

    @property
    def signature(self) -> Signature: ...

    def row(self, promise: PromiseId, text: str, options: Options, key: str | None) -> NewExecution: ...

    def first_state(self, text: str) -> str:
        """The state of a row that begins with this input."""


class Invocable(Startable, Protocol):
    """One that a workflow may call."""

    @property
    def invoke_kind(self) -> InvokeKind: ...

    @property
    def settings(self) -> Raw: ...

    def rewrite(self, recorded: str) -> str:
        """A recorded input as today's annotations write it."""

    def open_result(self, result: Result) -> Any: ...


class Rereadable(Invocable, Protocol):
    """One whose rows keep the input that they began with."""

    def input_of(self, state: str) -> str:
        """The input that a row with this state began with."""


class CallWithOptions:
    """A `Callee`: a definition, and the options of the execution that one call of it has."""

    is_remote = True  # options are those of an execution

    def __init__(self, definition: Invocable, options: Options, text: str) -> None:
        refuse_names(definition.name, options)
        definition.row(_ANY, text, options, None)  # what it refuses is an error of this line
        self.inline = self._definition = definition  # where a call was begun without options, it goes on without
        self._options = options
        self._queue = options.queue or definition.queue
        self.name = definition.name
        self.invoke_kind = definition.invoke_kind
        settings = msgspec.json.decode(definition.settings, type=CallSettings)
        # A queue, if only an empty one, tells a replay that the call of a task has an execution of its own.
        self.settings = replace(settings, queue=self._queue or "").text()
        self.call_text = CallText(self.invoke_kind, self.name, self.settings)
        self.rewrite = definition.rewrite
        self.open_result = definition.open_result

    def child_row(self, promise: PromiseId, text: str, queue: str, limit: int) -> NewExecution:
        row = self._definition.row(promise, text, self._options.updated(queue=self._queue or queue), None)
        return replace(row, reports=True)


class FunctionStarter(Starting, Generic[P, R]):
    """`checkout.options(...)`: the same function with other options, to start it or to call it in a workflow."""

    begins_calls = True  # see `is_callee`

    def __init__(self, connection: Connection, definition: Rereadable, options: Options) -> None:
        super().__init__(connection, definition.name, options, definition.signature.result.annotation)
        self._definition = definition
        self._model: NewExecution | None = None  # a row that differs from all others by its id and its input alone
        self._callee: CallWithOptions | None = None

    def options(self, **options: Unpack[StartOptions]) -> FunctionStarter[P, R]:
        return FunctionStarter(self._connection, self._definition, self._options.updated(**options))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        """The durable call, inside a workflow's body; it has an execution of its own, with these options."""
        session = session_of_call(self._name)
        text = self._definition.signature.encode(args, kwargs, self._connection.payload_limit)
        if self._callee is None:
            self._callee = CallWithOptions(self._definition, self._options, text)
        return CallPromise(session, session.invoke(self._callee, text), self._callee)

    async def start(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Start one. The same key finds the one that was started before."""
        return await self._start_one(self._row(args, kwargs))

    async def start_many(self, inputs: Iterable[Any]) -> list[Handle[R] | Collision]:
        """Start many in one commit: per input a tuple of arguments, a mapping of them, or the only argument."""
        return await self._start_all(self._rows([_as_call(given) for given in inputs]))

    async def signal_with_start(self, name: str, payload: object, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Start it unless its key has been started before, and send it a signal, in one commit.

        The arguments are for the start; one that was started before keeps its own.
        """
        return (await self._signal_with_start(self._row(args, kwargs), name, payload)).handle

    async def _is_same_input(self, row: NewExecution, promise: bytes) -> bool:
        """A key outlives a deploy (B6): as in a replay, a new field with a default is no change (B17)."""
        definition = self._definition
        view = await (await self._connection.store()).get(promise)
        if view is None or view.kind != row.kind:
            return False
        try:
            return definition.rewrite(definition.input_of(view.state)) == definition.input_of(row.state)
        except HoldfastError:  # today's code cannot read it
            return False

    def _row(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewExecution:
        text = self._definition.signature.encode(args, kwargs, self._connection.payload_limit)
        if self._model is not None:
            state, mark = self._definition.first_state(text), fingerprint(text)
            return replace(self._model, promise=fresh_id().to_bytes(), state=state, input_hash=mark)
        value = args[0] if args else kwargs
        promise, key = self._promise_for(value)
        row = self._definition.row(promise, text, self._options_for(value), key)
        if self._options.key is None and self._options.unique is None:
            self._model = row
        return row

    def _rows(self, calls: Sequence[tuple[tuple[Any, ...], dict[str, Any]]]) -> list[NewExecution]:
        rows = [self._row(*call) for call in calls[:1]]
        if (model := self._model) is None:
            return rows + [self._row(*call) for call in calls[1:]]
        encode, first_state = self._definition.signature.encode, self._definition.first_state
        limit = self._connection.payload_limit
        texts = [encode(args, kwargs, limit) for args, kwargs in calls]
        return [
            replace(model, promise=promise, state=first_state(text), input_hash=fingerprint(text))
            for promise, text in zip(fresh_ids(len(texts)), texts, strict=True)
        ]


def _as_call(given: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by position and by name."""
    if isinstance(given, tuple):
        return given, {}
    return ((), dict(given)) if isinstance(given, Mapping) else ((given,), {})
