"""What a store promises to those who watch a ledger: dashboards, metrics, live streams and hooks.

Every read is bounded or goes along an index: none costs what the ledger holds. The feed and the places that readers
keep in it make a stream of ends, and of starts, that survives crashes: see `ends` and `take_place`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.clock import to_us
from holdfast.core.errors import InvalidArgumentError
from holdfast.core.status import Status
from holdfast.store.sampling import Sample
from holdfast.store.values import ExecutionView, Page, Transition

COUNT_BOUND: Final = 10_000
_LAST_US: Final = 253_402_300_799_999_999  # of the last moment that a datetime has
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


class Started(Struct, frozen=True):
    """An execution that was started at a time of the store's; it may have ended since."""

    view: ExecutionView
    at: datetime
    position: str  # of the feed just after it


class Feed(Struct, frozen=True):
    """A page of the feed: what was started, then what ended; `position` is where the next one begins."""

    items: list[Ended]
    position: str
    more: bool = False
    started: list[Started] = []
    is_settled: bool = True  # False: it is not known yet where starts begin; ask again with the position


class Seen(Struct, frozen=True):
    """The highest row that a reader of starts saw, and when: just after it, by the clock and by the transactions.

    Rows up to `row` may be told once every transaction is over that was open then: what they started is there by then.
    """

    row: int
    at_us: int = 0
    xid: int = 0


class Position(Struct, frozen=True):
    """How far a reader of the feed has come: a time and a row of the ends, and of the strandings; a row of the starts.

    Rows of starts come into sight in another order than that of their numbers, hence `seen`. A place of a reader that
    never asked for starts has neither; one that has just asked for them has no `started_row` until `seen` is settled.
    """

    ended_us: int
    ended_row: int
    stranded_us: int
    stranded_row: int
    seen: Seen | None = None
    started_row: int | None = None

    @classmethod
    def parse(cls, text: str) -> Position:
        parts = text.split("-")
        is_place = len(parts) in (4, 7, 8) and all(_is_number(part) for part in parts)
        if not is_place or max(map(int, (parts[0], parts[2], *parts[5:6]))) > _LAST_US:
            raise InvalidArgumentError(f"{text[:80]!r} is no place in the feed: pass on the one that an event gave")
        ended_us, ended_row, stranded_us, stranded_row, *starts = map(int, parts)
        seen = Seen(*starts[:3]) if starts else None
        started_row = starts[3] if len(starts) == 4 else None
        return cls(ended_us, ended_row, stranded_us, stranded_row, seen, started_row)

    def __str__(self) -> str:
        numbers = [self.ended_us, self.ended_row, self.stranded_us, self.stranded_row]
        if self.seen is not None:
            numbers += [self.seen.row, self.seen.at_us, self.seen.xid]
            numbers += [] if self.started_row is None else [self.started_row]
        return "-".join(map(str, numbers))

    def after_end(self, status: Status, at_us: int, row: int) -> Position:
        if status is Status.STRANDED:
            return replace(self, stranded_us=at_us, stranded_row=row)
        return replace(self, ended_us=at_us, ended_row=row)

    def after_start(self, row: int) -> Position:
        return replace(self, started_row=row)

    def has_started(self, row: int) -> bool:
        """Whether a reader of starts has come past this one; who reads none is past all."""
        return self.started_row is None or row <= self.started_row


def _is_number(part: str) -> bool:
    return part.isascii() and part.isdigit() and len(part) < 19


def failures_before(cursor: str | None) -> tuple[int, int]:
    """The time and the row that a page of failures begins below."""
    if cursor is None:
        return 2**62, 2**62
    at, _, row = cursor.partition("-")
    if not (_is_number(at) and _is_number(row) and int(at) <= _LAST_US):
        raise InvalidArgumentError(f"{cursor[:80]!r} is no cursor of a page: pass the one the last page gave, or none")
    return int(at), int(row)


def failures_cursor(at: datetime) -> str:
    """On from the latest that failed before `at`."""
    return f"{min(max(0, to_us(at)), _LAST_US)}-0"


class Watching(Protocol):
    async def tally(self, bound: int = COUNT_BOUND) -> list[Tally]:
        """Executions by status, each counted up to `bound`; of `done` and `cancelled` only the newest are counted."""

    async def sample(self) -> Sample:
        """Some thousand rows, evenly spread: for an estimate where a count is capped."""

    async def pace(self, bucket_seconds: float, buckets: int, bound: int = 2 * COUNT_BOUND) -> Pace:
        """What ended in the last `buckets` spans of `bucket_seconds`; the newest `bound` ends at most."""

    async def ends(
        self, position: str | None, limit: int, statuses: Sequence[Status] = FEED_STATUSES, *, starts: bool = False
    ) -> Feed:
        """What ended or was stranded after a position, in the order of time; without one, nothing, and where now is.

        A reader that goes on from the position of what it has read misses no end: one that is still being committed
        holds back those after it. A stranded execution that was resumed before it was read is not there any more.

        With `starts`, also what was started, but for messages of flows and chunks of batches: each once and before its
        end, at most `limit` of them too. A transaction that starts something holds back what starts later until it is
        over. A position without a place among the starts gets one; until it has (`is_settled`), nothing is read.
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
