"""Limits of queues, which hold over all workers: pause, concurrency, rate. Queues without settings cost nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.core.clock import MICROSECONDS
from holdfast.core.durations import MAX_SECONDS
from holdfast.store.sqlite.rows import Row, names_json
from holdfast.store.sqlite.statements import OF_ONE, SQL
from holdfast.store.sqlite.writer import Tx
from holdfast.store.values import ExecutionClaim

_LONGEST_US = MAX_SECONDS * MICROSECONDS


@dataclass(slots=True)
class Rooms:
    """How much of each queue a pick may still take."""

    left: dict[str, int]
    serving: list[str]  # queues that are not paused
    tokens: dict[str, float] = field(default_factory=dict)  # of queues with a rate, before this pick
    next_token_at: int | None = None  # when the first queue that is out of tokens has one again


def rooms(tx: Tx, worker: str, left: dict[str, int]) -> Rooms | None:
    """Of what is left of the worker's own; None if the worker is gone."""
    found = Rooms(left, list(left))
    limits = _limits(tx, worker, found.serving)
    if not limits:
        return None
    for name, paused, concurrency, rate, rate_seconds, tokens, tokens_at in limits:
        if paused:
            left[name] = 0
            found.serving.remove(name)
            continue
        if concurrency is not None:
            executing = tx.db.execute(SQL["queue_executing"], (name,)).fetchone()[0]
            left[name] = min(left[name], concurrency - executing)
        if rate is not None:
            if tokens_at > tx.now:  # the clock was set back: the bucket fills from now on, not when it has caught up
                tokens_at = tx.now
                tx.db.execute(SQL["queue_spend"], (tokens, tokens_at, name))
            per_us = rate / (rate_seconds * MICROSECONDS)
            have = min(burst(rate), tokens + max(0, tx.now - tokens_at) * per_us)
            found.tokens[name] = have
            left[name] = min(left[name], int(have))
            if have < 1:
                # A rate of next to nothing: the wait for a token may be beyond every clock.
                at = tx.now + int(min((1 - have) / per_us if per_us else _LONGEST_US, _LONGEST_US)) + 1
                found.next_token_at = at if found.next_token_at is None else min(found.next_token_at, at)
    return found


def _limits(tx: Tx, worker: str, names: list[str]) -> list[Row]:
    if len(names) == 1:
        return tx.db.execute(OF_ONE["pick_limits"], (names[0], worker)).fetchall()
    return tx.db.execute(SQL["pick_limits"], (names_json(names), worker)).fetchall()


def burst(rate: float) -> float:
    """What a bucket holds at most: `rate` tokens, but always room for one."""
    return max(rate, 1.0)


def spend(tx: Tx, rooms: Rooms, claims: Sequence[ExecutionClaim]) -> None:
    """Take a token for each claim of a queue with a rate."""
    if not rooms.tokens:
        return
    spent = Counter(claim.queue for claim in claims)
    tx.db.executemany(
        SQL["queue_spend"],
        [(have - spent[name], tx.now, name) for name, have in rooms.tokens.items() if spent[name]],
    )
