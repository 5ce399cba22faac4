"""The transition contract as data: the seed's twelve rules, ruling D1, and the retry guard."""

from __future__ import annotations

import itertools
import pickle

import pytest

from holdfast.core.errors import IllegalTransitionError, InvalidArgumentError
from holdfast.core.sequence import RULES, TABLE, FailClass, RetryGuard, State, check_transition

# Written out from the seed, not derived from the code: prior -> what it may become.
CONTRACT = {
    "UNSEEN": {"DISPATCHED"},
    "DISPATCHED": {"IN_FLIGHT", "TERMINAL_CANCEL"},
    "IN_FLIGHT": {"TERMINAL_SUCCESS", "TERMINAL_SKIP", "TERMINAL_FAIL", "TERMINAL_CANCEL"},
    "TERMINAL_SUCCESS": {"COMMITTED"},
    "TERMINAL_SKIP": {"COMMITTED"},
    "TERMINAL_FAIL": {"COMMITTED", "DISPATCHED"},
    "TERMINAL_CANCEL": {"COMMITTED"},
    "COMMITTED": set(),
}


@pytest.mark.parametrize(("prior", "to"), list(itertools.product(State, State)))
def test_every_pair_of_states_is_as_the_contract_says(prior: State, to: State) -> None:
    legal = to.name in CONTRACT[prior.name]
    assert bool(TABLE[prior][to]) == legal
    if legal:
        check_transition(17, prior, to, 5, 1_000)
        return
    with pytest.raises(IllegalTransitionError) as caught:
        check_transition(17, prior, to, 5, 1_000)
    error = caught.value
    assert (error.seq, error.prior, error.attempted, error.owner, error.at_ms) == (
        17,
        prior.name,
        to.name,
        5,
        1_000,
    )
    assert all(part in str(error) for part in ("seq 17", prior.name, to.name, "owner 5", "1000 ms"))


def test_the_table_holds_the_twelve_rules_and_nothing_else() -> None:
    assert [rule.number for rule in RULES] == list(range(1, 13))
    assert sorted(number for row in TABLE for number in row if number) == list(range(1, 13))
    assert [(rule.prior, rule.to) for rule in RULES if rule.number == 12] == [(State.TERMINAL_FAIL, State.DISPATCHED)]


def test_state_codes_are_those_of_the_seed() -> None:
    assert [state.name for state in sorted(State)] == list(CONTRACT)
    assert [int(state) for state in State] == list(range(8))


def test_the_report_survives_pickling() -> None:
    error = IllegalTransitionError(3, "UNSEEN", "COMMITTED", 9, 12)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.seq, copy.at_ms) == (str(error), 3, 12)


@pytest.mark.parametrize("fail_class", FailClass)
@pytest.mark.parametrize("attempts", range(4))
def test_retry_needs_a_retryable_class_and_budget(fail_class: FailClass, attempts: int) -> None:
    guard = RetryGuard(max_attempts=3, retryable=frozenset({FailClass.RETRYABLE}))
    assert guard.allows(fail_class, attempts) == (fail_class is FailClass.RETRYABLE and attempts < 2)


def test_a_permanent_failure_is_not_retryable_by_default() -> None:
    guard = RetryGuard(max_attempts=9)
    assert [fail_class for fail_class in FailClass if not guard.allows(fail_class, 0)] == [FailClass.PERMANENT]
    assert not any(RetryGuard().allows(fail_class, 0) for fail_class in FailClass)


@pytest.mark.parametrize("max_attempts", [0, -1, 65_536])
def test_a_budget_that_cannot_be_counted_is_refused(max_attempts: int) -> None:
    with pytest.raises(InvalidArgumentError, match="max_attempts"):
        RetryGuard(max_attempts=max_attempts)
