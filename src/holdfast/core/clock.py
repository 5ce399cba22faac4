"""Time as a parameter.

Nothing in Holdfast asks the operating system for the time behind a caller's back: it is handed a `Clock`. The
store's clock decides leases and timers; workers' clocks never do.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

MICROSECONDS = 1_000_000


class Clock(Protocol):
    """Wall-clock time in microseconds since 1970 (UTC)."""

    def now_us(self) -> int: ...


def to_datetime(us: int) -> datetime:
    """Exact, unlike `fromtimestamp(us / 1e6)`, which rounds."""
    return datetime.fromtimestamp(us // MICROSECONDS, UTC).replace(microsecond=us % MICROSECONDS)


def to_us(moment: datetime) -> int:
    """Microseconds since 1970 of an aware datetime."""
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * MICROSECONDS + delta.microseconds
