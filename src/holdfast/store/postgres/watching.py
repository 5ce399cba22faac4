"""Watching a ledger: bounded counts, what ended lately, the feed of ends and starts, and who has read how far."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Final

from msgspec.structs import replace

from holdfast.core.clock import to_datetime, to_us
from holdfast.core.status import Status
from holdfast.store.postgres.reading import Reading
from holdfast.store.postgres.rows import Row, transition_of
from holdfast.store.sampling import Hits, Sample, rows_to_look_at
from holdfast.store.values import Page, Transition
from holdfast.store.watching import (
    COUNT_BOUND,
    FEED_STATUSES,
    Ended,
    Feed,
    Pace,
    PaceBucket,
    Position,
    Seen,
    Started,
    Tally,
    failures_before,
)

_ENDS: Final = frozenset({Status.DONE, Status.FAILED, Status.CANCELLED})
_NEWEST: Final = frozenset({Status.DONE, Status.CANCELLED})


class Watched(Reading):
    async def tally(self, bound: int = COUNT_BOUND) -> list[Tally]:
        counts = {row["status"]: row["count"] for row in await self._rows("count", "tally", bound + 1)}
        ended = {row["status"]: row["count"] for row in await self._rows("count", "tally_ended", bound + 1)}
        is_capped = sum(ended.values()) > bound
        for status in _NEWEST:
            counts[status.value] = ended.get(status.value, 0)
        return [
            Tally(status, min(count, bound), count > bound or (is_capped and status in _NEWEST))
            for status in Status
            for count in (counts.get(status.value, 0),)
        ]

    async def sample(self) -> Sample:
        first, last = (await self._rows("look at some", "sample_range"))[0]
        wanted = rows_to_look_at(first, last)
        rows = await self._rows("look at some", "sample", wanted)
        return Sample(last - first + 1, len(wanted), [Hits(Status(status), *rest) for status, *rest in rows])

    async def pace(self, bucket_seconds: float, buckets: int, bound: int = 2 * COUNT_BOUND) -> Pace:
        until = to_datetime(await self.now_us())
        rows = await self._rows("count ends", "pace", bucket_seconds, bucket_seconds * buckets, bound)
        found: dict[int, dict[str, int]] = {}
        for row in rows:
            found.setdefault(row["bucket"], {})[row["status"]] = row["count"]
        since = until - timedelta(seconds=bucket_seconds * buckets)
        if sum(row["count"] for row in rows) >= bound:
            since = min(row["first"] for row in rows)
        return Pace(
            bucket_seconds=bucket_seconds,
            since=since,
            until=until,
            buckets=[
                PaceBucket(datetime.fromtimestamp(bucket * bucket_seconds, UTC), **counts)
                for bucket, counts in sorted(found.items())
            ],
        )

    async def ends(
        self, position: str | None, limit: int, statuses: Sequence[Status] = FEED_STATUSES, *, starts: bool = False
    ) -> Feed:
        place = None if position is None else Position.parse(position)
        # A statement of its own, before those that read: what they do not see has a time after this one.
        horizon: datetime = (await self._rows("read the feed", "watch_horizon"))[0]["horizon"]
        is_new = place is None
        if place is None:
            now = to_us(horizon)
            place = Position(now, 0, now, 0)
        started, more = list[Started](), False
        if starts:
            place, started, more = await self._starts(place, limit)
        if is_new or (starts and place.started_row is None):
            return Feed([], str(place), is_settled=not starts or place.started_row is not None)
        wanted = _ENDS.intersection(statuses)
        ended = (to_datetime(place.ended_us), place.ended_row, horizon, limit + 1)
        rows: list[Row] = []
        if wanted == {Status.FAILED}:
            rows = await self._rows("read the feed", "feed_failed", *ended)
        elif wanted:
            rows = await self._rows("read the feed", "feed_ended", *ended, [status.value for status in wanted])
        stranded: list[Row] = []
        if Status.STRANDED in statuses:
            since = (to_datetime(place.stranded_us), place.stranded_row)
            stranded = await self._rows("read the feed", "feed_stranded", *since, horizon, limit + 1)
        merged = list(heapq.merge(rows, stranded, key=lambda row: (row["at"], row["id"])))
        has_started = place.has_started
        told = merged if not starts else list(takewhile(lambda row: has_started(row["id"]), merged))
        items, place = await self._items(place, told[:limit])
        return Feed(items, str(place), more or len(told) > limit, started)

    async def _starts(self, place: Position, limit: int) -> tuple[Position, list[Started], bool]:
        """What was started up to the row that was seen, once nothing below it can come any more."""
        seen, told = place.seen, place.started_row
        if seen is None or (told is not None and told >= seen.row):
            row = (await self._rows("read the feed", "feed_seen"))[0]
            if told is not None and row["row"] <= told:
                # Lower after a delete, and then nothing is lost; or after a failover that forgot commits.
                return (place if row["row"] == told else place.after_start(row["row"])), [], False
            seen = Seen(row["row"], to_us(row["at"]), row["xid"])
            place = replace(place, seen=seen)
        if (await self._rows("read the feed", "feed_undecided", to_datetime(seen.at_us), seen.xid))[0][0]:
            return place, [], False
        if told is None:
            return place.after_start(seen.row), [], False
        rows = await self._rows("read the feed", "feed_started", told, seen.row, limit + 1)
        views = await self.get_many([row["promise"] for row in rows[:limit]])
        started = [
            Started(view, row["at"], str(place.after_start(row["id"])))
            for row, view in zip(rows[:limit], views, strict=True)
            if view is not None
        ]
        if len(rows) <= limit:
            return place.after_start(seen.row), started, False
        return (place.after_start(rows[limit - 1]["id"]) if limit else place), started, True

    async def _items(self, place: Position, rows: Sequence[Row]) -> tuple[list[Ended], Position]:
        items = []
        views = await self.get_many([row["promise"] for row in rows])
        for row, view in zip(rows, views, strict=True):
            status = Status(row["status"])
            place = place.after_end(status, to_us(row["at"]), row["id"])
            if view is not None:
                items.append(Ended(view, status, row["at"], str(place)))
        return items, place

    async def failures(self, limit: int, cursor: str | None = None) -> Page:
        at, row = failures_before(cursor)
        before = None if cursor is None else to_datetime(at)
        rows = await self._rows("read failures", "failures", before, row, limit + 1)
        views = await self.get_many([found["promise"] for found in rows[:limit]])
        last = rows[limit - 1] if limit and len(rows) > limit else None
        more = None if last is None else f"{to_us(last['ended_at'])}-{last['id']}"
        return Page([view for view in views if view is not None], more)

    async def journal_since(self, promise: bytes, sequence: int) -> list[str]:
        return [row[0] for row in await self._rows("read a journal", "journal_since", promise, sequence)]

    async def history_since(self, promise: bytes, revision: int) -> list[Transition]:
        return [transition_of(row) for row in await self._rows("read a history", "history_since", promise, revision)]

    async def take_place(self, name: str, owner: str, lease_seconds: float, position: str) -> str | None:
        async with self._connections.any("take a place in the feed") as connection:
            taken: str | None = await connection.fetchval(self._sql["place_take"], name, position, owner, lease_seconds)
            return taken

    async def move_place(self, name: str, owner: str, lease_seconds: float, position: str) -> bool:
        async with self._connections.any("move on in the feed") as connection:
            moved = await connection.fetchval(self._sql["place_move"], name, position, owner, lease_seconds)
            return moved is not None

    async def leave_place(self, name: str, owner: str) -> None:
        async with self._connections.any("leave a place in the feed") as connection:
            await connection.execute(self._sql["place_leave"], name, owner)
