"""The members of a join set whose results were not taken, so that taking one looks at none of the others.

The session tells of each member that ends; the earliest in the journal is the next to be taken, in every replay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from heapq import heappop, heappush
from typing import Any, Final

from holdfast.models.workflow.promise import Wait

# A wait for a join set with more results left names the set: the journal would grow with the square of its width.
NAMED_MOST: Final = 16


class Members:
    """Of one join set."""

    __slots__ = ("_came", "_order", "id", "left", "remote")

    def __init__(self, join_set_id: str) -> None:
        self.id = join_set_id
        self.left: dict[str, Any] = {}  # promises by their ids, as they were submitted
        self.remote = 0  # how many have an execution of their own that has not ended
        self._came: list[tuple[int, str]] = []  # a heap of those that have ended: where the journal has that
        self._order: deque[str] = deque()  # all, but for some of the first that have ended

    def add(self, promise_id: str, promise: Any, *, is_remote: bool) -> None:
        self.left[promise_id] = promise
        self._order.append(promise_id)
        self.remote += is_remote

    def note_end(self, promise_id: str, sequence: int) -> None:
        heappush(self._came, (sequence, promise_id))

    @property
    def first(self) -> tuple[int, str] | None:
        """The earliest that has ended, and where the journal has its end; None if all that are left are open."""
        came = self._came
        while came and came[0][1] not in self.left:  # taken as a replay takes them
            heappop(came)
        return came[0] if came else None

    def first_open(self, calls: Container[str]) -> str | None:
        """The first that was submitted of those that are open, as these calls are."""
        order = self._order
        while order and order[0] not in calls:
            order.popleft()
        return order[0] if order else None

    def wait(self, *beside: str) -> Wait:
        """For any of them, or of what stands beside them."""
        if len(self.left) <= NAMED_MOST:
            return Wait("Any", (*self.left, *beside))
        return Wait("Any", beside, (), self.id)
