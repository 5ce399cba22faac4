"""Schedules: rows that say what is started when."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from holdfast.core.clock import to_datetime, to_us
from holdfast.store.schedules import Schedule, Tick
from holdfast.store.sqlite import inserting
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import NewExecution


def put(tx: Tx, name: str, spec: str, next_at: datetime, seen: Schedule | None) -> bool:
    if seen is None:
        return tx.db.execute(SQL["schedule_create"], (name, spec, to_us(next_at))).rowcount > 0
    values = (spec, to_us(next_at), name, to_us(seen.next_at), seen.spec)
    return tx.db.execute(SQL["schedule_change"], values).rowcount > 0


def schedules(db: sqlite3.Connection, name: str | None) -> list[Schedule]:
    return [
        Schedule(
            name=row[0],
            spec=row[1],
            paused=row[2] == 1,
            next_at=to_datetime(row[3]),
            buffered_at=None if row[4] is None else to_datetime(row[4]),
            last_at=None if row[5] is None else to_datetime(row[5]),
            last=row[6],
        )
        for row in db.execute(SQL["schedule_list"], (name,))
    ]


def pause(tx: Tx, name: str, paused: bool) -> bool:
    return tx.db.execute(SQL["schedule_pause"], (1 if paused else 0, name)).rowcount > 0


def delete(tx: Tx, name: str) -> bool:
    return tx.db.execute(SQL["schedule_delete"], (name,)).rowcount > 0


def tick(tx: Tx, moved: Tick, rows: Sequence[NewExecution]) -> bool:
    """Move it on and start, unless another worker was first."""
    next_at, buffered_at, last_at = to_us(moved.next_at), _us(moved.buffered_at), _us(moved.last_at)
    seen = (moved.name, to_us(moved.seen_next_at), _us(moved.seen_buffered_at), moved.seen_spec)
    if not tx.db.execute(SQL["schedule_tick"], (next_at, buffered_at, last_at, moved.last, *seen)).rowcount:
        return False
    inserting.insert(tx, rows)
    return True


def _us(moment: datetime | None) -> int | None:
    return None if moment is None else to_us(moment)
