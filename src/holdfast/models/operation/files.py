"""The files of one operation: read and replaced as a whole, under the lock, and moved to backup at the end.

`OperationFiles.transact` is the only writer. The caller holds the lock (see `transactor`). A crash at any
point leaves the old file or the new one (ruling C1); the JSON file moves to backup last, so that an
operation is over exactly when its JSON is there. `retention` lives in `backups`.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from .data import LedgerData, MalformedError, decode, encode
from .errors import CorruptLedgerError, LedgerStorageError, UnsafePathError
from .filesystem import FileSystem
from .ids import check_id
from .logs import Event, LogEntry, LogLevel

R = TypeVar("R")
JSON_SUFFIX = ".operation.json"
BACKUP_FOLDER = "backup"
logger = logging.getLogger("holdfast.operation")


@dataclass(slots=True)
class Transaction:
    """One change under the lock: set `data`, add log entries, ask for the move to backup."""

    data: LedgerData | None
    final: LedgerData | None
    now_us: int
    participant_id: str
    entries: list[LogEntry] = field(default_factory=list)
    ends: bool = False

    def event(self, event: Event, text: str = "", level: LogLevel = LogLevel.INFO) -> None:
        self.log(f"{event.value} {text}".rstrip(), level)

    def log(self, text: str, level: LogLevel = LogLevel.INFO, depth: int = 0) -> None:
        self.entries.append(LogEntry(self.now_us, self.participant_id, level, text, depth))


class OperationFiles:
    """Paths and whole-file changes of one operation in one folder."""

    def __init__(self, file_system: FileSystem, base_path: Path, operation_id: str) -> None:
        self.operation_id = check_id("operation id", operation_id)
        self.base_path = base_path
        self._fs = file_system
        stem = f"{operation_id}.operation"
        self.json_path = base_path / f"{stem}.json"
        self.temp_path = base_path / f"{stem}.json.tmp"
        self.lock_path = base_path / f"{stem}.lock"
        self.log_path = base_path / f"{stem}.log"
        self.debug_log_path = base_path / f"{stem}.debug.log"
        self.backup_path = base_path / BACKUP_FOLDER / operation_id

    def peek(self) -> LedgerData | None:
        """The data without the lock: renames are atomic, so it is whole, but it may be old at once."""
        return self._guarded(lambda: self._decode(self.json_path, self._fs.read(self.json_path)))

    def peek_backup(self) -> LedgerData | None:
        path = self.backup_path / "operation.json"
        return self._guarded(lambda: self._decode(path, self._fs.read(path)) if self._has_backup() else None)

    def _has_backup(self) -> bool:
        """Whether it has a folder there: a link planted in its place, or above it, is none (ruling C3)."""
        return all(self._fs.is_folder(path) for path in (self.backup_path.parent, self.backup_path))

    def _final(self) -> LedgerData | None:
        try:
            return self.peek_backup()
        except CorruptLedgerError as error:  # a spoilt history must not keep the living from going on
            logger.warning("%s", error)
            return None

    def transact(self, change: Callable[[Transaction], R], now_us: int, participant_id: str) -> R:
        """Apply `change` to the current data and write what it made of it. The lock is held by the caller."""
        return self._guarded(lambda: self._transact(change, now_us, participant_id))

    def _transact(self, change: Callable[[Transaction], R], now_us: int, participant_id: str) -> R:
        try:
            content = self._fs.read(self.json_path)
            try:
                data = self._decode(self.json_path, content)
            except CorruptLedgerError as error:
                raise self._set_aside(error) from None
            final = None if data is not None else self._final()
            transaction = Transaction(data, final, now_us, participant_id)
            result = change(transaction)
            self._write(transaction, data)
            if transaction.ends:
                self._move_to_backup()
            return result
        finally:
            if not self._fs.exists(self.json_path):
                # The operation is not here (any more): leave no lock or leftover behind. The lock is our own.
                self._fs.unlink(self.temp_path)
                self._fs.unlink(self.lock_path)

    def _write(self, transaction: Transaction, before: LedgerData | None) -> None:
        """The log line is on the disk before the change that it tells of shows: a kill in between repeats a
        line, and never loses one. A new operation comes first, so that no log is left of one that never was."""
        changed = transaction.data is not None and transaction.data is not before
        if changed and transaction.data is not None:
            self._fs.write_new(self.temp_path, encode(transaction.data))
        if before is not None or not changed:
            self._append_logs(transaction.entries)
        if changed:
            self._fs.replace(self.temp_path, self.json_path)
            self._sync(self.base_path)
        if before is None and changed:
            try:
                self._append_logs(transaction.entries)
            except OSError as error:  # it is created; failing now would deny it
                logger.warning("operation %s: log line lost: %s", self.operation_id, error)

    def _append_logs(self, entries: list[LogEntry]) -> None:
        """To the logs beside the JSON or, once it has moved, to those in the backup."""
        if not entries:
            return
        backed_up = not self._fs.exists(self.json_path)
        has_backup = self._has_backup()
        if backed_up and not has_backup:
            logger.warning("operation %s is gone; not logged: %s", self.operation_id, entries[0].text)
            return
        # A crash in the middle of the move can leave a log in the backup while the JSON is still here.
        targets = [
            moved if backed_up or (has_backup and not self._fs.exists(here) and self._fs.exists(moved)) else here
            for here, moved in (
                (self.log_path, self.backup_path / "operation.log"),
                (self.debug_log_path, self.backup_path / "operation.debug.log"),
            )
        ]
        told = b"".join(entry.render() for entry in entries if entry.level >= LogLevel.INFO)
        if told:
            self._fs.append(targets[0], told)
        self._fs.append(targets[1], b"".join(entry.render() for entry in entries))

    def _move_to_backup(self) -> None:
        """Phase 4, step 1. The JSON goes last; a repeat after a crash finds the rest already there."""
        self._fs.make_folder(self.backup_path.parent)
        self._fs.make_folder(self.backup_path)
        for source, name in (
            (self.log_path, "operation.log"),
            (self.debug_log_path, "operation.debug.log"),
            (self.json_path, "operation.json"),
        ):
            if self._fs.exists(source):
                self._fs.replace(source, self._free_name(self.backup_path / name))
        self._sync(self.backup_path)
        self._sync(self.base_path)

    def _sync(self, folder: Path) -> None:
        """After a rename every participant sees the change: a folder that cannot be flushed must not deny it."""
        try:
            self._fs.sync_folder(folder)
        except OSError as error:
            logger.warning("operation %s: %s could not be flushed: %s", self.operation_id, folder, error)

    def _free_name(self, path: Path) -> Path:
        """`path`, or the first `path.N` that is free: what is in a backup is never overwritten."""
        candidate, number = path, 1
        while self._fs.exists(candidate):
            candidate, number = path.with_name(f"{path.name}.{number}"), number + 1
        return candidate

    def _set_aside(self, error: CorruptLedgerError) -> CorruptLedgerError:
        aside = self._free_name(self.json_path.with_name(f"{self.json_path.name}.corrupt"))
        self._fs.replace(self.json_path, aside)
        return CorruptLedgerError(f"{error}; the file is kept as {aside.name}, repair it and rename it back")

    def _decode(self, path: Path, content: bytes | None) -> LedgerData | None:
        if content is None:
            return None
        try:
            return decode(content, self.operation_id)
        except MalformedError as error:
            raise CorruptLedgerError(
                f"the ledger file {path.name} of operation {self.operation_id} is corrupt: {error}"
            ) from None

    def _guarded(self, action: Callable[[], R]) -> R:
        try:
            return action()
        except OSError as error:
            raise storage_error(self.operation_id, error) from error


def storage_error(operation_id: str, error: OSError) -> LedgerStorageError:
    """An `OSError` in the words of the ledger, with what to do about it."""
    what = f"operation {operation_id}: {error.strerror or error} ({error.filename or 'ledger folder'})"
    if error.errno == errno.ELOOP:
        return UnsafePathError(f"{what}; links are not followed, remove it from the ledger folder")
    hint = {
        errno.ENOSPC: "free some space; the last state is intact and the heartbeat goes on trying",
        errno.EROFS: "the folder is read-only; mount it writable",
        errno.EACCES: "give this user the right to write in the ledger folder",
        errno.EPERM: "give this user the right to write in the ledger folder",
        errno.ENOENT: "the ledger folder is gone; create it again or use another",
    }.get(error.errno or 0, "check the disk that holds the ledger folder")
    return LedgerStorageError(f"{what}; {hint}")
