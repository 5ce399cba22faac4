"""The protocol of flows inside a flush: ledgers, semaphores, joins, ends of jobs.

`BEGIN IMMEDIATE` holds off every other writer, so each step reads and writes without locks of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.core.collation import JOB_CLOSED
from holdfast.core.status import Status
from holdfast.store.flows import JOB_SEMAPHORE, LEG1, Arrival, Collate, EndJob, OpenJob, Settle
from holdfast.store.sqlite import inserting
from holdfast.store.sqlite.ledgers import move_activities, move_guids
from holdfast.store.sqlite.rows import TEXT
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import Collated, NewExecution, Receipt

Collation = tuple[int, int, Collate, Receipt]  # job, message, and the step that the message takes


class Ended(NamedTuple):
    """A job that ended, and who is to hear of it."""

    job: int
    parent: int | None
    parent_round: int | None
    reports: bool


def open_job(tx: Tx, job: int, effect: OpenJob) -> None:
    """The semaphore and the entry messages, in the commit that makes the job `delegated` (ruling A8)."""
    tx.db.execute(SQL["flow_semaphore"], (job, JOB_SEMAPHORE, "", len(effect.messages), None))
    tx.db.execute(SQL["flow_open"], (job,))
    _publish(tx, job, effect.messages)


def collate(tx: Tx, collations: Sequence[Collation]) -> list[Ended]:
    """A step of the protocol each; the jobs that this was the end of."""
    db = tx.db
    moves = [(job, effect) for job, _, effect, _ in collations]
    ledgers = move_activities(tx, moves)
    guids = move_guids(tx, moves, ledgers)
    onward = _go_on(tx, collations)
    ended: list[Ended] = []
    acknowledged: list[tuple[int]] = []
    for (job, row, effect, receipt), ledger in zip(collations, ledgers, strict=True):
        ordinal, guid_ledger = guids[job, effect.guid] if effect.guid_add else (0, 0)
        closed, goes_on = False, row in onward
        if effect.failure is not None:
            db.execute(SQL["flow_fail"], (job, effect.guid, effect.activity, effect.dimension, effect.failure))
        if effect.settle is not None:
            closed = _settle(tx, job, effect.guid, effect.settle, is_first_published=goes_on)
            guid_ledger += JOB_CLOSED.weight if closed else 0
        receipt.collated = Collated(ledger, guid_ledger, ordinal, closed, goes_on)
        if effect.end is not None and (end := _end(tx, job, effect.end)) is not None:
            ended.append(end)
        if effect.acknowledge and not closed and not goes_on:
            acknowledged.append((row,))
            receipt.status = Status.DONE
    if acknowledged:
        db.executemany(SQL["flow_acknowledge"], acknowledged)
    return ended


def _settle(tx: Tx, job: int, guid: bytes, settle: Settle, *, is_first_published: bool) -> bool:
    """Step 2 (section 12): whether it closed the job."""
    published = [*settle.children]
    for arrival in settle.arrivals:
        message = _arrive(tx, job, arrival)
        if message is not None:
            published.append(message)
    if len(published) > is_first_published:
        _publish(tx, job, published[is_first_published:])
    move = (job, JOB_SEMAPHORE, "", len(published) - 1, settle.threshold, guid, JOB_CLOSED.weight)
    (status,) = tx.db.execute(SQL["set_status_and_collate"], move).fetchone()
    return bool(status == settle.threshold)


def _go_on(tx: Tx, collations: Sequence[Collation]) -> set[int]:
    """Messages that are acknowledged, and their first child published, in one row; not if that child has a row."""
    rows = [
        (child.promise, child.step, child.state, tx.now, tx.now, row)
        for _, row, effect, _ in collations
        if effect.settle is not None and effect.settle.onward
        for child in effect.settle.children[:1]
    ]
    if not rows:
        return set()
    if tx.db.executemany(SQL["flow_onward"], rows).rowcount == len(rows):
        return {values[-1] for values in rows}
    went_on = SQL["flow_went_on"]
    return {v[-1] for v in rows if tx.db.execute(went_on, (v[-1], v[0])).fetchone() is not None}


def _arrive(tx: Tx, job: int, arrival: Arrival) -> NewExecution | None:
    """The join's message, if this arrival fills it (ruling A10). It closes no job, so its hit has no weight."""
    where = (job, arrival.activity, arrival.dimension)
    counts = 0 if arrival.message is None else 1
    if not tx.db.execute(SQL["flow_arrive"], (*where, arrival.source, arrival.value, counts)).rowcount:
        return None
    if arrival.message is None:
        return None
    tx.db.execute(SQL["flow_semaphore"], (*where, arrival.needed, arrival.needed))
    (status,) = tx.db.execute(SQL["set_status_and_collate"], (*where, -1, 0, None, 0)).fetchone()
    return arrival.message if status == 0 else None


def _publish(tx: Tx, job: int, messages: Sequence[NewExecution]) -> None:
    """Messages of a paused job wait with it."""
    inserted = inserting.insert(tx, messages, job)
    met = [message for message, row in zip(messages, inserted, strict=True) if not row.created and message.step == LEG1]
    if met:
        rows = [(message.state[:-1], message.queue, tx.now, message.promise) for message in met]
        tx.db.executemany(SQL["flow_early"], rows)
        tx.work = True
    if tx.db.execute(SQL["flow_job"], (job,)).fetchone()[3]:
        tx.db.execute(SQL["flow_pause"], (1, tx.now, job))


def _end(tx: Tx, job: int, end: EndJob) -> Ended | None:
    values = (TEXT[end.status], end.result, end.error, tx.now, tx.now, job)
    if not tx.db.execute(SQL["flow_end"], values).rowcount:
        return None
    parent, parent_round, reports, _, _ = tx.db.execute(SQL["flow_job"], (job,)).fetchone()
    return Ended(job, parent, parent_round, reports == 1)
