"""Named points before and after every commit, where a test may kill the process.

In production `reach` costs one comparison. `holdfast.testing` installs a hook that raises, or kills the process,
at the point it is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# Every point there is. A test walks this list, so that a new commit without a crash test cannot be forgotten.
CRASH_POINTS: Final = (
    "insert.before",
    "insert.after",
    "pick.before",
    "pick.after",
    "flush.before",
    "flush.after",
    "deliver.before",
    "deliver.after",
    "reap.before",
    "reap.after",
    "timers.before",
    "timers.after",
    "release.before",
    "release.after",
    "lease.before",  # a worker registers, beats, or leases anew
    "lease.after",
    "control.before",  # pause, resume, settings of queues, definitions, schedules
    "control.after",
    "cancel.before",
    "cancel.after",
    "purge.before",
    "purge.after",
)

_hook: Callable[[str], None] | None = None


def reach(point: str) -> None:
    """Called by store and engine on either side of a commit."""
    if _hook is not None:
        _hook(point)


def set_hook(hook: Callable[[str], None] | None) -> None:
    """Install or remove the hook; for `holdfast.testing` alone."""
    global _hook
    _hook = hook
