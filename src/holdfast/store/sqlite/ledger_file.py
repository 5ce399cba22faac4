"""Which file a path was when it was opened, and its log: SQLite itself would write on into one that is gone."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic
from typing import Final, TypeAlias

from holdfast.core.errors import StoreUnavailableError

Identity: TypeAlias = tuple[int, int]

# A look at the times of a file makes the kernel note the next write's, which a commit then waits for: one that looked
# at the log each time took twice as long. Whether it is there at all can be asked for nothing.
LOG_LOOK_SECONDS: Final = 0.1


class LedgerFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = str(path)
        self._log_name = os.path.realpath(path) + "-wal"  # SQLite follows links before it names it
        self._opened = _identity(self._name)
        self._log: Identity | None = None
        self._look_at = 0.0

    def require_same(self) -> None:
        if _identity(self._name) != self._opened:
            raise StoreUnavailableError(
                f"{self.path} was deleted or replaced while this process had it open, and what is written to the old "
                "file would be lost: restart this process, or put the file back"
            )
        if self._log is not None and not self._has_log(self._log):
            raise StoreUnavailableError(
                f"{self._log_name} was deleted or replaced while this process had it open, and what is written to the "
                "old one would be lost: stop whatever deletes it, and restart this process"
            )

    def _has_log(self, known: Identity) -> bool:
        """Gone is seen at once, replaced within a moment."""
        now = monotonic()
        if now < self._look_at:
            return os.access(self._log_name, os.F_OK)
        self._look_at = now + LOG_LOOK_SECONDS
        return _identity(self._log_name) == known

    def note_log(self) -> None:
        """A connection has it open by now; none deletes it before the last of all has closed."""
        if self._log is None:
            self._log = _identity(self._log_name)

    def forget_log(self) -> None:
        """No connection is open: the next begins another."""
        self._log = None


def _identity(name: str) -> Identity | None:
    try:
        found = os.stat(name)
    except OSError:  # it is gone, or its folder is
        return None
    return found.st_dev, found.st_ino
