"""What may be told of a worker's doings: the seam for metrics and traces.

A worker without an observer pays one `is None` at each place. An observer must not raise, block, or decide anything.
"""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from typing import Protocol

from holdfast.store.effects import AdvanceExecution, Effect
from holdfast.store.values import ExecutionClaim, NewExecution, Reaped, Receipt


class Observer(Protocol):
    def context(self, claim: ExecutionClaim) -> contextvars.Context | None:
        """In what context a claim is worked on; None: in one of its own, as ever."""

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

    def lease_lost(self) -> None:
        """This worker's own lease ran out."""

    def reaped(self, reaped: Reaped) -> None:
        """Work of dead workers was taken back."""

    async def stop(self) -> None:
        """The worker leaves: send what is left."""
