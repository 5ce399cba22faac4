"""The commit lane: strictly in seq order, whole runs at a time (ruling D7).

`ready` says which run can be committed, `commit` marks it, `awaited` names the seq that holds back the rest.
The lane has an owner of its own: a committer that was replaced changes nothing (ruling D8).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.core.errors import InvalidArgumentError, LeaseLostError, LedgerError
from holdfast.core.sequence.columns import Columns
from holdfast.core.sequence.states import COMMITTED, DISPATCHED, IN_FLIGHT, SUCCESS, TERMINALS, UNSEEN, State

_COMMITTED_BYTE = bytes((COMMITTED,))
_NOT_TERMINAL = re.compile(b"[^%c-%c]" % (SUCCESS, TERMINALS[-1]))


@dataclass(frozen=True, slots=True)
class Awaited:
    """The lowest seq that is not committed, and what it waits for."""

    seq: int
    state: State
    owner: int
    attempts: int
    reason: str


class CommitLane:
    """Moves one head over the ledger's columns; the head never goes back."""

    __slots__ = ("_columns", "_owner", "_ready", "head")

    def __init__(self, columns: Columns, head: int) -> None:
        self._columns = columns
        self._owner = 0
        self._ready = head  # terminal up to here: a terminal state never becomes anything but COMMITTED
        self.head = head

    def take(self, owner: int) -> None:
        """Make `owner` the committer; the one before it is stale from now on."""
        if owner <= 0:
            raise InvalidArgumentError(f"owner {owner} is no token: use a positive number")
        self._owner = owner

    def ready(self, limit: int | None = None) -> range:
        """The run of terminal items from the head on, empty while the head is missing."""
        columns = self._columns
        stop = columns.end if limit is None else min(columns.end, self.head + limit)
        if self._ready < stop:
            base = columns.base
            found = _NOT_TERMINAL.search(columns._state, self._ready - base, stop - base)
            self._ready = stop if found is None else base + found.start()
        return range(self.head, min(self._ready, stop))

    def commit(self, start: int, stop: int, owner: int, now_ms: int) -> int:
        """Rules 8-11 for [start, stop): how many were newly committed. What already was is a no-op."""
        if owner != self._owner:
            raise LeaseLostError(
                f"owner {owner} no longer holds the commit lane, owner {self._owner} does; nothing was written"
            )
        columns, head = self._columns, self.head
        if columns.failure is not None:
            columns._refuse_if_failed()
        if stop <= head:
            return 0  # a replayed commit (ruling D5)
        if start > head or stop > columns.base + columns._size:
            raise LedgerError(
                f"cannot commit [{start}, {stop}): commits are in seq order, seq {head} is next and the "
                f"ledger ends at {columns.end}"
            )
        low, high = head - columns.base, stop - columns.base
        state, counts = columns._state, columns._counts
        run = state[low:high]
        found = _NOT_TERMINAL.search(run)
        if found is not None:
            at = found.start()
            raise columns._fatal(head + at, run[at], COMMITTED, owner, now_ms)
        size = high - low
        state[low:high] = _COMMITTED_BYTE * size
        if size == 1:
            counts[run[0]] -= 1
        else:
            for terminal in TERMINALS:
                counts[terminal] -= run.count(terminal)
        counts[COMMITTED] += size
        self.head = stop
        if self._ready < stop:
            self._ready = stop
        return size

    def awaited(self) -> Awaited | None:
        """What holds the lane up; None when all that was taken in is committed."""
        columns, seq = self._columns, self.head
        if seq >= columns.end:
            return None
        state, owner, attempts = columns.state(seq), columns.owner(seq), columns.attempts(seq)
        if state == UNSEEN:
            reason = "not dispatched yet"
        elif state == DISPATCHED:
            held = f"owner {owner} has not begun it" if owner else "waiting for an owner"
            reason = f"{held}, after {attempts} retries" if attempts else held
        elif state == IN_FLIGHT:
            reason = f"owner {owner} is working on it, attempt {attempts + 1}"
        else:
            reason = "ready to be committed"
        return Awaited(seq, state, owner, attempts, reason)
