"""What the ledger knows of definitions: enough to start them from a process that does not have their code.

Workers write it when they start. `NamedStarter` reads it: from a name and plain data to a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from holdfast.core.codec import Codec, codec_for, fingerprint
from holdfast.core.codec_faults import from_validation
from holdfast.core.errors import DecodeError, InvalidArgumentError, NotFoundError
from holdfast.core.identity import PromiseId
from holdfast.models.batch.definition import KIND as BATCH
from holdfast.models.batch.definition import BatchRegistry
from holdfast.models.connection import Connection
from holdfast.models.flow.flow import KIND as FLOW
from holdfast.models.handle import Handle
from holdfast.models.machine.definition import KIND as MACHINE
from holdfast.models.machine.registry import MachineRegistry
from holdfast.models.options import Options
from holdfast.models.starting import Arrived, Starting, new_row
from holdfast.models.workflow.definition import KIND as WORKFLOW
from holdfast.models.workflow.definition import FunctionRegistry
from holdfast.models.workflow.task import KIND as TASK
from holdfast.store.base import handler_of
from holdfast.store.values import Definition, NewExecution


def definitions_of(machines: MachineRegistry, functions: FunctionRegistry, batches: BatchRegistry) -> list[Definition]:
    """Everything an app declares, as the ledger keeps it."""
    found = [
        Definition(
            kind=MACHINE,
            name=machine.name,
            version=machine.version,
            step=machine.initial,
            queue=machine.queue,
            priority=machine.priority,
        )
        for machine in machines.by_handler.values()
    ]
    for kind, registered in ((WORKFLOW, functions.workflows), (TASK, functions.tasks)):
        found += [
            Definition(
                kind=kind,
                name=function.name,
                version=function.version,
                step="",
                queue=function.queue or "default",
                priority=function.priority,
                parameters=function.signature.names,
            )
            for function in registered.values()
        ]
    found += [
        Definition(
            kind=BATCH,
            name=batch.name,
            version=batch.version,
            step="",
            queue=batch.queue,
            priority=batch.priority,
            parameters=("items",),
        )
        for batch in batches.by_handler.values()
    ]
    return found


HEARING: Final = (WORKFLOW, MACHINE, FLOW)  # the others read no signals
Read: TypeAlias = Callable[[NewExecution], object]


def unreadable(name: str, error: DecodeError) -> InvalidArgumentError:
    fault = from_validation(error.__cause__ or error)
    return InvalidArgumentError(f"{name} cannot be started with this, at {fault.path}: {fault.reason}")


class NamedStarter(Starting):
    """Starts what it knows by name alone; the input is plain data.

    `read` raises `DecodeError` if the code that is started is at hand, and could not begin with that.
    """

    def __init__(self, connection: Connection, name: str, options: Options, read: Read = lambda _: None) -> None:
        super().__init__(connection, name, options)
        self._read = read

    async def start(self, value: Any) -> Handle[Any]:
        return await self._start_one(await self.row(value))

    async def start_or_find(self, value: Any) -> tuple[Handle[Any], bool]:
        """What was started, and whether its key had started it before."""
        return await self._start_or_find(await self.row(value))

    async def signal_with_start(self, signal: str, payload: object, value: Any) -> Arrived:
        """Start it unless its key has been started before, and send it a signal, in one commit."""
        row = await self.row(value)
        if row.kind not in HEARING:
            raise InvalidArgumentError(f"{self._name} is a {row.kind}, which reads no signals: start it without one")
        return await self._signal_with_start(row, signal, payload)

    async def row(self, value: Any) -> NewExecution:
        promise, key = self._promise_for(value)
        definition = await find_definition(self._connection, self._name)
        row = named_row(definition, promise, value, self._options, key, self._connection.payload_limit)
        try:
            self._read(row)
        except DecodeError as error:
            if key is not None and await (await self._connection.store()).get(row.promise) is not None:
                return row  # it was started before, by other code: what has begun is found
            raise unreadable(self._name, error) from error
        return row

    async def _is_same_input(self, row: NewExecution, promise: bytes) -> bool:
        """As data it may be: code writes 3.0 for a float, where plain JSON has 3. Of a machine no input is kept."""
        view = await (await self._connection.store()).get(promise)
        if view is None or view.kind != row.kind or view.kind not in (WORKFLOW, TASK, FLOW):
            return False
        before, now = msgspec.json.decode(view.state), msgspec.json.decode(row.state)
        return _is_same(before["input"], now["input"]) if view.kind == TASK else _is_same(before, now)


async def find_definition(connection: Connection, name: str) -> Definition:
    """The newest version that a worker of this ledger has had."""
    found = await (await connection.store()).definitions(name)
    if not found:
        raise NotFoundError(
            f"no worker of this ledger has known a definition {name!r}; start a worker with its code once, "
            "or check the name: `holdfast definitions` lists what there is"
        )
    return max(found, key=lambda definition: definition.version)


class _Known(NamedTuple):
    """A definition without its code, as `Declared`."""

    name: str
    version: int
    handler: int
    queue: str
    priority: int
    digest: str | None = None


def named_row(
    definition: Definition, promise: PromiseId, value: Any, options: Options, key: str | None, limit: int
) -> NewExecution:
    text = _input(definition, value, limit)
    state = text if definition.kind != TASK else msgspec.json.encode({"input": msgspec.Raw(text.encode())}).decode()
    kind, name, version = definition.kind, definition.name, definition.version
    known = _Known(name, version, handler_of(kind, name, version), definition.queue, definition.priority)
    mark, step, cleans_up = fingerprint(text), definition.step, kind in (WORKFLOW, BATCH, FLOW)
    return new_row(known, kind, promise, state, mark, options, key, value=value, step=step, cleans_up=cleans_up)


def _input(definition: Definition, value: Any, limit: int) -> str:
    """As the code itself would have written it: a function's arguments in the order of its parameters."""
    codec = codec_for(Any)
    if definition.kind == MACHINE:
        return codec.encode(value, max_bytes=limit)
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(
            f"{definition.name} is started by name with a mapping of its arguments, not {value!r:.100}; "
            f"its parameters are: {', '.join(definition.parameters) or 'none'}"
        )
    unknown = sorted(set(map(str, value)) - set(definition.parameters))
    if unknown:
        raise InvalidArgumentError(
            f"{definition.name} has no parameter {', '.join(unknown)}; "
            f"its parameters are: {', '.join(definition.parameters) or 'none'}"
        )
    if definition.kind == BATCH and not isinstance(value.get("items"), list | tuple):
        raise InvalidArgumentError(f'{definition.name} is a batch: start it by name with {{"items": [...]}}')
    given = {name: value[name] for name in definition.parameters if name in value}
    whole = Codec[Any](Any, of=definition.name)
    whole.encode(given, max_bytes=limit)  # the limit is the whole's, and what is refused has its parameter's name

    def text(part: Any) -> str:
        return codec.write_sure(part, max_bytes=None).decode()

    return "{" + ",".join(f"{text(name)}:{text(part)}" for name, part in given.items()) + "}"


def _is_same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; True is not 1, and a number is the same whatever it is written as."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
