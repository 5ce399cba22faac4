"""The protocol of flows inside a flush: ledgers, semaphores, joins, ends of jobs.

`BEGIN IMMEDIATE` holds off every other writer, so each step reads and writes without locks of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.core.collation import JOB_CLOSED
from holdfast.core.status import Status
from holdfast.store.flows import JOB_SEMAPHORE, LEG1, Arrival, EndJob, OpenJob
from holdfast.store.sqlite import inserting
from holdfast.store.sqlite.ledgers import Move, move_activities, move_guids
from holdfast.store.sqlite.rows import TEXT, Row
from holdfast.store.sqlite.statements import SQL, json_ids
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import Collated, NewExecution

Collation = Move


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
    _publish(tx, {job: effect.messages})


def collate(tx: Tx, collations: Sequence[Collation]) -> list[Ended]:
    """A step of the protocol each; the jobs that this was the end of."""
    db = tx.db
    ledgers = move_activities(tx, collations)
    guids = move_guids(tx, collations, ledgers)
    settling = [at for at, (_, _, effect, _) in enumerate(collations) if effect.settle is not None]
    onward: set[int] = set()
    closed: set[int] = set()
    if settling:
        onward = _go_on(tx, collations, settling)
        closed = _settle(tx, collations, settling, onward)
    ended: list[Ended] = []
    acknowledged: list[tuple[int]] = []
    for at, (job, row, effect, receipt) in enumerate(collations):
        ordinal, guid_ledger = guids[at]
        is_closed, goes_on = at in closed, at in onward
        if is_closed:
            guid_ledger += JOB_CLOSED.weight
        receipt.collated = Collated(ledgers[at], guid_ledger, ordinal, is_closed, goes_on)
        if effect.failure is not None:
            db.execute(SQL["flow_fail"], (job, effect.guid, effect.activity, effect.dimension, effect.failure))
        if effect.end is not None and (end := _end(tx, job, effect.end)) is not None:
            ended.append(end)
        if effect.acknowledge and not is_closed and not goes_on:
            acknowledged.append((row,))
            receipt.status = Status.DONE
    if acknowledged:
        db.executemany(SQL["flow_acknowledge"], acknowledged)
    return ended


def _go_on(tx: Tx, collations: Sequence[Collation], settling: Sequence[int]) -> set[int]:
    """Messages that are acknowledged, and their first child published, in one row; not if that child has a row."""
    rows: list[Row] = []
    places: list[int] = []
    for at in settling:
        _, row, effect, _ = collations[at]
        if effect.settle is not None and effect.settle.onward:
            child = effect.settle.children[0]
            rows.append((child.promise, child.step, child.state, tx.now, tx.now, row))
            places.append(at)
    if not rows or tx.db.executemany(SQL["flow_onward"], rows).rowcount == len(rows):
        return set(places)
    went_on = SQL["flow_went_on"]
    found = [tx.db.execute(went_on, (row[-1], row[0])).fetchone() for row in rows]
    return {at for at, is_there in zip(places, found, strict=True) if is_there is not None}


def _settle(tx: Tx, collations: Sequence[Collation], settling: Sequence[int], onward: set[int]) -> set[int]:
    """Step 2 (section 12) of these: which of them closed their job."""
    filled = _arrive(tx, collations, settling)
    published: dict[int, list[NewExecution]] = {}
    moves: dict[int, tuple[int, int]] = {}  # by job: how far its semaphore moves, and who moves it last
    closed: set[int] = set()
    for at in settling:
        job, _, effect, _ = collations[at]
        settle = effect.settle
        assert settle is not None, "only what settles is given"
        children = [*settle.children, *filled.get(at, ())]
        if len(children) > (at in onward):
            published.setdefault(job, []).extend(children[1:] if at in onward else children)
        delta = len(children) - 1
        if settle.threshold != 0:
            if _move_semaphore(tx, job, effect.guid, delta, settle.threshold):
                closed.add(at)
        else:
            moves[job] = (moves[job][0] + delta if job in moves else delta, at)
    if published:
        _publish(tx, published)
    for job, (delta, at) in moves.items():
        # Obligations that are not closed yet keep it above 0: only the last of a flush can bring it there, and one that
        # does not move is not there.
        if delta and _move_semaphore(tx, job, collations[at][2].guid, delta, 0):
            closed.add(at)
    return closed


def _move_semaphore(tx: Tx, job: int, guid: bytes, delta: int, threshold: int) -> bool:
    """Whether it has reached its threshold; then the GUID's ledger says so."""
    move = (job, JOB_SEMAPHORE, "", delta, threshold, guid, JOB_CLOSED.weight)
    (status,) = tx.db.execute(SQL["set_status_and_collate"], move).fetchone()
    return bool(status == threshold)


def _arrive(tx: Tx, collations: Sequence[Collation], settling: Sequence[int]) -> dict[int, list[NewExecution]]:
    """By place, the messages of the joins that these fill (ruling A10). That closes no job, so it has no weight."""
    arrivals = [
        (at, collations[at][0], arrival)
        for at in settling
        for arrival in collations[at][2].settle.arrivals  # type: ignore[union-attr]
    ]
    if not arrivals:
        return {}
    rows = [
        (job, arrival.activity, arrival.dimension, arrival.source, arrival.value, 0 if arrival.message is None else 1)
        for _, job, arrival in arrivals
    ]
    (last,) = tx.db.execute(SQL["flow_last_arrival"]).fetchone()
    new: Sequence[bool] = [True] * len(rows)
    if tx.db.executemany(SQL["flow_arrive"], rows).rowcount != len(rows):
        new = _which_are_new(tx, rows, last)
    came: dict[Row, int] = {}
    fills: dict[Row, tuple[int, Arrival]] = {}  # by join: who comes last, and so fills it, if it is filled
    for (at, job, arrival), is_new in zip(arrivals, new, strict=True):
        if is_new and arrival.message is not None:
            where = (job, arrival.activity, arrival.dimension)
            came[where] = came.get(where, 0) + 1
            fills[where] = (at, arrival)
    filled: dict[int, list[NewExecution]] = {}
    for where, (at, arrival) in fills.items():
        assert arrival.message is not None, "only what counts fills a join"
        tx.db.execute(SQL["flow_semaphore"], (*where, arrival.needed, arrival.needed))
        (status,) = tx.db.execute(SQL["set_status_and_collate"], (*where, -came[where], 0, None, 0)).fetchone()
        if status == 0:
            filled.setdefault(at, []).append(arrival.message)
    return filled


def _which_are_new(tx: Tx, rows: Sequence[Row], last: int) -> list[bool]:
    """Those whose row is past `last`; of two that are one arrival, the first."""
    seen: set[Row] = set()
    new = []
    for row in rows:
        where = row[:4]
        (found,) = tx.db.execute(SQL["flow_arrival"], where).fetchone()
        new.append(found > last and where not in seen)
        seen.add(where)
    return new


def _publish(tx: Tx, published: Mapping[int, Sequence[NewExecution]]) -> None:
    """By job. Messages of a paused job wait with it."""
    for job, messages in published.items():
        inserted = inserting.insert(tx, messages, job)
        met = [
            message for message, row in zip(messages, inserted, strict=True) if not row.created and message.step == LEG1
        ]
        if met:
            rows = [(message.state[:-1], message.queue, tx.now, message.promise) for message in met]
            tx.db.executemany(SQL["flow_early"], rows)
            tx.work = True
    for (job,) in tx.db.execute(SQL["flow_paused"], (json_ids(published),)).fetchall():
        tx.db.execute(SQL["flow_pause"], (1, tx.now, job))


def _end(tx: Tx, job: int, end: EndJob) -> Ended | None:
    values = (TEXT[end.status], end.result, end.error, tx.now, tx.now, job)
    found = tx.db.execute(SQL["flow_end"], values).fetchone()
    return None if found is None else Ended(job, found[0], found[1], found[2] == 1)
