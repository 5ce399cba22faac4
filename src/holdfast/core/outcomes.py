"""What a step of a machine may return: six outcomes, frozen.

A step is named by itself (`self.label`) or by its name. Durations are `timedelta` or seconds. What an outcome does
to the ledger is the model's and the store's business; these are only values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeAlias, TypeVar

from holdfast.core.status import LIVE, Status

StateT = TypeVar("StateT")

Duration: TypeAlias = timedelta | float
StepRef: TypeAlias = str | Callable[..., object]


@dataclass(frozen=True, slots=True)
class Next(Generic[StateT]):
    """Go to `step` with `state`; what the step received in `ctx.awaited` is consumed."""

    step: StepRef
    state: StateT


@dataclass(frozen=True, slots=True)
class Replay(Generic[StateT]):
    """Run the same step again after `delay`, with `attempt + 1`; nothing is consumed."""

    state: StateT
    delay: Duration = 0.0


@dataclass(frozen=True, slots=True)
class Await(Generic[StateT]):
    """Park until a signal named in `names` arrives, then run `step`; with `timeout`, at the latest then.

    A step woken by its deadline finds `ctx.timed_out` true and `ctx.awaited` empty.
    """

    names: str | Collection[str]
    step: StepRef
    state: StateT
    timeout: Duration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """At most one execution with this key in any of these statuses.

    `key` is the key itself, or a function of the input that gives it; it is stored verbatim. `scope` is the set of
    statuses in which the key is occupied: every live one by default. Leaving the scope frees the key for good
    (ruling E14).
    """

    key: str | bytes | Callable[[Any], str | bytes]
    scope: Collection[Status] = LIVE


@dataclass(frozen=True, slots=True)
class Child(Generic[StateT]):
    """One child to spawn: a machine (the class, or its name) and its first state."""

    machine: type | str
    state: StateT
    step: StepRef | None = field(default=None, kw_only=True)
    version: int | None = field(default=None, kw_only=True)
    queue: str | None = field(default=None, kw_only=True)
    priority: int | None = field(default=None, kw_only=True)
    partition_key: str | None = field(default=None, kw_only=True)
    delay: Duration = field(default=0.0, kw_only=True)
    unique: Unique | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class ScheduleChildren(Generic[StateT]):
    """Spawn `children` and run `step` when all of them have ended, whether well or badly.

    With `quorum` the barrier opens when that many have ended; with `timeout`, at the latest then, with
    `ctx.timed_out` true. The other children keep running (ruling E10).
    """

    step: StepRef
    children: Sequence[Child[Any]]
    state: StateT
    quorum: int | None = None
    timeout: Duration | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """End well, with `result`; the rest of the inbox is deleted."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Stop:
    """End as failed, with `reason`; the rest of the inbox is deleted."""

    reason: str


Outcome: TypeAlias = Next[Any] | Replay[Any] | Await[Any] | ScheduleChildren[Any] | Done | Stop
