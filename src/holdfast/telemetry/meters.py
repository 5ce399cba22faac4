"""What the workers of this process do, as Prometheus metrics in a registry of Holdfast's own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Histogram

from holdfast.core.status import TERMINAL, Status
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution, Effect
from holdfast.store.values import ExecutionClaim, NewExecution, Reaped, Receipt

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_COMMITS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


@lru_cache(maxsize=1)
def registry() -> CollectorRegistry:
    """Holdfast's own: nothing is added to the global one of a program that has metrics of its own."""
    return CollectorRegistry()


class Meters:
    """Implements `engine.observer.Observer`; counting is all it does."""

    def __init__(self, into: CollectorRegistry | None = None) -> None:
        where = registry() if into is None else into
        self._flush_commits = Histogram(
            "holdfast_flush_commits", "Commits in one flush", buckets=_COMMITS, registry=where
        )
        self._flush_seconds = Histogram(
            "holdfast_flush_seconds", "How long a flush took to be durable", buckets=_SECONDS, registry=where
        )
        self._pick_seconds = Histogram(
            "holdfast_pick_seconds", "How long a pick took", buckets=_SECONDS, registry=where
        )
        self._picked = Counter("holdfast_picked", "Executions that were leased", registry=where)
        self._steps = Counter("holdfast_steps", "Committed steps", ["kind", "name"], registry=where)
        self._ended = Counter(
            "holdfast_ended",
            "Executions whose end a worker of this process wrote; a cancel of what nobody works on ends it without one",
            ["kind", "name", "status"],
            registry=where,
        )
        self._retries = Counter(
            "holdfast_retries", "Steps and tasks to be tried again", ["kind", "name"], registry=where
        )
        self._stranded = Counter("holdfast_stranded", "Executions that were stranded", ["kind", "name"], registry=where)
        self._lease_losses = Counter("holdfast_lease_losses", "Times that this worker lost its lease", registry=where)
        self._reaped_workers = Counter("holdfast_reaped_workers", "Dead workers that were cleaned up", registry=where)
        self._reaped = Counter("holdfast_reaped_executions", "Executions taken back from dead workers", registry=where)
        self._poisoned = Counter(
            "holdfast_crash_stranded", "Executions that lost too many workers and were stranded", registry=where
        )

    def attach(self, store: Store) -> None:
        """The ledger is not asked for anything."""

    def enter(self, claim: ExecutionClaim) -> None:
        """User code sees nothing of it."""

    def stamped(self, rows: Sequence[NewExecution]) -> Sequence[NewExecution]:
        return rows

    def stamped_effects(self, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
        return effects

    def picked(self, claims: int, seconds: float) -> None:
        self._pick_seconds.observe(seconds)
        self._picked.inc(claims)

    def flushed(self, commits: int, seconds: float) -> None:
        self._flush_commits.observe(commits)
        self._flush_seconds.observe(seconds)

    def advanced(self, claim: ExecutionClaim, advance: AdvanceExecution, receipt: Receipt) -> None:
        status = receipt.status
        self._steps.labels(claim.kind, claim.name).inc()
        if status in TERMINAL and status is not None:
            self._ended.labels(claim.kind, claim.name, status.value).inc()
        elif status is Status.STRANDED:
            self._stranded.labels(claim.kind, claim.name).inc()
        elif advance.error is not None:
            self._retries.labels(claim.kind, claim.name).inc()

    def ended(self, promise: bytes, kind: str, name: str, status: Status) -> None:
        self._ended.labels(kind, name, status.value).inc()

    def retried(self, kind: str, name: str) -> None:
        self._retries.labels(kind, name).inc()

    def lease_lost(self) -> None:
        self._lease_losses.inc()

    def reaped(self, reaped: Reaped) -> None:
        self._reaped_workers.inc(len(reaped.workers))
        self._reaped.inc(reaped.released)
        self._poisoned.inc(len(reaped.stranded))

    async def stop(self) -> None:
        """Nothing is kept back: it is scraped."""


@lru_cache(maxsize=1)
def meters() -> Meters:
    """The one of this process, in `registry()`."""
    return Meters()
