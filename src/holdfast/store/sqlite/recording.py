"""Records (store/records.py) out of a file, in one snapshot, and into one, in one commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, get_type_hints

from holdfast.core.clock import to_datetime, to_us
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.store.base import handler_of
from holdfast.store.records import (
    BATCH,
    OWNED,
    SHARED,
    TABLES,
    WINDOW,
    ExecutionRecord,
    Existing,
    Oddities,
    OwnedRecord,
    Record,
    RefusedError,
    ScheduleRecord,
    SharedRecord,
    Written,
    columns_of,
    id_bytes,
    id_text,
)
from holdfast.store.sqlite.rows import STATUS, TEXT, Row, names_json, names_of
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx

Take = Callable[[Sequence[Record]], None]
Range = tuple[bytes, bytes]

_ID_COLUMNS: Final = frozenset({"successor", "last"})


class _Codec:
    """Between the columns of a table and the fields of its record."""

    def __init__(self, record: type[Record]) -> None:
        hints = get_type_hints(record)
        self.columns = columns_of(record)
        self._record = record
        self._decode = [_decoder(name, hints[name]) for name in self.columns]
        self._encode = [_encoder(name, hints[name]) for name in self.columns]

    def fields(self, row: Row) -> dict[str, Any]:
        return {
            name: value if decode is None or value is None else decode(value)
            for name, decode, value in zip(self.columns, self._decode, row, strict=True)
        }

    def values(self, record: Record) -> Row:
        found = (getattr(record, name) for name in self.columns)
        return tuple(
            value if encode is None or value is None else encode(value)
            for encode, value in zip(self._encode, found, strict=True)
        )


def _decoder(name: str, hint: Any) -> Callable[[Any], Any] | None:
    if name in _ID_COLUMNS:
        return id_text
    if hint is bool:
        return bool
    if hint in (datetime, datetime | None):
        return to_datetime
    if hint is Status:
        return STATUS.__getitem__
    return names_of if hint in (tuple[str, ...], tuple[str, ...] | None) else None


def _encoder(name: str, hint: Any) -> Callable[[Any], Any] | None:
    if name in _ID_COLUMNS:
        return id_bytes
    if hint is bool:
        return int
    if hint in (datetime, datetime | None):
        return to_us
    if hint is Status:
        return TEXT.__getitem__
    return names_json if hint in (tuple[str, ...], tuple[str, ...] | None) else None


_CODECS: Final[Mapping[type[Record], _Codec]] = {record: _Codec(record) for record in TABLES}


def _statement(
    block: str, record: type[Record], *, lead: Sequence[str] = (), prefix: str = "", within: str | None = None
) -> str:
    """A block of the SQL file for one table; `lead` are columns in front of those of the record."""
    columns = (*lead, *_CODECS[record].columns)
    table = TABLES[record]
    text = SQL[block].replace("{within}", "" if within is None else SQL[within])
    text = text.replace("{columns}", ", ".join(prefix + name for name in columns))
    text = text.replace("{values}", ", ".join("?" for _ in columns)).replace("{table}", table.name)
    return text.replace("{owner}", table.owner).replace("{order}", table.order).replace("{arrival}", "t.rowid")


# ---------------------------------------------------------------------- out


def read(db: sqlite3.Connection, take: Take, within: Range | None) -> None:
    if within is not None:
        _read(db, take, "records_in_tree", within)
        return
    _read(db, take, None, ())
    _read_shared(db, take)


def _read(db: sqlite3.Connection, take: Take, within: str | None, bounds: Row) -> None:
    codec = _CODECS[ExecutionRecord]
    statement = _statement("records_executions", ExecutionRecord, within=within)
    _hand_over(
        db.execute(statement, bounds),
        lambda row: ExecutionRecord(
            id=id_text(row[0]), parent=None if row[1] is None else id_text(row[1]), **codec.fields(row[2:])
        ),
        take,
    )
    for record in OWNED:
        statement = _statement("records_owned", record, prefix="t.", within=within)
        _hand_over(db.execute(statement, bounds), _owned_reader(record), take)


def _read_shared(db: sqlite3.Connection, take: Take) -> None:
    for shared in SHARED:
        _hand_over(db.execute(_statement("records_shared", shared)), _shared_reader(shared), take)


def _owned_reader(record: type[OwnedRecord]) -> Callable[[Row], Record]:
    codec = _CODECS[record]
    return lambda row: record(id=id_text(row[0]), **codec.fields(row[1:]))


def _shared_reader(record: type[SharedRecord]) -> Callable[[Row], Record]:
    codec = _CODECS[record]
    return lambda row: record(**codec.fields(row))


def _hand_over(found: sqlite3.Cursor, make: Callable[[Row], Record], take: Take) -> None:
    while rows := found.fetchmany(BATCH):
        take([make(row) for row in rows])


def survey(db: sqlite3.Connection, take: Take, let_go: Callable[[], None]) -> Oddities:
    """Everything, and what no record shows: rows of nobody, who holds what, an index that is out of step."""
    low = 0
    while (high := db.execute(SQL["records_window"], (low, WINDOW)).fetchone()[0]) is not None:
        _read(db, take, "records_in_window", (low, high))
        let_go()
        low = high
    _read_shared(db, take)
    orphans = {}
    for record in OWNED:
        orphans[TABLES[record].name] = db.execute(_statement("records_orphans", record)).fetchone()[0]
    return Oddities(
        orphans={table: count for table, count in orphans.items() if count},
        locks={
            key: None if is_free else ("" if promise is None else id_text(promise))
            for key, is_free, promise in db.execute(SQL["records_locks"])
        },
        workers=tuple(name for (name,) in db.execute(SQL["records_workers"])),
        attributes=tuple((id_text(promise), name) for promise, name in db.execute(SQL["records_attributes"])),
    )


# ---------------------------------------------------------------------- in


class _Writing:
    """One call of `write`: which rows were made for which ids."""

    def __init__(self, tx: Tx, skip_existing: bool, replace: bool) -> None:
        self._db = tx.db
        self._skip = skip_existing
        self._replaces = replace
        self._last = tx.db.execute(SQL["records_last"]).fetchone()[0] if replace else 0  # of what was here before
        self.rows: dict[str, int] = {}
        self.skipped: set[str] = set()
        self._children: dict[str, str] = {}  # whose parents have not come: a retry may have taken over older ones
        self._executions = _statement("records_insert", ExecutionRecord, lead=("promise", "parent_id"))
        self._owned = {record: _statement("records_insert", record, lead=(TABLES[record].owner,)) for record in OWNED}

    def execution(self, record: ExecutionRecord) -> None:
        promise = id_bytes(record.id)
        if self._find(promise) is not None and not (self._replaces and self._make_room(record)):
            if not self._skip:
                raise RefusedError(Existing(ids=(record.id,)))
            self.skipped.add(record.id)
            return
        if record.unique_key is not None and not record.unique_released:
            occupant = self._db.execute(SQL["records_occupant"], (record.unique_key,)).fetchone()
            if occupant is not None and record.status in (record.unique_scope or ()):
                raise RefusedError(Existing(unique=((record.id, id_text(occupant[0])),)))
        parent = None
        if record.parent is not None:
            parent = self.rows.get(record.parent) or self._find(id_bytes(record.parent))
            if parent is None:
                self._children[record.id] = record.parent
        record.handler = handler_of(record.kind, record.name, record.version)
        values = (promise, parent, *_CODECS[ExecutionRecord].values(record))
        row = self._db.execute(self._executions, values).lastrowid
        assert row is not None, "an insert gives its row an id"
        self.rows[record.id] = row

    def _make_room(self, record: ExecutionRecord) -> bool:
        """Delete a tree that is at rest, with all that belongs to it; False: it is not."""
        within = PromiseId.parse(record.id).subtree_range()
        if not self._db.execute(SQL["records_at_rest"], (*within, self._last, record.revision)).fetchone()[0]:
            return False
        for kind in OWNED:
            self._db.execute(_statement("records_delete", kind), within)
        self._db.execute(SQL["records_delete"].replace("{table}", "executions").replace("{owner}", "id"), within)
        return True

    def owned(self, record: OwnedRecord) -> None:
        row = self.rows.get(record.id)
        if row is not None:
            kind = type(record)
            self._db.execute(self._owned[kind], (row, *_CODECS[kind].values(record)))

    def shared(self, record: SharedRecord) -> None:
        kind = type(record)
        statement = _statement("records_insert_new", kind)
        inserted = self._db.execute(statement, _CODECS[kind].values(record)).rowcount
        if not inserted and isinstance(record, ScheduleRecord) and not self._skip:
            raise RefusedError(Existing(schedules=(record.name,)))

    def finish(self) -> None:
        for child, parent in self._children.items():
            if parent in self.rows:
                self._db.execute(SQL["records_adopt"], (self.rows[parent], self.rows[child]))

    def _find(self, promise: bytes) -> int | None:
        found = self._db.execute(SQL["records_find"], (promise,)).fetchone()
        return None if found is None else int(found[0])


def write(tx: Tx, batches: Iterable[Sequence[Record]], skip_existing: bool, replace: bool = False) -> Written:
    writing = _Writing(tx, skip_existing, replace)
    for batch in batches:
        for record in batch:
            if isinstance(record, ExecutionRecord):
                writing.execution(record)
            elif isinstance(record, SharedRecord):
                writing.shared(record)
            else:
                writing.owned(record)
    writing.finish()
    tx.work = True  # what came in may be picked now
    return Written(len(writing.rows), len(writing.skipped))
