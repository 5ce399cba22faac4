"""Looking at the ledger; nothing here writes an execution."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from struct import pack
from typing import Any

from holdfast.core.clock import to_us
from holdfast.core.identity import IdQuery
from holdfast.core.status import PARKED, Status
from holdfast.store.browsing import Merge, place_of
from holdfast.store.postgres.ledger import Ledger
from holdfast.store.postgres.rows import Row, transition_of, view_of, views_in_order
from holdfast.store.values import (
    EndOf,
    ExecutionFilter,
    ExecutionView,
    Page,
    Shown,
    Signal,
    Transition,
    attributes_json,
)

IDLE = PARKED | {Status.STRANDED, Status.DELEGATED}
FEW = 20_000  # up for picking: all of them are read for one page, in some hundredths of a second


class Reading(Ledger):
    async def _rows(self, doing: str, block: str, *arguments: object) -> list[Row]:
        async with self._connections.any(doing) as connection:
            return await connection.fetch(self._sql[block], *arguments)

    async def get(self, promise: bytes) -> ExecutionView | None:
        rows = await self._rows("read an execution", "view_by_promise", promise)
        return view_of(rows[0]) if rows else None

    async def get_many(self, promises: Sequence[bytes]) -> list[ExecutionView | None]:
        return views_in_order(promises, await self._rows("read executions", "view_by_promises", promises))

    async def endings(self, promises: Sequence[bytes]) -> list[EndOf]:
        rows = await self._rows("look for ended executions", "endings", promises)
        return [EndOf(promise, status and Status(status), *rest) for promise, status, *rest in rows]

    async def shown(self, promises: Sequence[bytes]) -> list[Shown]:
        rows = await self._rows("look for published values", "shown", promises)
        return [Shown(promise, status and Status(status), *rest) for promise, status, *rest in rows]

    async def find(self, query: IdQuery, limit: int = 6) -> list[ExecutionView]:
        path = pack(f">{len(query.path)}I", *query.path)
        rows = await self._rows("find an execution", "view_by_prefix", query.low, query.high, path, query.name, limit)
        return [view_of(row) for row in rows]

    async def count(self, where: ExecutionFilter) -> dict[Status, int]:
        statuses = [status.value for status in where.statuses] or None
        common = (where.kind, where.name, where.queue, where.parent, statuses)
        if where.attributes:
            wanted = attributes_json(where.attributes)
            rows = await self._rows("count executions", "count_attributes", *common, wanted)
        else:
            rows = await self._rows("count executions", "count_by_status", *common)
        return {Status(row["status"]): row["count"] for row in rows}

    async def children(self, promise: bytes, barrier_round: int | None = None) -> list[ExecutionView]:
        return [view_of(row) for row in await self._rows("read children", "view_children", promise, barrier_round)]

    async def inbox(self, promise: bytes) -> list[Signal]:
        return [Signal(*row) for row in await self._rows("read an inbox", "inbox_of", promise)]

    async def journal(self, promise: bytes) -> list[str]:
        return [row[0] for row in await self._rows("read a journal", "journal_of", promise)]

    async def history(self, promise: bytes) -> list[Transition]:
        return [transition_of(row) for row in await self._rows("read a history", "history_of", promise)]

    async def browse(
        self, where: ExecutionFilter, limit: int, cursor: str | None = None, *, look_at: int | None = None
    ) -> Page:
        before = place_of(cursor)
        common = (before, where.kind, where.name, where.queue, where.parent, limit + 1)
        statuses = [status.value for status in where.statuses] or None
        if where.attributes:
            wanted = attributes_json(where.attributes)
            rows = await self._rows("search executions", "browse_attributes", *common, wanted, statuses)
        elif where.parent is not None:
            rows = await self._rows("list children", "browse_children", *common, statuses)
        elif where.statuses and Status.DONE not in where.statuses:
            return await self._browse_statuses(dict.fromkeys(where.statuses), limit, common, look_at)
        elif where.kind is None and where.name is None:
            floor = await self._floor("browse_floor", look_at, before)
            rows = await self._rows("list executions", "browse", before, floor or 0, where.queue, statuses, limit + 1)
            if floor is not None and len(rows) <= limit:
                if where.queue is None and statuses is None:  # all that is new is of flows and batches
                    return await self._browse_named(where, limit, before, None, None)
                return Page([view_of(row) for row in rows], str(floor + 1))
        else:
            return await self._browse_named(where, limit, before, statuses, look_at)
        page = rows[:limit]
        return Page([view_of(row) for row in page], str(page[-1]["id"]) if len(rows) > limit else None)

    async def cursor_before(self, at: datetime) -> str:
        ((place,),) = await self._rows("find a time", "cursor_before", to_us(at))
        return str(place)

    async def _browse_named(
        self, where: ExecutionFilter, limit: int, before: int, statuses: list[str] | None, look_at: int | None
    ) -> Page:
        """Definition by definition, through their index."""
        merge: Merge[Row] = Merge(limit)
        named = await self._rows("list definitions", "newest_named", before, where.kind, where.name)
        for kind, name, newest in named:
            if merge.is_below(newest):
                break
            # Without more to ask, every row that is looked at fits.
            most = None if where.queue is None and statuses is None else look_at
            floor = await self._floor("browse_named_floor", most, before, kind, name)
            asked = (before, floor or 0, where.queue, statuses, limit + 1, kind, name)
            rows = await self._rows("list executions", "browse_named", *asked)
            merge.add([(row["id"], row) for row in rows], floor)
        found, cursor = merge.page()
        return Page([view_of(row) for row in found], cursor)

    async def _floor(self, block: str, look_at: int | None, before: int, *of: str) -> int | None:
        rows = [] if look_at is None else await self._rows("list executions", block, before, look_at, *of)
        return int(rows[0]["id"]) if rows else None

    async def _browse_statuses(
        self, statuses: Iterable[Status], limit: int, common: Sequence[Any], look_at: int | None
    ) -> Page:
        """One scan a status, each in order, so that a rare one is found by its index.

        All of one snapshot: a row that changes its status meanwhile would be found twice, or not at all.
        """
        merge: Merge[Row] = Merge(limit)
        async with (
            self._connections.any("list executions") as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):

            async def add(block: str, *arguments: object, floor: int | None = None, **filled: str) -> None:
                sql = self._sql[block]
                for name, text in filled.items():
                    sql = sql.replace(f"{{{name}}}", text)
                merge.add([(row["id"], row) for row in await connection.fetch(sql, *arguments)], floor)

            for status in statuses:
                if status is Status.EXECUTING:
                    await add("browse_few", *common, few=self._sql["few_executing"])
                elif status is Status.RUNNABLE:
                    await add("browse_idle", *common, status="'runnable'")
                    if await connection.fetch(self._sql["pickable_past"], FEW):
                        floor: int | None = None
                        if look_at is not None:
                            floor = await connection.fetchval(self._sql["browse_floor"], common[0], look_at)
                        await add("browse_pickable", *common, floor or 0, floor=floor)
                    else:
                        await add("browse_few", *common, few=self._sql["few_pickable"])
                else:
                    # A literal and not a parameter: of that the planner does not know which partial index fits.
                    block = "browse_idle" if status in IDLE else "browse_status"
                    await add(block, *common, status=f"'{status.value}'")
        found, cursor = merge.page()
        return Page([view_of(row) for row in found], cursor)
