"""Connections to the file, and what SQLite's errors mean to a caller.

Every connection is in WAL mode with `synchronous=FULL`: a commit that returned is on the disk
(leases may lag: see picking.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.core.errors import ConfigurationError, StoreError, StoreUnavailableError
from holdfast.store.sqlite.lending import LendableConnection

BUSY_SECONDS: Final = 10.0
VERSION_NEEDED: Final = (3, 37, 0)  # strict tables; `returning` and generated columns are older

LOG_BYTES: Final = 64 * 1024 * 1024  # kept of a log that has grown past a long read, once it is written back
_PAGE_CACHE_KIB: Final = 64 * 1024
_STATEMENTS_CACHED: Final = 256
_PRIMARY_CODE_MASK: Final = 0xFF

_RETRYABLE: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT})


def check_library() -> None:
    if sqlite3.sqlite_version_info < VERSION_NEEDED:
        needed = ".".join(map(str, VERSION_NEEDED))
        raise ConfigurationError(
            f"this Python is linked to SQLite {sqlite3.sqlite_version}; Holdfast needs {needed} or newer: "
            "use a newer Python build, or PostgreSQL"
        )


def connect(path: Path, busy_seconds: float, *, read_only: bool = False) -> sqlite3.Connection:
    """Open one connection; the caller keeps two threads from using it at once."""
    with explained(path):
        connection = sqlite3.connect(
            str(path),
            timeout=busy_seconds,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_STATEMENTS_CACHED,
            factory=LendableConnection,
        )
        try:
            connection.execute("pragma synchronous = full")
            connection.execute(f"pragma cache_size = -{_PAGE_CACHE_KIB}")
            connection.execute("pragma recursive_triggers = off")
            # SQLite never cuts a log by itself while anyone has the file open.
            connection.execute(f"pragma journal_size_limit = {LOG_BYTES}")
            if read_only:
                connection.execute("pragma query_only = on")
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into Holdfast's, which say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(path, error) from error


def explain(path: Path, error: sqlite3.Error) -> StoreError | ConfigurationError:
    primary = _primary_code(error)
    if primary in _RETRYABLE:
        return StoreUnavailableError(
            f"{path} is locked by another program ({error}): nothing is lost, try again; "
            "if it stays so, find who holds the file open in a transaction"
        )
    if primary == sqlite3.SQLITE_FULL:
        return StoreUnavailableError(f"no space is left for {path} ({error}): free some, then try again")
    if primary == sqlite3.SQLITE_IOERR:
        return StoreUnavailableError(f"the disk failed on {path} ({error}): check it, then try again")
    if primary == sqlite3.SQLITE_CANTOPEN:
        return ConfigurationError(
            f"{path} cannot be opened ({error}): its folder must exist and be writable, "
            "the path itself must not be a folder, and this user must be allowed to read and write it"
        )
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return ConfigurationError(
            f"{path} cannot be written ({error}): give this user write permission on the file and its folder, "
            "and see that their file system is not read-only"
        )
    if primary == sqlite3.SQLITE_NOTADB:
        return ConfigurationError(f"{path} is no SQLite database ({error}): choose another path")
    if primary == sqlite3.SQLITE_CORRUPT:
        return StoreError(
            f"{path} is damaged ({error}): stop all workers, keep a copy, "
            "and restore a backup or use the `.recover` of the sqlite3 shell"
        )
    return StoreError(f"SQLite refused a statement on {path}: {error}")


def is_busy(error: sqlite3.Error) -> bool:
    return _primary_code(error) == sqlite3.SQLITE_BUSY


def _primary_code(error: sqlite3.Error) -> int | None:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & _PRIMARY_CODE_MASK
