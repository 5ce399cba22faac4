"""Queues as people see them, and their settings."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

from msgspec import UNSET
from msgspec.structs import asdict, replace

from holdfast.core.clock import to_datetime
from holdfast.core.status import PARKED, Status
from holdfast.store.sqlite.limits import burst
from holdfast.store.sqlite.picking import priorities
from holdfast.store.sqlite.rows import TEXT
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import QueueChange, QueueSettings, QueueStats

COUNTED_MAX: Final = 10_000
_HELD: Final = [TEXT[status] for status in (Status.RUNNABLE, *PARKED, Status.STRANDED, Status.DELEGATED)]


def configure(tx: Tx, settings: QueueSettings) -> None:
    """Write the settings; a bucket whose rate is as it was keeps its tokens."""
    tokens = 0.0 if settings.rate is None else burst(settings.rate)
    tx.db.execute(
        SQL["queue_configure"],
        (
            settings.name,
            1 if settings.paused else 0,
            settings.concurrency,
            settings.rate,
            settings.rate_seconds,
            tokens,
            tx.now,
        ),
    )
    tx.work = True  # what was held back may be picked now


def change(tx: Tx, name: str, change: QueueChange) -> QueueSettings:
    """Read and written in one transaction: there is one writer, so nothing comes between."""
    settings = QueueSettings(name=name)
    for row in tx.db.execute(SQL["queue_settings_of"], (name,)):
        settings = QueueSettings(name=name, paused=row[1] == 1, concurrency=row[2], rate=row[3], rate_seconds=row[4])
    settings = replace(settings, **{field: value for field, value in asdict(change).items() if value is not UNSET})
    configure(tx, settings)
    return settings


def stats(db: sqlite3.Connection, after: str, limit: int | None) -> list[QueueStats]:
    """Of the queues with settings or live rows, so many of those after a name: only these are counted."""
    settings = {
        row[0]: QueueSettings(name=row[0], paused=row[1] == 1, concurrency=row[2], rate=row[3], rate_seconds=row[4])
        for row in db.execute(SQL["queue_settings"])
    }
    executing = dict(db.execute(SQL["queue_executing_counts"]).fetchall())
    names = {*settings, *executing, *_from_one_to_the_next(db, "queue_next_pickable")}
    for held in _HELD:
        names.update(_from_one_to_the_next(db, "queue_next_held", held))
    page = sorted(name for name in names if name > after)[:limit]
    return [_stats_of(db, settings.get(name) or QueueSettings(name=name), executing.get(name, 0)) for name in page]


def _stats_of(db: sqlite3.Connection, settings: QueueSettings, executing: int) -> QueueStats:
    bound = (settings.name, COUNTED_MAX)
    runnable = sum(
        db.execute(SQL[statement], bound).fetchone()[0] for statement in ("queue_pickable_count", "queue_held_count")
    )
    oldest = [
        db.execute(SQL["queue_oldest"], (settings.name, priority)).fetchone()[0]
        for priority in priorities(db, settings.name)
    ]
    return QueueStats(
        settings=settings,
        runnable=min(runnable, COUNTED_MAX),
        executing=executing,
        oldest_eligible_at=to_datetime(min(oldest)) if oldest else None,
        capped=runnable >= COUNTED_MAX,
    )


def _from_one_to_the_next(db: sqlite3.Connection, statement: str, *parameters: str) -> Iterator[str]:
    """The queues of an index, each found from the one before."""
    name = ""
    while (found := db.execute(SQL[statement], (*parameters, name)).fetchone()) is not None:
        name = found[0]
        yield name
