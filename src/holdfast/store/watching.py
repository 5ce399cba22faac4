"""What a store promises to those who watch a ledger: dashboards, metrics, live streams and hooks.

Every read is bounded or goes along an index: none costs what the ledger holds. The feed and the places that readers
keep in it make a stream of ends that survives crashes: see `ends` and `take_place`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

from msgspec import Struct

from holdfast.core.errors import InvalidArgumentError
from holdfast.core.status import Status
from holdfast.store.values import ExecutionView, Page, Transition

COUNT_BOUND: Final = 10_000
FEED_STATUSES: Final = (Status.DONE, Status.FAILED, Status.CANCELLED, Status.STRANDED)


class Tally(Struct, frozen=True):
    """How many executions have a status; `capped`: there are more than were counted."""

    status: Status
    count: int
    capped: bool = False


class PaceBucket(Struct, frozen=True):
    """How many executions ended in a span of time that begins `at`."""

    at: datetime
    done: int = 0
    failed: int = 0
    cancelled: int = 0


class Pace(Struct, frozen=True, kw_only=True):
    """What ended lately. Counted from the newest back to `since`, at most a bound of them."""

    bucket_seconds: float
    since: datetime
    until: datetime
    buckets: list[PaceBucket]  # those in which something ended, oldest first


class Ended(Struct, frozen=True):
    """An execution that ended, or was stranded, at a time of the store's."""

    view: ExecutionView
    status: Status
    at: datetime
    position: str  # of the feed just after it


class Feed(Struct, frozen=True):
    """A page of the feed of ends; `position` is where the next one begins."""

    items: list[Ended]
    position: str
    more: bool = False


class Position(Struct, frozen=True):
    """How far a reader of the feed has come: a time and a row of the ends, and of the strandings."""

    ended_us: int
    ended_row: int
    stranded_us: int
    stranded_row: int

    @classmethod
    def parse(cls, text: str) -> Position:
        parts = text.split("-")
        if len(parts) != 4 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
            raise InvalidArgumentError(f"{text[:80]!r} is no place in the feed: pass on the one that an event gave")
        return cls(*map(int, parts))

    def __str__(self) -> str:
        return f"{self.ended_us}-{self.ended_row}-{self.stranded_us}-{self.stranded_row}"


def failures_before(cursor: str | None) -> tuple[int, int]:
    """The time and the row that a page of failures begins below."""
    if cursor is None:
        return 2**62, 2**62
    at, _, row = cursor.partition("-")
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in (at, row)):
        raise InvalidArgumentError(f"{cursor[:80]!r} is no cursor of a page: pass the one the last page gave, or none")
    return int(at), int(row)


class Watching(Protocol):
    async def tally(self, bound: int = COUNT_BOUND) -> list[Tally]:
        """Executions by status, each counted up to `bound`; of `done` and `cancelled` only the newest are counted."""

    async def pace(self, bucket_seconds: float, buckets: int, bound: int = 2 * COUNT_BOUND) -> Pace:
        """What ended in the last `buckets` spans of `bucket_seconds`; the newest `bound` ends at most."""

    async def ends(self, position: str | None, limit: int, statuses: Sequence[Status] = FEED_STATUSES) -> Feed:
        """What ended or was stranded after a position, in the order of time; without one, nothing, and where now is.

        A reader that goes on from the position of what it has read misses no end: one that is still being committed
        holds back those after it. A stranded execution that was resumed before it was read is not there any more.
        """

    async def failures(self, limit: int, cursor: str | None = None) -> Page:
        """What failed, the latest end first; along an index of its own, however much has ended well since."""

    async def journal_since(self, promise: bytes, sequence: int) -> list[str]:
        """The segments of its journal that hold events from `sequence` on; the first may hold earlier ones too."""

    async def history_since(self, promise: bytes, revision: int) -> list[Transition]:
        """The lines of its history after `revision`."""

    async def take_place(self, name: str, owner: str, lease_seconds: float, position: str) -> str | None:
        """Become the one who reads the feed as `name`, for a time: where to go on; None while another one does.

        A name that is new begins at `position`.
        """

    async def move_place(self, name: str, owner: str, lease_seconds: float, position: str) -> bool:
        """Record how far it was read, and keep reading. False: it is another's by now."""

    async def leave_place(self, name: str, owner: str) -> None:
        """Let another one go on at once."""
