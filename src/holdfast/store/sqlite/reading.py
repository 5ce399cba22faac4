"""What people and clients read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from struct import pack
from typing import Final, TypeAlias

from holdfast.core.clock import to_datetime
from holdfast.core.errors import InvalidArgumentError
from holdfast.core.identity import PATH_NUMBER_BYTES, ROOT_BYTES, IdQuery
from holdfast.core.status import Status
from holdfast.store.sqlite.rows import STATUS, TEXT, Row, names_json, view_of
from holdfast.store.sqlite.statements import SQL
from holdfast.store.values import (
    EndOf,
    ExecutionFilter,
    ExecutionView,
    Page,
    Signal,
    Transition,
    WorkerInfo,
    attributes_json,
)

Db: TypeAlias = sqlite3.Connection

_ASKED_AT_ONCE: Final = 250
_ABOVE_ALL_ROWS: Final = 2**63 - 1
_RARE: Final = frozenset({Status.EXECUTING, Status.STRANDED, Status.DELEGATED})


def get(db: Db, promise: bytes) -> ExecutionView | None:
    row = db.execute(SQL["view_by_promise"], (promise,)).fetchone()
    return None if row is None else view_of(row)


def endings(db: Db, promises: Sequence[bytes]) -> list[EndOf]:
    """Few statements for many: each asks for as many as it has parameters."""
    found: list[EndOf] = []
    for first in range(0, len(promises), _ASKED_AT_ONCE):
        asked = promises[first : first + _ASKED_AT_ONCE]
        statement = SQL["endings"].replace("(?)", ", ".join(["(?)"] * len(asked)))
        for promise, status, result, error, successor in db.execute(statement, asked):
            found.append(EndOf(promise, None if status is None else STATUS[status], result, error, successor))
    return found


def find(db: Db, query: IdQuery, limit: int) -> list[ExecutionView]:
    path = pack(f">{len(query.path)}I", *query.path)
    length = ROOT_BYTES + PATH_NUMBER_BYTES * len(query.path)
    found = db.execute(SQL["view_by_prefix"], (query.low, query.high, length, path, query.name, limit))
    return [view_of(row) for row in found]


def browse(db: Db, where: ExecutionFilter, limit: int, cursor: str | None) -> Page:
    """One more row than asked for is read, to know whether there is another page."""
    statuses = set(where.statuses)
    parameters = (
        _after_cursor(cursor),
        where.kind,
        where.name,
        where.queue,
        names_json(TEXT[status] for status in statuses) if statuses else None,
        limit + 1,
    )
    if where.attributes:
        found = db.execute(SQL["browse_attributes"], (*parameters, *_wanted(where.attributes), where.parent)).fetchall()
    elif where.parent is not None:
        found = db.execute(SQL["browse_children"], (*parameters, where.parent)).fetchall()
    elif statuses and statuses <= _RARE:
        found = db.execute(SQL["browse_rare"], parameters).fetchall()
    else:
        found = db.execute(SQL["browse"], parameters).fetchall()
    items = [view_of(row) for row in found[:limit]]
    return Page(items, str(found[limit - 1][-1]) if items and len(found) > limit else None)


def _after_cursor(cursor: str | None) -> int:
    if cursor is None:
        return _ABOVE_ALL_ROWS
    if not cursor.isdecimal():
        raise InvalidArgumentError(f"{cursor!r} is no cursor of a page: pass the one the last page gave, or none")
    return int(cursor)


def count(db: Db, where: ExecutionFilter) -> dict[Status, int]:
    statuses = names_json(TEXT[status] for status in where.statuses) if where.statuses else None
    narrow = (where.kind, where.name, where.queue, statuses)
    if where.attributes:
        found = db.execute(SQL["count_attributes"], (*narrow, *_wanted(where.attributes), where.parent)).fetchall()
    elif where.parent is not None:
        found = db.execute(SQL["count_children_by_status"], (*narrow, where.parent)).fetchall()
    elif where.kind is where.name is where.queue is None:
        found = db.execute(SQL["count_all"]).fetchall()
    else:
        found = db.execute(SQL["count_by_status"], narrow).fetchall()
    counts: dict[Status, int] = {}
    for text, number in found:
        status = STATUS[text]
        if number and (not where.statuses or status in where.statuses):
            counts[status] = counts.get(status, 0) + number
    return counts


def _wanted(attributes: Mapping[str, str | int | float | bool]) -> tuple[str, str | float | bytes, str]:
    """The first attribute, by which rows are found, and all of them."""
    name, value = next(iter(attributes.items()))
    bound: str | float | bytes = (b"\x01" if value else b"\x00") if isinstance(value, bool) else value
    return name, bound, attributes_json(attributes)


def children(db: Db, promise: bytes, barrier_round: int | None) -> list[ExecutionView]:
    return [view_of(row) for row in db.execute(SQL["view_children"], (promise, barrier_round))]


def inbox(db: Db, promise: bytes) -> list[Signal]:
    return [Signal(*row) for row in db.execute(SQL["inbox_of"], (promise,))]


def journal(db: Db, promise: bytes) -> list[str]:
    return [body for (body,) in db.execute(SQL["journal_of"], (promise,))]


def history(db: Db, promise: bytes) -> list[Transition]:
    return [transition_of(row) for row in db.execute(SQL["history_of"], (promise,))]


def transition_of(row: Row) -> Transition:
    return Transition(
        revision=row[0],
        at=to_datetime(row[1]),
        step=row[2],
        outcome=row[3],
        next_step=row[4],
        attempt=row[5],
        error=row[6],
    )


def workers(db: Db, now: int) -> list[WorkerInfo]:
    return [
        WorkerInfo(
            id=row[0],
            host=row[1],
            pid=row[2],
            queues=tuple(json.loads(row[3])),
            started_at=to_datetime(row[4]),
            expires_at=to_datetime(row[5]),
            is_expired=row[5] <= now,
            executing=row[6],
        )
        for row in db.execute(SQL["worker_list"])
    ]
