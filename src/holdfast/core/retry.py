"""When to try again, and when to give up: exponential backoff as arithmetic.

`RetryPolicy.decide` is a pure function of the attempt, the time spent, the error and a random number, so that
a decision can be tested and repeated. Who waits, and on which clock, is the engine's business.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.core.durations import Duration, format_duration, seconds
from holdfast.core.errors import InvalidArgumentError

ErrorTypes: TypeAlias = tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after this many seconds."""

    delay_seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not try again, and why."""

    reason: str


Decision: TypeAlias = Retry | GiveUp


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how soon a failed call is tried again.

    The defaults try ten times over about nine minutes (1 s, 2 s, 4 s, ... 256 s apart): long enough for a
    restart or a short outage on the other side, short enough that a mistake is soon seen.

    - `max_attempts`: calls in all, the first included; None for no limit.
    - `initial_delay`, `multiplier`, `max_delay`: the wait after the n-th failure is
      `initial_delay * multiplier ** (n - 1)`, at most `max_delay`.
    - `jitter`: the fraction of the wait that is random, 0 to 1. It only shortens, so that `max_delay` holds.
    - `max_elapsed`: no attempt begins later than this after the first one began; None for no limit.
    - `retry_on`, `no_retry_on`: what is worth another attempt; the second wins.
    """

    max_attempts: int | None = 10
    initial_delay: Duration = 1.0
    multiplier: float = 2.0
    max_delay: Duration = 300.0
    jitter: float = 0.1
    max_elapsed: Duration | None = None
    retry_on: ErrorTypes = (Exception,)
    no_retry_on: ErrorTypes = ()

    def __post_init__(self) -> None:
        attempts = self.max_attempts
        if attempts is not None and (not _is_int(attempts) or attempts < 1):
            raise InvalidArgumentError(f"max_attempts is {attempts!r}: give 1 (no retry) or more, or None for no limit")
        if seconds(self.initial_delay, name="initial_delay") > seconds(self.max_delay, name="max_delay"):
            raise InvalidArgumentError(
                f"initial_delay ({self.initial_delay}) is over max_delay ({self.max_delay}): raise max_delay"
            )
        if not _is_number(self.multiplier) or not 1 <= self.multiplier < math.inf:
            raise InvalidArgumentError(f"multiplier is {self.multiplier!r}: give a number of 1 or more")
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise InvalidArgumentError(f"jitter is {self.jitter!r}: give a fraction from 0 to 1")
        if self.max_elapsed is not None:
            seconds(self.max_elapsed, name="max_elapsed")
        for name in ("retry_on", "no_retry_on"):
            object.__setattr__(self, name, _error_types(getattr(self, name), name))

    def decide(self, attempt: int, elapsed_seconds: float, error: BaseException, unit_random: float) -> Decision:
        """What follows the failure of attempt number `attempt`, counted from 1.

        `elapsed_seconds` is the time since the first attempt began; `unit_random` is a random number from 0 to
        1, which the caller draws.
        """
        self._check(attempt, elapsed_seconds, unit_random)
        if isinstance(error, self.no_retry_on) or not isinstance(error, self.retry_on):
            return GiveUp(f"{type(error).__qualname__} is not retried by this policy")
        if self.max_attempts is not None and attempt >= self.max_attempts:
            return GiveUp(f"attempt {attempt} of {self.max_attempts} failed")
        delay = self.backoff_seconds(attempt) * (1 - self.jitter * unit_random)
        if self.max_elapsed is not None:
            allowed = seconds(self.max_elapsed, name="max_elapsed")
            if elapsed_seconds + delay > allowed:
                return GiveUp(
                    f"attempt {attempt} failed and the next would begin after max_elapsed ({format_duration(allowed)})"
                )
        return Retry(delay)

    def backoff_seconds(self, attempt: int) -> float:
        """The wait after the failure of this attempt, before jitter."""
        first = seconds(self.initial_delay, name="initial_delay")
        longest = seconds(self.max_delay, name="max_delay")
        if first == 0 or self.multiplier == 1:
            return first
        try:  # As a float: the exact power of an int would grow with the attempt instead of overflowing.
            return min(first * float(self.multiplier) ** (attempt - 1), longest)
        except OverflowError:
            return longest

    @staticmethod
    def _check(attempt: int, elapsed_seconds: float, unit_random: float) -> None:
        if not _is_int(attempt) or attempt < 1:
            raise InvalidArgumentError(f"attempt is {attempt!r}: attempts are counted from 1")
        if not _is_number(elapsed_seconds) or not 0 <= elapsed_seconds < math.inf:
            raise InvalidArgumentError(f"elapsed_seconds is {elapsed_seconds!r}: give a length of 0 or more")
        if not _is_number(unit_random) or not 0 <= unit_random <= 1:
            raise InvalidArgumentError(f"unit_random is {unit_random!r}: give a number from 0 to 1")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _error_types(types: object, name: str) -> ErrorTypes:
    listed = types if isinstance(types, tuple | list) else (types,)
    for cls in listed:
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            raise InvalidArgumentError(
                f"{name} holds {cls!r:.100}: give exception classes themselves, as in {name}=(ValueError, KeyError)"
            )
    return tuple(listed)


# One attempt, whatever happens.
NO_RETRY = RetryPolicy(max_attempts=1)
