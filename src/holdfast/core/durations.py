"""Lengths of time: `timedelta` or seconds in the API (DESIGN section 8), `1h30m` for people."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import TypeAlias

from holdfast.core.errors import InvalidArgumentError

Duration: TypeAlias = timedelta | float | int

# About a hundred years: more is a slip of units, and would overflow a store's timestamps.
MAX_SECONDS = 100 * 366 * 86_400.0

_UNITS = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[wdhms])")
_TEXT = re.compile(rf"(?:{_PART.pattern}\s*)+")


def seconds(value: Duration, *, name: str) -> float:
    """The length in seconds of the argument called `name`."""
    if isinstance(value, timedelta):
        length = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            length = float(value)
        except OverflowError:  # An int may be too large to be a float at all.
            length = math.inf if value > 0 else -math.inf
    else:
        raise InvalidArgumentError(
            f"{name} is {value!r}, a {type(value).__name__}: give a timedelta or a number of seconds"
        )
    if math.isnan(length):
        raise InvalidArgumentError(f"{name} is not a number: give a timedelta or a number of seconds")
    if length < 0:
        raise InvalidArgumentError(f"{name} is {_shown(value)}, below zero: give a length of 0 or more")
    if length > MAX_SECONDS:
        raise InvalidArgumentError(
            f"{name} is {_shown(value)}, over a hundred years: numbers are seconds, check the unit"
        )
    return length


def parse_duration(text: str) -> float:
    """Seconds of `1h30m`, `2d 4h`, `250ms`, `1.5h`, or of a bare number of seconds."""
    stripped = text.strip().lower()
    try:
        if _TEXT.fullmatch(stripped):
            return seconds(math.fsum(float(n) * _UNITS[unit] for n, unit in _PART.findall(stripped)), name="duration")
        if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", stripped):
            return seconds(float(stripped), name="duration")
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{text!r}: {error}") from None
    raise InvalidArgumentError(
        f"{text!r} is no duration: write numbers with units w, d, h, m, s or ms, as in 1h30m, 2d or 250ms"
    )


def format_duration(length: Duration) -> str:
    """The shortest text that `parse_duration` reads back, to the millisecond: `1d2h`, `1.5s`, `250ms`."""
    milliseconds = round(seconds(length, name="duration") * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms" if milliseconds else "0s"
    rest, fraction = divmod(milliseconds, 1000)
    minutes, whole = divmod(rest, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    second = f"{whole}.{fraction:03}".rstrip("0") if fraction else str(whole)
    parts = ((str(days), "d"), (str(hours), "h"), (str(minutes), "m"), (second, "s"))
    return "".join(number + unit for number, unit in parts if number != "0")


def _shown(value: Duration) -> str:
    if isinstance(value, timedelta):
        return str(value)
    # Python refuses to print integers of thousands of digits.
    return f"{value} seconds" if isinstance(value, float) or abs(value) < 10**20 else "a huge number of seconds"
