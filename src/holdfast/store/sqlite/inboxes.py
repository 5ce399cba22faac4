"""The inboxes of executions, many at once. One alone is spared the list, which costs more than what is done with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.store.sqlite.rows import Row
from holdfast.store.sqlite.statements import SQL, json_ids
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import Receipt


def count(tx: Tx, live: Mapping[int, Receipt]) -> None:
    """Into the receipts of the rows."""
    if len(live) == 1:
        ((row, receipt),) = live.items()
        receipt.inbox_count = tx.db.execute(SQL["inbox_count"], (row,)).fetchone()[0]
    elif live and are_used(tx)[0]:
        for row, found in tx.db.execute(SQL["inbox_counts"], (json_ids(live),)):
            live[row].inbox_count = found


def those_with(tx: Tx, rows: Sequence[int]) -> list[int]:
    """Those of the rows that have signals."""
    if len(rows) == 1:
        return list(rows) if tx.db.execute(SQL["inbox_count"], (rows[0],)).fetchone()[0] else []
    return [row for (row,) in tx.db.execute(SQL["inbox_targets"], (json_ids(rows),)).fetchall()]


def clear(tx: Tx, rows: Sequence[int]) -> None:
    """An ended execution reads no more signals (seed section 5)."""
    if len(rows) == 1:
        tx.db.execute(SQL["inbox_clear_one"], (rows[0],))
        tx.db.execute(SQL["inbox_clear_keys_one"], (rows[0],))
        return
    has_signals, has_keys = are_used(tx)
    ids = json_ids(rows)
    if has_signals:
        tx.db.execute(SQL["inbox_clear"], (ids,))
    if has_keys:
        tx.db.execute(SQL["inbox_clear_keys"], (ids,))


def are_used(tx: Tx) -> Row:
    """Whether there is any signal, and any remembered key; most ledgers have none most of the time."""
    found: Row = tx.db.execute(SQL["inbox_any"]).fetchone()
    return found
