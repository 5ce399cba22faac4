"""What `.options(...)` takes, for every definition, checked where it enters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Self, TypedDict

from holdfast.core.codec_hooks import ENCODER
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import InvalidArgumentError
from holdfast.core.outcomes import Unique
from holdfast.core.searchable import is_searchable, is_text, shown
from holdfast.core.status import Status

PARTITION_KEY_MAX_CHARS = 255
QUEUE_MAX_CHARS = 100
UNIQUE_KEY_MAX_BYTES = 1024
AT_FIRST_YEAR = 2  # far enough above datetime.min for every time zone
AT_LAST_YEAR = 9_000  # far enough below datetime.max for every delay and deadline on top
PRIORITY_LOWEST, PRIORITY_HIGHEST = -32_768, 32_767
CONCURRENCY_MOST = 2**31 - 1
# A bucket that never fills, or fills at once, would be an error of every pick of its queue.
RATE_LEAST, RATE_MOST, RATE_PERIOD_LEAST = 1e-6, 1e9, 0.001
_STATUSES = frozenset(Status)


class StartOptions(TypedDict, total=False):
    """The keywords of `.options(...)`, for type checkers and editors; `Options` says what each means."""

    key: str | Callable[[Any], str] | None
    queue: str | None
    priority: int | None
    partition_key: str | None
    delay: Duration
    at: datetime | None
    unique: Unique | None
    attributes: Mapping[str, str | int | float | bool] | None
    deadline: Duration | None
    connection: Any
    dedup_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How an execution is started. None takes what the definition says.

    - `key`: the same definition and key is the same execution, for ever; with `start_many`, a function of the input.
    - `queue`, `priority` (lower is earlier), `partition_key` (one at a time, in order).
    - `delay` (from now) or `at` (an aware datetime): not before then.
    - `unique`: refuse the start while another one occupies the key.
    - `attributes`: a flat mapping to search by.
    - `deadline`: so long after its start its cancel is requested.
    - `connection`: start it in this connection's transaction (asyncpg or sqlite3): if and only if that commits.
    - `dedup_key`: of the signal of `signal_with_start`, which then may be sent again.
    """

    key: str | Callable[[Any], str] | None = None
    queue: str | None = None
    priority: int | None = None
    partition_key: str | None = None
    delay: Duration = 0.0
    at: datetime | None = None
    unique: Unique | None = None
    attributes: Mapping[str, str | int | float | bool] | None = None
    deadline: Duration | None = None
    connection: Any = None
    dedup_key: str | None = None

    def __post_init__(self) -> None:
        seconds(self.delay, name="delay")
        if self.deadline is not None:
            seconds(self.deadline, name="deadline")
        if self.queue is not None:
            check_queue(self.queue)
        if self.priority is not None:
            check_priority(self.priority)
        if self.partition_key is not None:
            check_partition_key(self.partition_key)
        if self.at is not None and (not isinstance(self.at, datetime) or self.at.tzinfo is None):
            raise InvalidArgumentError(f"at={self.at!r} is no moment with a time zone; use datetime(..., tzinfo=UTC)")
        if self.at is not None and self.at.year < AT_FIRST_YEAR:
            raise InvalidArgumentError(
                f"at={self.at} is before the year {AT_FIRST_YEAR}; leave it out to start at once"
            )
        if self.at is not None and self.at.year > AT_LAST_YEAR:
            # PostgreSQL's driver takes datetime.max for infinity, with which no pick can reckon.
            raise InvalidArgumentError(
                f"at={self.at} is after the year {AT_LAST_YEAR}; use an earlier one, or await a signal"
            )
        if self.unique is not None and not isinstance(self.unique, Unique):
            raise InvalidArgumentError(f"unique={self.unique!r} says no scope; use Unique(key=...)")

    def updated(self, **changes: Any) -> Self:
        known = {field.name for field in fields(self)}
        for name in changes:
            if name not in known:
                raise InvalidArgumentError(f"there is no option {name!r}; the options are {', '.join(sorted(known))}")
        return replace(self, **changes)

    def encoded_attributes(self) -> str | None:
        if self.attributes is None:
            return None
        if not isinstance(self.attributes, Mapping):
            raise InvalidArgumentError(f"attributes are a mapping of names to values, not {self.attributes!r:.100}")
        for name, value in self.attributes.items():
            if name == "":
                raise InvalidArgumentError("an attribute has no name: give it one of 1 character or more")
            if not is_text(name) or not is_searchable(value):
                raise InvalidArgumentError(
                    f"the attribute {name!r:.100} is {shown(value)}; use text, booleans, or finite numbers of 64 bits"
                )
        return ENCODER.encode(dict(self.attributes)).decode()


def check_queue(queue: str) -> str:
    if not is_text(queue) or not queue or len(queue) > QUEUE_MAX_CHARS:
        raise InvalidArgumentError(f"{queue!r} is no name of a queue; use 1 to {QUEUE_MAX_CHARS} characters")
    return queue


def check_limits(concurrency: int | None, rate: float | None, period: float) -> None:
    """What a queue may be limited to; `period` in seconds."""
    if concurrency is not None and not (_is_whole(concurrency) and 1 <= concurrency <= CONCURRENCY_MOST):
        raise InvalidArgumentError(
            f"the concurrency of a queue is a whole number from 1 to {CONCURRENCY_MOST}, not {shown(concurrency)}; "
            "None lifts the limit, and pausing the queue stops it"
        )
    if rate is None and not period >= RATE_PERIOD_LEAST:  # it is kept for the next rate
        raise InvalidArgumentError(f"the period of a rate is {RATE_PERIOD_LEAST:g} s or more, not {period!r} s")
    if rate is not None and not (
        (_is_whole(rate) or isinstance(rate, float)) and RATE_LEAST <= rate <= RATE_MOST and period >= RATE_PERIOD_LEAST
    ):
        raise InvalidArgumentError(
            f"a rate is {RATE_LEAST:g} to {RATE_MOST:g} in a period of {RATE_PERIOD_LEAST:g} s or more, "
            f"not {shown(rate)} in {period!r} s; None lifts the limit"
        )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_priority(priority: int) -> int:
    if not _is_whole(priority):
        raise InvalidArgumentError(f"a priority is a whole number, not {priority!r}")
    if not PRIORITY_LOWEST <= priority <= PRIORITY_HIGHEST:
        raise InvalidArgumentError(f"the priority {shown(priority)} is outside {PRIORITY_LOWEST}..{PRIORITY_HIGHEST}")
    return priority


def check_partition_key(key: str) -> str:
    if not is_text(key) or not key:
        raise InvalidArgumentError(f"a partition key is a non-empty text, not {key!r}")
    if len(key) > PARTITION_KEY_MAX_CHARS:
        raise InvalidArgumentError(
            f"the partition key {key[:40]!r}... has {len(key)} characters, the limit is "
            f"{PARTITION_KEY_MAX_CHARS}: use a shorter key, or a hash of it"
        )
    return key


def unique_columns(unique: Unique, value: object) -> tuple[bytes, tuple[str, ...]]:
    """The key and scope as the store keeps them."""
    key = unique.key(value) if callable(unique.key) else unique.key
    raw = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
    if not isinstance(raw, bytes) or not raw:
        raise InvalidArgumentError(f"a unique key is a non-empty text or bytes, not {key!r}")
    if len(raw) > UNIQUE_KEY_MAX_BYTES:
        raise InvalidArgumentError(
            f"a unique key of {len(raw)} bytes is over the limit of {UNIQUE_KEY_MAX_BYTES}: use a hash of it"
        )
    scope = tuple(sorted(str(status) for status in unique.scope))
    if unknown := [status for status in scope if status not in _STATUSES]:
        raise InvalidArgumentError(f"the scope of a unique key holds {unknown}; it is a set of Status values")
    if Status.RUNNABLE not in scope:
        # E14: a key that is taken only later could collide in the middle of somebody else's commit.
        raise InvalidArgumentError(
            f"the scope {list(scope)} of a unique key leaves out 'runnable', the status in which every execution "
            "begins; add it, or leave the scope out for every live status"
        )
    return raw, scope
