"""Starting machines, and calling them in a workflow: from a state and options to a row of the ledger."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any, Generic, TypeVar, Unpack

from holdfast.core.codec import codec_for, fingerprint
from holdfast.core.identity import PromiseId
from holdfast.core.journal.events import InvokeKind, Ok, Result
from holdfast.core.journal.quick import CallText
from holdfast.models.connection import Connection
from holdfast.models.handle import Collision, Handle
from holdfast.models.machine.definition import KIND, MachineDefinition
from holdfast.models.options import Options, StartOptions
from holdfast.models.starting import Starting, new_row
from holdfast.models.workflow.callee import CallSettings, refuse_names, session_of_call
from holdfast.models.workflow.failures import exception_of
from holdfast.models.workflow.promise import CallPromise
from holdfast.store.values import NewExecution

StateT = TypeVar("StateT")


class MachineCallee:
    """A machine, awaited by a workflow for its result."""

    invoke_kind: InvokeKind = "Function"
    is_remote = True
    settings = CallSettings(queue="machine").text()

    def __init__(self, definition: MachineDefinition, options: Options) -> None:
        self._definition = definition
        self._options = options
        self.name = definition.name
        self.call_text = CallText(self.invoke_kind, self.name, self.settings)

    def check_options(self) -> None:
        """Of a call that is new: one that the journal has is as it was made, whatever was taken then."""
        refuse_names(self.name, self._options)
        self._options.encoded_attributes()

    def rewrite(self, recorded: str) -> str:
        return self._definition.codec.rewrite(recorded)

    def open_result(self, result: Result) -> Any:
        if isinstance(result, Ok):
            return codec_for(Any).decode(bytes(result.value))
        raise exception_of(result.error, (), self.name)

    def child_row(self, promise: PromiseId, text: str, queue: str, limit: int) -> NewExecution:
        state = self._definition.codec.decode(text)
        return machine_row(self._definition, promise, state, self._options, limit, reports=True)


class MachineStarter(Starting, Generic[StateT]):
    """`Shipment.options(...)`: the same machine with other options, to start it or to call it in a workflow."""

    begins_calls = True  # see `is_callee`

    def __init__(self, connection: Connection, definition: MachineDefinition, options: Options) -> None:
        super().__init__(connection, definition.name, options)
        self._definition = definition

    def options(self, **options: Unpack[StartOptions]) -> MachineStarter[StateT]:
        return MachineStarter(self._connection, self._definition, self._options.updated(**options))

    def __call__(self, state: StateT) -> Awaitable[Any]:
        """The durable call, inside a workflow's body: a machine with these options, awaited for its result."""
        session = session_of_call(self._name)
        callee = MachineCallee(self._definition, self._options)
        if not session.is_replaying:
            callee.check_options()
        text = self._definition.codec.encode(state, max_bytes=self._connection.payload_limit)
        return CallPromise(session, session.invoke(callee, text), callee)

    async def start(self, state: StateT) -> Handle[Any]:
        """Start one. The same key finds the one that was started before; an occupied unique key is an error."""
        return await self._start_one(self._row(state))

    async def start_many(self, states: Iterable[StateT]) -> list[Handle[Any] | Collision]:
        """Start many in one commit. Per state, in order: a handle, or the collision that refused it."""
        return await self._start_all([self._row(state) for state in states])

    async def signal_with_start(self, name: str, payload: object, state: StateT) -> Handle[Any]:
        """Start it unless its key has been started before, and send it a signal, in one commit."""
        return (await self._signal_with_start(self._row(state), name, payload)).handle

    def _row(self, state: StateT) -> NewExecution:
        promise, key = self._promise_for(state)
        limit = self._connection.payload_limit
        return machine_row(self._definition, promise, state, self._options, limit, key=key)


def machine_row(
    definition: MachineDefinition,
    promise: PromiseId,
    state: object,
    options: Options,
    payload_limit: int,
    *,
    step: str | None = None,
    key: str | None = None,
    reports: bool = False,
) -> NewExecution:
    """The row of a machine that is to be started, as a root or as a child."""
    text = definition.codec.encode(state, max_bytes=payload_limit)
    step = step or definition.initial
    return new_row(
        definition, KIND, promise, text, fingerprint(text), options, key, value=state, step=step, reports=reports
    )
