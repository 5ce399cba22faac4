"""The six outcomes as values (seed section 3): frozen, comparable, with the defaults the documentation gives."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any, get_args, get_origin

import pytest

from holdfast.core.outcomes import Await, Child, Done, Next, Outcome, Replay, ScheduleChildren, Stop, Unique
from holdfast.core.status import LIVE, TERMINAL, Status

OUTCOMES: list[Any] = [
    Next("pack", 1),
    Replay(1),
    Await("go", "pack", 1),
    ScheduleChildren("pack", [], 1),
    Done(1),
    Stop("enough"),
]
VALUES = [*OUTCOMES, Child("Leaf", 1), Unique(key="k")]


def test_there_are_six_outcomes() -> None:
    """Section 3: a step and `handle` return one of these."""
    listed = [get_origin(member) or member for member in get_args(Outcome)]
    assert listed == [type(outcome) for outcome in OUTCOMES]
    assert [cls.__name__ for cls in listed] == ["Next", "Replay", "Await", "ScheduleChildren", "Done", "Stop"]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_none_can_be_changed(value: Any) -> None:
    for field in fields(value):
        with pytest.raises(FrozenInstanceError):
            setattr(value, field.name, None)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_none_takes_other_attributes(value: Any) -> None:
    """A misspelt field is an error, not a silent loss."""
    with pytest.raises((AttributeError, TypeError)):
        object.__setattr__(value, "dealy", 5)


def test_equal_outcomes_are_equal() -> None:
    assert Next("pack", {"a": 1}) == Next("pack", {"a": 1})
    assert Next("pack", 1) != Next("label", 1)
    assert {Done(1), Done(1), Stop("x")} == {Done(1), Stop("x")}


def test_a_replay_is_at_once_unless_told_otherwise() -> None:
    assert Replay(1).delay == 0


def test_an_await_has_no_deadline_unless_told_otherwise() -> None:
    assert Await("go", "pack", 1).timeout is None


def test_a_barrier_waits_for_all_and_for_ever_unless_told_otherwise() -> None:
    """Section 11."""
    outcome = ScheduleChildren("pack", [], 1)
    assert (outcome.quorum, outcome.timeout) == (None, None)


def test_done_needs_no_result_and_stop_needs_a_reason() -> None:
    assert Done().result is None
    with pytest.raises(TypeError):
        Stop()  # type: ignore[call-arg]


def test_a_child_takes_what_its_machine_says_unless_told_otherwise() -> None:
    child = Child("Leaf", 1)
    options = (child.step, child.version, child.queue, child.priority, child.partition_key, child.unique)
    assert options == (None,) * 6
    assert child.delay == 0


def test_options_of_a_child_go_by_name() -> None:
    with pytest.raises(TypeError):
        Child("Leaf", 1, "second")  # type: ignore[call-arg]


def test_a_unique_key_is_occupied_while_its_execution_lives() -> None:
    """Section 7, and ruling E14: the scope is the user's; every live status by default."""
    assert Unique(key="k").scope == LIVE
    assert Status.STRANDED in LIVE
    assert not LIVE & TERMINAL
    with pytest.raises(TypeError):
        Unique("k")  # type: ignore[call-arg]


def test_a_step_is_named_by_itself_or_by_its_text() -> None:
    def pack() -> None: ...

    assert Next(pack, 1).step is pack
    assert Next("pack", 1).step == "pack"


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda value: type(value).__name__)
def test_outcomes_can_be_told_apart_by_matching(outcome: Any) -> None:
    """What a test of a user's own machine does with them."""
    match outcome:
        case Next(step, state) | Await(_, step, state) | ScheduleChildren(step, _, state):
            assert (step, state) == ("pack", 1)
        case Replay(state, delay):
            assert (state, delay) == (1, 0)
        case Done(result):
            assert result == 1
        case Stop(reason):
            assert reason == "enough"
        case _:
            pytest.fail(f"{outcome!r} matches nothing")
