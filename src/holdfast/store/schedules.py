"""The values of schedules that cross the seam between the store and everything above it; see `values.py`."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class Schedule(Struct, frozen=True, kw_only=True):
    """A schedule as it stands; `spec` is JSON of the model's."""

    name: str
    spec: str
    paused: bool
    next_at: datetime
    buffered_at: datetime | None  # a tick that waits for the last execution to end
    last_at: datetime | None  # the last tick that was started
    last: bytes | None  # and what it started


class Tick(Struct, frozen=True, kw_only=True):
    """A schedule moves on from where it was seen."""

    name: str
    seen_next_at: datetime
    seen_buffered_at: datetime | None
    seen_spec: str
    next_at: datetime
    buffered_at: datetime | None
    last_at: datetime | None
    last: bytes | None
