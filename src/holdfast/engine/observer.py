"""What may be told of a worker's doings: the seam for metrics and traces.

A worker without an observer pays one `is None` at each place. An observer must not raise, block, or decide anything.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution, Effect
from holdfast.store.values import ExecutionClaim, NewExecution, Reaped, Receipt

T = TypeVar("T")


class Observer(Protocol):
    def attach(self, store: Store) -> None:
        """A worker of this store is made."""

    def enter(self, claim: ExecutionClaim) -> None:
        """Called in the context in which a claim is about to be worked on: set what user code there is to see."""

    def stamped(self, rows: Sequence[NewExecution]) -> Sequence[NewExecution]:
        """Rows that are about to be started, with what they are to carry along."""

    def stamped_effects(self, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
        """The same for the children in a commit."""

    def picked(self, claims: int, seconds: float) -> None:
        """A pick leased so many."""

    def flushed(self, commits: int, seconds: float) -> None:
        """A flush held so many commits."""

    def advanced(self, claim: ExecutionClaim, advance: AdvanceExecution, receipt: Receipt) -> None:
        """A commit of a claim was applied."""

    def ended(self, promise: bytes, kind: str, name: str, status: Status) -> None:
        """An execution ended in the commit of another one: a job in that of its last message."""

    def retried(self, kind: str, name: str) -> None:
        """A call inside an execution failed and is to be tried again."""

    def lease_lost(self) -> None:
        """This worker's own lease ran out."""

    def reaped(self, reaped: Reaped) -> None:
        """Work of dead workers was taken back."""

    async def stop(self) -> None:
        """The worker leaves: send what is left."""


class StepTracer(Protocol):
    """Goes around user code: a step of a machine, an attempt of a task."""

    def around(self, kind: str, name: str, attempt: int, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]: ...


class Steps:
    """Of this process; `tracer` None: nobody traces."""

    tracer: StepTracer | None = None


STEPS: Final = Steps()


class Observers:
    """Several as one."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._all = tuple(observers)

    def attach(self, store: Store) -> None:
        for observer in self._all:
            observer.attach(store)

    def enter(self, claim: ExecutionClaim) -> None:
        for observer in self._all:
            observer.enter(claim)

    def stamped(self, rows: Sequence[NewExecution]) -> Sequence[NewExecution]:
        for observer in self._all:
            rows = observer.stamped(rows)
        return rows

    def stamped_effects(self, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
        for observer in self._all:
            effects = observer.stamped_effects(effects)
        return effects

    def picked(self, claims: int, seconds: float) -> None:
        for observer in self._all:
            observer.picked(claims, seconds)

    def flushed(self, commits: int, seconds: float) -> None:
        for observer in self._all:
            observer.flushed(commits, seconds)

    def advanced(self, claim: ExecutionClaim, advance: AdvanceExecution, receipt: Receipt) -> None:
        for observer in self._all:
            observer.advanced(claim, advance, receipt)

    def ended(self, promise: bytes, kind: str, name: str, status: Status) -> None:
        for observer in self._all:
            observer.ended(promise, kind, name, status)

    def retried(self, kind: str, name: str) -> None:
        for observer in self._all:
            observer.retried(kind, name)

    def lease_lost(self) -> None:
        for observer in self._all:
            observer.lease_lost()

    def reaped(self, reaped: Reaped) -> None:
        for observer in self._all:
            observer.reaped(reaped)

    async def stop(self) -> None:
        for observer in self._all:
            await observer.stop()
