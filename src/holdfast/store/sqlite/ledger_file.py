"""Which file a path was when it was opened, and its log: SQLite itself would write on into one that is gone."""

from __future__ import annotations

import os
from os import F_OK, access, stat
from pathlib import Path
from time import monotonic
from typing import Final, TypeAlias

from holdfast.core.errors import StoreUnavailableError

Identity: TypeAlias = tuple[int, int]

# A look at the times of a file makes the kernel note the next write's, which a commit then waits for: one that looked
# at the log each time took twice as long. Whether it is there at all can be asked for nothing.
LOG_LOOK_SECONDS: Final = 0.1

# How long a look is as good as another: what a commit of a step may take itself, during which nobody looks either.
FRESH_SECONDS: Final = 0.001


class LedgerFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = os.fsencode(path)
        self._log_name = os.fsencode(os.path.realpath(path) + "-wal")  # SQLite follows links before it names it
        self._opened = _identity(self._name)
        self.log: Identity | None = None  # None: not known yet
        self._look_at = 0.0
        self._fresh_until = 0.0

    def require_same_of_late(self) -> None:
        """`require_same`, if that was not asked for just now."""
        if monotonic() >= self._fresh_until:
            self.require_same()

    def require_same(self) -> None:
        """That the log is gone is seen at once; that it was replaced, within a moment."""
        if _identity(self._name) != self._opened:
            raise StoreUnavailableError(
                f"{self.path} was deleted or replaced while this process had it open, and what is written to the old "
                "file would be lost: restart this process, or put the file back"
            )
        if self.log is None:
            return
        now = monotonic()
        if now < self._look_at:
            has_log = access(self._log_name, F_OK)
        else:
            self._look_at = now + LOG_LOOK_SECONDS
            has_log = _identity(self._log_name) == self.log
        self._fresh_until = now + FRESH_SECONDS
        if not has_log:
            raise StoreUnavailableError(
                f"{os.fsdecode(self._log_name)} was deleted or replaced while this process had it open, and what is "
                "written to the old one would be lost: stop whatever deletes it, and restart this process"
            )

    def note_log(self) -> None:
        """A connection has it open by now; none deletes it before the last of all has closed."""
        self.log = _identity(self._log_name)

    def forget_log(self) -> None:
        """No connection is open: the next begins another."""
        self.log = None


def _identity(name: bytes) -> Identity | None:
    try:
        found = stat(name)
    except OSError:  # it is gone, or its folder is
        return None
    return found.st_dev, found.st_ino
