"""The writes of commits' own rows: which statement, by what becomes of a row, and one for all rows that change alike.

Opening the table with all its indexes for one row costs more than writing the row. So a flush hands each statement all
rows that differ in one text alone (the state, or the result of what ends), packed as JSON: of a hundred ends it takes
two fifths of the time of one by one, and Python's lock is taken once.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from msgspec.json import encode

from holdfast.core.status import PARKED, TERMINAL, Status
from holdfast.store.effects import AdvanceExecution
from holdfast.store.sqlite.rows import TEXT, Row, after, names_json
from holdfast.store.sqlite.statements import SQL

_RUNNABLE, _EXECUTING = Status.RUNNABLE, Status.EXECUTING
_PACKED_MOST: Final = 16 * 1024  # characters; a longer text is a parameter of its own: SQLite limits the length of one

_LIST: Final = (
    "from (select cast(key as integer) as row, value as text from json_each(?1)) packed where id = packed.row"
)


def _alone(statement: str) -> str:
    """The same for one row, whose text is a parameter: unpacking a list of one costs a third of the statement."""
    text = SQL[statement].replace("coalesce(?2, packed.text)", "?2").replace("?2, packed.text", "?2")
    return text.replace(_LIST, "where id = ?1")


_STATEMENTS: Final = ("flush_keep", "flush_requeue", "flush_park", "flush_end", "flush_replay_keep", "flush_replay")
ALONE: Final = {statement: _alone(statement) for statement in _STATEMENTS}


class OwnRows:
    """Rows to write, gathered by statement and by what they share."""

    def __init__(self) -> None:
        self._alike: dict[tuple[str, str | None, Row, Row], dict[int, str | None]] = {}

    def add(
        self,
        status: Status,
        delay: float,
        advance: AdvanceExecution,
        row: int,
        now: int,
        told: tuple[int, int, str | None],
    ) -> None:
        """`told`: what `ExecutionClaim.told` says of this commit."""
        commits, events, step = told
        statement, text, special = _statement(status, delay, advance, now)
        long_text = None
        if text is not None and len(text) > _PACKED_MOST:
            long_text, text = text, None
        shared = (step, advance.error, advance.attempt, advance.digest, events, now, commits)
        key = (statement, long_text, shared, special)
        alike = self._alike.get(key)
        if alike is None:
            self._alike[key] = {row: text}
        else:
            alike[row] = text

    def write(self, db: sqlite3.Connection) -> None:
        for (statement, long_text, shared, special), texts in self._alike.items():
            if len(texts) == 1:
                ((row, text),) = texts.items()
                db.execute(ALONE[statement], (row, long_text if text is None else text, *shared, *special))
            else:
                db.execute(SQL[statement], (encode(texts).decode(), long_text, *shared, *special))


def _statement(status: Status, delay: float, advance: AdvanceExecution, now: int) -> tuple[str, str | None, Row]:
    """The statement, the text in which its rows may differ, and the parameters that not all statements have."""
    if status in TERMINAL:
        return "flush_end", advance.result, (advance.state, TEXT[status])
    awaits = None if advance.awaits is None else names_json(advance.awaits)
    if status is _EXECUTING:
        return (
            ("flush_keep", advance.state, (awaits,)) if advance.progress else ("flush_replay_keep", advance.state, ())
        )
    wake_at = advance.wake_at_us if status in PARKED else None
    if advance.wake_after is not None and status in PARKED and wake_at is None:
        wake_at = after(now, advance.wake_after)
    if not advance.progress:
        return "flush_replay", advance.state, (TEXT[status], after(now, delay), wake_at)
    if status is _RUNNABLE:
        return "flush_requeue", advance.state, (awaits, after(now, delay))
    return "flush_park", advance.state, (awaits, TEXT[status], wake_at, advance.wait_children)
