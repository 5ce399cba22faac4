"""Starting anything: rows into the ledger, and what came of each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from holdfast.core.durations import seconds
from holdfast.core.errors import InvalidArgumentError, KeyConflictError, UniqueConflictError
from holdfast.core.identity import PromiseId
from holdfast.models.connection import Connection
from holdfast.models.fresh_ids import fresh_id
from holdfast.models.handle import Collision, Handle, new_signal
from holdfast.models.options import Options, unique_columns
from holdfast.store.values import Delivery, Inserted, NewExecution

UNIQUE, INPUT = "unique", "input"


class Arrived(NamedTuple):
    """What came of a start with a signal: the execution, whether its key had started it before, and of the signal."""

    handle: Handle[Any]
    existing: bool
    delivery: Delivery


class Declared(Protocol):
    """A definition, as far as its rows name it."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def handler(self) -> int: ...

    @property
    def queue(self) -> str | None: ...

    @property
    def priority(self) -> int: ...

    @property
    def digest(self) -> str | None: ...


def new_row(
    definition: Declared,
    kind: str,
    promise: PromiseId,
    state: str,
    input_hash: str,
    options: Options,
    key: str | None,
    *,
    value: object,
    step: str = "",
    reports: bool = False,
    cleans_up: bool = False,
) -> NewExecution:
    """The row of what is to be started, as a root or as a child. `value` is what a unique key is made of."""
    unique_key, unique_scope = (None, ()) if options.unique is None else unique_columns(options.unique, value)
    return NewExecution(
        promise=promise.to_bytes(),
        kind=kind,
        name=definition.name,
        version=definition.version,
        handler=definition.handler,
        step=step,
        state=state,
        input_hash=input_hash,
        queue=options.queue or definition.queue or "default",
        priority=definition.priority if options.priority is None else options.priority,
        partition_key=options.partition_key,
        delay=seconds(options.delay, name="delay"),
        at=options.at,
        unique_key=unique_key,
        unique_scope=unique_scope,
        digest=definition.digest,
        attributes=options.encoded_attributes(),
        idempotency_key=key,
        reports=reports,
        cleans_up=cleans_up,
        deadline=None if options.deadline is None else seconds(options.deadline, name="deadline"),
    )


class Starting:
    """What every starter does after it has made its rows. `name` and `result` are the definition's."""

    def __init__(self, connection: Connection, name: str, options: Options, result: object = Any) -> None:
        self._connection = connection
        self._name = name
        self._options = options
        self._result = result

    def _promise_for(self, value: object) -> tuple[PromiseId, str | None]:
        """The id that the key gives, or a fresh one; and the key."""
        key = self._options.key
        if key is None:
            return fresh_id(), None
        chosen = key(value) if callable(key) else key
        if chosen is None:
            raise InvalidArgumentError(
                f"the key of {self._name} is a function that gave None for {value!r:.100}: without a key every start "
                "is another execution; give a text for each"
            )
        return PromiseId.of(self._name, chosen), chosen

    def _options_for(self, value: object) -> Options:
        """Those of one start: with the unique key that a function gives for its input."""
        unique = self._options.unique
        if unique is None or not callable(unique.key):
            return self._options
        return self._options.updated(unique=replace(unique, key=unique.key(value)))

    async def _start_one(self, row: NewExecution) -> Handle[Any]:
        return (await self._start_or_find(row))[0]

    async def _start_or_find(self, row: NewExecution) -> tuple[Handle[Any], bool]:
        """The execution that stands for the row, and whether it was there before."""
        (inserted,) = await self._insert([row])
        handle = self._handle(inserted.promise)
        if inserted.collided:
            raise await self._occupied(inserted.promise)
        if inserted.key_conflict and not await self._is_same_input(row, inserted.promise):
            raise KeyConflictError(
                f"{handle.label} was started before with the same key and another input. "
                "One key means one execution: use a key that names this input"
            )
        return handle, not inserted.created

    async def _signal_with_start(self, row: NewExecution, name: str, payload: object) -> Arrived:
        if self._options.key is None:
            raise InvalidArgumentError(
                f"a start with a signal finds {self._name} by its key when it comes again: give one (key=...)"
            )
        if self._options.connection is not None:
            raise InvalidArgumentError(
                f"a start of {self._name} with a signal commits by itself, not in the transaction of your connection: "
                "start it there with start(), and signal it after the commit"
            )
        handle, dedup_key = self._handle(row.promise), self._options.dedup_key
        signal = new_signal(row.promise, name, payload, dedup_key, self._connection.payload_limit)
        if self._connection.observer is not None:
            (row,) = self._connection.observer.stamped([row])
        inserted, delivery = await (await self._connection.store()).insert_and_deliver(row, signal)
        if inserted.collided:
            raise await self._occupied(inserted.promise)
        if delivery is Delivery.ENDED:  # it goes on as another run, or refuses
            delivery = await handle.signal(name, payload, dedup_key=dedup_key)
        return Arrived(handle, not inserted.created, delivery)

    async def _start_all(self, rows: Sequence[NewExecution]) -> list[Handle[Any] | Collision]:
        if isinstance(self._options.key, str) and len(rows) > 1:
            raise InvalidArgumentError(
                f"the key {self._options.key!r} names one execution, not {len(rows)}; "
                "give start_many a function: key=lambda value: ..."
            )
        inserted = await self._insert(rows)
        return [
            await self._in_the_way(row, found) if found.collided or found.key_conflict else self._handle(found.promise)
            for row, found in zip(rows, inserted, strict=True)
        ]

    async def _is_same_input(self, row: NewExecution, promise: bytes) -> bool:
        """Whether what was started with the key before was started with the same, though it is not written the same."""
        return False

    async def _occupied(self, promise: bytes) -> UniqueConflictError:
        """By what may be of another definition: a unique key is the whole ledger's."""
        view, found = await (await self._connection.store()).get(promise), PromiseId.from_bytes(promise)
        return UniqueConflictError(
            f"{self._name} was not started: {found.short if view is None else found.label(view.name)} occupies its "
            "unique key. Wait for it, or start with another key"
        )

    async def _insert(self, rows: Sequence[NewExecution]) -> list[Inserted]:
        if self._options.dedup_key is not None:
            raise InvalidArgumentError(
                f"dedup_key is that of a signal: use it where one starts {self._name}; that is started once by its key"
            )
        store = await self._connection.store()
        if self._connection.observer is not None:
            rows = self._connection.observer.stamped(rows)
        if self._options.connection is not None:
            return await store.insert_with(self._options.connection, rows)
        return await store.insert(rows)

    async def _in_the_way(self, row: NewExecution, found: Inserted) -> Handle[Any] | Collision:
        if found.collided:
            return Collision(PromiseId.from_bytes(found.promise), UNIQUE)
        if await self._is_same_input(row, found.promise):
            return self._handle(found.promise)
        return Collision(PromiseId.from_bytes(found.promise), INPUT)

    def _handle(self, promise: bytes) -> Handle[Any]:
        return Handle(self._connection, promise, name=self._name, result=self._result)
