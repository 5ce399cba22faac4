"""Lengths of time (DESIGN section 8): `timedelta` or seconds for programs, `1h30m` for people."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.durations import MAX_SECONDS, format_duration, parse_duration, seconds
from holdfast.core.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0.0), (3, 3.0), (2.5, 2.5), (timedelta(hours=1, milliseconds=5), 3600.005), (timedelta(days=36500), 3.1536e9)],
)
def test_timedeltas_and_numbers_are_seconds(value: timedelta | float, expected: float) -> None:
    assert seconds(value, name="delay") == expected
    assert isinstance(seconds(value, name="delay"), float)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1, "delay is -1 seconds, below zero"),
        (timedelta(days=-1), "delay is -1 day, 0:00:00, below zero"),
        (-0.001, "delay is -0.001 seconds, below zero"),
        (-math.inf, "below zero"),
        (math.nan, "delay is not a number"),
        (math.inf, "over a hundred years: numbers are seconds, check the unit"),
        (4e9, "over a hundred years"),
        (10**5000, "delay is a huge number of seconds, over a hundred years"),
        (-(10**5000), "below zero"),
        (timedelta.max, "over a hundred years"),
        (True, "delay is True, a bool: give a timedelta or a number of seconds"),
        ("5", "delay is '5', a str"),
        (None, "a NoneType"),
    ],
    ids=lambda part: str(part)[:20] if not isinstance(part, int) or abs(part) < 10**9 else "huge",
)
def test_other_lengths_are_refused_by_name(value: object, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        seconds(value, name="delay")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1h30m", 5400.0),
        (" 2D 4h ", 187_200.0),
        ("250ms", 0.25),
        ("1.5h", 5400.0),
        ("90", 90.0),
        ("0.5", 0.5),
        ("1w", 604_800.0),
        ("1m5s", 65.0),
        ("5m5ms", 300.005),
    ],
)
def test_people_write_durations(text: str, expected: float) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "h", "1x", "-1s", "1h-2m", "1 h", "1e3s", "inf", "nan", "1h 30", "١s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"is no duration: write numbers with units .* as in 1h30m"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["200000w", "9" * 400 + "s", "9" * 400])
def test_a_duration_over_a_century_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="over a hundred years"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (1.5, "1.5s"),
        (59.9996, "1m"),
        (5400, "1h30m"),
        (timedelta(days=1, hours=2), "1d2h"),
        (86_400.005, "1d0.005s"),
        (0.0001, "0s"),
    ],
)
def test_durations_are_shown_short(length: timedelta | float, expected: str) -> None:
    assert format_duration(length) == expected


@given(st.floats(0, MAX_SECONDS))
def test_shown_durations_are_read_back_to_the_millisecond(length: float) -> None:
    assert parse_duration(format_duration(length)) == pytest.approx(length, abs=0.000_501)
