"""Transitions of one item at a time.

Each method evaluates and writes in one go: ownership first (a stale owner is refused), then the table
(anything illegal hard-fails the run), then state, counters and lease. Stretches are `ledger.py`'s business.
"""

from __future__ import annotations

from holdfast.core.errors import InvalidArgumentError, LedgerError
from holdfast.core.sequence.columns import MAX_LEASE_MS, Columns
from holdfast.core.sequence.leases import FreeQueue, LeaseHeap
from holdfast.core.sequence.states import (
    CANCEL,
    DISPATCHED,
    FAIL,
    IN_FLIGHT,
    SKIP,
    SUCCESS,
    TABLE,
    UNSEEN,
    FailClass,
    RetryGuard,
)

MAX_OWNER = (1 << 32) - 1

# The table's columns that `finish` may write; failures are settled by `fail`.
_FINISH = tuple(bytes(row[to] if to in (SUCCESS, SKIP, CANCEL) else 0 for to in range(8)) for row in TABLE)


class ItemLedger(Columns):
    """Owners are positive 32-bit tokens: one a grant, so that an earlier grant's late answer is stale.

    Where one token may hold the same item twice, pass `attempt` too.
    """

    __slots__ = ("_free", "_leases", "latched", "lease_ms", "retry")

    def __init__(self, *, lease_ms: int, retry: RetryGuard, base: int, now_ms: int) -> None:
        super().__init__(base=base, now_ms=now_ms)
        if not 1 <= lease_ms <= MAX_LEASE_MS:
            raise InvalidArgumentError(f"lease_ms is {lease_ms}; use 1..{MAX_LEASE_MS} (about 12 days)")
        self.lease_ms = lease_ms
        self.retry = retry
        self.latched = False
        self._leases = LeaseHeap()
        self._free = FreeQueue()

    def dispatch(self, seq: int, owner: int, now_ms: int) -> None:
        """Rule 1: UNSEEN -> DISPATCHED. A DISPATCHED item that nobody holds goes to `owner` as it is (D3)."""
        if self.latched or self.failure is not None or not 0 < owner <= MAX_OWNER:
            self._admit(owner)
        place = seq - self.base
        if not 0 <= place < self._size:
            self._place(seq)
        prior = self._state[place]
        if prior != DISPATCHED or self._owner[place]:
            # Rule 12 is not taken here: a retry is settled with its failure (ruling D2).
            if not TABLE[prior][DISPATCHED] or prior == FAIL:
                raise self._fatal(seq, prior, DISPATCHED, owner, now_ms)
            self._state[place] = DISPATCHED
            self._counts[UNSEEN] -= 1
            self._counts[DISPATCHED] += 1
        self._owner[place] = owner
        at = self._beat[place] = self._tick(now_ms)
        if self._leases.push(self._epoch_ms + at + self.lease_ms, seq, seq + 1):
            self._leases.sweep(self._is_held)

    def begin(self, seq: int, owner: int, now_ms: int) -> None:
        """Rule 2: DISPATCHED -> IN_FLIGHT, by the lease's owner alone; renews the lease."""
        place = seq - self.base
        if not 0 <= place < self._size or self._owner[place] != owner:
            raise self._not_owner(seq, IN_FLIGHT, owner, now_ms)
        state = self._state
        if not TABLE[state[place]][IN_FLIGHT]:
            raise self._fatal(seq, state[place], IN_FLIGHT, owner, now_ms)
        if self.failure is not None:
            self._refuse_if_failed()
        state[place] = IN_FLIGHT
        self._counts[DISPATCHED] -= 1
        self._counts[IN_FLIGHT] += 1
        self._beat[place] = self._tick(now_ms)

    def heartbeat(self, seq: int, owner: int, now_ms: int, *, attempt: int | None = None) -> None:
        """Progress of the item itself; a worker's own heartbeat renews nothing (ruling D9)."""
        place = seq - self.base
        if (
            not 0 <= place < self._size
            or self._owner[place] != owner
            or (attempt is not None and self._attempts[place] != attempt)
        ):
            raise self._stale(seq, owner)
        if self._state[place] in (DISPATCHED, IN_FLIGHT):  # after the end a late tick means nothing
            self._beat[place] = self._tick(now_ms)

    def finish(self, seq: int, owner: int, now_ms: int, outcome: int = SUCCESS, *, attempt: int | None = None) -> None:
        """Rules 3, 4 and 7: the item's only terminal event. A second one in an attempt is fatal (D5)."""
        place = seq - self.base
        if (
            not 0 <= place < self._size
            or self._owner[place] != owner
            or (attempt is not None and self._attempts[place] != attempt)
        ):
            raise self._not_owner(seq, outcome, owner, now_ms)
        state = self._state
        prior = state[place]
        if not _FINISH[prior][outcome]:
            if outcome not in (SUCCESS, SKIP, CANCEL):
                raise InvalidArgumentError(f"seq {seq} cannot finish as {outcome}: use fail() for a failure")
            raise self._fatal(seq, prior, outcome, owner, now_ms)
        state[place] = outcome
        self._outcome[place] = outcome
        counts = self._counts
        counts[prior] -= 1
        counts[outcome] += 1
        self._totals[outcome] += 1

    def fail(
        self,
        seq: int,
        owner: int,
        now_ms: int,
        fail_class: FailClass,
        *,
        delay_ms: int = 0,
        attempt: int | None = None,
    ) -> bool:
        """Rule 5, and rule 12 at once where the guard allows it (ruling D2). True: it will run again.

        A failure that is retried is no terminal event (ruling D5).
        """
        place = seq - self.base
        if (
            not 0 <= place < self._size
            or self._owner[place] != owner
            or (attempt is not None and self._attempts[place] != attempt)
        ):
            raise self._not_owner(seq, FAIL, owner, now_ms)
        prior = self._state[place]
        if not TABLE[prior][FAIL]:
            raise self._fatal(seq, prior, FAIL, owner, now_ms)
        return self._settle_failure(seq, place, fail_class, now_ms + delay_ms if delay_ms > 0 else None)

    def _settle_failure(self, seq: int, place: int, fail_class: FailClass, ready_at_ms: int | None = None) -> bool:
        """IN_FLIGHT -> TERMINAL_FAIL, and on to DISPATCHED if a retry is due; no one sees it in between."""
        self._outcome[place] = FAIL | fail_class << 4
        self._counts[IN_FLIGHT] -= 1
        attempts = self._attempts[place]
        if self.latched or self.failure is not None or not self.retry.allows(fail_class, attempts):
            self._state[place] = FAIL
            self._counts[FAIL] += 1
            self._totals[FAIL] += 1
            return False
        self._state[place] = DISPATCHED
        self._counts[DISPATCHED] += 1
        self._attempts[place] = attempts + 1
        self.retries += 1
        self._owner[place] = 0  # so that the last attempt's late answer is stale
        self._free.push(seq, ready_at_ms)
        return True

    def _admit(self, owner: int) -> None:
        if self.latched or self.failure is not None:
            self._refuse_if_failed()
            raise LedgerError("the run is being cancelled: nothing more is dispatched")
        if not 0 < owner <= MAX_OWNER:
            self._check_token(owner)

    @staticmethod
    def _check_token(owner: int) -> None:
        if not 0 < owner <= MAX_OWNER:
            raise InvalidArgumentError(f"owner {owner} is no token: use 1..{MAX_OWNER}")
