"""About how many there are, where counting them would cost what the ledger holds: rows are looked at here and there.

One row number is looked up in each of `SAMPLE_SIZE` equal spans between the first and the last. What share of them has
a status is about its share of all numbers, whatever was deleted in between. Rows of a status lie together more often
than not, so it is closer than as many at random would be, and a ledger at rest gives the same answer every time.
"""

from __future__ import annotations

import itertools
from typing import Final

from msgspec import Struct

from holdfast.core.status import Status

SAMPLE_SIZE: Final = 4_000
HITS_LEAST: Final = 40  # fewer say little: at random, these are right to a sixth
_GOLDEN: Final = 0.6180339887498949  # its multiples are spread evenly: no pattern of starts keeps step with them


class Hits(Struct, frozen=True):
    """How many of the rows looked at have a status, in a queue."""

    status: Status
    queue: str
    count: int


class Sample(Struct, frozen=True):
    """What was found of `looked_at` rows among `span`."""

    span: int
    looked_at: int
    hits: list[Hits]

    def about(self, at_least: int, status: Status, queue: str | None = None) -> int | None:
        """About how many rows, to two digits, and not less than are known; None where too few were met to say."""
        hits = sum(one.count for one in self.hits if one.status is status and queue in (None, one.queue))
        if self.looked_at == self.span:
            return max(hits, at_least)
        return None if hits < HITS_LEAST else max(_two_digits(hits * self.span // self.looked_at), at_least)


def rows_to_look_at(first: int, last: int) -> list[int]:
    """All of them if they are few."""
    span = last - first + 1
    if span <= SAMPLE_SIZE:
        return list(range(first, last + 1))
    bounds = [first + number * span // SAMPLE_SIZE for number in range(SAMPLE_SIZE + 1)]
    return [
        low + int(number * _GOLDEN % 1 * (high - low)) for number, (low, high) in enumerate(itertools.pairwise(bounds))
    ]


def _two_digits(value: int) -> int:
    return round(value, 2 - len(str(value)))
