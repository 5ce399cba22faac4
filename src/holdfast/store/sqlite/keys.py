"""Partition keys (ruling E9).

A key is taken by the execution that is picked and dropped when its lease ends. Rows that a pick finds behind a taken
key are blocked: they leave the pick's index, so that a hot key costs later picks nothing. Whoever drops a key unblocks
the best of them in each queue. Newcomers are in the index and compete in order.

SQLite has one writer at a time, so a key is settled at once where it is dropped; there is no moment in which a
picker could see a dropped key that nobody has settled.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx


def is_taken(tx: Tx, key: str) -> bool:
    return tx.db.execute(SQL["key_holder"], (key,)).fetchone() is not None


def take(tx: Tx, taken: Iterable[tuple[str, int]]) -> None:
    """Give each key to the row that was picked."""
    tx.db.executemany(SQL["key_take"], taken)


def block(tx: Tx, rows: Iterable[int]) -> None:
    tx.db.executemany(SQL["key_block"], [(row,) for row in rows])


def drop(tx: Tx, dropped: Iterable[tuple[str, int]]) -> bool:
    """End the holding of each key by each row; whether another row came up for picking."""
    unblocked = False
    for key, holder in dropped:
        if tx.db.execute(SQL["key_drop"], (key, holder)).rowcount:
            unblocked |= settle(tx, key)
    return unblocked


def settle(tx: Tx, key: str) -> bool:
    """See to it that the best blocked row of a free key is up for picking, of each queue that has one.

    Of each queue, because one that is paused, or that nobody serves, must not hold back the rows of another. Called for
    a dropped key, and when a row that was up for picking leaves by cancel or pause: it may have been the one that was
    unblocked for all those behind it.
    """
    if is_taken(tx, key):
        return False
    queue, unblocked = "", False
    while (head := tx.db.execute(SQL["key_next"], (key, queue)).fetchone()) is not None:
        row, queue = head
        tx.db.execute(SQL["key_unblock"], (row,))
        unblocked = True
    tx.work |= unblocked
    return unblocked
