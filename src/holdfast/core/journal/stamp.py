"""The time of events: for people, never looked at by replay."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

from msgspec import Struct

from holdfast.core.clock import MICROSECONDS, to_datetime


class Stamp(Struct, frozen=True, gc=False):
    """A moment in microseconds since 1970; `text` is what an event's JSON says of it. `stamp_at` makes it."""

    us: int
    text: str

    @property
    def moment(self) -> datetime:
        """The same as an aware datetime."""
        return to_datetime(self.us)


@lru_cache(maxsize=64)
def stamp_at(us: int) -> Stamp:
    """What is committed together has one time, and one stamp."""
    second, fraction = divmod(us, MICROSECONDS)
    text = _second_text(second)
    return Stamp(us, f"{text}.{fraction:06d}Z" if fraction else f"{text}Z")


@lru_cache(maxsize=16)
def _second_text(second: int) -> str:
    return to_datetime(second * MICROSECONDS).strftime("%Y-%m-%dT%H:%M:%S")
