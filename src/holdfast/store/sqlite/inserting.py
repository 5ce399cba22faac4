"""Starting executions: idempotent by promise, refused by an occupied unique key (seed section 7).

Many rows that differ in promise, input and key alone are one statement, which takes a third of the time of one by one
and leaves Python's lock alone meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from msgspec.json import encode

from holdfast.core.clock import to_us
from holdfast.store.alike import OWN_FIELDS, asks_for_nothing_but, shared_of
from holdfast.store.sqlite.rows import Row, after, names_json
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import Inserted, NewExecution

_is_plain: Final = asks_for_nothing_but(
    (
        *OWN_FIELDS,
        *("kind", "name", "version", "handler", "step", "queue", "priority", "digest", "delay", "cleans_up"),
    )
)
_own_of: Final = attrgetter(*OWN_FIELDS[1:])
_PACKED_LEAST: Final = 32  # rows; for fewer of them packing costs as much as it saves
_PACKED_MOST: Final = 8 * 1024 * 1024  # characters; SQLite limits the length of a parameter


def insert(
    tx: Tx, rows: Sequence[NewExecution], parent_id: int | None = None, parent_round: int | None = None
) -> list[Inserted]:
    """Insert all that do not collide, and say of each what became of it."""
    if not rows:
        return []
    last = tx.db.execute(SQL["insert_last_id"]).fetchone()
    created = 0
    if len(rows) < _PACKED_LEAST:
        created = _insert_each(tx, rows, parent_id, parent_round)
    else:
        for _, run in groupby(rows, shared_of):  # runs, not groups: the order of the rows is that of their ids
            created += _insert_alike(tx, list(run), parent_id, parent_round)
    if created:
        tx.work = True
    if created == len(rows):
        return [Inserted(row.promise, True) for row in rows]
    return _sort_out(tx, rows, 0 if last is None else last[0])


def _insert_alike(tx: Tx, rows: Sequence[NewExecution], parent_id: int | None, parent_round: int | None) -> int:
    """Rows that share all but `OWN_FIELDS`; how many of them are new."""
    promises = [row.promise for row in rows]
    length = len(promises[0])
    packed = encode([_own_of(row) for row in rows]) if len(rows) >= _PACKED_LEAST else b""
    if not packed or len(packed) > _PACKED_MOST or any(len(promise) != length for promise in promises):
        return _insert_each(tx, rows, parent_id, parent_round)
    shared = _parameters(rows[0], tx.now, parent_id, parent_round)
    return tx.db.execute(SQL["insert_alike"], (b"".join(promises), length, packed.decode(), *shared)).rowcount


def _insert_each(tx: Tx, rows: Sequence[NewExecution], parent_id: int | None, parent_round: int | None) -> int:
    if parent_id is None and all(map(_is_plain, rows)):
        parameters = [_plain_parameters(row, tx.now) for row in rows]
        return tx.db.executemany(SQL["insert_plain"], parameters).rowcount
    parameters = [
        (
            row.promise,
            row.input_hash,
            row.state,
            row.idempotency_key,
            *_parameters(row, tx.now, parent_id, parent_round),
        )
        for row in rows
    ]
    return tx.db.executemany(SQL["insert_execution"], parameters).rowcount


def _plain_parameters(row: NewExecution, now: int) -> Row:
    return (
        row.promise,
        row.kind,
        row.name,
        row.version,
        row.handler,
        row.step,
        row.state,
        row.queue,
        row.priority,
        row.input_hash,
        row.digest,
        after(now, row.delay),
        now,
        row.idempotency_key,
        1 if row.cleans_up else 0,
    )


def _parameters(row: NewExecution, now: int, parent_id: int | None, parent_round: int | None) -> Row:
    """All but `OWN_FIELDS`."""
    eligible_at = after(now, row.delay)
    if row.at is not None:
        eligible_at = max(eligible_at, to_us(row.at))
    unique_scope, released = None, 0
    if row.unique_key is not None:
        unique_scope = names_json(row.unique_scope)
        # Entering the scope later could meet an occupant and abort a whole pick: not in it now is never (ruling E14).
        released = 0 if "runnable" in row.unique_scope else 1
    return (
        row.kind,
        row.name,
        row.version,
        row.handler,
        row.step,
        row.queue,
        row.priority,
        row.partition_key,
        eligible_at,
        1 if row.paused else 0,
        parent_id,
        parent_round,
        row.unique_key,
        unique_scope,
        released,
        row.digest,
        row.attributes,
        now,
        now,
        1 if row.reports else 0,
        1 if row.cleans_up else 0,
        None if row.deadline is None else after(eligible_at, row.deadline),
    )


def _sort_out(tx: Tx, rows: Sequence[NewExecution], last_id: int) -> list[Inserted]:
    """Which rows are new (their ids are past `last_id`), which were found, which their unique key refused.

    The transaction excludes every other writer, so that what refused a row is still there.
    """
    answers: list[Inserted] = []
    seen: set[bytes] = set()
    for row in rows:
        found = tx.db.execute(SQL["insert_found"], (row.promise,)).fetchone()
        if found is None:
            occupant = tx.db.execute(SQL["insert_occupant"], (row.unique_key,)).fetchone()
            answers.append(Inserted(occupant[0], False, collided=True))
            continue
        created = found[0] > last_id and row.promise not in seen
        seen.add(row.promise)
        answers.append(Inserted(row.promise, created, key_conflict=not created and found[1] != row.input_hash))
    return answers
