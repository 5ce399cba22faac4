"""From values to the arrays that the routines take: one list a column, in the order of their parameters.

A column in which every row has the default is sent as an empty array, one of which every row has the same as one
element; the routines fill in what is missing.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, TypeAlias

from holdfast.store.alike import OWN_FIELDS, asks_for_nothing_but
from holdfast.store.values import NewExecution, NewSignal

Column: TypeAlias = Sequence[object]


def sparse(column: Sequence[object]) -> Column:
    """The column, or nothing where no row says anything."""
    return column if any(column) else ()


def unset(column: Sequence[object]) -> Column:
    """The column, or nothing where every row is None; here 0 and "" do say something."""
    return () if column.count(None) == len(column) else column


def shared(column: Sequence[object]) -> Column:
    """The column, or its first element where the others are the same."""
    return column[:1] if len(column) > 1 and column.count(column[0]) == len(column) else column


def scattered(column: Column, at: Sequence[int], count: int) -> Column:
    """The column spread over `count` rows, of which only those `at` say anything."""
    if not column or len(at) == count:
        return column
    spread: list[object] = [None] * count
    for place, value in zip(at, column, strict=True):
        spread[place] = value
    return spread


def text_array(values: Sequence[str]) -> str:
    """PostgreSQL's own notation of a text array: rows of an array of arrays must not differ in length."""
    return "{" + ",".join('"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values) + "}"


def insertion_order(rows: Sequence[NewExecution]) -> Sequence[int]:
    """The order in which to insert: two batches that meet then wait for each other and never deadlock.

    Of rows with one unique key the first given comes first, for it is to have the key. A range where they are in order.
    """
    if len(rows) < 2:
        return range(len(rows))
    if [row.unique_key for row in rows].count(None) == len(rows):
        promises = [row.promise for row in rows]
        if promises == sorted(promises):
            return range(len(rows))

    def place(at: int) -> tuple[bytes, bytes]:
        row = rows[at]
        return (b"", row.promise) if row.unique_key is None else (row.unique_key, b"")

    return sorted(range(len(rows)), key=place)


def execution_columns(given: Sequence[NewExecution], order: Sequence[int]) -> list[Column]:
    """The parameters of `insert_1` up to `p_rank`."""
    is_in_order = isinstance(order, range)
    rows = given if is_in_order else [given[at] for at in order]
    return [
        [row.promise for row in rows],
        shared([row.kind for row in rows]),
        shared([row.name for row in rows]),
        shared([row.version for row in rows]),
        shared([row.handler for row in rows]),
        shared([row.step for row in rows]),
        [row.state for row in rows],
        [row.input_hash for row in rows],
        shared([row.queue for row in rows]),
        shared([row.priority for row in rows]),
        sparse([row.partition_key for row in rows]),
        sparse([row.delay for row in rows]),
        sparse([row.at for row in rows]),
        unset([row.unique_key for row in rows]),
        unset([None if row.unique_key is None else ",".join(row.unique_scope) for row in rows]),
        sparse(shared([row.digest or "" for row in rows])),
        sparse([row.attributes for row in rows]),
        sparse([row.paused for row in rows]),
        unset([row.idempotency_key for row in rows]),
        sparse(shared([row.reports for row in rows])),
        sparse(shared([row.cleans_up for row in rows])),
        unset([row.deadline for row in rows]),
        () if is_in_order else [at + 1 for at in order],
    ]


_PLAIN: Final = (
    *OWN_FIELDS,
    *("kind", "name", "version", "handler", "step", "queue", "priority", "digest", "cleans_up"),
)
is_plain: Final = asks_for_nothing_but(_PLAIN)
plain_arguments: Final = attrgetter(*_PLAIN)  # of `insert_one_1`


def signal_columns(signals: Sequence[NewSignal]) -> list[Column]:
    """The parameters of `deliver_1`. A sender's dedup key can never meet one made up here."""
    return [
        [signal.target for signal in signals],
        [signal.name for signal in signals],
        [signal.payload for signal in signals],
        [f"a:{secrets.token_hex(12)}" if signal.dedup_key is None else f"u:{signal.dedup_key}" for signal in signals],
    ]
