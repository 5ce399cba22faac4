"""Starting machines: from a state and options to a row of the ledger."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from holdfast.core.codec import fingerprint
from holdfast.core.durations import seconds
from holdfast.core.errors import InvalidArgumentError, KeyConflictError, UniqueConflictError
from holdfast.core.identity import PromiseId
from holdfast.models.connection import Connection
from holdfast.models.handle import Collision, Handle
from holdfast.models.machine.definition import KIND, MachineDefinition
from holdfast.models.options import Options, unique_columns
from holdfast.store.values import Inserted, NewExecution

StateT = TypeVar("StateT")

ENTROPY_BYTES = 16
UNIQUE, INPUT = "unique", "input"


class MachineStarter(Generic[StateT]):
    """`Shipment.options(...)`: the same machine with other options."""

    def __init__(self, connection: Connection, definition: MachineDefinition, options: Options) -> None:
        self._connection = connection
        self._definition = definition
        self._options = options

    def options(self, **options: Any) -> MachineStarter[StateT]:
        return MachineStarter(self._connection, self._definition, self._options.updated(**options))

    async def start(self, state: StateT) -> Handle[Any]:
        """Start one. The same key finds the one that was started before; an occupied unique key is an error."""
        (inserted,) = await (await self._connection.store()).insert([self._row(state)])
        handle = self._handle(inserted.promise)
        if inserted.collided:
            raise UniqueConflictError(
                f"{self._definition.name} was not started: {handle.label} occupies its unique key. "
                "Wait for it, or start with another key"
            )
        if inserted.key_conflict:
            raise KeyConflictError(
                f"{handle.label} was started before with the same key and another input. "
                "One key means one execution: use a key that names this input"
            )
        return handle

    async def start_many(self, states: Iterable[StateT]) -> list[Handle[Any] | Collision]:
        """Start many in one commit. Per state, in order: a handle, or the collision that refused it."""
        rows = [self._row(state) for state in states]
        if isinstance(self._options.key, str) and len(rows) > 1:
            raise InvalidArgumentError(
                f"the key {self._options.key!r} names one execution, not {len(rows)}; "
                "give start_many a function: key=lambda state: ..."
            )
        return [self._outcome(inserted) for inserted in await (await self._connection.store()).insert(rows)]

    def _outcome(self, inserted: Inserted) -> Handle[Any] | Collision:
        if inserted.collided or inserted.key_conflict:
            return Collision(PromiseId.from_bytes(inserted.promise), UNIQUE if inserted.collided else INPUT)
        return self._handle(inserted.promise)

    def _handle(self, promise: bytes) -> Handle[Any]:
        return Handle(self._connection, PromiseId.from_bytes(promise), name=self._definition.name)

    def _row(self, state: StateT) -> NewExecution:
        key = self._options.key
        chosen = key(state) if callable(key) else key
        name = self._definition.name
        promise = PromiseId.fresh(name, os.urandom(ENTROPY_BYTES)) if chosen is None else PromiseId.of(name, chosen)
        return machine_row(self._definition, promise, state, self._options, self._connection.payload_limit)


def machine_row(
    definition: MachineDefinition,
    promise: PromiseId,
    state: object,
    options: Options,
    payload_limit: int,
    *,
    step: str | None = None,
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
    )
