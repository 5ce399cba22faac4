"""A shop whose shelf is empty at first: a task that fails once, and a list of what ran."""

from __future__ import annotations

from holdfast import RetryPolicy
from tests.models.workflow.kit import Rig

ONCE = RetryPolicy(max_attempts=1)


class Shelf:
    """`reserve` fails while it `is_empty`."""

    def __init__(self, rig: Rig) -> None:
        self.is_empty = True
        self.ran: list[str] = []

        @rig.app.task(retry=ONCE)
        async def reserve() -> str:
            self.ran.append("reserve")
            if self.is_empty:
                raise ValueError("sold out")
            return "r1"

        self.reserve = reserve
