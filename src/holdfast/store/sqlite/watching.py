"""Watching a ledger: bounded counts, what ended lately, the feed of ends and starts, and who has read how far."""

from __future__ import annotations

import heapq
import json
import sqlite3
from collections.abc import Sequence
from itertools import takewhile
from typing import Final, TypeAlias

from msgspec.structs import replace

from holdfast.core.clock import MICROSECONDS, to_datetime
from holdfast.core.status import PARKED, Status
from holdfast.store.sampling import Hits, Sample, rows_to_look_at
from holdfast.store.sqlite import reading
from holdfast.store.sqlite.rows import STATUS, TEXT, Row, after, names_json
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import Page, Transition
from holdfast.store.watching import Ended, Feed, Pace, PaceBucket, Position, Seen, Started, Tally, failures_before

Db: TypeAlias = sqlite3.Connection

_HELD: Final = (*sorted(PARKED), Status.STRANDED, Status.DELEGATED)
_ENDS: Final = frozenset({Status.DONE, Status.FAILED, Status.CANCELLED})


def tally(db: Db, bound: int) -> list[Tally]:
    def counted(block: str, *parameters: str) -> int:
        number: int = db.execute(SQL[block], (*parameters, bound + 1)).fetchone()[0]
        return number

    counts = {status: counted("tally_held", TEXT[status]) for status in _HELD}
    counts[Status.RUNNABLE] = counted("tally_pickable") + counted("tally_held", TEXT[Status.RUNNABLE])
    counts[Status.EXECUTING] = counted("tally_executing")
    counts[Status.FAILED] = counted("tally_failed")
    ended = {STATUS[text]: number for text, number in db.execute(SQL["tally_ended"], (bound + 1,))}
    is_capped = sum(ended.values()) > bound
    for status in (Status.DONE, Status.CANCELLED):
        counts[status] = ended.get(status, 0)
    return [
        Tally(status, min(counts[status], bound), counts[status] > bound or (is_capped and status in _NEWEST))
        for status in Status
    ]


_NEWEST: Final = frozenset({Status.DONE, Status.CANCELLED})


def sample(db: Db) -> Sample:
    first, last = db.execute(SQL["sample_range"]).fetchone()
    wanted = rows_to_look_at(first, last)
    rows = db.execute(SQL["sample"], (json.dumps(wanted),))
    return Sample(last - first + 1, len(wanted), [Hits(STATUS[status], *rest) for status, *rest in rows])


def pace(db: Db, now: int, bucket_seconds: float, buckets: int, bound: int) -> Pace:
    length = max(1, round(bucket_seconds * MICROSECONDS))
    since = now - length * buckets
    found: dict[int, dict[str, int]] = {}
    total, oldest = 0, now
    for bucket, status, number, first in db.execute(SQL["pace"], (length, since, bound)):
        found.setdefault(bucket, {})[status] = number
        total, oldest = total + number, min(oldest, first)
    return Pace(
        bucket_seconds=length / MICROSECONDS,
        since=to_datetime(oldest if total >= bound else since),
        until=to_datetime(now),
        buckets=[PaceBucket(to_datetime(bucket), **counts) for bucket, counts in sorted(found.items())],
    )


def ends(db: Db, now: int, position: str | None, limit: int, statuses: Sequence[Status], starts: bool) -> Feed:
    place = Position(now, 0, now, 0) if position is None else Position.parse(position)
    started, more = list[Started](), False
    if starts:
        place, started, more = _starts(db, place, limit)
    if position is None:
        return Feed([], str(place))
    wanted = _ENDS.intersection(statuses)
    since, rows = (place.ended_us, place.ended_row), []
    if wanted == {Status.FAILED}:
        rows += db.execute(SQL["feed_failed"], (*since, limit + 1)).fetchall()
    elif wanted:
        rows += db.execute(SQL["feed_ended"], (*since, names_json(TEXT[s] for s in wanted), limit + 1)).fetchall()
    stranded = []
    if Status.STRANDED in statuses:
        stranded = db.execute(SQL["feed_stranded"], (place.stranded_us, place.stranded_row, limit + 1)).fetchall()
    told = list(heapq.merge(rows, stranded))
    if starts:
        told = list(takewhile(lambda row: place.has_started(row[1]), told))
    items, after_items = _items(db, place, told[:limit])
    return Feed(items, str(after_items), more or len(told) > limit, started)


def _starts(db: Db, place: Position, limit: int) -> tuple[Position, list[Started], bool]:
    (last,) = db.execute(SQL["feed_seen"]).fetchone()
    if place.started_row is None or last < place.started_row:  # lower after a delete, or in a copy from before
        return replace(place, seen=Seen(last), started_row=last), [], False
    rows = db.execute(SQL["feed_started"], (place.started_row, limit + 1)).fetchall()
    started = []
    for row, promise, at in rows[:limit]:
        place = place.after_start(row)
        view = reading.get(db, promise)
        if view is not None:
            started.append(Started(view, to_datetime(at), str(place)))
    if len(rows) > limit:
        return place, started, True
    return place.after_start(max(last, rows[-1][0] if rows else 0)), started, False  # `last` was a moment earlier


def _items(db: Db, place: Position, rows: Sequence[Row]) -> tuple[list[Ended], Position]:
    items = []
    for at, row, promise, text in rows:
        place = place.after_end(STATUS[text], at, row)
        view = reading.get(db, promise)
        if view is not None:
            items.append(Ended(view, STATUS[text], to_datetime(at), str(place)))
    return items, place


def failures(db: Db, limit: int, cursor: str | None) -> Page:
    found = db.execute(SQL["failures"], (*failures_before(cursor), limit + 1)).fetchall()
    views = [reading.get(db, promise) for _, _, promise in found[:limit]]
    more = f"{found[limit - 1][0]}-{found[limit - 1][1]}" if limit and len(found) > limit else None
    return Page([view for view in views if view is not None], more)


def journal_since(db: Db, promise: bytes, sequence: int) -> list[str]:
    return [body for (body,) in db.execute(SQL["journal_since"], (promise, sequence))]


def history_since(db: Db, promise: bytes, revision: int) -> list[Transition]:
    return [reading.transition_of(row) for row in db.execute(SQL["history_since"], (promise, revision))]


def take_place(tx: Tx, name: str, owner: str, lease_seconds: float, position: str) -> str | None:
    until = after(tx.now, lease_seconds)
    row = tx.db.execute(SQL["place_take"], (name, position, owner, until, tx.now)).fetchone()
    return None if row is None else str(row[0])


def move_place(tx: Tx, name: str, owner: str, lease_seconds: float, position: str) -> bool:
    moved = tx.db.execute(SQL["place_move"], (name, position, owner, after(tx.now, lease_seconds)))
    return moved.rowcount == 1


def leave_place(tx: Tx, name: str, owner: str) -> None:
    tx.db.execute(SQL["place_leave"], (name, owner))
