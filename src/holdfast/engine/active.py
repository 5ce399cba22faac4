"""What this worker has at work, by row: the one place that says which claim of a row is the living one."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.store.values import ExecutionClaim


class ActiveClaims:
    """At most one claim of a row is alive here; a newer pick of the same row displaces the older.

    A claim is worked on by a task, and at last nothing is left of it but a commit that is on its way: it concludes.
    """

    def __init__(self) -> None:
        self.living: dict[int, ExecutionClaim] = {}  # by row
        self._claims: dict[int, ExecutionClaim] = {}  # by their `id`: all that have a place
        self._tasks: dict[int, asyncio.Future[Any]] = {}  # by the same: what works on it

    def __len__(self) -> int:
        return len(self._claims)

    @property
    def running(self) -> int:
        """How many are worked on."""
        return len(self._tasks)

    def of_queue(self, queue: str) -> int:
        """How many are of this queue."""
        return sum(claim.queue == queue for claim in self._claims.values())

    def add(self, claim: ExecutionClaim, task: asyncio.Task[None], *, is_answered: bool = False) -> None:
        """`is_answered`: an earlier claim of the row has a commit under way, whose answer tells it what became of it.

        As a rule that commit released the row, and a pick was answered sooner.
        """
        key, row = id(claim), claim.row
        earlier = None if is_answered else self.living.get(row)
        if earlier is not None and (lost := self._tasks.get(id(earlier))) is not None:
            lost.cancel()  # its lease was lost; whatever it still commits is fenced
        self.living[row] = self._claims[key] = claim
        self._tasks[key] = task

    def let_go(self, claim: ExecutionClaim) -> None:
        """Its own commit released the row, which may be picked again before its task has heard of that.

        The later claim must not stop it then: a workflow is about to leave its session for the next one.
        """
        if self.living.get(claim.row) is claim:
            del self.living[claim.row]

    def replace(self, claim: ExecutionClaim, task: asyncio.Future[Any]) -> None:
        """Another task goes on with the same claim."""
        if id(claim) in self._claims:
            self._tasks[id(claim)] = task

    def conclude(self, claim: ExecutionClaim) -> None:
        """Nothing is left of it but its last commit."""
        self._tasks.pop(id(claim), None)

    def is_by(self, claim: ExecutionClaim, task: asyncio.Future[Any]) -> bool:
        """Whether this is what works on the claim."""
        return self._tasks.get(id(claim)) is task

    def remove(self, claim: ExecutionClaim) -> bool:
        """Whether it had a place until now."""
        key, row = id(claim), claim.row
        if self.living.get(row) is claim:
            del self.living[row]
        self._tasks.pop(key, None)
        return self._claims.pop(key, None) is not None

    def is_alive(self, claim: ExecutionClaim) -> bool:
        return self.living.get(claim.row) is claim

    def rows(self) -> list[int]:
        return list(self.living)

    def tasks(self) -> list[asyncio.Future[Any]]:
        return list(self._tasks.values())

    def cancel(self) -> None:
        """Stop what works on claims, and wait no longer for the last commits of others."""
        for task in self.tasks():
            task.cancel()
        for key in self._claims.keys() - self._tasks.keys():
            self.remove(self._claims[key])

    def disown_all(self) -> None:
        """The worker's lease is gone: nothing here is ours any more."""
        self.living.clear()
        for task in self._tasks.values():
            task.cancel()
