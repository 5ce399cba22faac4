"""Ends of children that report: each is put into its parent's inbox, and counts for a parent that waits for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.store.sqlite.statements import SQL, json_ids
from holdfast.store.sqlite.writer import Tx


def report(tx: Tx, ended: Sequence[tuple[int, int]]) -> list[int]:
    """Put the ends of (child, parent) into inboxes: the parents that this made runnable."""
    tx.db.execute(SQL["report_ends"], (tx.now, json_ids(child for child, _ in ended)))
    released = []
    for parent, count in Counter(parent for _, parent in ended).items():
        if tx.db.execute(SQL["report_count_down"], (count, tx.now, parent)).rowcount:
            if _release(tx, parent):
                released.append(parent)
        elif tx.db.execute(SQL["report_holder"], (parent,)).fetchone() is not None:
            tx.work = tx.stirred = True
    return released


def recheck(tx: Tx, row: int, wait_children: int) -> bool:
    """Whether a row that parked on the ends of children goes on at once: they may be in its inbox already."""
    tx.db.execute(SQL["report_recount"], (wait_children, row))
    return _release(tx, row)


def _release(tx: Tx, row: int) -> bool:
    if not tx.db.execute(SQL["report_release"], (tx.now, tx.now, row)).rowcount:
        return False
    tx.work = True
    return True
