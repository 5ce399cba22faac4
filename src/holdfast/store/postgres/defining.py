"""What workers have had code for, and starts that come with a signal."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.crashpoints import reach
from holdfast.store.base import handler_of
from holdfast.store.postgres.columns import signal_columns
from holdfast.store.postgres.work import Work
from holdfast.store.values import Definition, Delivery, Inserted, NewExecution, NewSignal, Topic


class Defining(Work):
    async def insert_and_deliver(self, row: NewExecution, signal: NewSignal) -> tuple[Inserted, Delivery]:
        reach("insert.before")
        async with self._connections.any("start with a signal") as connection, connection.transaction():
            (inserted,) = await self._insert_chunk(connection, [row])
            answer = await connection.fetchrow(self._sql["deliver"], *signal_columns([signal]))
        reach("insert.after")
        assert answer is not None, "deliver answers one row"
        self._tell(Topic.WORK)
        return inserted, Delivery(answer["answers"][0])

    async def register_definitions(self, definitions: Sequence[Definition]) -> None:
        changed = set(definitions) - set(await self.definitions())
        if not changed:
            return
        rows = [
            (
                d.name,
                d.version,
                d.kind,
                handler_of(d.kind, d.name, d.version),
                d.step,
                d.queue,
                d.priority,
                d.parameters,
            )
            for d in sorted(changed, key=lambda d: (d.name, d.version))  # one order: no two workers can deadlock
        ]
        reach("control.before")
        async with self._connections.any("register definitions") as connection:
            await connection.executemany(self._sql["definition_put"], rows)
        reach("control.after")

    async def definitions(self, name: str | None = None) -> list[Definition]:
        async with self._connections.any("read definitions") as connection:
            rows = await connection.fetch(self._sql["definition_list"], name)
        return [
            Definition(
                name=row["name"],
                version=row["version"],
                kind=row["kind"],
                step=row["step"],
                queue=row["queue"],
                priority=row["priority"],
                parameters=tuple(row["parameters"]),
            )
            for row in rows
        ]
