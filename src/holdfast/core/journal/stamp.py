"""The time of events: for people, never looked at by replay."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

from holdfast.core.clock import MICROSECONDS, to_datetime


class Stamp:
    """A moment in microseconds since 1970; `text` is what an event's JSON says of it."""

    __slots__ = ("_moment", "text", "us")

    def __init__(self, us: int) -> None:
        self.us = us
        second, fraction = divmod(us, MICROSECONDS)
        self.text = f"{_second_text(second)}.{fraction:06d}Z" if fraction else f"{_second_text(second)}Z"
        self._moment: datetime | None = None

    @property
    def moment(self) -> datetime:
        """The same as an aware datetime; made when it is asked for."""
        if self._moment is None:
            self._moment = to_datetime(self.us)
        return self._moment


@lru_cache(maxsize=64)
def stamp_at(us: int) -> Stamp:
    """What is committed together has one time, and one stamp."""
    return Stamp(us)


@lru_cache(maxsize=16)
def _second_text(second: int) -> str:
    return to_datetime(second * MICROSECONDS).strftime("%Y-%m-%dT%H:%M:%S")
