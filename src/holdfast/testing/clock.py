"""Time that a test moves by hand.

A `VirtualClock` is the core's `Clock`: hand it to whatever takes one. It never moves by itself and never backwards.
"""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.core.clock import MICROSECONDS, to_datetime, to_us
from holdfast.core.errors import InvalidArgumentError

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


class VirtualClock:
    """Stands at `start` until `advance` or `set` moves it."""

    def __init__(self, start: datetime = EPOCH) -> None:
        self._now_us = to_us(start)

    def now_us(self) -> int:
        return self._now_us

    @property
    def now(self) -> datetime:
        return to_datetime(self._now_us)

    def advance(self, seconds: float) -> None:
        """Go forward; a part of a microsecond is rounded."""
        self.set(self._now_us + round(seconds * MICROSECONDS))

    def set(self, now_us: int) -> None:
        """Go to a moment, which is not before now."""
        if now_us < self._now_us:
            raise InvalidArgumentError(
                f"a virtual clock does not go back: it stands at {self.now}, asked for {to_datetime(now_us)}"
            )
        self._now_us = now_us
