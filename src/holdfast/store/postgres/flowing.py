"""What flows read, and what becomes of their dead letters."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.crashpoints import reach
from holdfast.core.status import Status
from holdfast.store.flows import (
    CLOSE,
    ActivityView,
    Answer,
    ArrivalView,
    Closing,
    ClosingKey,
    FailureView,
    GuidView,
    JobRecords,
    Look,
    LookKey,
    MessageView,
    SemaphoreView,
)
from holdfast.store.postgres.ledger import Ledger
from holdfast.store.postgres.rows import Row
from holdfast.store.values import Topic


class Flowing(Ledger):
    async def flow_look(self, keys: Sequence[LookKey]) -> list[Look | None]:
        columns = (
            [key.row for key in keys],
            [key.job for key in keys],
            [key.activity for key in keys],
            [key.dimension for key in keys],
            [key.guid for key in keys],
        )
        async with self._connections.any("look at messages") as connection:
            rows = await connection.fetch(self._sql["flow_look"], *columns)
        return [_look(row) for row in rows]

    async def flow_arrived(self, job: int, activity: str, dimension: str) -> dict[str, str | None]:
        async with self._connections.any("read what has come to a join") as connection:
            return {
                row[0]: row[1] for row in await connection.fetch(self._sql["flow_arrived"], job, activity, dimension)
            }

    async def flow_closing(self, keys: Sequence[ClosingKey]) -> list[Closing]:
        names: list[str] | None = []
        for key in keys:
            names = None if names is None or key.activities is None else [*names, *key.activities]
        async with self._connections.any("read how jobs end") as connection:
            rows = await connection.fetch(
                self._sql["flow_closing"], [key.job for key in keys], None if names is None else list(set(names))
            )
        closings: dict[int, Closing] = {}
        for at, cancelled, error, *answer in rows:
            closing = closings.setdefault(at, Closing(cancelled, error, []))
            if answer[0] is not None:
                closing.answers.append(Answer(*answer))
        return [closings[at] for at in range(1, len(keys) + 1)]

    async def flow_records(self, job: bytes) -> JobRecords | None:
        async with (
            self._connections.any("read a job") as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            found = await connection.fetchval(self._sql["flow_id"], job)
            if found is None:
                return None
            rows = {
                name: await connection.fetch(self._sql[f"flow_{name}"], found)
                for name in ("activities", "guids", "semaphores", "arrivals", "failures", "message_views")
            }
        return JobRecords(
            activities=[ActivityView(*row) for row in rows["activities"]],
            guids=[GuidView(*row) for row in rows["guids"]],
            semaphores=[SemaphoreView(*row) for row in rows["semaphores"]],
            arrivals=[ArrivalView(*row) for row in rows["arrivals"]],
            failures=[FailureView(*row) for row in rows["failures"]],
            messages=[
                MessageView(
                    promise=row[0],
                    step=row[1],
                    status=Status(row[2]),
                    state=row[3],
                    error=row[4],
                    attempt=row[5],
                    eligible_at=row[6],
                )
                for row in rows["message_views"]
            ],
        )

    async def retry_letter(self, message: bytes) -> bool:
        return await self._letter_again(message, None)

    async def drop_letter(self, message: bytes) -> bool:
        return await self._letter_again(message, CLOSE)

    async def _letter_again(self, message: bytes, step: str | None) -> bool:
        reach("control.before")
        async with self._connections.any("move a dead letter") as connection:
            found: bool = await connection.fetchval(self._sql["letter_again"], message, step)
        reach("control.after")
        if found:
            self._tell(Topic.WORK)
        return found


def _look(row: Row) -> Look | None:
    if row["step"] is None:
        return None
    return Look(
        row["step"],
        row["state"],
        Status(row["job_status"]),
        row["cancel_requested"],
        row["semaphore"] or 0,
        row["ledger"] or 0,
        row["guid_ledger"],
        row["ordinal"],
        row["response"],
    )
