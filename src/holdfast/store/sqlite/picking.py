"""Leasing due rows to a worker, in order, at a cost that depends on what is picked alone (rulings E8, E9)."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.core.clock import MICROSECONDS
from holdfast.store.sqlite import inboxes, keys, limits
from holdfast.store.sqlite.rows import Row, claim_of
from holdfast.store.sqlite.statements import NO_IDS, SQL, Ids, joined, json_ids, packed, sql_for
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import ExecutionClaim, Picked, QueueRoom

# One transaction blocks no more rows than this, so that a hot key does not keep other writers waiting.
BLOCKED_MAX: Final = 2_000
_BELOW_ALL_PRIORITIES: Final = -32_769


class PickOrder:
    """A pick, in as many transactions as it takes: one that has blocked enough rows lets other writers in.

    Leases need not be on the disk before they are used (`may_lag`): whatever a holder commits takes its lease along,
    and a machine that goes down takes the holders of its leases with it. But what a pick spends of a rate must not be
    given back.
    """

    def __init__(
        self, worker: str, queues: Sequence[QueueRoom], handlers: Sequence[int], limit: int, may_lag: bool
    ) -> None:
        """`may_lag` as it was of the last one is the best guess: one that proves wrong costs a transaction."""
        self._worker = worker
        self._queues = queues
        self._handlers = handlers
        self._limit = limit
        self._claims: list[ExecutionClaim] = []
        self.may_lag = may_lag

    def run(self, tx: Tx) -> tuple[Picked, bool]:
        """One transaction: what is picked so far, and whether to run it again."""
        left = {queue.name: queue.room for queue in self._queues}
        for claim in self._claims:
            left[claim.queue] -= 1
        rooms = limits.rooms(tx, self._worker, left)
        if rooms is None:
            return Picked([], worker_lost=True), False
        self.may_lag = not rooms.tokens
        if tx.lags and not self.may_lag:
            return Picked(self._claims), True
        limit, more = self._limit - len(self._claims), False
        chosen, next_at = _look(tx, rooms, self._handlers, limit)
        is_plain = chosen is not None
        if chosen is None:
            rows, blocked, keyed, more = _choose(tx, rooms, self._handlers, limit)
            keys.take(tx, keyed)
            keys.block(tx, blocked)
            chosen = packed(rows)
        claims = _lease(tx, self._worker, chosen)
        limits.spend(tx, rooms, claims)
        self._claims += claims
        if more or len(self._claims) >= self._limit:
            return Picked(self._claims), more
        if not is_plain:
            _, next_at = _look(tx, rooms, (), 0)
        return Picked(self._claims, None if next_at is None else (next_at - tx.now) / MICROSECONDS), False


def _look(tx: Tx, rooms: limits.Rooms, handlers: Sequence[int], limit: int) -> tuple[Ids | None, int | None]:
    """The rows to lease, unless they are of several queues, or any has a key.

    And when there will be more, unless the limit is reached: a row is eligible then, or a spent queue has a token.
    """
    if limit > 0 and sum(left > 0 for left in rooms.left.values()) > 1:
        return None, None
    known, found, next_at = json_ids(handlers), [], rooms.next_token_at
    for queue in rooms.serving:
        room = max(0, min(limit, rooms.left[queue]))
        priority: int | None = _BELOW_ALL_PRIORITIES
        while priority is not None:
            asked = (queue, priority, tx.now, known, room)
            count, keyed, ids, due_at, priority = tx.db.execute(SQL["pick_priority"], asked).fetchone()
            if keyed:
                return None, None
            if count:
                found.append(ids)
                room -= count
                limit -= count
                if not limit:
                    return joined(found), None
            if due_at is not None and (next_at is None or due_at < next_at):
                next_at = due_at
    return joined(found), next_at


def _choose(
    tx: Tx, rooms: limits.Rooms, handlers: Sequence[int], limit: int
) -> tuple[list[int], list[int], list[tuple[str, int]], bool]:
    """Rows to lease and rows to block, found in order; nothing is written while the index is walked."""
    known = set(handlers)
    chosen: list[int] = []
    blocked: list[int] = []
    taken: list[tuple[str, int]] = []
    behind: set[str] = set()  # keys that are held: their rows are blocked
    waiting: set[str] = set()  # keys whose head no code here can run: their rows stay as they are
    for _, _, row, handler, key, queue in _due_rows(tx, rooms, json_ids(known)):
        if key is not None:
            if key not in behind and key not in waiting and keys.is_taken(tx, key):
                behind.add(key)
            if key in behind:
                blocked.append(row)
                if len(blocked) >= BLOCKED_MAX:
                    return chosen, blocked, taken, True
                continue
            if key in waiting or handler not in known:
                waiting.add(key)
                continue
            behind.add(key)
            taken.append((key, row))
        chosen.append(row)
        rooms.left[queue] -= 1
        if len(chosen) >= limit:
            break
    return chosen, blocked, taken, False


def _due_rows(tx: Tx, rooms: limits.Rooms, handlers: str) -> Iterator[Row]:
    """Due rows of all queues with room, by (priority, eligible_at, id)."""
    open_queues = [queue for queue, left in rooms.left.items() if left > 0]
    if len(open_queues) == 1:
        return _due_rows_of(tx, rooms, open_queues[0], handlers)
    return heapq.merge(*(_due_rows_of(tx, rooms, queue, handlers) for queue in open_queues))


def _due_rows_of(tx: Tx, rooms: limits.Rooms, queue: str, handlers: str) -> Iterator[Row]:
    left = rooms.left
    for priority in priorities(tx.db, queue):
        for row in tx.db.execute(SQL["pick_due"], (queue, priority, tx.now, handlers)):
            if left[queue] <= 0:
                return
            yield row


def priorities(db: sqlite3.Connection, queue: str) -> Iterator[int]:
    """The priorities in use, from one to the next through the index (ruling E8)."""
    priority = _BELOW_ALL_PRIORITIES
    while (found := db.execute(SQL["pick_next_priority"], (queue, priority)).fetchone()) is not None:
        priority = found[0]
        yield priority


def _lease(tx: Tx, worker: str, ids: Ids) -> list[ExecutionClaim]:
    if ids == NO_IDS:
        return []
    tx.db.execute(sql_for(ids, "pick_lease"), (worker, tx.now, tx.now, ids))
    return claims_of(tx, worker, ids)


def claims_of(tx: Tx, worker: str, ids: Ids) -> list[ExecutionClaim]:
    """The claims of those of the rows that the worker holds, with their inboxes."""
    found = inboxes.read(tx, ids)
    held = tx.db.execute(sql_for(ids, "pick_claims"), (ids, worker)).fetchall()
    return [claim_of(row, found.get(row[0], ()), tx.now) for row in held]


def waiting_priority(db: sqlite3.Connection, now: int, queues: Sequence[str], handlers: Sequence[int]) -> int | None:
    """The most urgent priority at which a due row waits that this worker could run."""
    known, best = json_ids(handlers), None
    for queue in queues:
        for priority in priorities(db, queue):
            if best is not None and priority >= best:
                break
            if db.execute(SQL["waiting_due"], (queue, priority, now, known)).fetchone() is not None:
                best = priority
                break
    return best
