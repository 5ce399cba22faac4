"""What can be set on a worker, in one place, checked when it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypedDict

from holdfast.core.errors import InvalidArgumentError
from holdfast.store.values import Retention

WARM_MOST: Final = 10_000
WARM_BYTES: Final = 256 * 1024 * 1024


class WorkerOptions(TypedDict, total=False):
    """What `app.worker(...)` takes besides queues and concurrency; `WorkerSettings` says what each means."""

    threads: int
    lease_seconds: float
    poll_seconds: float
    drain_seconds: float
    max_crashes: int
    keep_steps: int
    keep_seconds: float
    flush_most: int
    warm_most: int
    warm_bytes: int
    retention: Sequence[Retention]
    retention_every_seconds: float
    retention_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Seconds throughout. The defaults suit a service; tests shorten none of them, they use a virtual clock."""

    queues: Sequence[str] | Mapping[str, int | None] = ("default",)  # a mapping gives a local limit per queue
    concurrency: int = 100  # executions at work in this worker at a time
    threads: int = 16  # for steps and tasks that are plain `def`
    lease_seconds: float = 30.0
    poll_seconds: float = 1.0  # the longest an idle worker goes without looking, should every hint be lost
    drain_seconds: float = 30.0  # how long a stopping worker waits for what is at work
    max_crashes: int = 10  # lease losses without progress, after which an execution is stranded
    keep_steps: int = 100  # a lease is kept over so many steps and seconds while others wait
    keep_seconds: float = 1.0
    flush_most: int = 500  # commits in one flush
    # What runners may keep of executions that wait: of so many, and of so many bytes in the ledger. 0: nothing.
    warm_most: int = WARM_MOST
    warm_bytes: int = WARM_BYTES
    retention: Sequence[Retention] = field(default=())
    retention_every_seconds: float = 60.0
    retention_batch: int = 1_000

    def __post_init__(self) -> None:
        for name in ("concurrency", "threads", "max_crashes", "keep_steps", "flush_most", "retention_batch"):
            if not _is_count(getattr(self, name)):
                raise InvalidArgumentError(f"{name} must be a whole number of at least 1, not {getattr(self, name)!r}")
        for name in ("warm_most", "warm_bytes"):
            value = getattr(self, name)
            if not _is_count(value) and (value != 0 or isinstance(value, bool)):
                raise InvalidArgumentError(f"{name} must be a whole number, 0 for none, not {value!r}")
        for name in ("lease_seconds", "poll_seconds", "keep_seconds", "retention_every_seconds"):
            value = getattr(self, name)
            if not _is_number(value) or not value > 0:
                raise InvalidArgumentError(f"{name} must be above 0 seconds, not {value!r}")
        if not _is_number(self.drain_seconds) or not self.drain_seconds >= 0:
            raise InvalidArgumentError(f"drain_seconds must not be negative, not {self.drain_seconds!r}")
        if isinstance(self.queues, str) or not self.queues:
            raise InvalidArgumentError(f"queues must name at least one queue, as a list, not {self.queues!r}")
        for queue, most in self.queue_limits().items():
            if not isinstance(queue, str) or not queue:
                raise InvalidArgumentError(f"{queue!r} is no name of a queue")
            if most is not None and not _is_count(most):
                raise InvalidArgumentError(f"the queue {queue!r} cannot have a limit of {most!r}; use 1 or more")

    def queue_limits(self) -> dict[str, int | None]:
        """Each queue in the order given, with its limit in this worker."""
        if isinstance(self.queues, Mapping):
            return dict(self.queues)
        return dict.fromkeys(self.queues)

    def with_retention(self, rules: Sequence[Retention]) -> Self:
        return replace(self, retention=rules)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
