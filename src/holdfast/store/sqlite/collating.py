"""The protocol of flows inside a flush: ledgers, semaphores, joins, ends of jobs.

`BEGIN IMMEDIATE` holds off every other writer, so each step reads and writes without locks of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.core.collation import JOB_CLOSED, LEG2_ENTRIES
from holdfast.core.status import Status
from holdfast.store.flows import JOB_SEMAPHORE, Arrival, Collate, EndJob, OpenJob, Settle
from holdfast.store.sqlite import inserting
from holdfast.store.sqlite.rows import TEXT
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import Collated, NewExecution, Receipt


class Ended(NamedTuple):
    """A job that ended, and who is to hear of it."""

    job: int
    parent: int | None
    parent_round: int | None
    reports: bool


def open_job(tx: Tx, job: int, effect: OpenJob) -> None:
    """The semaphore and the entry messages, in the commit that makes the job `delegated` (ruling A8)."""
    tx.db.execute(SQL["flow_semaphore"], (job, JOB_SEMAPHORE, "", len(effect.messages)))
    tx.db.execute(SQL["flow_open"], (job,))
    inserting.insert(tx, effect.messages, job)


def collate(tx: Tx, job: int, row: int, effect: Collate, receipt: Receipt) -> Ended | None:
    """One step of the protocol; the job, if this was its end."""
    db = tx.db
    where = (job, effect.activity, effect.dimension)
    if effect.add or effect.mark:
        (ledger,) = db.execute(SQL["flow_activity"], (*where, effect.add, effect.mark)).fetchone()
    else:
        found = db.execute(SQL["flow_activity_ledger"], where).fetchone()
        ledger = 0 if found is None else found[0]
    ordinal, guid_ledger, closed = 0, 0, False
    if effect.guid_add:
        first = LEG2_ENTRIES.read(ledger) if effect.add == LEG2_ENTRIES.weight else 0
        values = (job, effect.guid, effect.activity, effect.dimension, first, effect.guid_add, effect.response)
        ordinal, guid_ledger = db.execute(SQL["flow_guid"], values).fetchone()
    if effect.failure is not None:
        db.execute(SQL["flow_fail"], (job, effect.guid, effect.activity, effect.dimension, effect.failure))
    onward = False
    if effect.settle is not None:
        onward = effect.settle.onward and _go_on(tx, row, effect.settle.children[0])
        closed = _settle(tx, job, effect.guid, effect.settle, is_first_published=onward)
        guid_ledger += JOB_CLOSED.weight if closed else 0
    receipt.collated = Collated(ledger, guid_ledger, ordinal, closed, onward)
    ended = None if effect.end is None else _end(tx, job, effect.end)
    if effect.acknowledge and not closed and not onward:
        db.execute(SQL["flow_acknowledge"], (row,))
        receipt.status = Status.DONE
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


def _go_on(tx: Tx, row: int, child: NewExecution) -> bool:
    """The message is acknowledged and its first child published, in one row; False: the child is there already."""
    values = (child.promise, child.step, child.state, tx.now, tx.now, row)
    return tx.db.execute(SQL["flow_onward"], values).rowcount > 0


def _arrive(tx: Tx, job: int, arrival: Arrival) -> NewExecution | None:
    """The join's message, if this arrival fills it (ruling A10). It closes no job, so its hit has no weight."""
    where = (job, arrival.activity, arrival.dimension)
    if not tx.db.execute(SQL["flow_arrive"], (*where, arrival.source, arrival.value)).rowcount:
        return None
    if arrival.message is None:
        return None
    tx.db.execute(SQL["flow_semaphore"], (*where, arrival.needed))
    (status,) = tx.db.execute(SQL["set_status_and_collate"], (*where, -1, 0, None, 0)).fetchone()
    return arrival.message if status == 0 else None


def _publish(tx: Tx, job: int, messages: Sequence[NewExecution]) -> None:
    """Messages of a paused job wait with it."""
    inserting.insert(tx, messages, job)
    if tx.db.execute(SQL["flow_job"], (job,)).fetchone()[3]:
        tx.db.execute(SQL["flow_pause"], (1, tx.now, job))


def _end(tx: Tx, job: int, end: EndJob) -> Ended | None:
    values = (TEXT[end.status], end.result, end.error, tx.now, tx.now, job)
    if not tx.db.execute(SQL["flow_end"], values).rowcount:
        return None
    parent, parent_round, reports, _, _ = tx.db.execute(SQL["flow_job"], (job,)).fetchone()
    return Ended(job, parent, parent_round, reports == 1)
