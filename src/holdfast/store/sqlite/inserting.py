"""Starting executions: idempotent by promise, refused by an occupied unique key (seed section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from msgspec.structs import fields

from holdfast.core.clock import to_us
from holdfast.store.sqlite.rows import Row, after, names_json
from holdfast.store.sqlite.statements import SQL
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import Inserted, NewExecution

_PLAIN_FIELDS: Final = (
    *("promise", "kind", "name", "version", "handler", "step", "state", "queue", "priority", "input_hash"),
    *("digest", "delay", "idempotency_key", "cleans_up"),
)
_SPECIAL: Final = {field.name: field.default for field in fields(NewExecution) if field.name not in _PLAIN_FIELDS}
_special_of: Final = attrgetter(*_SPECIAL)
_NOTHING_SPECIAL: Final = tuple(_SPECIAL.values())


def insert(
    tx: Tx, rows: Sequence[NewExecution], parent_id: int | None = None, parent_round: int | None = None
) -> list[Inserted]:
    """Insert all that do not collide, and say of each what became of it."""
    if not rows:
        return []
    last = tx.db.execute(SQL["insert_last_id"]).fetchone()
    now = tx.now
    if parent_id is None and all(_special_of(row) == _NOTHING_SPECIAL for row in rows):
        cursor = tx.db.executemany(SQL["insert_plain"], [_plain_parameters(row, now) for row in rows])
    else:
        parameters = [_parameters(row, now, parent_id, parent_round) for row in rows]
        cursor = tx.db.executemany(SQL["insert_execution"], parameters)
    if cursor.rowcount:
        tx.work = True
    if cursor.rowcount == len(rows):
        return [Inserted(row.promise, True) for row in rows]
    return _sort_out(tx, rows, 0 if last is None else last[0])


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
    eligible_at = after(now, row.delay)
    if row.at is not None:
        eligible_at = max(eligible_at, to_us(row.at))
    unique_scope, released = None, 0
    if row.unique_key is not None:
        unique_scope = names_json(row.unique_scope)
        # Entering the scope later could meet an occupant and abort a whole pick: not in it now is never (ruling E14).
        released = 0 if "runnable" in row.unique_scope else 1
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
        row.partition_key,
        eligible_at,
        1 if row.paused else 0,
        parent_id,
        parent_round,
        row.unique_key,
        unique_scope,
        released,
        row.input_hash,
        row.digest,
        row.attributes,
        now,
        now,
        row.idempotency_key,
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
