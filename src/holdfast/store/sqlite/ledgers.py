"""The two ledgers of flows, moved for all messages of a flush by a few statements of many rows each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from holdfast.core.collation import LEG2_ENTRIES
from holdfast.store.flows import Collate
from holdfast.store.sqlite.rows import Row
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx

_SIZES: Final = (64, 16, 4, 1)  # rows a statement: few texts, so that all of them stay prepared


def _of_many_rows(block: str, first: str, more: str) -> Mapping[int, str]:
    """A statement of one row, and its twins of several."""
    return {size: SQL[block].replace(first, ", ".join((first, *[more] * (size - 1)))) for size in _SIZES}


_MOVE_ACTIVITY: Final = _of_many_rows("flow_activity", "(?3, ?4, ?5, ?1 + ?2)", "(?, ?, ?, ?1 + ?2)")
_MOVE_GUID: Final = _of_many_rows("flow_guid", "(?, ?, ?, ?, ?, ?, ?)", "(?, ?, ?, ?, ?, ?, ?)")


def move_activities(tx: Tx, moves: Sequence[tuple[int, Collate]]) -> list[int]:
    """The ledger of each one's activity after its move; of two on one activity, the second finds the first's."""
    if len(moves) == 1:
        return [_move_one(tx, *moves[0])]
    moved = [0] * len(moves)
    alike: dict[tuple[int, int], dict[Row, int]] = {}  # by weights: the keys, and whose they are
    later: list[tuple[int, tuple[int, Collate]]] = []
    seen: set[Row] = set()
    for at, move in enumerate(moves):
        job, effect = move
        key = (job, effect.activity, effect.dimension)
        if key in seen:
            later.append((at, move))
        else:
            seen.add(key)
            alike.setdefault((effect.add, effect.mark), {})[key] = at
    for weights, places in alike.items():
        if weights == (0, 0):
            for at in places.values():
                moved[at] = _move_one(tx, *moves[at])
        else:
            for row in _many(tx, _MOVE_ACTIVITY, weights, list(places)):
                moved[places[row[:3]]] = row[3]
    if later:
        again = move_activities(tx, [move for _, move in later])
        for (at, _), ledger in zip(later, again, strict=True):
            moved[at] = ledger
    return moved


def _move_one(tx: Tx, job: int, effect: Collate) -> int:
    where = (job, effect.activity, effect.dimension)
    if effect.add or effect.mark:
        ledger: int = tx.db.execute(SQL["flow_activity"], (effect.add, effect.mark, *where)).fetchone()[3]
        return ledger
    found = tx.db.execute(SQL["flow_activity_ledger"], where).fetchone()
    return 0 if found is None else found[0]


def move_guids(tx: Tx, moves: Sequence[tuple[int, Collate]], ledgers: Sequence[int]) -> dict[tuple[int, bytes], Row]:
    """(ordinal, ledger) after the moves, by job and GUID. A GUID has one message, and that one holder."""
    rows = []
    for (job, effect), ledger in zip(moves, ledgers, strict=True):
        if effect.guid_add:
            # The ordinal of a GUID that is new; one that never enters Leg2 has none (ruling A3).
            first = LEG2_ENTRIES.read(ledger) if effect.add == LEG2_ENTRIES.weight else 0
            head = (job, effect.guid, effect.activity, effect.dimension)
            rows.append((*head, first, effect.guid_add, effect.response))
    return {(job, guid): (ordinal, ledger) for job, guid, ordinal, ledger in _many(tx, _MOVE_GUID, (), rows)}


def _many(tx: Tx, statements: Mapping[int, str], constants: Row, rows: Sequence[Row]) -> Iterator[Row]:
    """What the statements return, in no order."""
    first, left = 0, len(rows)
    for size, statement in statements.items():
        while left >= size:
            values = (*constants, *chain.from_iterable(rows[first : first + size]))
            yield from tx.db.execute(statement, values).fetchall()
            first, left = first + size, left - size
