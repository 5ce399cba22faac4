"""The two ledgers of flows, moved for all messages of a flush by a few statements of many rows each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

from holdfast.core.collation import LEG2_ENTRIES
from holdfast.core.errors import StoreError
from holdfast.store.flows import Collate
from holdfast.store.sqlite.rows import Row
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import Receipt

Move = tuple[int, int, Collate, Receipt]  # job, message, and the step that the message takes

_NO_GUID: Final = (0, 0)
_SIZES: Final = (64, 16, 4, 1)  # rows a statement: few texts, so that all of them stay prepared


def _of_many_rows(block: str, first: str, more: str) -> Mapping[int, str]:
    """A statement of one row, and its twins of several."""
    return {size: SQL[block].replace(first, ", ".join((first, *[more] * (size - 1)))) for size in _SIZES}


_MOVE_ACTIVITY: Final = _of_many_rows("flow_activity", "(?3, ?4, ?5, ?1 + ?2)", "(?, ?, ?, ?1 + ?2)")
_MOVE_GUID: Final = _of_many_rows("flow_guid", "(?, ?, ?, ?, ?, ?, ?)", "(?, ?, ?, ?, ?, ?, ?)")


def move_activities(tx: Tx, moves: Sequence[Move]) -> list[int]:
    """The ledger of each one's activity after its move; of two on one activity, the second finds the first's."""
    if len(moves) == 1:
        return [_move_one(tx, moves[0][0], moves[0][2])]
    moved = [0] * len(moves)
    alike: dict[tuple[int, int], tuple[list[Row], list[int]]] = {}  # by weights: the keys, and whose they are
    later: list[int] = []
    seen: set[Row] = set()
    for at, (job, _, effect, _) in enumerate(moves):
        key = (job, effect.activity, effect.dimension)
        if key in seen:
            later.append(at)
        else:
            seen.add(key)
            keys, places = alike.setdefault((effect.add, effect.mark), ([], []))
            keys.append(key)
            places.append(at)
    for weights, (keys, places) in alike.items():
        if weights == (0, 0):
            for at in places:
                moved[at] = _move_one(tx, moves[at][0], moves[at][2])
        else:
            found = _many(tx, _MOVE_ACTIVITY, weights, keys)
            _check_order(keys, found)
            for at, row in zip(places, found, strict=True):
                moved[at] = row[1]
    if later:
        again = move_activities(tx, [moves[at] for at in later])
        for at, ledger in zip(later, again, strict=True):
            moved[at] = ledger
    return moved


def _move_one(tx: Tx, job: int, effect: Collate) -> int:
    where = (job, effect.activity, effect.dimension)
    if effect.add or effect.mark:
        ledger: int = tx.db.execute(SQL["flow_activity"], (effect.add, effect.mark, *where)).fetchone()[1]
        return ledger
    found = tx.db.execute(SQL["flow_activity_ledger"], where).fetchone()
    return 0 if found is None else found[0]


def move_guids(tx: Tx, moves: Sequence[Move], ledgers: Sequence[int]) -> list[tuple[int, int]]:
    """(ordinal, ledger) of each one's GUID after its move, zeros if it has none. A GUID has one message."""
    moved = [_NO_GUID] * len(moves)
    rows, places = [], []
    for at, (job, _, effect, _) in enumerate(moves):
        if effect.guid_add:
            # The ordinal of a GUID that is new; one that never enters Leg2 has none (ruling A3).
            first = LEG2_ENTRIES.read(ledgers[at]) if effect.add == LEG2_ENTRIES.weight else 0
            rows.append((job, effect.guid, effect.activity, effect.dimension, first, effect.guid_add, effect.response))
            places.append(at)
    found = _many(tx, _MOVE_GUID, (), rows)
    _check_order(rows, found)
    for at, row in zip(places, found, strict=True):
        moved[at] = row[1:]
    return moved


def _many(tx: Tx, statements: Mapping[int, str], constants: Row, rows: Sequence[Row]) -> list[Row]:
    """What the statements return."""
    found: list[Row] = []
    first, left = 0, len(rows)
    for size, statement in statements.items():
        while left >= size:
            values = (*constants, *chain.from_iterable(rows[first : first + size]))
            found += tx.db.execute(statement, values).fetchall()
            first, left = first + size, left - size
    return found


def _check_order(given: Sequence[Row], found: Sequence[Row]) -> None:
    """What comes back is in the order of what was given: so that nothing has to be looked up to see whose it is."""
    if [row[0] for row in given] != [row[0] for row in found]:
        raise StoreError("the ledgers of a flush came back in another order; SQLite is of a version unknown to us")
