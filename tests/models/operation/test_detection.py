"""Who is dead, and when that is seen (ruling C9; seed: Timing Constants)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.core.errors import InvalidArgumentError
from holdfast.models.operation.data import FrameState, LedgerData, StackFrame
from holdfast.models.operation.observer import OPERATION, Observer, looks_abandoned
from holdfast.operation import Timing

SECOND = 1_000_000
START = 1_769_000_000 * SECOND
TIMING = Timing()

phases = st.floats(0, 5, allow_nan=False)
seeds = st.integers(0, 2**32)


def data_at(beat_us: int, state: FrameState = FrameState.ACTIVE) -> LedgerData:
    frame = StackFrame("call", "p", 1, START, beat_us, state)
    return LedgerData("op", "cli", START, beat_us, stack=(frame,))


def looks(first: float, rng: Random, until: float) -> list[float]:
    """When an observer looks: intervals of 4 to 5 s."""
    moments = [first]
    while moments[-1] < until:
        moments.append(moments[-1] + rng.uniform(4, 5))
    return moments


def detected_at(moments: list[float], offset_seconds: float) -> float:
    """When an observer sees the death of a participant that beats last at 0 with its clock off by the offset."""
    observer = Observer(TIMING)
    beat_us = START + round(offset_seconds * SECOND)
    for moment in moments:
        now = round(moment * SECOND)
        if "call" in observer.look(data_at(beat_us), START + now, now):
            return moment
    raise AssertionError("never detected")


@given(phase=phases, seed=seeds)
def test_death_is_seen_10_to_15_seconds_after_the_last_beat(phase: float, seed: int) -> None:
    """For every phase of the observer's heartbeat against the victim's."""
    assert 10 < detected_at(looks(phase, Random(seed), 60), 0) <= 15


@given(phase=phases, seed=seeds, ahead=st.floats(0, 10**6))
def test_death_behind_a_clock_that_runs_ahead_is_seen_within_20_seconds(phase: float, seed: int, ahead: float) -> None:
    assert 10 < detected_at(looks(phase, Random(seed), 60), ahead) <= 20


@given(phase=phases, seed=seeds, behind=st.floats(0, 10**6))
def test_death_behind_a_clock_that_is_behind_is_seen_within_15_seconds(phase: float, seed: int, behind: float) -> None:
    assert 5 < detected_at(looks(phase, Random(seed), 60), -behind) <= 15


@given(phase=phases, seed=seeds, offset=st.floats(-(10**6), 10**6), lag=st.floats(0, 1.9))
def test_whoever_still_beats_is_alive_whatever_its_clock_says(
    phase: float, seed: int, offset: float, lag: float
) -> None:
    """Beats 4 to 5 s apart, each up to 1.9 s late for want of the lock."""
    rng = Random(seed)
    beats = looks(0, rng, 200)
    observer = Observer(TIMING)
    for moment in looks(phase, rng, 190):
        beat = max([0.0, *(beat for beat in beats if beat + lag <= moment)])
        beat_us = START + round((beat + offset) * SECOND)
        now = round(moment * SECOND)
        assert not observer.look(data_at(beat_us), START + now, now)


@example(phase=0.0, seed=37470, stall=6.0, at=18.0)  # it was held long before the observer asked for it
@given(phase=phases, seed=seeds, stall=st.floats(0, 30), at=st.floats(0, 20))
def test_a_lock_that_was_held_for_long_counts_against_nobody(phase: float, seed: int, stall: float, at: float) -> None:
    """Nobody can beat while the lock is held; when it is free the observer may come before the others."""
    rng = Random(seed)
    released = at + stall

    def through(moment: float) -> float:
        return released if at <= moment < released else moment

    beats = [through(beat) for beat in looks(0, rng, 200)]
    observer = Observer(TIMING)
    asked = phase
    while asked < 120:
        moment = through(asked)
        # Beats at the very moment of release come after this look: the observer was first in the queue.
        beat = max([0.0, *(beat for beat in beats if beat < moment)])
        now = round(moment * SECOND)
        waited = round((moment - asked) * SECOND)
        assert not observer.look(data_at(START + round(beat * SECOND)), START + now, now, waited)
        asked = moment + rng.uniform(4, 5)


def test_a_lock_that_is_always_busy_hides_no_death() -> None:
    observer, data, moments = Observer(TIMING), data_at(START), [number * 5 * SECOND for number in range(5)]
    dead = [observer.look(data, START + moment, moment, waited_us=SECOND) for moment in moments]
    assert dead[-1] == {"call", OPERATION}


def test_an_observer_that_was_stopped_starts_to_look_anew() -> None:
    observer = Observer(TIMING)
    data = data_at(START)
    assert not observer.look(data, START, 0)
    later = 3600 * SECOND
    assert not observer.look(data, START + later, later)
    assert not observer.look(data, START + later + 5 * SECOND, later + 5 * SECOND)
    assert observer.look(data, START + later + 10 * SECOND, later + 10 * SECOND) == {"call", OPERATION}


@pytest.mark.parametrize("state", [FrameState.CRASHED, FrameState.CLEANED_UP])
def test_frames_that_do_not_beat_any_more_are_not_declared_dead(state: FrameState) -> None:
    """Phase 2, step 4: a participant that has cleaned up stops beating and is not dead."""
    observer = Observer(TIMING)
    for second in range(0, 60, 5):
        dead = observer.look(data_at(START, state), START + second * SECOND, second * SECOND)
    assert dead == {OPERATION}


def test_an_operation_looks_abandoned_only_if_no_frame_is_fresh() -> None:
    """Ruling C10."""
    now = START + 11 * SECOND
    data = data_at(START)
    assert looks_abandoned(data, now, TIMING)
    fresh = replace(data, stack=(replace(data.stack[0], last_heartbeat_us=now),))
    assert not looks_abandoned(fresh, now, TIMING)
    assert not looks_abandoned(data, START + 10 * SECOND, TIMING)


def test_the_constants_are_the_seeds_by_default() -> None:
    """Ruling C7."""
    assert (TIMING.heartbeat_min_ms, TIMING.heartbeat_max_ms) == (4_000, 5_000)
    assert TIMING.staleness_ms == 10_000
    assert TIMING.self_cleanup_window_ms == 10_000
    assert TIMING.deletion_delay_ms == 10_000


@pytest.mark.parametrize(
    ("field", "value"), [("staleness_ms", 9_999), ("heartbeat_min_ms", 0), ("heartbeat_max_ms", 8_000)]
)
def test_constants_under_which_the_living_would_die_are_refused(field: str, value: int) -> None:
    with pytest.raises(InvalidArgumentError):
        replace(TIMING, **{field: value})
