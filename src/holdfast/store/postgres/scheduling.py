"""Schedules: rows that say what is started when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.crashpoints import reach
from holdfast.store.postgres.work import Work
from holdfast.store.schedules import Schedule, Tick
from holdfast.store.values import NewExecution, Topic


class Scheduling(Work):
    """The driver answers a write with what it did and the number of rows, as in `... 1`."""

    async def put_schedule(self, name: str, spec: str, next_at: datetime, *, seen: Schedule | None = None) -> bool:
        async with self._connections.any("put a schedule") as connection:
            done: str
            if seen is None:
                done = await connection.execute(self._sql["schedule_create"], name, spec, next_at)
            else:
                done = await connection.execute(
                    self._sql["schedule_change"], spec, next_at, name, seen.next_at, seen.spec
                )
        return done.endswith(" 1")

    async def schedules(self, name: str | None = None) -> list[Schedule]:
        async with self._connections.any("read schedules") as connection:
            rows = await connection.fetch(self._sql["schedule_list"], name)
        return [
            Schedule(
                name=row["name"],
                spec=row["spec"],
                paused=row["paused"],
                next_at=row["next_at"],
                buffered_at=row["buffered_at"],
                last_at=row["last_at"],
                last=row["last"],
            )
            for row in rows
        ]

    async def pause_schedule(self, name: str, paused: bool) -> bool:
        async with self._connections.any("pause a schedule") as connection:
            done: str = await connection.execute(self._sql["schedule_pause"], paused, name)
        return done.endswith(" 1")

    async def delete_schedule(self, name: str) -> bool:
        async with self._connections.any("delete a schedule") as connection:
            done: str = await connection.execute(self._sql["schedule_delete"], name)
        return done.endswith(" 1")

    async def tick(self, moved: Tick, rows: Sequence[NewExecution]) -> bool:
        reach("insert.before")
        async with self._connections.any("move a schedule on") as connection, connection.transaction():
            done: str = await connection.execute(
                self._sql["schedule_tick"],
                moved.next_at,
                moved.buffered_at,
                moved.last_at,
                moved.last,
                moved.name,
                moved.seen_next_at,
                moved.seen_buffered_at,
                moved.seen_spec,
            )
            is_first = done.endswith(" 1")
            if is_first and rows:
                await self._insert_chunk(connection, rows)
        reach("insert.after")
        if is_first and rows:
            self._tell(Topic.WORK)
        return is_first
