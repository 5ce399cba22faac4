"""What flows read, and what becomes of their dead letters."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.core.clock import to_datetime
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
from holdfast.store.sqlite.ledger import Ledger
from holdfast.store.sqlite.rows import STATUS, Row, names_json
from holdfast.store.sqlite.statements import SQL, json_ids
from holdfast.store.sqlite.writer import Tx

Db = sqlite3.Connection

_SHORT_GUIDS: Final = 100  # the answers of a job with more of them are not read on the caller's thread


class Flowing(Ledger):
    """The part of `SqliteStore` that flows use."""

    async def flow_look(self, keys: Sequence[LookKey]) -> list[Look | None]:
        return self._read_now(lambda db: [_look(db, key) for key in keys])

    async def flow_arrived(self, job: int, activity: str, dimension: str) -> dict[str, str | None]:
        where = (job, activity, dimension)
        return self._read_now(lambda db: dict(db.execute(SQL["flow_arrived"], where).fetchall()))

    async def flow_closing(self, keys: Sequence[ClosingKey]) -> list[Closing]:
        if self._read_now(lambda db: any(_is_long(db, key.job) for key in keys)):
            return await self._read(lambda db: [_closing(db, key) for key in keys])
        return self._read_now(lambda db: [_closing(db, key) for key in keys])

    async def flow_records(self, job: bytes) -> JobRecords | None:
        return await self._read(lambda db: _records(db, job))

    async def retry_letter(self, message: bytes) -> bool:
        return await self._write("control", lambda tx: again(tx, message, None))

    async def drop_letter(self, message: bytes) -> bool:
        return await self._write("control", lambda tx: again(tx, message, CLOSE))


def _look(db: Db, key: LookKey) -> Look | None:
    found = db.execute(SQL["flow_look"], (key.row, key.job, key.activity, key.dimension, key.guid)).fetchone()
    if found is None:
        return None
    step, state, status, cancelled, semaphore, ledger, guid_ledger, ordinal, response = found
    return Look(
        step, state, STATUS[status], cancelled == 1, semaphore or 0, ledger or 0, guid_ledger, ordinal, response
    )


def _is_long(db: Db, job: int) -> bool:
    return db.execute(SQL["flow_is_long"], (job, _SHORT_GUIDS)).fetchone() is not None


def _closing(db: Db, key: ClosingKey) -> Closing:
    cancelled, error = db.execute(SQL["flow_closing"], (key.job,)).fetchone()
    names = None if key.activities is None else names_json(key.activities)
    return Closing(cancelled == 1, error, [Answer(*row) for row in db.execute(SQL["flow_answers"], (key.job, names))])


def _records(db: Db, job: bytes) -> JobRecords | None:
    found = db.execute(SQL["flow_id"], (job,)).fetchone()
    if found is None:
        return None
    return JobRecords(
        activities=[ActivityView(*row) for row in db.execute(SQL["flow_activities"], found)],
        guids=[GuidView(*row) for row in db.execute(SQL["flow_guids"], found)],
        semaphores=[SemaphoreView(*row) for row in db.execute(SQL["flow_semaphores"], found)],
        arrivals=[
            ArrivalView(activity, dimension, source, value, counts == 1)
            for activity, dimension, source, value, counts in db.execute(SQL["flow_arrivals"], found)
        ],
        failures=[FailureView(*row) for row in db.execute(SQL["flow_failures"], found)],
        messages=[
            MessageView(
                promise=row[0],
                step=row[1],
                status=STATUS[row[2]],
                state=row[3],
                error=row[4],
                attempt=row[5],
                eligible_at=to_datetime(row[6]),
            )
            for row in db.execute(SQL["flow_message_views"], found)
        ],
    )


def again(tx: Tx, message: bytes, step: str | None) -> bool:
    """A dead letter becomes runnable, at its step or at another."""
    found = tx.db.execute(SQL["flow_letter"], (message,)).fetchone()
    if found is None:
        return False
    row, job = found
    tx.db.execute(SQL["flow_letter_again"], (step, tx.now, tx.now, row))
    unstrand(tx, [job])
    tx.work = True
    return True


def unstrand(tx: Tx, jobs: Iterable[int]) -> None:
    """These go on if they have no dead letter left (ruling A6)."""
    tx.db.executemany(SQL["flow_unstrand"], [(tx.now, job) for job in jobs])


def resume(tx: Tx, promise: bytes) -> bool | None:
    """A stranded job goes on with all its dead letters, or one of these alone. None: it is neither."""
    if tx.db.execute(SQL["flow_is_begun"], (promise,)).fetchone() is None:
        return again(tx, promise, None) or None
    job = tx.db.execute(SQL["flow_id"], (promise,)).fetchone()
    letters = tx.db.execute(SQL["flow_letters_of"], job).fetchall()
    return sum(again(tx, message, None) for (message,) in letters) > 0


def messages_of(tx: Tx, jobs: Iterable[int]) -> dict[int, Row]:
    """What a cancel of these jobs reaches: a parked message is to hear of it (ruling A11), a dead letter is dropped."""
    ids = json_ids(jobs)
    for (message,) in tx.db.execute(SQL["flow_letters_in"], (ids,)).fetchall():
        again(tx, message, CLOSE)
    return {row[0]: row for row in tx.db.execute(SQL["flow_messages"], (ids,))}


def pause(tx: Tx, job: int, paused: bool) -> bool:
    """The messages of a job wait with it; whether there are any."""
    return bool(tx.db.execute(SQL["flow_pause"], (1 if paused else 0, tx.now, job)).rowcount)


def purge(tx: Tx, rows: Sequence[int]) -> None:
    """What belongs to jobs that are deleted."""
    ids = json_ids(rows)
    for table in ("activities", "guids", "semaphores", "arrivals", "failures"):
        tx.db.execute(SQL[f"flow_purge_{table}"], (ids,))
