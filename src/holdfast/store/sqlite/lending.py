"""The writer's connection in the hands of user code: it can neither end the ledger's transaction nor outlive it.

Some errors make SQLite roll the whole transaction back by itself (an interrupted write, a full disk, `or rollback`).
Code that catches such an error and goes on would write in transactions of its own, which nobody could undo; so nothing
is run on the connection any more once its transaction is gone. (A cursor that is made as `sqlite3.Cursor(connection)`,
past the connection's own methods, is not watched.) What the code sets on the connection is set back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

_RUN: Final = ("execute", "executemany", "executescript")
_LOOK_EVERY: Final = 1000  # instructions of SQLite's machine: some ten microseconds
# What can be set inside a transaction and would change what the ledger's own statements do, and how they have it.
_PRAGMAS: Final = {
    "recursive_triggers": "off",
    "query_only": "off",
    "ignore_check_constraints": "off",
    "reverse_unordered_selects": "off",
    "writable_schema": "off",
    "locking_mode": "normal",
}


class LendableConnection(sqlite3.Connection):
    """As any, but that its instances take attributes: while it is lent, these stand before its methods."""

    def interrupt_when(self, is_due: Callable[[], bool]) -> None:
        """Asked every now and then while a statement runs, until the connection is given back: yes interrupts it."""
        self.set_progress_handler(is_due, _LOOK_EVERY)


class _LentCursor(sqlite3.Cursor):
    def execute(self, *arguments: Any) -> Self:
        require_open(self.connection)
        return super().execute(*arguments)

    def executemany(self, sql: str, rows: Any, /) -> Self:
        require_open(self.connection)
        return super().executemany(sql, self._while_open(rows))

    def _while_open(self, rows: Any) -> Iterator[Any]:
        """What makes the rows may itself run something on the connection."""
        for row in rows:
            require_open(self.connection)
            yield row

    def executescript(self, *arguments: Any) -> sqlite3.Cursor:
        require_open(self.connection)
        return super().executescript(*arguments)


def require_open(db: sqlite3.Connection) -> None:
    if not db.in_transaction:
        raise sqlite3.OperationalError("an earlier error has rolled the transaction back: nothing more is run in it")


@contextmanager
def lent(db: sqlite3.Connection) -> Iterator[None]:
    """Inside, the connection may be given to user code."""
    kept = db.row_factory, db.text_factory
    pragmas: set[str] = set()
    db.set_authorizer(lambda *asked: _authorize(pragmas, *asked))
    for name in _RUN:
        setattr(db, name, _through_cursor(db, name))
    setattr(db, "cursor", lambda factory=_LentCursor: _cursor(db, factory))  # noqa: B010  (a method, to the checker)
    try:
        yield
    finally:
        for name in (*_RUN, "cursor"):
            delattr(db, name)
        db.set_authorizer(None)
        db.set_progress_handler(None, 0)
        db.set_trace_callback(None)
        db.row_factory, db.text_factory = kept
        for pragma in pragmas:
            db.execute(f"pragma {pragma} = {_PRAGMAS[pragma]}")


def _through_cursor(db: sqlite3.Connection, name: str) -> Callable[..., sqlite3.Cursor]:
    def run(*arguments: Any) -> sqlite3.Cursor:
        made: sqlite3.Cursor = getattr(_cursor(db, _LentCursor), name)(*arguments)
        return made

    return run


def _cursor(db: sqlite3.Connection, factory: Any) -> Any:
    if isinstance(factory, type) and issubclass(factory, sqlite3.Cursor) and not issubclass(factory, _LentCursor):
        factory = type(factory.__name__, (_LentCursor, factory), {})
    return sqlite3.Connection.cursor(db, factory)


def _authorize(pragmas: set[str], action: int, first: str | None, second: str | None, *_: object) -> int:
    """Code that committed by itself would take the ledger's part with it, or leave it out. What it sets is noted."""
    if action == sqlite3.SQLITE_PRAGMA and second is not None and first is not None and first.lower() in _PRAGMAS:
        pragmas.add(first.lower())
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK
