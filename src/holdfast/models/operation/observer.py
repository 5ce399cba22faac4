"""Who has stopped beating, decided from what this process has itself seen (ruling C9).

A timestamp alone proves nothing: clocks differ between machines, and whole machines sleep. So a frame is dead
only when its timestamp is old *and* this process has seen it unchanged for longer than any live participant
leaves it, or when it was seen unchanged for the whole threshold by this process's own monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from .data import LedgerData
from .lifecycle import BEATING
from .timing import MILLISECOND_US, Timing

OPERATION = ""  # the key of the operation's own heartbeat among call ids, which are never empty


@dataclass(frozen=True, slots=True)
class _Seen:
    value_us: int
    since_us: int


class Observer:
    """Remembers when each heartbeat was first seen at its present value."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._seen: dict[str, _Seen] = {}
        self._last_look_us: int | None = None
        self._has_waited = False  # for the lock, at the last look

    def look(self, data: LedgerData, now_us: int, monotonic_us: int, waited_us: int = 0) -> frozenset[str]:
        """Take one look; return the call ids that are dead, and `OPERATION` if nobody beats at all.

        `waited_us`: how long this process waited for the lock. The others could not beat in that time either, and
        maybe not since the last look, for nobody knows how long it had been held: that does not count against them.
        It does if this one waited the last time too, so that a lock that is always busy hides no death.
        """
        staleness_us = self._timing.staleness_ms * MILLISECOND_US
        blocked_us = waited_us
        if self._last_look_us is not None:
            since_last_us = monotonic_us - self._last_look_us
            if since_last_us > staleness_us:
                # This process itself was stopped: what it remembers says nothing about the others.
                self._seen.clear()
            if waited_us and not self._has_waited:
                blocked_us = since_last_us
        self._last_look_us, self._has_waited = monotonic_us, waited_us > 0
        beats = {frame.call_id: frame.last_heartbeat_us for frame in data.stack if frame.state in BEATING}
        beats[OPERATION] = data.last_heartbeat_us
        self._seen = {
            key: _Seen(value_us, seen.since_us + blocked_us)
            if (seen := self._seen.get(key)) is not None and seen.value_us == value_us
            else _Seen(value_us, monotonic_us)
            for key, value_us in beats.items()
        }
        return frozenset(
            key for key, seen in self._seen.items() if self._is_dead(seen, now_us, monotonic_us, staleness_us)
        )

    def _is_dead(self, seen: _Seen, now_us: int, monotonic_us: int, staleness_us: int) -> bool:
        unchanged_us = monotonic_us - seen.since_us
        age_us = now_us - seen.value_us
        quiet_us = self._timing.quiet_ms * MILLISECOND_US
        return (age_us > staleness_us and unchanged_us >= quiet_us) or unchanged_us >= staleness_us


def looks_abandoned(data: LedgerData, now_us: int, timing: Timing) -> bool:
    """By timestamps alone: nobody has beaten for the threshold (ruling C10). A reason to look again."""
    staleness_us = timing.staleness_ms * MILLISECOND_US
    latest_us = max(
        [data.last_heartbeat_us, *(frame.last_heartbeat_us for frame in data.stack if frame.state in BEATING)]
    )
    return now_us - latest_us > staleness_us
