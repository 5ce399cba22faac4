"""No connection to a file is open while this process forks: each is closed before, and opened again when it is used.

SQLite keeps account of the locks of a process in its memory. A child takes that account for its own, without having a
single one of the locks: whatever it opened on the same file would be written to a log that its parent deletes when it
closes the file as the last, and be lost.
"""

from __future__ import annotations

import os
import threading
import weakref
from time import monotonic
from typing import Final, Protocol

WAIT_SECONDS: Final = 1.0  # for what is under way; a fork inside a transaction of user code would wait for itself


class Holder(Protocol):
    """Who has connections."""

    def pause(self, seconds: float) -> bool:
        """Close them, and open none until `resume`; whether that could be done in this time."""

    def resume(self) -> None: ...

    def leave_to_parent(self) -> None:
        """In the child, instead of `resume`."""


_holders: weakref.WeakSet[Holder] = weakref.WeakSet()
_paused: list[Holder] = []
_guard = threading.Lock()


def close_at_fork(holder: Holder) -> None:
    with _guard:
        _holders.add(holder)


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
    for holder in _paused:
        holder.leave_to_parent()
    _paused.clear()
    _holders.clear()
    _guard.release()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
