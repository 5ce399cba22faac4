"""Cron expressions, and when they are due where clocks change."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.core.cron import SHORTHANDS, Cron
from holdfast.core.errors import InvalidArgumentError

BERLIN = ZoneInfo("Europe/Berlin")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")  # its clocks change by half an hour


def after(text: str, moment: datetime, zone: ZoneInfo | None = None, count: int = 1) -> list[str]:
    cron, found = Cron.parse(text), []
    for _ in range(count):
        following = cron.next_after(moment, zone or UTC)
        assert following is not None
        moment = following
        found.append(moment.astimezone(zone or UTC).strftime("%m-%d %H:%M %z").removesuffix(" +0000"))
    return found


NEW_YEAR = datetime(2025, 1, 1, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("0 6 * * *", ["01-01 06:00", "01-02 06:00"]),
        ("*/20 * * * *", ["01-01 00:20", "01-01 00:40"]),
        ("5-7,30 1 * * *", ["01-01 01:05", "01-01 01:06", "01-01 01:07", "01-01 01:30", "01-02 01:05"]),
        ("0 9-17/4 * * mon-fri", ["01-01 09:00", "01-01 13:00", "01-01 17:00", "01-02 09:00"]),
        ("0 0 31 * *", ["01-31 00:00", "03-31 00:00", "05-31 00:00"]),
        ("0 0 29 feb *", ["02-29 00:00"]),
        ("0 0 13 * fri", ["01-03 00:00", "01-10 00:00", "01-13 00:00"]),  # either day is enough
        ("0 0 * * 7", ["01-05 00:00"]),
        ("0 0 * * sat-sun", ["01-04 00:00", "01-05 00:00", "01-11 00:00"]),
        ("10/25 0 * * *", ["01-01 00:10", "01-01 00:35", "01-02 00:10"]),
        ("@daily", ["01-02 00:00"]),
        ("@weekly", ["01-05 00:00"]),
        ("@yearly", ["01-01 00:00"]),
    ],
)
def test_the_times_that_an_expression_means(text: str, times: list[str]) -> None:
    assert after(text, NEW_YEAR, count=len(times)) == times


@pytest.mark.parametrize(
    "text",
    [
        *("", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8"),
        *("*/0 * * * *", "5-1 * * * *", "a * * * *", "* * * foo *", "1,,2 * * * *", "-1 * * * *", "1-2-3 * * * *"),
        *("0 0 30 feb *", "@often"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="cron expression"):
        Cron.parse(text)


def test_a_time_that_is_skipped_comes_as_much_later() -> None:
    assert after("30 2 * * *", datetime(2025, 3, 29, 12, tzinfo=UTC), BERLIN, 2) == [
        "03-30 03:30 +0200",
        "03-31 02:30 +0200",
    ]


def test_a_time_that_comes_twice_counts_the_first_time() -> None:
    assert after("30 2 * * *", datetime(2025, 10, 25, 12, tzinfo=UTC), BERLIN, 2) == [
        "10-26 02:30 +0200",
        "10-27 02:30 +0100",
    ]


def test_every_hour_goes_by_real_hours() -> None:
    spring = after("0 * * * *", datetime(2025, 3, 30, 0, 30, tzinfo=UTC), BERLIN, 2)
    assert spring == ["03-30 03:00 +0200", "03-30 04:00 +0200"]
    autumn = after("0 * * * *", datetime(2025, 10, 25, 23, 30, tzinfo=UTC), BERLIN, 3)
    assert autumn == ["10-26 02:00 +0200", "10-26 02:00 +0100", "10-26 03:00 +0100"]


@given(
    st.sampled_from([*SHORTHANDS, "*/7 * * * *", "15 2 * * *", "30 1,2 * * 0", "0 * * 3,10 *"]),
    st.sampled_from([BERLIN, LORD_HOWE, UTC]),
    st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)),
)
def test_the_next_time_is_later_and_nothing_lies_between(text: str, zone: ZoneInfo, moment: datetime) -> None:
    cron, start = Cron.parse(text), moment.replace(tzinfo=UTC)
    following = cron.next_after(start, zone)
    assert following is not None
    assert following > start
    halfway = start + (following - start) / 2
    assert cron.next_after(halfway, zone) == following
    assert cron.next_after(following - timedelta(microseconds=1), zone) == following
    assert list(cron.between(following, following, zone)) == [following]


@given(
    st.sampled_from(["* * * * *", "*/30 * * * *", "30 0-3 * * *"]),
    st.sampled_from(sorted(available_timezones())).map(ZoneInfo),
    st.dates(date(1975, 1, 1), date(2035, 1, 1)),
)
@example("*/30 * * * *", ZoneInfo("America/Sao_Paulo"), date(2018, 11, 4))  # there is no midnight
@example("*/30 * * * *", ZoneInfo("America/Havana"), date(2025, 11, 2))  # there are two
@example("*/30 * * * *", ZoneInfo("America/St_Johns"), date(2010, 11, 6))  # its last hour came again at 00:01
@example("30 0-3 * * *", ZoneInfo("Pacific/Apia"), date(2011, 12, 30))  # there is no such day
def test_a_plain_day_is_counted_from_its_midnight(text: str, zone: ZoneInfo, day: date) -> None:
    cron = Cron.parse(text)
    assert list(cron._instants(day, zone)) == cron._instants_of_change(day, zone)
