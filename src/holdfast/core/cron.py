"""Cron expressions: five fields, or `@daily` and its like; and when the next one is due in a time zone.

Minute, hour, day of the month, month, day of the week (0 or 7 is Sunday), with lists, ranges, steps, and English names
of months and weekdays. If both days are restricted, either one is enough, as in every cron.

Where clocks change: an expression that names hours means the clock on the wall. A time that is skipped comes as much
later as the clocks jumped; a time that comes twice counts the first time. One that runs in every hour goes by real
hours: it leaves out none and repeats none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Final, Self

from holdfast.core.errors import InvalidArgumentError

MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
SHORTHANDS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
# Eight years and more: a 29th of February is that far away around a century that is no leap year.
DAYS_SEARCHED: Final = 366 * 9


@dataclass(frozen=True, slots=True)
class Cron:
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    is_either_day: bool  # both days are restricted

    @classmethod
    def parse(cls, text: str) -> Self:
        if not isinstance(text, str):
            raise InvalidArgumentError(f"{text!r} is no cron expression: it is a text such as '0 6 * * mon-fri'")
        return cls._parse(text)

    @classmethod
    @lru_cache(maxsize=1024)
    def _parse(cls, text: str) -> Self:
        fields = SHORTHANDS.get(text.strip().lower(), text).lower().split()
        if len(fields) != 5:
            raise InvalidArgumentError(
                f"the cron expression {text!r} has {len(fields)} fields, not 5: minute, hour, day of the month, month, "
                f"day of the week; or one of {', '.join(SHORTHANDS)}"
            )
        minute, hour, day, month, weekday = fields
        parsed = cls(
            tuple(sorted(_field(text, "minute", minute, 0, 59))),
            tuple(sorted(_field(text, "hour", hour, 0, 23))),
            frozenset(_field(text, "day of the month", day, 1, 31)),
            frozenset(_field(text, "month", month, 1, 12, MONTHS, 1)),
            frozenset(number % 7 for number in _field(text, "day of the week", weekday, 0, 7, WEEKDAYS, 0)),
            not day.startswith("*") and not weekday.startswith("*"),
        )
        if parsed.next_after(datetime(2000, 1, 1, tzinfo=UTC), UTC) is None:
            raise InvalidArgumentError(f"the cron expression {text!r} never comes: there is no such day")
        return parsed

    def next_after(self, moment: datetime, zone: tzinfo) -> datetime | None:
        """The first time after `moment`, in UTC; None if there is none in years."""
        return next((instant for instant in self._from(moment, zone) if instant > moment), None)

    def between(self, first: datetime, last: datetime, zone: tzinfo) -> Iterator[datetime]:
        """Every time from `first` up to and including `last`, in UTC."""
        for instant in self._from(first, zone):
            if instant > last:
                return
            if instant >= first:
                yield instant

    def _from(self, moment: datetime, zone: tzinfo) -> Iterator[datetime]:
        """In order, from the day before that of `moment` on: what was skipped there may come on this one."""
        day = moment.astimezone(zone).date() - timedelta(days=1)
        for _ in range(DAYS_SEARCHED):
            if self._has_day(day):
                yield from self._instants(day, zone)
            day += timedelta(days=1)

    def _has_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        fits, fits_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return fits or fits_week if self.is_either_day else fits and fits_week

    def _instants(self, day: date, zone: tzinfo) -> Iterable[datetime]:
        start = datetime.combine(day, time(), zone)
        end = datetime.combine(day + timedelta(days=1), time(fold=1), zone)  # after a change that reaches back over it
        if start.utcoffset() != end.utcoffset():
            return self._instants_of_change(day, zone)
        midnight = start.astimezone(UTC)
        return (midnight + timedelta(hours=hour, minutes=minute) for hour in self.hours for minute in self.minutes)

    def _instants_of_change(self, day: date, zone: tzinfo) -> list[datetime]:
        """Those of a day on which the clocks change; right for any day, and dear."""
        walls = [datetime.combine(day, time(hour, minute)) for hour in self.hours for minute in self.minutes]
        if len(self.hours) < 24:
            return sorted({wall.replace(tzinfo=zone).astimezone(UTC) for wall in walls})
        both = [wall.replace(tzinfo=zone, fold=fold) for wall in walls for fold in (0, 1)]
        real = {aware.astimezone(UTC): aware.replace(tzinfo=None, fold=0) for aware in both}
        # What the clocks skip has no time of its own: it comes back as another one.
        return sorted(at for at, wall in real.items() if at.astimezone(zone).replace(tzinfo=None, fold=0) == wall)


def _field(
    text: str, name: str, field: str, low: int, high: int, names: tuple[str, ...] = (), first: int = 0
) -> set[int]:
    numbers: set[int] = set()
    for part in field.split(","):
        span, slash, step = part.partition("/")
        start, dash, end = span.partition("-")
        try:
            every = int(step) if slash else 1
            if span == "*":
                begin, last = low, high
            else:
                begin = _number(start, names, first)
                last = _number(end, names, first) if dash else (high if slash else begin)
            if name == "day of the week" and dash and last < begin and last == 0:
                last = 7  # sat-sun
            is_sound = low <= begin <= last <= high and every > 0
        except ValueError:
            is_sound = False
        if not is_sound:
            raise InvalidArgumentError(
                f"{part!r} is no {name} of the cron expression {text!r}: use {low} to {high}, ranges such as "
                f"{low}-{high}, steps such as */5, or *" + (f", or {names[0]} to {names[-1]}" if names else "")
            )
        numbers.update(range(begin, last + 1, every))
    return numbers


def _number(text: str, names: tuple[str, ...], first: int) -> int:
    if text in names:
        return names.index(text) + first
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)
