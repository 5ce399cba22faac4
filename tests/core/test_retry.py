"""Retry arithmetic: bounds, growth, limits, and what is worth another attempt."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InvalidArgumentError
from holdfast.core.retry import NO_RETRY, GiveUp, Retry, RetryPolicy

ERROR = ValueError("x")
UNIT = st.floats(0, 1)
ATTEMPTS = st.integers(1, 10_000)


@st.composite
def policies(draw: st.DrawFn, /, **fixed: Any) -> RetryPolicy:
    initial = draw(st.floats(0, 1000))
    options: dict[str, Any] = {
        "max_attempts": None,
        "initial_delay": initial,
        "max_delay": draw(st.floats(initial, 1_000_000)),
        "multiplier": draw(st.floats(1, 1e6) | st.integers(1, 10)),
        "jitter": draw(UNIT),
    }
    return RetryPolicy(**(options | fixed))


def delay(policy: RetryPolicy, attempt: int, unit_random: float = 0.0) -> float:
    decision = policy.decide(attempt, 0.0, ERROR, unit_random)
    assert isinstance(decision, Retry)
    return decision.delay_seconds


def test_the_defaults_double_from_one_second_to_five_minutes() -> None:
    policy = RetryPolicy(max_attempts=12)
    assert [delay(policy, n) for n in range(1, 12)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


def test_the_default_policy_tries_ten_times() -> None:
    assert isinstance(RetryPolicy().decide(9, 0.0, ERROR, 0.5), Retry)
    assert RetryPolicy().decide(10, 0.0, ERROR, 0.5) == GiveUp("attempt 10 of 10 failed")


def test_one_attempt_is_no_retry() -> None:
    assert NO_RETRY.decide(1, 0.0, ERROR, 0.0) == GiveUp("attempt 1 of 1 failed")


@given(policies(), ATTEMPTS, UNIT)
def test_a_delay_lies_between_its_jittered_and_its_full_backoff(
    policy: RetryPolicy, attempt: int, unit_random: float
) -> None:
    full = policy.backoff_seconds(attempt)
    assert full * (1 - policy.jitter) <= delay(policy, attempt, unit_random) <= full
    assert policy.initial_delay <= full <= policy.max_delay  # type: ignore[operator]


@given(policies(jitter=0), st.integers(1, 3_000), UNIT)
def test_without_jitter_delays_never_shrink_and_take_no_chances(
    policy: RetryPolicy, attempt: int, unit_random: float
) -> None:
    assert delay(policy, attempt, unit_random) <= delay(policy, attempt + 1)
    assert delay(policy, attempt, unit_random) == delay(policy, attempt, 0.0)


@given(policies(jitter=0.5), ATTEMPTS, UNIT, UNIT)
def test_jitter_only_shortens(policy: RetryPolicy, attempt: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert delay(policy, attempt, high) <= delay(policy, attempt, low)


@given(policies(max_elapsed=100), ATTEMPTS, st.floats(0, 1e9), UNIT)
def test_no_attempt_begins_after_max_elapsed(
    policy: RetryPolicy, attempt: int, elapsed: float, unit_random: float
) -> None:
    decision = policy.decide(attempt, elapsed, ERROR, unit_random)
    unlimited = delay(RetryPolicy(**(_options(policy) | {"max_elapsed": None})), attempt, unit_random)
    if elapsed + unlimited <= 100:
        assert decision == Retry(unlimited)
    else:
        assert decision == GiveUp(f"attempt {attempt} failed and the next would begin after max_elapsed (1m40s)")


@given(policies(), st.integers(1, 50), ATTEMPTS)
def test_max_attempts_counts_the_first(policy: RetryPolicy, limit: int, attempt: int) -> None:
    limited = RetryPolicy(**(_options(policy) | {"max_attempts": limit}))
    assert isinstance(limited.decide(attempt, 0.0, ERROR, 0.0), Retry) == (attempt < limit)


@pytest.mark.parametrize("multiplier", [1, 2, 2.0, 1e308])
@pytest.mark.parametrize("initial", [0, 5e-324, 1.0])
def test_large_attempts_do_not_overflow(multiplier: float, initial: float) -> None:
    policy = RetryPolicy(max_attempts=None, multiplier=multiplier, initial_delay=initial)
    expected = initial if multiplier == 1 or initial == 0 else 300
    assert [delay(policy, n) for n in (10_000, 10**12, 10**400)] == [expected] * 3


def test_durations_may_be_timedeltas() -> None:
    policy = RetryPolicy(
        initial_delay=timedelta(minutes=1), max_delay=timedelta(minutes=3), max_elapsed=timedelta(minutes=5)
    )
    assert delay(policy, 1) == 60
    assert delay(policy, 3) == 180
    assert isinstance(policy.decide(3, 121.0, ERROR, 0.0), GiveUp)


def test_no_retry_on_wins_over_retry_on() -> None:
    policy = RetryPolicy(retry_on=(OSError,), no_retry_on=(FileNotFoundError,))
    assert isinstance(policy.decide(1, 0.0, TimeoutError(), 0.0), Retry)
    assert policy.decide(1, 0.0, FileNotFoundError(), 0.0) == GiveUp("FileNotFoundError is not retried by this policy")
    assert policy.decide(1, 0.0, ERROR, 0.0) == GiveUp("ValueError is not retried by this policy")


def test_what_ends_a_program_is_not_retried_by_default() -> None:
    assert isinstance(RetryPolicy().decide(1, 0.0, KeyboardInterrupt(), 0.0), GiveUp)


def test_one_class_or_a_list_of_classes_will_do() -> None:
    policy = RetryPolicy(retry_on=OSError, no_retry_on=[KeyError])  # type: ignore[arg-type]
    assert (policy.retry_on, policy.no_retry_on) == ((OSError,), (KeyError,))
    assert hash(policy) == hash(RetryPolicy(retry_on=(OSError,), no_retry_on=(KeyError,)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_attempts": 0}, "max_attempts is 0: give 1"),
        ({"max_attempts": True}, "max_attempts is True"),
        ({"max_attempts": 1.5}, "max_attempts is 1.5"),
        ({"initial_delay": -1}, "initial_delay is -1 seconds, below zero"),
        ({"max_delay": math.inf}, "max_delay is inf seconds, over a hundred years"),
        ({"initial_delay": 400}, r"initial_delay \(400\) is over max_delay \(300.0\): raise max_delay"),
        ({"multiplier": 0.5}, "multiplier is 0.5: give a number of 1 or more"),
        ({"multiplier": math.nan}, "multiplier is nan"),
        ({"multiplier": math.inf}, "multiplier is inf"),
        ({"jitter": 1.1}, "jitter is 1.1: give a fraction from 0 to 1"),
        ({"jitter": "a"}, "jitter is 'a'"),
        ({"max_elapsed": -1}, "max_elapsed is -1 seconds, below zero"),
        ({"retry_on": (int,)}, "retry_on holds <class 'int'>: give exception classes"),
        ({"no_retry_on": (ValueError("x"),)}, "no_retry_on holds ValueError"),
    ],
)
def test_policies_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        RetryPolicy(**options)


@pytest.mark.parametrize(
    ("attempt", "elapsed", "unit_random", "message"),
    [
        (0, 0.0, 0.0, "attempt is 0: attempts are counted from 1"),
        (1.0, 0.0, 0.0, "attempt is 1.0"),
        (1, -1.0, 0.0, "elapsed_seconds is -1.0"),
        (1, math.nan, 0.0, "elapsed_seconds is nan"),
        (1, 0.0, 1.5, "unit_random is 1.5: give a number from 0 to 1"),
        (1, 0.0, math.nan, "unit_random is nan"),
    ],
)
def test_bad_arguments_of_a_decision_are_refused(
    attempt: Any, elapsed: float, unit_random: float, message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        RetryPolicy().decide(attempt, elapsed, ERROR, unit_random)


def test_policies_are_frozen_and_keyword_only() -> None:
    with pytest.raises(AttributeError):
        RetryPolicy().max_attempts = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        RetryPolicy(3)  # type: ignore[call-arg]


def _options(policy: RetryPolicy) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in RetryPolicy.__dataclass_fields__}
