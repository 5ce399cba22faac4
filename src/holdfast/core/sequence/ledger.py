"""The sequence ledger of a batch: eight states, leases, retries and a commit lane over compact arrays.

Here: stretches of items in bulk, handing out, reclaiming, cancelling, loading. Single items: `items.py`;
memory and counters: `columns.py`; commits: `lane.py`. A bulk operation checks its whole stretch before it writes
any of it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from holdfast.core.errors import InvalidArgumentError, LedgerError
from holdfast.core.sequence.columns import Segment
from holdfast.core.sequence.items import ItemLedger
from holdfast.core.sequence.lane import CommitLane
from holdfast.core.sequence.states import (
    CANCEL,
    COMMITTED,
    DISPATCHED,
    IN_FLIGHT,
    SKIP,
    SUCCESS,
    UNSEEN,
    FailClass,
    RetryGuard,
    State,
)

_HELD_RUN = re.compile(b"[%c%c]+" % (DISPATCHED, IN_FLIGHT))
_NOT_BEGUN_RUN = re.compile(b"[%c%c]+" % (UNSEEN, DISPATCHED))
_OPEN_RUN = re.compile(b"[%c-%c]+" % (UNSEEN, IN_FLIGHT))
_UNSEEN_RUN = re.compile(b"%c+" % UNSEEN)
_NOT_COMMITTED = re.compile(b"[^%c]" % COMMITTED)
_FINISHES = bytes((SUCCESS, SKIP, CANCEL))
_NONE_WAITS: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Reclaim:
    """One decision on a lease that ended: where the item was and where it is now."""

    seq: int
    prior: State
    state: State
    attempts: int


class SequenceLedger(ItemLedger):
    """The ledger of seqs from `base` on. Time and owners are parameters; equal calls give equal decisions."""

    __slots__ = ("_unseen", "lane")

    def __init__(
        self, *, lease_ms: int, now_ms: int, length: int = 0, base: int = 0, retry: RetryGuard | None = None
    ) -> None:
        super().__init__(lease_ms=lease_ms, retry=retry or RetryGuard(), base=base, now_ms=now_ms)
        self.lane = CommitLane(self, base)
        self._unseen = base  # no UNSEEN item lies before it
        self.extend(length)

    def load(self, segment: Segment, ready_ms: Mapping[int, int] = _NONE_WAITS) -> None:
        """Continue with a stored stretch. What was in flight is nobody's: the next `reclaim` settles it.

        `ready_ms`: the retries that are not handed out before their time, as `waiting` told them.
        """
        place = self._size
        self._append(segment)
        committed = _NOT_COMMITTED.search(self._state, place)
        stop = self.end if committed is None else self.base + committed.start()
        if self._state.count(COMMITTED, stop - self.base) or (stop > segment.start != self.lane.head):
            raise LedgerError(
                f"segment [{segment.start}, {segment.stop}) has committed items behind one that is not; "
                "the stored value is corrupt"
            )
        if stop > segment.start:
            self.lane.head = self.lane._ready = stop
        for low, high in self._runs(_HELD_RUN, place, self._size):
            self._leases.push(self._epoch_ms, self.base + low, self.base + high)
            for free in range(low, high):
                if self._state[free] == DISPATCHED:
                    self._free.push(self.base + free, ready_ms.get(self.base + free))

    def take(self, owner: int, now_ms: int, *, limit: int, stop: int | None = None) -> list[range]:
        """Hand `owner` up to `limit` items below `stop`, as runs: free ones in seq order, then unseen ones."""
        self._admit(owner)
        end = self.end if stop is None else min(stop, self.end)
        taken: list[range] = []
        left = limit
        while left > 0 and (seq := self._free.peek(now_ms)) is not None and seq < end:
            self._free.pop()
            place = seq - self.base
            if place < 0 or self._state[place] != DISPATCHED or self._owner[place]:
                continue  # handed out or ended since it was queued
            self.dispatch(seq, owner, now_ms)
            if taken and taken[-1].stop == seq:
                taken[-1] = range(taken[-1].start, seq + 1)
            else:
                taken.append(range(seq, seq + 1))
            left -= 1
        while left > 0 and self._unseen < end:
            found = _UNSEEN_RUN.search(self._state, max(0, self._unseen - self.base), min(end - self.base, self._size))
            if found is None:
                self._unseen = end
                break
            start = self.base + found.start()
            run = range(start, min(self.base + found.end(), start + left))
            self.dispatch_range(run.start, run.stop, owner, now_ms)
            self._unseen = run.stop
            taken.append(run)
            left -= len(run)
        return taken

    def dispatch_range(self, start: int, stop: int, owner: int, now_ms: int) -> None:
        """Rule 1 for every item of [start, stop)."""
        self._admit(owner)
        low, high = self._span(start, stop)
        to = bytes((DISPATCHED,)) * (high - low)
        self._require_all(UNSEEN, to, low, owner, now_ms)
        if not to:
            return
        self._write(UNSEEN, to, low)
        self._owner[low:high] = array("I", (owner,)) * len(to)
        at = self._beat_all(low, high, now_ms)
        if self._leases.push(self._epoch_ms + at + self.lease_ms, start, stop):
            self._leases.sweep(self._is_held)

    def begin_range(self, start: int, stop: int, owner: int, now_ms: int) -> None:
        """Rule 2 for every item of [start, stop)."""
        low, high = self._span(start, stop)
        to = bytes((IN_FLIGHT,)) * (high - low)
        self._require_owner(to, low, owner, now_ms)
        self._require_all(DISPATCHED, to, low, owner, now_ms)
        self._refuse_if_failed()
        self._write(DISPATCHED, to, low)
        self._beat_all(low, high, now_ms)

    def heartbeat_range(self, start: int, stop: int, owner: int, now_ms: int) -> None:
        """Progress of every item of [start, stop), such as a tick of one call that works on all of them."""
        low, high = self._span(start, stop)
        held = self._owner[low:high]
        if held != array("I", (owner,)) * len(held):
            odd = next(index for index, holder in enumerate(held) if holder != owner)
            raise self._stale(start + odd, owner)
        self._beat_all(low, high, now_ms)

    def finish_range(self, start: int, stop: int, owner: int, now_ms: int, outcome: int = SUCCESS) -> None:
        """Rules 3, 4 and 7: one outcome for every item of [start, stop)."""
        self.finish_each(start, bytes((outcome,)) * (stop - start), owner, now_ms)

    def finish_each(self, start: int, outcomes: bytes, owner: int, now_ms: int) -> None:
        """An outcome an item, one byte each, from `start` on. Failures go through `fail`."""
        low, high = self._span(start, start + len(outcomes))
        if outcomes.translate(None, _FINISHES):
            raise InvalidArgumentError(
                f"outcomes from seq {start} on hold more than success, skip and cancel: use fail()"
            )
        self._require_owner(outcomes, low, owner, now_ms)
        self._require_all(IN_FLIGHT, outcomes, low, owner, now_ms)
        self._state[low:high] = outcomes
        self._outcome[low:high] = outcomes
        self._counts[IN_FLIGHT] -= high - low
        for outcome in _FINISHES:
            count = outcomes.count(outcome)
            self._counts[outcome] += count
            self._totals[outcome] += count

    def cancel(self, canceller: int, now_ms: int, *, force: bool = False) -> int:
        """Latch dispatch and cancel what has not begun; with `force`, what is in flight as well. How many.

        An UNSEEN item passes through DISPATCHED (ruling D4). The canceller becomes the owner, so that a late
        answer is stale rather than a second terminal event.
        """
        self._check_token(canceller)
        self._refuse_if_failed()
        self.latched = True
        low = max(0, self.lane.head - self.base)
        cancelled = 0
        for start, stop in self._runs(_OPEN_RUN if force else _NOT_BEGUN_RUN, low, self._size):
            size = stop - start
            for prior in (UNSEEN, DISPATCHED, IN_FLIGHT):
                self._counts[prior] -= self._state.count(prior, start, stop)
            self._state[start:stop] = self._outcome[start:stop] = bytes((CANCEL,)) * size
            self._owner[start:stop] = array("I", (canceller,)) * size
            cancelled += size
        self._counts[CANCEL] += cancelled
        self._totals[CANCEL] += cancelled
        return cancelled

    @property
    def next_expiry_ms(self) -> int | None:
        """No lease ends before this moment; look again then."""
        return self._leases.next_ms

    @property
    def next_ready_ms(self) -> int | None:
        """When the first delayed retry may be handed out."""
        return self._free.next_ms

    def waiting(self) -> dict[int, int]:
        """The delayed retries that nobody holds, and when each may be handed out."""
        base, state, owner = self.base, self._state, self._owner
        return {
            seq: ready_ms
            for ready_ms, seq in self._free.later()
            if seq >= base and state[seq - base] == DISPATCHED and not owner[seq - base]
        }

    def reclaim(self, now_ms: int) -> list[Reclaim]:
        """Settle every lease that has expired, in seq order (ruling D3)."""
        at = self._tick(now_ms)
        now_ms = self._epoch_ms + at
        expired: list[int] = []
        for start, stop in self._leases.pop_due(now_ms):
            for low, high in self._held(start, stop):
                self._split_expired(low, high, at, expired)
        return [self._reclaim(place) for place in sorted(set(expired))]

    def release(self, owner: int) -> list[Reclaim]:
        """Settle all that `owner` holds, as if its leases had expired: it is known to be gone."""
        places = {
            place
            for start, stop in self._leases.stretches()
            for low, high in self._held(start, stop)
            for place in range(low, high)
            if self._owner[place] == owner
        }
        return [self._reclaim(place) for place in sorted(places)]

    def _reclaim(self, place: int) -> Reclaim:
        seq, prior = self.base + place, State(self._state[place])
        if prior == IN_FLIGHT:
            self._settle_failure(seq, place, FailClass.LEASE_EXPIRED)
        else:
            self._owner[place] = 0
            self._free.push(seq)
        return Reclaim(seq, prior, State(self._state[place]), self._attempts[place])

    def _split_expired(self, low: int, high: int, at: int, expired: list[int]) -> None:
        """Add the expired places of a held run to `expired`; what was renewed goes back to the heap."""
        beats, owners, lease_ms = self._beat, self._owner, self.lease_ms
        place = low
        while place < high:
            start, beat = place, beats[place]
            while place < high and beats[place] == beat and owners[place]:
                place += 1
            if start == place:  # nobody's: free already if dispatched, left by a crash if in flight
                if self._state[place] == IN_FLIGHT:
                    expired.append(place)
                place += 1
            elif beat + lease_ms > at:
                self._leases.push(self._epoch_ms + beat + lease_ms, self.base + start, self.base + place)
            else:
                expired.extend(range(start, place))

    def _held(self, start: int, stop: int) -> list[tuple[int, int]]:
        return self._runs(_HELD_RUN, max(0, start - self.base), max(0, stop - self.base))

    def _runs(self, pattern: re.Pattern[bytes], low: int, high: int) -> list[tuple[int, int]]:
        # A list, because an open iterator over the array would forbid resizing it.
        return [found.span() for found in pattern.finditer(self._state, low, high)]

    def _write(self, prior: int, to: bytes, low: int) -> None:
        self._state[low : low + len(to)] = to
        self._counts[prior] -= len(to)
        self._counts[to[0] if to else prior] += len(to)

    def _beat_all(self, low: int, high: int, now_ms: int) -> int:
        at = self._tick(now_ms)
        self._beat[low:high] = array("I", (at,)) * (high - low)
        return at

    def _require_all(self, prior: int, to: bytes, low: int, owner: int, now_ms: int) -> None:
        """Every place from `low` on is in `prior`, or the first that is not hard-fails the run."""
        high = low + len(to)
        if self._state.count(prior, low, high) != len(to):
            odd = next(place for place in range(low, high) if self._state[place] != prior)
            raise self._fatal(self.base + odd, self._state[odd], to[odd - low], owner, now_ms)

    def _require_owner(self, to: bytes, low: int, owner: int, now_ms: int) -> None:
        """`owner` holds every place from `low` on, or the first that it does not hold is named."""
        held = self._owner[low : low + len(to)]
        if held != array("I", (owner,)) * len(to):
            odd = next(index for index, holder in enumerate(held) if holder != owner)
            raise self._not_owner(self.base + low + odd, to[odd], owner, now_ms)
