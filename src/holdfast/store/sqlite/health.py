"""How a file is: SQLite's version and settings, the disk under it, its indexes."""

from __future__ import annotations

import re
import shutil
import sqlite3
from pathlib import Path
from typing import Final

from holdfast.store.health import MIB, Check, Level, SchemaState, missing_check, size_text, times_check
from holdfast.store.sql import load_text, migrations
from holdfast.store.sqlite.connection import connect, explained
from holdfast.store.sqlite.migrate import PACKAGE, applied_version
from holdfast.store.sqlite.statements import SQL

# Locks of files are not to be trusted there.
_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs"})
_LOW_BYTES: Final = 256 * MIB
_EMPTY_BYTES: Final = 64 * MIB
_WAL_BYTES: Final = 512 * MIB
_SYNCHRONOUS: Final = ("off", "normal", "full", "extra")


def schema_state(path: Path, busy_seconds: float) -> SchemaState:
    """Looks at the file as it is; creates and changes nothing."""
    known = migrations(PACKAGE)[-1].version
    if not path.exists() or path.stat().st_size == 0:
        return SchemaState(None, known)
    connection = connect(path, busy_seconds, read_only=True)
    try:
        with explained(path):
            return SchemaState(applied_version(connection) or None, known)
    finally:
        connection.close()


def examine(db: sqlite3.Connection, path: Path, now_us: int) -> list[Check]:
    checks = [Check(name="SQLite", level=Level.OK, found=sqlite3.sqlite_version)]
    mode: str = db.execute("pragma journal_mode").fetchone()[0]
    advice = None if mode == "wal" else "readers and the writer stand in each other's way: reopen it with `migrate`"
    level = Level.OK if mode == "wal" else Level.BAD
    checks.append(Check(name="journal_mode", level=level, found=mode, advice=advice))
    number: int = db.execute("pragma synchronous").fetchone()[0]
    level = Level.OK if number >= 2 else Level.BAD
    advice = None if number >= 2 else "a commit that was acknowledged can be lost when the power fails"
    checks.append(Check(name="synchronous", level=level, found=_SYNCHRONOUS[number], advice=advice))
    newest_us: int = db.execute(SQL["health_newest"]).fetchone()[0]
    checks += [_file_system(path), *_sizes(path), times_check((newest_us - now_us) / 1_000_000)]
    there = {name for (name,) in db.execute(SQL["health_indexes"])}
    wanted = re.findall(r"create (?:unique )?index (\w+)", load_text(PACKAGE, "schema.sql"))
    return [*checks, missing_check([name for name in wanted if name not in there])]


def _file_system(path: Path) -> Check:
    kind = _kind_of(path.resolve())
    if kind in _REMOTE:
        advice = "locks over a network lose writes: keep the file on a disk of this machine, or use PostgreSQL"
        return Check(name="file system", level=Level.BAD, found=kind, advice=advice)
    return Check(name="file system", level=Level.OK, found=kind)


def _kind_of(path: Path) -> str:
    """The kind of the file system that is mounted nearest above the file."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    above = [(len(point), kind) for _, point, kind, *_ in mounts if path.is_relative_to(point.replace("\\040", " "))]
    return max(above)[1] if above else "unknown"


def _sizes(path: Path) -> list[Check]:
    size = path.stat().st_size
    wal = path.with_name(f"{path.name}-wal")
    wal_size = wal.stat().st_size if wal.exists() else 0
    level, advice = Level.OK, None
    if wal_size > _WAL_BYTES:
        level, advice = Level.WARN, "the log is long: some reader holds a snapshot open and keeps it from being cut"
    found = f"{size_text(size)}, and {size_text(wal_size)} of log"
    checks = [Check(name="size", level=level, found=found, advice=advice)]
    free = shutil.disk_usage(path.parent).free
    level, advice = Level.OK, None
    if free < _EMPTY_BYTES:
        level, advice = Level.BAD, "soon nothing can be committed: free some space"
    elif free < max(_LOW_BYTES, size // 4):
        level, advice = Level.WARN, "a migration or a long log may not fit: free some space"
    return [*checks, Check(name="free space", level=level, found=size_text(free), advice=advice)]
