"""The statuses of an execution and their transitions (DESIGN section 5, seed sections 3, 4 and 11)."""

from __future__ import annotations

from itertools import product

import pytest

from holdfast.core.status import LEGAL, LIVE, PARKED, TERMINAL, Status, is_legal


def reachable(start: Status) -> set[Status]:
    seen = {start}
    while True:
        further = {after for before in seen for after in LEGAL[before]} | seen
        if further == seen:
            return seen
        seen = further


def test_every_status_has_a_line_in_the_table() -> None:
    assert set(LEGAL) == set(Status)


def test_live_and_terminal_divide_the_statuses() -> None:
    assert set(Status) == LIVE | TERMINAL
    assert not LIVE & TERMINAL
    assert PARKED < LIVE


@pytest.mark.parametrize("ended", sorted(TERMINAL))
def test_nothing_leaves_an_ended_status_nor_writes_it_again(ended: Status) -> None:
    assert ended.is_terminal
    assert not any(is_legal(ended, after) for after in Status)


@pytest.mark.parametrize("live", sorted(LIVE))
def test_every_live_status_can_still_end(live: Status) -> None:
    assert not live.is_terminal
    assert reachable(live) >= TERMINAL


@pytest.mark.parametrize("live", sorted(LIVE))
def test_a_live_row_may_be_written_without_a_change_of_status(live: Status) -> None:
    assert is_legal(live, live)


def test_only_the_picker_leases_and_only_what_is_runnable() -> None:
    into_executing = {before for before in Status if before is not Status.EXECUTING}
    assert {before for before in into_executing if is_legal(before, Status.EXECUTING)} == {Status.RUNNABLE}


def test_a_delegated_row_is_never_leased() -> None:
    assert Status.EXECUTING not in LEGAL[Status.DELEGATED]
    assert Status.RUNNABLE not in LEGAL[Status.DELEGATED]


def test_only_a_holder_parks_a_row() -> None:
    """Sections 5 and 11: parking is an outcome, and outcomes are the lease holder's."""
    for before, after in product(set(Status) - {Status.EXECUTING}, PARKED):
        assert before is after or not is_legal(before, after)


@pytest.mark.parametrize("parked", sorted(PARKED))
def test_a_parked_row_is_woken_or_cancelled_and_nothing_else(parked: Status) -> None:
    assert parked.is_parked
    assert LEGAL[parked] == {Status.RUNNABLE, Status.CANCELLED}


@pytest.mark.parametrize("outcome", sorted(Status))
def test_a_holder_may_write_any_status(outcome: Status) -> None:
    assert is_legal(Status.EXECUTING, outcome)


def test_whatever_a_reaper_strands_can_be_resumed() -> None:
    assert is_legal(Status.EXECUTING, Status.STRANDED)
    assert is_legal(Status.STRANDED, Status.RUNNABLE)


def test_statuses_are_their_own_text() -> None:
    """The same words stand in both databases, in the CLI and in the dashboard."""
    assert [str(status) for status in Status] == [
        "runnable",
        "executing",
        "awaiting_signal",
        "awaiting_children",
        "awaiting_promise",
        "stranded",
        "delegated",
        "done",
        "failed",
        "cancelled",
    ]
