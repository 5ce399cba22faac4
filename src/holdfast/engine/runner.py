"""The seam between the engine and the models.

A model is a `Runner` and the effects it commits. The engine hands it a claim; it may commit many times while it
keeps the lease. The engine knows nothing else of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from holdfast.core.status import Status
from holdfast.engine.lifespan import Resources
from holdfast.engine.processes import StepProcesses
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution, AppendJournal, Effect
from holdfast.store.values import ExecutionClaim, Receipt


class Engine(Protocol):
    """What a runner may use."""

    @property
    def store(self) -> Store: ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def release(self) -> str:
        """Which code this worker has: what it strands, workers of another release try (ruling B17)."""

    @property
    def resources(self) -> Resources: ...

    @property
    def threads(self) -> Executor: ...

    @property
    def processes(self) -> StepProcesses:
        """For tasks with `executor="process"`; started when first used."""

    def watch(self, claim: ExecutionClaim, stirred: Callable[[], None] | None) -> None:
        """Be called when a held row gets something into its inbox, or its cancel is requested; None ends it."""

    def random(self) -> float:
        """A number in [0, 1), for jitter."""

    def commit(self, claim: ExecutionClaim, *effects: Effect) -> Awaitable[Receipt]:
        """Commit with whatever else is ready. Done when it is durable, or fenced."""

    def step(
        self, claim: ExecutionClaim, advance: AdvanceExecution, segment: AppendJournal
    ) -> int | Awaitable[Receipt]:
        """`commit` of what a run adds to its journal as it goes on.

        The store's time, if it is durable by now and nothing else is to be known of it: nobody could share it then.
        """

    def conclude(self, claim: ExecutionClaim, *effects: Effect) -> None:
        """The last commit of a claim: a runner returns after it and does not wait for it.

        So what the runner holds is gone before the next claim begins, and not kept until the commit is durable.
        """

    def transact(
        self,
        claim: ExecutionClaim,
        work: Callable[[Any], Any],
        effects_of: Callable[[Any], Sequence[Effect]],
        *,
        heeds_cancel: bool = False,
        heeds_pause: bool = False,
    ) -> Awaitable[Receipt]:
        """Run code on the store's own connection and commit its effects with what it wrote (`Store.transact`)."""

    def may_keep(self, claim: ExecutionClaim, steps: int, since: float) -> bool:
        """Whether a runner may keep its lease for another step (ruling E11)."""

    def leave_to_others(self, seconds: float) -> None:
        """Pick nothing for so long: what is given back now is meant for workers that have room for it."""

    def note_end(self, promise: bytes, kind: str, name: str, status: Status) -> None:
        """An execution ended in the commit of another's claim; for metrics and traces."""

    def note_retry(self, kind: str, name: str) -> None:
        """Something is to be tried again that has no execution of its own; for metrics."""

    def now(self) -> float:
        """The event loop's clock, for `may_keep`; it decides nothing durable."""


class Runner(Protocol):
    """One a kind."""

    @property
    def kind(self) -> str: ...

    @property
    def handlers(self) -> Collection[int]:
        """What this runner has code for: see `store.base.handler_of`."""

    def check(self, resources: Resources) -> None:
        """Called when a worker starts: raise `ConfigurationError` if the code asks for what is not there."""

    async def run(self, claim: ExecutionClaim, engine: Engine) -> None:
        """Work on a claim until it is released. A cancelled run records nothing."""

    def close(self) -> None:
        """Called when a worker leaves, after its last run: drop what was kept in memory."""
