"""What people and clients read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from struct import pack
from typing import Final, TypeAlias

from holdfast.core.clock import to_datetime, to_us
from holdfast.core.identity import PATH_NUMBER_BYTES, ROOT_BYTES, IdQuery
from holdfast.core.status import Status
from holdfast.store.browsing import INTERNAL_KINDS, Merge, place_of
from holdfast.store.sqlite.rows import STATUS, TEXT, Row, names_json, view_of
from holdfast.store.sqlite.statements import SQL
from holdfast.store.values import (
    EndOf,
    ExecutionFilter,
    ExecutionView,
    Page,
    Shown,
    Signal,
    Transition,
    WorkerInfo,
    attributes_json,
)

Db: TypeAlias = sqlite3.Connection

_ASKED_AT_ONCE: Final = 250
_RARE: Final = frozenset({Status.EXECUTING, Status.STRANDED, Status.DELEGATED})
_LIVE: Final = frozenset(status for status in Status if not status.is_terminal)


def get(db: Db, promise: bytes) -> ExecutionView | None:
    row = db.execute(SQL["view_by_promise"], (promise,)).fetchone()
    return None if row is None else view_of(row)


def endings(db: Db, promises: Sequence[bytes]) -> list[EndOf]:
    return [
        EndOf(promise, status and STATUS[status], *rest) for promise, status, *rest in _asked(db, "endings", promises)
    ]


def shown(db: Db, promises: Sequence[bytes]) -> list[Shown]:
    return [
        Shown(promise, status and STATUS[status], *rest) for promise, status, *rest in _asked(db, "shown", promises)
    ]


def _asked(db: Db, block: str, promises: Sequence[bytes]) -> Iterator[Row]:
    """Few statements for many: each asks for as many as it has parameters."""
    for first in range(0, len(promises), _ASKED_AT_ONCE):
        asked = promises[first : first + _ASKED_AT_ONCE]
        yield from db.execute(SQL[block].replace("(?)", ", ".join(["(?)"] * len(asked))), asked)


def find(db: Db, query: IdQuery, limit: int) -> list[ExecutionView]:
    path = pack(f">{len(query.path)}I", *query.path)
    length = ROOT_BYTES + PATH_NUMBER_BYTES * len(query.path)
    found = db.execute(SQL["view_by_prefix"], (query.low, query.high, length, path, query.name, limit))
    return [view_of(row) for row in found]


def browse(db: Db, where: ExecutionFilter, limit: int, cursor: str | None, look_at: int | None) -> Page:
    """One more row than asked for is read, to know whether there is another page."""
    statuses = set(where.statuses)
    before = place_of(cursor)
    texts = names_json(TEXT[status] for status in statuses) if statuses else None
    parameters = (before, where.kind, where.name, where.queue, texts, limit + 1)
    if where.attributes:
        found = db.execute(SQL["browse_attributes"], (*parameters, *_wanted(where.attributes), where.parent)).fetchall()
    elif where.parent is not None:
        found = db.execute(SQL["browse_children"], (*parameters, where.parent)).fetchall()
    elif statuses and statuses <= _RARE:
        found = db.execute(SQL["browse_rare"], parameters).fetchall()
    else:
        page = _browse_bounded(db, where, limit, before, texts, look_at)
        is_short = page.cursor is not None and len(page.items) < limit
        if not (is_short and statuses and statuses <= _LIVE):
            return page
        # What lives is not among the newest: by its own indexes then.
        found = db.execute(SQL["browse_rare"], parameters).fetchall()
    return _page(found, limit)


def cursor_before(db: Db, at: datetime) -> str:
    (place,) = db.execute(SQL["cursor_before"], (to_us(at),)).fetchone()
    return str(place)


def _page(found: list[Row], limit: int) -> Page:
    items = [view_of(row) for row in found[:limit]]
    return Page(items, str(found[limit - 1][-1]) if items and len(found) > limit else None)


def _browse_bounded(
    db: Db, where: ExecutionFilter, limit: int, before: int, statuses: str | None, look_at: int | None
) -> Page:
    """By the order of the rows, or definition by definition."""
    if where.kind is not None or where.name is not None:
        return _browse_named(db, where, limit, before, statuses, look_at)
    floor = _floor(db, "browse_floor", look_at, (before,))
    found = db.execute(SQL["browse"], (before, floor or 0, where.queue, statuses, limit + 1)).fetchall()
    if floor is None or len(found) > limit:
        return _page(found, limit)
    if where.queue is None and statuses is None:  # all that is new is of flows and batches
        return _browse_named(db, where, limit, before, None, None)
    return Page([view_of(row) for row in found], str(floor + 1))


def _browse_named(
    db: Db, where: ExecutionFilter, limit: int, before: int, statuses: str | None, look_at: int | None
) -> Page:
    """Definition by definition, through their index."""
    merge: Merge[Row] = Merge(limit)
    for newest, kind, name in _newest_named(db, where, before):
        if merge.is_below(newest):
            break
        # Without more to ask, every row that is looked at fits.
        most = None if where.queue is None and statuses is None else look_at
        floor = _floor(db, "browse_named_floor", most, (before,), (kind, name))
        rows = db.execute(SQL["browse_named"], (before, floor or 0, where.queue, statuses, limit + 1, kind, name))
        merge.add([(row[-1], row) for row in rows], floor)
    found, cursor = merge.page()
    return Page([view_of(row) for row in found], cursor)


def _newest_named(db: Db, where: ExecutionFilter, before: int) -> list[tuple[int, str, str]]:
    """The definitions that were asked for with their newest rows, the newest first."""
    found: list[tuple[int, str, str]] = []
    name, kind = where.name or "", ""
    while True:
        following = db.execute(SQL["next_kind"], (name, kind)).fetchone()
        if following is None:
            following = db.execute(SQL["next_name"], (name,)).fetchone()
        if following is None:
            break
        name, kind = following
        if where.name is not None and name != where.name:
            break
        if kind == where.kind or (where.kind is None and kind not in INTERNAL_KINDS):
            (newest,) = db.execute(SQL["newest_named"], (kind, name, before)).fetchone()
            if newest is not None:
                found.append((newest, kind, name))
    return sorted(found, reverse=True)


def _floor(db: Db, block: str, look_at: int | None, before: tuple[int], of: tuple[str, ...] = ()) -> int | None:
    row = None if look_at is None else db.execute(SQL[block], (*before, look_at, *of)).fetchone()
    return None if row is None else int(row[0])


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
