"""Starting machines: from a state and options to a row of the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar, Unpack

from holdfast.core.codec import fingerprint
from holdfast.core.durations import seconds
from holdfast.core.identity import PromiseId
from holdfast.models.connection import Connection
from holdfast.models.handle import Collision, Handle
from holdfast.models.machine.definition import KIND, MachineDefinition
from holdfast.models.options import Options, StartOptions, unique_columns
from holdfast.models.starting import Starting
from holdfast.store.values import NewExecution

StateT = TypeVar("StateT")


class MachineStarter(Starting, Generic[StateT]):
    """`Shipment.options(...)`: the same machine with other options."""

    def __init__(self, connection: Connection, definition: MachineDefinition, options: Options) -> None:
        super().__init__(connection, definition.name, options)
        self._definition = definition

    def options(self, **options: Unpack[StartOptions]) -> MachineStarter[StateT]:
        return MachineStarter(self._connection, self._definition, self._options.updated(**options))

    async def start(self, state: StateT) -> Handle[Any]:
        """Start one. The same key finds the one that was started before; an occupied unique key is an error."""
        return await self._start_one(self._row(state))

    async def start_many(self, states: Iterable[StateT]) -> list[Handle[Any] | Collision]:
        """Start many in one commit. Per state, in order: a handle, or the collision that refused it."""
        return await self._start_all([self._row(state) for state in states])

    async def signal_with_start(self, name: str, payload: object, state: StateT) -> Handle[Any]:
        """Start it unless its key has been started before, and send it a signal, in one commit."""
        return await self._signal_with_start(self._row(state), name, payload)

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
    unique_key, unique_scope = (None, ()) if options.unique is None else unique_columns(options.unique, state)
    return NewExecution(
        promise=promise.to_bytes(),
        kind=KIND,
        name=definition.name,
        version=definition.version,
        handler=definition.handler,
        step=step or definition.initial,
        state=text,
        input_hash=fingerprint(text),
        queue=options.queue or definition.queue,
        priority=definition.priority if options.priority is None else options.priority,
        partition_key=options.partition_key,
        delay=seconds(options.delay, name="delay"),
        at=options.at,
        unique_key=unique_key,
        unique_scope=unique_scope,
        digest=definition.digest,
        attributes=options.encoded_attributes(),
        idempotency_key=key,
        deadline=None if options.deadline is None else seconds(options.deadline, name="deadline"),
        reports=reports,
    )
