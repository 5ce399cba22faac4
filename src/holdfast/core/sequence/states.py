"""The eight states of a sequence number and the twelve rules between them, as data.

- `State`, `RULES`, `TABLE`: the seed's transition contract; a pair that no rule names is illegal.
- `FailClass`: why an item failed. `RetryGuard`: which failures are tried again, and how often.
- `check_transition`: the one place that turns an illegal pair into its report.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from holdfast.core.errors import IllegalTransitionError, InvalidArgumentError


class State(IntEnum):
    """State codes of the seed; one byte an item."""

    UNSEEN = 0
    DISPATCHED = 1
    IN_FLIGHT = 2
    TERMINAL_SUCCESS = 3
    TERMINAL_SKIP = 4
    TERMINAL_FAIL = 5
    TERMINAL_CANCEL = 6
    COMMITTED = 7


# Plain numbers for the hot path: an enum member costs a lookup at each use.
UNSEEN: Final = 0
DISPATCHED: Final = 1
IN_FLIGHT: Final = 2
SUCCESS: Final = 3
SKIP: Final = 4
FAIL: Final = 5
CANCEL: Final = 6
COMMITTED: Final = 7
TERMINALS: Final = (SUCCESS, SKIP, FAIL, CANCEL)


@dataclass(frozen=True, slots=True)
class Rule:
    """One legal transition, by the number that the seed gives it."""

    number: int
    prior: State
    to: State
    when: str = ""


RULES: Final = (
    Rule(1, State.UNSEEN, State.DISPATCHED),
    Rule(2, State.DISPATCHED, State.IN_FLIGHT),
    Rule(3, State.IN_FLIGHT, State.TERMINAL_SUCCESS),
    Rule(4, State.IN_FLIGHT, State.TERMINAL_SKIP),
    Rule(5, State.IN_FLIGHT, State.TERMINAL_FAIL),
    Rule(6, State.DISPATCHED, State.TERMINAL_CANCEL, "before work begins"),
    Rule(7, State.IN_FLIGHT, State.TERMINAL_CANCEL, "forced, after the grace period"),
    Rule(8, State.TERMINAL_SUCCESS, State.COMMITTED),
    Rule(9, State.TERMINAL_SKIP, State.COMMITTED),
    Rule(10, State.TERMINAL_FAIL, State.COMMITTED),
    Rule(11, State.TERMINAL_CANCEL, State.COMMITTED),
    Rule(12, State.TERMINAL_FAIL, State.DISPATCHED, "retryable class, budget left (ruling D1)"),
)


def _table() -> tuple[bytes, ...]:
    rows = [bytearray(len(State)) for _ in State]
    for rule in RULES:
        rows[rule.prior][rule.to] = rule.number
    return tuple(bytes(row) for row in rows)


TABLE: Final = _table()
"""`TABLE[prior][to]`: the number of the rule that allows it, 0 if none does."""


def check_transition(seq: int, prior: int, to: int, owner: int, now_ms: int) -> None:
    """Raise the full report if no rule leads from `prior` to `to`."""
    if not TABLE[prior][to]:
        raise illegal_transition(seq, prior, to, owner, now_ms)


def illegal_transition(seq: int, prior: int, to: int, owner: int, now_ms: int) -> IllegalTransitionError:
    return IllegalTransitionError(seq, State(prior).name, State(to).name, owner, now_ms)


class FailClass(IntEnum):
    """Why an item failed; recorded beside its outcome."""

    PERMANENT = 1
    RETRYABLE = 2
    LEASE_EXPIRED = 3
    TIMEOUT = 4


MAX_ATTEMPTS = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryGuard:
    """The retry guard of the seed: a class marked retryable, and budget left.

    `max_attempts` counts the first run: 1 means no retry.
    """

    max_attempts: int = 1
    retryable: frozenset[FailClass] = frozenset({FailClass.RETRYABLE, FailClass.LEASE_EXPIRED, FailClass.TIMEOUT})

    def __post_init__(self) -> None:
        if not 1 <= self.max_attempts <= MAX_ATTEMPTS:
            raise InvalidArgumentError(
                f"max_attempts is {self.max_attempts}; a batch counts attempts in 16 bits, use 1..{MAX_ATTEMPTS}"
            )

    def allows(self, fail_class: FailClass, attempts: int) -> bool:
        """Whether an item that was retried `attempts` times before may run once more."""
        return fail_class in self.retryable and attempts + 1 < self.max_attempts
