"""No connection to a file is open while this process forks: each is closed before, and opened again when it is used.

SQLite keeps account of the locks of a process in its memory. A child takes that account for its own, without having a
single one of the locks: whatever it opened on the same file would be written to a log that its parent deletes when it
closes the file as the last, and be lost. So a child does without a file that could not be closed in time.
"""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path
from time import monotonic
from typing import Final, Protocol

from holdfast.core.errors import ConfigurationError

WAIT_SECONDS: Final = 1.0  # for what is under way; a fork inside a transaction of user code would wait for itself


class Holder(Protocol):
    """Who has connections."""

    def pause(self, seconds: float) -> bool:
        """Close them, and open none until `resume`; whether that could be done in this time."""

    def resume(self) -> None: ...

    def leave_to_parent(self) -> None:
        """In the child, instead of `resume`."""


_holders: weakref.WeakKeyDictionary[Holder, str] = weakref.WeakKeyDictionary()  # with the file of each
_paused: list[Holder] = []
_left_open: set[str] = set()  # in a child: the files that its parent was in the middle of using
_guard = threading.Lock()


def close_at_fork(holder: Holder, path: Path) -> None:
    with _guard:
        _holders[holder] = os.path.realpath(path)


def require_closed_at_fork(path: Path) -> None:
    if os.path.realpath(path) in _left_open:
        raise ConfigurationError(
            f"this process was forked while its parent was in a transaction or a long read of {path}, and SQLite would "
            "take what is open there for its own: start it with multiprocessing's 'spawn', or leave the ledger to its "
            "parent"
        )


def _before() -> None:
    _guard.acquire()
    until = monotonic() + WAIT_SECONDS
    _paused.extend(holder for holder in list(_holders) if holder.pause(max(0.0, until - monotonic())))


def _in_parent() -> None:
    for holder in _paused:
        holder.resume()
    _paused.clear()
    _guard.release()


def _in_child() -> None:
    _left_open.update(file for holder, file in _holders.items() if holder not in _paused)
    for holder in _paused:
        holder.leave_to_parent()
    _paused.clear()
    _holders.clear()
    _guard.release()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
