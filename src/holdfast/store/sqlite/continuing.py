"""Runs that go on as others: one takes the place of another in the tree, or begins with a copy of its past."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.identity import origin_bytes
from holdfast.store.base import child_was_retried, replaced_is_gone, was_retried
from holdfast.store.sqlite import inserting
from holdfast.store.sqlite.rows import Row
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import ForkedChild, Inserted, JournalCopy, NewExecution


class Continued:
    """One `ContinueExecution` of a flush."""

    __slots__ = ("new", "promise", "row", "unique")

    def __init__(self, row: int, promise: bytes, new: NewExecution) -> None:
        self.row = row
        self.promise = promise
        self.new = new
        self.unique: Row = (None, None, 0)


def take_unique_key(tx: Tx, continued: Continued) -> None:
    """Before the old row ends, which would release its key for good (ruling E14)."""
    continued.unique = tx.db.execute(SQL["continue_unique"], (continued.row,)).fetchone()
    if continued.unique[0] is not None:
        tx.db.execute(SQL["continue_release"], (continued.row,))


def place(tx: Tx, continued: Continued) -> None:
    inserting.insert(tx, [continued.new])
    promise = continued.new.promise
    tx.db.execute(SQL["continue_place"], (*continued.unique, promise, continued.row))
    tx.db.execute(SQL["continue_successor"], (promise, continued.row, origin_bytes(continued.promise)))


def carry_inbox(tx: Tx, continued: Continued) -> None:
    """What was sent to the old run and not read by it; also the dedup keys, which hold for its life (ruling E12)."""
    tx.db.execute(SQL["continue_signals"], (continued.new.promise, continued.row))
    tx.db.execute(SQL["continue_keys"], (continued.new.promise, continued.row))


def fork(
    tx: Tx, row: NewExecution, past: JournalCopy | None, replaces: bytes | None, children: Sequence[ForkedChild]
) -> Inserted:
    replaced = None if replaces is None else tx.db.execute(SQL["fork_source"], (replaces,)).fetchone()
    if replaces is not None and replaced is None:
        raise replaced_is_gone(replaces)
    inserted = _insert(tx, row, past, replaces, None)
    if not inserted.created:
        return inserted
    if replaces is not None:
        if replaced is not None and replaced[0] is not None:
            raise was_retried(replaces, replaced[0])
        tx.db.execute(SQL["fork_successor"], (row.promise, replaces, origin_bytes(replaces)))
        tx.ended = True  # who waits for the one that is replaced waits for this one now
    for child in children:
        if tx.db.execute(SQL["fork_source"], (child.source,)).fetchone() not in (None, (None,)):
            raise child_was_retried(child.source)
        (parent, *_) = tx.db.execute(SQL["control_find"], (child.parent,)).fetchone()
        _insert(tx, child.row, child.past, child.source, parent)
        tx.db.execute(SQL["fork_successor"], (child.row.promise, child.source, origin_bytes(child.source)))
    return inserted


def _insert(tx: Tx, row: NewExecution, past: JournalCopy | None, source: bytes | None, parent: int | None) -> Inserted:
    """With all that it takes over of the run that failed, if it is a retry of one."""
    (inserted,) = inserting.insert(tx, [row], parent)
    if not inserted.created:
        return inserted
    if past is not None:
        tx.db.execute(SQL["fork_journal"], (past.count, past.body, row.promise))
        tx.db.execute(SQL["fork_length"], (past.count, row.promise))
    if source is not None:
        tx.db.execute(SQL["fork_place"], (row.promise, source, tx.now))
        for carried in ("fork_step", "fork_children", "fork_signals", "fork_keys"):  # ruling E12
            tx.db.execute(SQL[carried], (row.promise, source))
    return inserted
