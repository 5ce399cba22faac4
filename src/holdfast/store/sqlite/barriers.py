"""Barriers: a parent waits until enough of the children of its open round have ended (seed section 11, ruling E7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx


def count_down(tx: Tx, ended: Mapping[tuple[int, int], int]) -> list[int]:
    """Children that ended, by (parent, round): the parents that this made runnable."""
    released = []
    for (parent, barrier_round), count in ended.items():
        touched = tx.db.execute(SQL["barrier_count_down"], (count, tx.now, parent, barrier_round))
        if touched.rowcount and _release(tx, parent):
            released.append(parent)
    return released


def recheck(tx: Tx, parents: Sequence[int]) -> list[int]:
    """Parents that parked on the barrier they already had: count who still lives; those with nobody left go on."""
    tx.db.executemany(SQL["barrier_recount"], [(parent,) for parent in parents])
    return [parent for parent in parents if _release(tx, parent)]


def _release(tx: Tx, parent: int) -> bool:
    if not tx.db.execute(SQL["barrier_release"], (tx.now, tx.now, parent)).rowcount:
        return False
    tx.work = True
    return True
