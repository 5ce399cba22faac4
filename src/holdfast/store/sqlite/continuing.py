"""A run that goes on as another: the new row takes the old one's place in the tree, its key, its cancel, its inbox."""

from __future__ import annotations

from holdfast.core.identity import origin_bytes
from holdfast.store.sqlite import inserting
from holdfast.store.sqlite.rows import Row
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import NewExecution


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
