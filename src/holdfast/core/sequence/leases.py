"""Who comes up next: leases by expiry, free items by seq.

- `LeaseHeap`: when to look at a stretch of leased items again. A heartbeat does not touch it: an entry that
  comes due is compared with the items' own beats, and what was renewed goes back in (ruling D6, no scan).
- `FreeQueue`: dispatched items that nobody holds, in seq order once their delay is over (ruling D3).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

_SLACK = 1_024


class LeaseHeap:
    """A heap of (look_at_ms, start, stop). Entries of finished items are left to lie, then swept.

    The last stretch stays outside the heap while neighbours of the same moment keep joining it.
    """

    __slots__ = ("_entries", "_look_at_ms", "_start", "_stop", "_sweep_at")

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, int]] = []
        self._sweep_at = _SLACK
        self._look_at_ms = self._start = self._stop = 0

    def __len__(self) -> int:
        return len(self._entries) + (self._start < self._stop)

    @property
    def next_ms(self) -> int | None:
        """No lease expires before this moment."""
        self._settle()
        return self._entries[0][0] if self._entries else None

    def push(self, look_at_ms: int, start: int, stop: int) -> bool:
        """True when it is time to `sweep`."""
        if start == self._stop and look_at_ms == self._look_at_ms:
            self._stop = stop
            return False
        self._settle()
        self._look_at_ms, self._start, self._stop = look_at_ms, start, stop
        return len(self._entries) > self._sweep_at

    def pop_due(self, now_ms: int) -> list[tuple[int, int]]:
        """The stretches to look at, each once, in seq order."""
        self._settle()
        due = set()
        while self._entries and self._entries[0][0] <= now_ms:
            _, start, stop = heappop(self._entries)
            due.add((start, stop))
        return sorted(due)

    def stretches(self) -> list[tuple[int, int]]:
        """Every stretch that may hold a lease, in seq order."""
        self._settle()
        return sorted({(start, stop) for _, start, stop in self._entries})

    def sweep(self, is_held: Callable[[int, int], bool]) -> None:
        """Drop entries without a held item. Due again at twice the size, so it costs O(1) a push."""
        self._settle()
        self._entries = [entry for entry in set(self._entries) if is_held(entry[1], entry[2])]
        heapify(self._entries)
        self._sweep_at = 2 * len(self._entries) + _SLACK

    def _settle(self) -> None:
        if self._start < self._stop:
            heappush(self._entries, (self._look_at_ms, self._start, self._stop))
        self._start = self._stop = 0


class FreeQueue:
    """Seqs that wait for an owner. The ledger checks each on its way out, so stale ones do no harm."""

    __slots__ = ("_later", "_ready")

    def __init__(self) -> None:
        self._later: list[tuple[int, int]] = []
        self._ready: list[int] = []

    def push(self, seq: int, ready_at_ms: int | None = None) -> None:
        if ready_at_ms is None:
            heappush(self._ready, seq)
        else:
            heappush(self._later, (ready_at_ms, seq))

    def peek(self, now_ms: int) -> int | None:
        """The lowest seq that may be handed out now."""
        while self._later and self._later[0][0] <= now_ms:
            heappush(self._ready, heappop(self._later)[1])
        return self._ready[0] if self._ready else None

    def pop(self) -> int:
        return heappop(self._ready)

    def later(self) -> list[tuple[int, int]]:
        """The delayed seqs, each behind the moment at which it becomes ready."""
        return self._later

    @property
    def next_ms(self) -> int | None:
        """When the first delayed seq becomes ready."""
        return self._later[0][0] if self._later else None
