"""What people and clients read."""

from __future__ import annotations

import sqlite3
from typing import TypeAlias

from holdfast.store.sqlite.rows import view_of
from holdfast.store.sqlite.statements import SQL
from holdfast.store.values import ExecutionView, Signal

Db: TypeAlias = sqlite3.Connection


def get(db: Db, promise: bytes) -> ExecutionView | None:
    row = db.execute(SQL["view_by_promise"], (promise,)).fetchone()
    return None if row is None else view_of(row)


def inbox(db: Db, promise: bytes) -> list[Signal]:
    return [Signal(*row) for row in db.execute(SQL["inbox_of"], (promise,))]
