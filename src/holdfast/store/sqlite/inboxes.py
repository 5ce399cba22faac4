"""The inboxes of executions, many at once. One alone is spared the list, which costs more than what is done with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from holdfast.store.sqlite.rows import Row, inboxes_of
from holdfast.store.sqlite.statements import SQL, Ids, json_ids, packed, sql_for
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import Receipt, Signal


def note(tx: Tx, live: Mapping[int, Receipt]) -> None:
    """In the receipts of the rows, whether they have signals."""
    for row in those_with(tx, live):
        live[row].has_inbox = True


def those_with(tx: Tx, rows: Collection[int]) -> list[int]:
    """Those of the rows that have signals."""
    if len(rows) == 1:
        return list(rows) if tx.db.execute(SQL["inbox_has"], (*rows,)).fetchone() else []
    if not rows or not _are_used(tx, ids := json_ids(rows))[0]:
        return []
    return [row for (row,) in tx.db.execute(SQL["inbox_targets"], (ids,)).fetchall()]


def clear(tx: Tx, rows: Sequence[int]) -> None:
    """An ended execution reads no more signals (seed section 5)."""
    ids = packed(rows)
    has_signals, has_keys = _are_used(tx, ids)
    if has_signals:
        tx.db.execute(sql_for(ids, "inbox_clear"), (ids,))
    if has_keys:
        tx.db.execute(sql_for(ids, "inbox_clear_keys"), (ids,))


def keep(tx: Tx, rows: Sequence[int]) -> None:
    """One that failed reads none either, but a retry of it does, and knows the dedup keys (rulings B13, E12)."""
    tx.db.execute(SQL["inbox_clear_ends"], (json_ids(rows),))


def read(tx: Tx, ids: Ids) -> dict[int, tuple[Signal, ...]]:
    """What is in them, by row."""
    if not _are_used(tx, ids)[0]:
        return {}
    return inboxes_of(tx.db.execute(sql_for(ids, "pick_inboxes"), (ids,)).fetchall())


def _are_used(tx: Tx, ids: Ids) -> Row:
    """Whether there may be a signal, and a remembered key: for many at once it is asked whether there is any at all."""
    if not isinstance(ids, str):
        return True, True
    found: Row = tx.db.execute(SQL["inbox_any"]).fetchone()
    return found
