"""Records (store/records.py) out of a schema, in one snapshot, and into one, in one commit."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.store.base import handler_of
from holdfast.store.postgres.ledger import Ledger
from holdfast.store.postgres.rows import Row
from holdfast.store.records import (
    BATCH,
    OWNED,
    SHARED,
    TABLES,
    WINDOW,
    DefinitionRecord,
    ExecutionRecord,
    Existing,
    Oddities,
    OwnedRecord,
    Record,
    RefusedError,
    ScheduleRecord,
    SharedRecord,
    SignalRecord,
    Written,
    columns_of,
    id_bytes,
    id_text,
)
from holdfast.store.values import CHILD, Topic

if TYPE_CHECKING:
    from holdfast.store.postgres.connections import Connection

# No enum types across the wire: the driver would have to ask for them first.
_READ_AS: Final = {"status": "::text", "unique_scope": "::text[]"}
_WRITTEN_AS: Final = {"status": "::text::{schema}.status", "unique_scope": "::text[]::{schema}.status[]"}
_NAMES: Final = frozenset({"awaits", "unique_scope", "tried", "parameters"})
_IDS: Final = frozenset({"successor", "last"})
_USER, _CHILD, _MADE = "u:", "c:", "a:"  # whose a dedup key is (schema.sql)


class Recording(Ledger):
    async def read_records(
        self, take: Callable[[Sequence[Record]], None], *, within: tuple[bytes, bytes] | None = None
    ) -> None:
        async with (
            self._connections.any("read records") as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            filled = await self._filled(connection)
            if within is not None:
                await self._read_part(connection, take, filled, "records_in_tree", within)
            else:
                await self._read_part(connection, take, filled, None, ())
                await self._read_shared(connection, take)

    async def _read_part(
        self,
        connection: Connection,
        take: Callable[[Sequence[Record]], None],
        filled: Sequence[type[OwnedRecord]],
        within: str | None,
        bounds: Sequence[Any],
    ) -> None:
        statement = self._record_sql("records_executions", ExecutionRecord, within=within)
        await _hand_over(connection, statement, bounds, _execution, take)
        for record in filled:
            statement = self._record_sql("records_owned", record, prefix="t.", within=within)
            await _hand_over(connection, statement, bounds, _owned_reader(record), take)

    async def _read_shared(self, connection: Connection, take: Callable[[Sequence[Record]], None]) -> None:
        for shared in SHARED:
            await _hand_over(connection, self._record_sql("records_shared", shared), (), _shared_reader(shared), take)

    async def _filled(self, connection: Connection) -> list[type[OwnedRecord]]:
        """What has rows of its own: of most ledgers a few tables, and asking for each costs a plan."""
        asked = ", ".join(self._record_sql("records_filled", record) for record in OWNED)
        found = await connection.fetchrow(f"select {asked}")
        assert found is not None
        return [record for record in OWNED if found[TABLES[record].name]]

    async def write_records(
        self, batches: Iterable[Sequence[Record]], *, skip_existing: bool = False, replace: bool = False
    ) -> Written:
        try:
            async with self._connections.any("write records") as connection, connection.transaction():
                last: int = await connection.fetchval(self._sql["records_last"]) if replace else 0
                writing = _Writing(self, connection, skip_existing, last if replace else None)
                for batch in batches:
                    await writing.write(batch)
                await writing.finish()
                await connection.execute(self._sql["records_wake"])
        except RefusedError as refused:
            return Written(existing=refused.existing)
        self._tell(Topic.WORK)
        return Written(len(writing.rows), len(writing.skipped))

    async def survey(self, take: Callable[[Sequence[Record]], None], let_go: Callable[[], None]) -> Oddities:
        async with (
            self._connections.any("audit the ledger") as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            orphans: dict[str, int] = {}
            filled, low = await self._filled(connection), 0
            while (high := await connection.fetchval(self._sql["records_window"], low, WINDOW)) is not None:
                await self._read_part(connection, take, filled, "records_in_window", (low, high))
                let_go()
                low = high
            await self._read_shared(connection, take)
            for record in filled:
                count: int = await connection.fetchval(self._record_sql("records_orphans", record))
                if count:
                    orphans[TABLES[record].name] = count
            locks = {
                row["key"]: None if row["is_free"] else ("" if row["promise"] is None else id_text(row["promise"]))
                for row in await connection.fetch(self._sql["records_locks"])
            }
            workers = tuple(row["id"] for row in await connection.fetch(self._sql["records_workers"]))
            unlisted = tuple(
                (id_text(row["promise"]), row["name"]) for row in await connection.fetch(self._sql["records_unlisted"])
            )
        return Oddities(orphans=orphans, locks=locks, workers=workers, unlisted=unlisted)

    def _record_sql(
        self,
        block: str,
        record: type[Record],
        *,
        lead: Sequence[str] = (),
        prefix: str = "",
        casts: bool = True,
        within: str | None = None,
    ) -> str:
        """A block of the SQL file for one table; `lead` are columns in front of those of the record."""
        names = (*lead, *columns_of(record))
        table = TABLES[record]
        is_cast = record is ExecutionRecord
        columns = (prefix + name + (_READ_AS.get(name, "") if casts and is_cast else "") for name in names)
        marks = (f"${number}" + (_WRITTEN_AS.get(name, "") if is_cast else "") for number, name in enumerate(names, 1))
        text = self._sql[block].replace("{within}", "" if within is None else self._sql[within])
        text = text.replace("{columns}", ", ".join(columns)).replace("{values}", ", ".join(marks))
        text = text.replace("{owner}", table.owner).replace("{order}", table.order).replace("{arrival}", "t.seq")
        return text.replace("{table}", table.name).replace("{schema}", self._schema)


# ---------------------------------------------------------------------- out


async def _hand_over(
    connection: Connection,
    statement: str,
    bounds: Sequence[Any],
    make: Callable[[Row], Record],
    take: Callable[[Sequence[Record]], None],
) -> None:
    found: list[Record] = []
    async for row in connection.cursor(statement, *bounds, prefetch=BATCH):
        found.append(make(row))
        if len(found) == BATCH:
            take(found)
            found = []
    if found:
        take(found)


def _fields(row: Row, names: Sequence[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {name: row[name] for name in names}
    for name in _NAMES & fields.keys():
        fields[name] = None if fields[name] is None else tuple(fields[name])
    for name in _IDS & fields.keys():
        fields[name] = None if fields[name] is None else id_text(fields[name])
    return fields


def _execution(row: Row) -> Record:
    fields = _fields(row, columns_of(ExecutionRecord))
    fields["status"] = Status(fields["status"])
    parent = row["parent"]
    return ExecutionRecord(id=id_text(row["promise"]), parent=None if parent is None else id_text(parent), **fields)


def _owned_reader(record: type[OwnedRecord]) -> Callable[[Row], Record]:
    names = columns_of(record)

    def make(row: Row) -> Record:
        fields = _fields(row, names)
        if "dedup_key" in fields:
            key: str = fields["dedup_key"]
            fields["dedup_key"] = key.removeprefix(_USER) if key.startswith(_USER) else None
        return record(id=id_text(row["promise"]), **fields)

    return make


def _shared_reader(record: type[SharedRecord]) -> Callable[[Row], Record]:
    names = columns_of(record)
    return lambda row: record(**_fields(row, names))


# ---------------------------------------------------------------------- in


def _values(record: Record) -> list[Any]:
    found: list[Any] = []
    for name in columns_of(type(record)):
        value = getattr(record, name)
        if isinstance(value, Status):
            value = value.value
        elif name in _IDS and value is not None:
            value = id_bytes(value)
        elif name == "dedup_key":
            value = _dedup_key(record, value)
        found.append(value)
    return found


def _dedup_key(record: Record, key: str | None) -> str:
    if key is not None:
        return _USER + key
    if isinstance(record, SignalRecord) and record.kind == CHILD:
        return _CHILD + record.name
    return _MADE + secrets.token_hex(12)


class _Writing:
    """One call of `write_records`: which rows were made for which ids."""

    def __init__(self, store: Recording, connection: Connection, skip_existing: bool, last: int | None) -> None:
        self._connection = connection
        self._skip = skip_existing
        self._last = last  # of what was here before, where its place may be taken
        executions = store._sql["records_delete"].replace("{table}", "executions").replace("{owner}", "id")
        self._delete = [*(store._record_sql("records_delete", record) for record in OWNED), executions]
        self._blocks = store._sql
        self.rows: dict[str, int] = {}
        self.skipped: set[str] = set()
        self._children: dict[str, str] = {}  # whose parents have not come: a retry may have taken over older ones
        lead = ("id", "promise", "parent_id")
        make = store._record_sql
        self._insert: Mapping[type[Record], str] = {
            ExecutionRecord: make("records_insert", ExecutionRecord, lead=lead, casts=False),
            **{record: make("records_insert", record, lead=(TABLES[record].owner,)) for record in OWNED},
        }

    async def write(self, batch: Sequence[Record]) -> None:
        await self._executions([record for record in batch if isinstance(record, ExecutionRecord)])
        for kind in OWNED:
            rows = [
                (self.rows[record.id], *_values(record))
                for record in batch
                if isinstance(record, kind) and record.id in self.rows
            ]
            if rows:
                await self._connection.executemany(self._insert[kind], rows)
        for record in batch:
            if isinstance(record, SharedRecord):
                await self._shared(record)

    async def finish(self) -> None:
        rows = self.rows
        found = [(rows[parent], rows[child]) for child, parent in self._children.items() if parent in rows]
        if found:
            await self._connection.executemany(self._blocks["records_adopt"], found)

    async def _executions(self, records: Sequence[ExecutionRecord]) -> None:
        if not records:
            return
        there = await self._find([id_bytes(record.id) for record in records])
        if self._last is not None and there:
            await self._make_room([record for record in records if record.id in there])
            there = await self._find([id_bytes(record.id) for record in records])
        if there and not self._skip:
            raise RefusedError(Existing(ids=tuple(sorted(there))))
        self.skipped.update(there)
        new = [record for record in records if record.id not in there]
        await self._check_unique_keys(new)
        ids = [row[0] for row in await self._connection.fetch(self._blocks["records_ids"], len(new))]
        self.rows.update(zip((record.id for record in new), ids, strict=True))
        outside = {record.parent for record in new if record.parent is not None} - self.rows.keys()
        parents = self.rows if not outside else self.rows | await self._find([id_bytes(parent) for parent in outside])
        for record in new:
            if record.parent is not None and record.parent not in parents:
                self._children[record.id] = record.parent
            record.handler = handler_of(record.kind, record.name, record.version)
        await self._connection.executemany(
            self._insert[ExecutionRecord],
            [
                (
                    self.rows[record.id],
                    id_bytes(record.id),
                    None if record.parent is None else parents.get(record.parent),
                    *_values(record),
                )
                for record in new
            ],
        )

    async def _make_room(self, records: Sequence[ExecutionRecord]) -> None:
        """Delete the trees that are at rest, with all that belongs to them."""
        for record in records:
            within = PromiseId.parse(record.id).subtree_range()
            await self._connection.execute(self._blocks["records_lock"], *within)
            if await self._connection.fetchval(self._blocks["records_at_rest"], *within, self._last, record.revision):
                for statement in self._delete:
                    await self._connection.execute(statement, *within)

    async def _check_unique_keys(self, records: Sequence[ExecutionRecord]) -> None:
        """Before the index refuses a row: that would say less, and end the transaction."""
        keys = {
            record.unique_key: record.id
            for record in records
            if record.unique_key is not None and not record.unique_released and record.status in _scope(record)
        }
        if keys:
            found = await self._connection.fetch(self._blocks["records_occupants"], list(keys))
            if found:
                occupied = tuple((keys[row["unique_key"]], id_text(row["promise"])) for row in found)
                raise RefusedError(Existing(unique=occupied))

    async def _shared(self, record: SharedRecord) -> None:
        values = _values(record)
        if isinstance(record, DefinitionRecord):
            values.append(handler_of(record.kind, record.name, record.version))
        block = f"records_insert_{TABLES[type(record)].name.removesuffix('s')}"
        done: str = await self._connection.execute(self._blocks[block], *values)
        if not done.endswith(" 1") and isinstance(record, ScheduleRecord) and not self._skip:
            raise RefusedError(Existing(schedules=(record.name,)))

    async def _find(self, promises: Sequence[bytes]) -> dict[str, int]:
        rows = await self._connection.fetch(self._blocks["records_find"], promises)
        return {id_text(row["promise"]): row["id"] for row in rows}


def _scope(record: ExecutionRecord) -> tuple[str, ...]:
    return record.unique_scope or ()
