"""The ledger's memory: one compact array a column, twelve bytes an item, and the counters beside them.

A seq's place is `seq - base`; what lies before `base` has been committed and dropped (`trim`). Counters
change with every write and are counted anew only by `recount`, which tests compare them with (ruling D6).
"""

from __future__ import annotations

import re
import sys
from array import array
from dataclasses import dataclass

from holdfast.core.errors import IllegalTransitionError, InvalidArgumentError, LeaseLostError, LedgerError
from holdfast.core.sequence.states import (
    CANCEL,
    COMMITTED,
    DISPATCHED,
    FAIL,
    IN_FLIGHT,
    SKIP,
    SUCCESS,
    TERMINALS,
    UNSEEN,
    State,
    illegal_transition,
)

MAX_LEASE_MS = 1 << 30
_REBASE_AT_MS = 1 << 31
_OUTCOME = 0b1111
_HELD = re.compile(b"[%c%c]" % (DISPATCHED, IN_FLIGHT))


@dataclass(frozen=True, slots=True)
class Counters:
    """How many items are where; `succeeded` and its like count terminal and committed ones alike."""

    unseen: int
    dispatched: int
    in_flight: int
    terminal: int
    committed: int
    succeeded: int
    skipped: int
    failed: int
    cancelled: int
    retries: int

    @property
    def total(self) -> int:
        return self.unseen + self.dispatched + self.in_flight + self.terminal + self.committed


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the ledger as bytes, four an item, for a store to keep."""

    start: int
    states: bytes
    outcomes: bytes
    attempts: bytes

    @property
    def stop(self) -> int:
        return self.start + len(self.states)


class Columns:
    """The arrays and what keeps them consistent. Transitions are made by the subclasses."""

    __slots__ = (
        "_at_ms",
        "_attempts",
        "_beat",
        "_counts",
        "_epoch_ms",
        "_outcome",
        "_owner",
        "_size",
        "_state",
        "_totals",
        "_trimmed_totals",
        "base",
        "failure",
        "retries",
    )

    def __init__(self, *, base: int, now_ms: int) -> None:
        if base < 0:
            raise InvalidArgumentError(f"a ledger cannot start at seq {base}")
        self.base = base
        self.failure: IllegalTransitionError | None = None
        self.retries = 0
        self._size = 0
        self._state = bytearray()
        self._outcome = bytearray()  # low bits: terminal state; high bits: FailClass; survives COMMITTED
        self._attempts = array("H")
        self._owner = array("I")  # 0: nobody
        self._beat = array("I")  # milliseconds since _epoch_ms
        self._epoch_ms = now_ms
        self._at_ms = 0
        self._counts = [0] * len(State)
        self._totals = [0] * len(State)
        self._trimmed_totals = [0] * len(State)

    @property
    def end(self) -> int:
        """The seq after the last one taken in."""
        return self.base + self._size

    def extend(self, count: int) -> range:
        """Take in `count` more items, UNSEEN."""
        if count < 0:
            raise InvalidArgumentError(f"cannot take in {count} items")
        start = self.end
        self._state.extend(bytes(count))
        self._outcome.extend(bytes(count))
        self._attempts.extend(array("H", [0]) * count)
        self._owner.extend(array("I", [0]) * count)
        self._beat.extend(array("I", [0]) * count)
        self._size += count
        self._counts[UNSEEN] += count
        return range(start, start + count)

    def state(self, seq: int) -> State:
        return State.COMMITTED if seq < self.base else State(self._state[self._place(seq)])

    def owner(self, seq: int) -> int:
        """The token that holds `seq`, or held it last; 0 for nobody."""
        return self._owner[self._place(seq)]

    def attempts(self, seq: int) -> int:
        """How often `seq` was retried: 0 during its first run."""
        return self._attempts[self._place(seq)]

    def outcome(self, seq: int) -> tuple[State, int]:
        """The terminal state that `seq` reached, kept after its commit, and its fail class (0: none)."""
        byte = self._outcome[self._place(seq)]
        return State(byte & _OUTCOME), byte >> 4

    def counters(self) -> Counters:
        """Constant time, at any size."""
        return _counters(self._counts, self._totals, self.retries)

    def recount(self) -> Counters:
        """The same by a full scan: for tests and audits, never on the hot path."""
        counts = [self._state.count(state) for state in State]
        totals = list(self._trimmed_totals)
        counts[COMMITTED] += sum(totals)
        for place, state in enumerate(self._state):
            if state in TERMINALS or state == COMMITTED:
                totals[self._outcome[place] & _OUTCOME] += 1
        return _counters(counts, totals, self.retries)

    def check(self) -> None:
        """Raise unless the counters equal a recount."""
        kept, counted = self.counters(), self.recount()
        if kept != counted:
            raise LedgerError(f"sequence counters have drifted: kept {kept}, counted {counted}")

    def trim(self, seq: int) -> None:
        """Forget the committed items before `seq`: memory follows the window, not the run."""
        count = seq - self.base
        if count <= 0:
            return
        if self._state.count(COMMITTED, 0, count) != count:
            raise LedgerError(f"cannot forget the items before seq {seq}: not all of them are committed")
        # A failure carries its class in the high bits: it is what the plain outcomes leave over.
        self._trimmed_totals[FAIL] += count
        for outcome in (SUCCESS, SKIP, CANCEL):
            plain = self._outcome.count(outcome, 0, count)
            self._trimmed_totals[outcome] += plain
            self._trimmed_totals[FAIL] -= plain
        del self._state[:count], self._outcome[:count]
        del self._attempts[:count], self._owner[:count], self._beat[:count]
        self.base = seq
        self._size -= count

    def export(self, start: int, stop: int) -> Segment:
        """The items of [start, stop) as bytes, the same on every machine."""
        low, high = self._span(start, stop)
        attempts = self._attempts[low:high]
        if sys.byteorder == "big":
            attempts.byteswap()
        return Segment(start, bytes(self._state[low:high]), bytes(self._outcome[low:high]), attempts.tobytes())

    def _append(self, segment: Segment) -> None:
        """Take in a stored stretch; nobody holds its items."""
        size = len(segment.states)
        attempts = array("H", segment.attempts)
        if sys.byteorder == "big":
            attempts.byteswap()
        if segment.start != self.end or len(segment.outcomes) != size or len(attempts) != size:
            raise LedgerError(
                f"segment [{segment.start}, {segment.stop}) does not continue a ledger that ends at "
                f"{self.end}, or its columns differ in length"
            )
        if segment.states.translate(None, bytes(State)) or any(
            outcome & _OUTCOME not in TERMINALS
            for state, outcome in zip(segment.states, segment.outcomes, strict=True)
            if state >= SUCCESS
        ):
            raise LedgerError(
                f"segment [{segment.start}, {segment.stop}) holds a byte that is no state, or an end without "
                "its outcome; the stored value is corrupt"
            )
        place = self._size
        self.extend(size)
        self._state[place:] = segment.states
        self._outcome[place:] = segment.outcomes
        self._attempts[place:] = attempts
        self._counts[UNSEEN] -= size
        for state in State:
            self._counts[state] += segment.states.count(state)
        for code, outcome in zip(segment.states, segment.outcomes, strict=True):
            if code >= SUCCESS:
                self._totals[outcome & _OUTCOME] += 1
        self.retries += sum(attempts)

    def _tick(self, now_ms: int) -> int:
        """`now_ms` on the ledger's own scale, which never runs back and fits 32 bits."""
        at = now_ms - self._epoch_ms
        if at < self._at_ms:
            return self._at_ms
        if at >= _REBASE_AT_MS:
            shift = at - MAX_LEASE_MS
            # A beat cut off at 0 is older than any lease can be: expired before and after.
            self._beat = array("I", [max(0, beat - shift) for beat in self._beat])
            self._epoch_ms += shift
            at = MAX_LEASE_MS
        self._at_ms = at
        return at

    def _place(self, seq: int) -> int:
        place = seq - self.base
        if not 0 <= place < self._size:
            raise InvalidArgumentError(f"seq {seq} is not in the ledger, which holds [{self.base}, {self.end})")
        return place

    def _span(self, start: int, stop: int) -> tuple[int, int]:
        if not self.base <= start <= stop <= self.end:
            raise InvalidArgumentError(f"[{start}, {stop}) is not in the ledger, which holds [{self.base}, {self.end})")
        return start - self.base, stop - self.base

    def _is_held(self, start: int, stop: int) -> bool:
        """Whether [start, stop) has an item that is dispatched or in flight."""
        low, high = max(0, start - self.base), max(0, stop - self.base)
        return _HELD.search(self._state, low, high) is not None

    def _refuse_if_failed(self) -> None:
        if self.failure is not None:
            raise LedgerError(f"the run has failed, nothing more is dispatched or committed: {self.failure}")

    def _fatal(self, seq: int, prior: int, to: int, owner: int, now_ms: int) -> IllegalTransitionError:
        """Hard-fail: dispatch and commit stop; nothing committed is undone (ruling D10)."""
        error = illegal_transition(seq, prior, to, owner, now_ms)
        if self.failure is None:
            self.failure = error
        return error

    def _not_owner(
        self, seq: int, to: int, owner: int, now_ms: int
    ) -> IllegalTransitionError | LeaseLostError | InvalidArgumentError:
        """Why `owner` may not move `seq`: a stale owner is refused, never fatal (ruling D10)."""
        if seq >= self.end:
            return InvalidArgumentError(f"seq {seq} has not been taken in; the ledger ends at {self.end}")
        if seq >= self.base and self._state[seq - self.base] == UNSEEN:
            return self._fatal(seq, UNSEEN, to, owner, now_ms)  # nobody ever owned it: no one can be stale
        return self._stale(seq, owner)

    @staticmethod
    def _stale(seq: int, owner: int) -> LeaseLostError:
        return LeaseLostError(
            f"owner {owner} does not hold seq {seq}: its lease ended. Nothing was written; drop the result"
        )


def _counters(counts: list[int], totals: list[int], retries: int) -> Counters:
    unseen, dispatched, in_flight, success, skip, fail, cancel, committed = counts
    return Counters(
        unseen,
        dispatched,
        in_flight,
        success + skip + fail + cancel,
        committed,
        totals[3],
        totals[4],
        totals[5],
        totals[6],
        retries,
    )
