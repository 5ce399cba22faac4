"""A page of executions out of several definitions, each of which an index gives newest first.

Of a definition at most so many rows may be looked at; its *floor* is the first that is out of sight. A page ends at the
highest floor: what is below it comes with the next page. So every page costs the same, and none leaves anything out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from holdfast.core.errors import InvalidArgumentError

Row = TypeVar("Row")

ABOVE_ALL_ROWS: Final = 2**63 - 1
INTERNAL_KINDS: Final = ("message", "chunk")  # of flows and batches: listed only where they are asked for


def place_of(cursor: str | None) -> int:
    """The id below which a page begins."""
    if cursor is None:
        return ABOVE_ALL_ROWS
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 20 and int(cursor) <= ABOVE_ALL_ROWS):
        shown = cursor if len(cursor) <= 40 else f"{cursor[:40]}..."
        raise InvalidArgumentError(f"{shown!r} is no cursor of a list: pass the one that the last page gave, or none")
    return int(cursor)


class Merge(Generic[Row]):
    """Rows by their ids; add definitions by their newest row, the newest first, until one `is_below` the page."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: list[tuple[int, Row]] = []
        self._floor: int | None = None

    def is_below(self, newest: int) -> bool:
        """Whether nothing of a definition with this newest row can be on the page."""
        if self._floor is not None and newest <= self._floor:
            return True
        return len(self._rows) > self._limit and self._rows[self._limit][0] > newest

    def add(self, rows: Sequence[tuple[int, Row]], floor: int | None) -> None:
        """The newest rows of a definition that fit, at most one more than the limit; more of them may be below."""
        if floor is not None and len(rows) <= self._limit:
            self._floor = floor if self._floor is None else max(floor, self._floor)
        found = [*self._rows, *rows]
        self._rows = sorted(
            (pair for pair in found if self._floor is None or pair[0] > self._floor), key=lambda p: -p[0]
        )

    def page(self) -> tuple[list[Row], str | None]:
        """The rows and the cursor of the next page: the id that it stays below."""
        rows = [row for _, row in self._rows[: self._limit]]
        if len(self._rows) > self._limit:
            return rows, str(self._rows[self._limit - 1][0])
        return rows, None if self._floor is None else str(self._floor + 1)
