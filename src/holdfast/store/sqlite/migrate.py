"""Bringing a file's schema up to date; safe when many processes do it at once."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from holdfast.core.clock import Clock
from holdfast.core.errors import ConfigurationError, SchemaTooNewError
from holdfast.store.sql import load_blocks, migrations
from holdfast.store.sqlite.connection import connect, explained
from holdfast.store.sqlite.lock import WriterLock, make_file

PACKAGE = "holdfast.store.sqlite"
_SQL = load_blocks(PACKAGE, "sql/migrate.sql")


def migrate(path: Path, clock: Clock, busy_seconds: float, is_let_in: bool = False) -> None:
    """Apply what is missing, each migration in a transaction of its own. `is_let_in`: this process has it open."""
    lock = WriterLock(path, busy_seconds)
    try:
        lock.acquire()  # also around the switch to WAL, which wants the file for itself
        make_file(path)
        connection = connect(path, busy_seconds)
        try:
            with explained(path):
                (mode,) = connection.execute("pragma journal_mode = wal").fetchone()
                if mode != "wal":
                    raise ConfigurationError(
                        f"{path} has no write-ahead log but {mode!r}, and cannot be given one: keep the file on a "
                        "disk of this machine, or use PostgreSQL"
                    )
                _apply(path, connection, clock, is_let_in)
        finally:
            connection.close()
            lock.release()
    finally:
        lock.close()


def _apply(path: Path, connection: sqlite3.Connection, clock: Clock, is_let_in: bool) -> None:
    known = migrations(PACKAGE)
    applied = applied_version(connection)
    if applied > known[-1].version and not is_let_in:
        raise SchemaTooNewError(
            f"{path} has schema version {applied}, this Holdfast knows {known[-1].version}: upgrade Holdfast here"
        )
    for step in known:
        if step.version <= applied:
            continue
        connection.execute("begin immediate")
        try:
            for statement in _statements(step.text):
                connection.execute(statement)
            connection.execute(_SQL["migrate_note"], (step.version, step.name, clock.now_us()))
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise


def applied_version(connection: sqlite3.Connection) -> int:
    if connection.execute(_SQL["migrate_has_version"]).fetchone() is None:
        return 0
    found: int = connection.execute(_SQL["migrate_version"]).fetchone()[0]
    return found


def _statements(script: str) -> list[str]:
    """One by one, because `executescript` would commit before the first of them."""
    found, current = [], ""
    for line in script.splitlines(keepends=True):
        current += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    return found
