"""Where a worker is in a long queue that it empties, so that no pick reads again what was taken before it.

An index keeps the entries of rows that were taken until the next vacuum, a million in a busy minute, all of them in
front of those that are left. A pick from where the worker is passes them by. It also passes by a row that only now
comes to be in front of that place, as one whose start took long to commit or whose worker died: for up to a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from time import monotonic
from typing import Final, TypeAlias

from holdfast.store.postgres.rows import Row, place_of
from holdfast.store.values import QueueRoom

Place: TypeAlias = tuple[int | None, datetime | None, int | None]  # priority, time, id

LONG: Final = 4_000  # rows, each pick as many as it asked for: then a pick begins at the first row of the one before,
SECONDS: Final = 1.0  # but for one so often
THE_FIRST: Final[Place] = (None, None, None)


class Front:
    """Of one worker and one queue at a time; any other pick begins at the very first row."""

    def __init__(self) -> None:
        self._whose: tuple[str, str] | None = None
        self._place = THE_FIRST
        self._taken = 0  # by picks that had all they asked for, one after another
        self._looked_at = 0.0  # from the very first, the last time

    def place(self, worker: str, queues: Sequence[QueueRoom]) -> Place:
        """Where this pick begins."""
        if self._whose == _whose(worker, queues) and self._taken >= LONG and monotonic() - self._looked_at < SECONDS:
            return self._place
        self._looked_at = monotonic()
        return THE_FIRST

    def picked(self, worker: str, queues: Sequence[QueueRoom], limit: int, rows: Sequence[Row]) -> None:
        whose = _whose(worker, queues)
        if whose is None or not rows or len(rows) < min(limit, queues[0].room):
            self._whose, self._taken = None, 0
            return
        if self._whose != whose:
            self._whose, self._taken = whose, 0
        self._taken += len(rows)
        self._place = min(map(place_of, rows))


def _whose(worker: str, queues: Sequence[QueueRoom]) -> tuple[str, str] | None:
    return (worker, queues[0].name) if len(queues) == 1 else None
