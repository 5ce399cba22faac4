"""What this worker has at work, by row: the one place that says which claim of a row is the living one."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from holdfast.store.values import ExecutionClaim


class ActiveClaims:
    """At most one claim of a row is alive here; a newer pick of the same row displaces the older.

    A claim is worked on by a task, and at last nothing is left of it but a commit that is on its way: it concludes.
    """

    def __init__(self) -> None:
        self.living: dict[int, ExecutionClaim] = {}  # by row
        self._tasks: dict[int, asyncio.Future[Any]] = {}  # by claim: what works on it
        self._concluding: dict[int, ExecutionClaim] = {}
        self.by_queue: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._tasks) + len(self._concluding)

    @property
    def running(self) -> int:
        """How many are worked on."""
        return len(self._tasks)

    def add(self, claim: ExecutionClaim, task: asyncio.Task[None]) -> None:
        displaced = self.living.get(claim.row)
        if displaced is not None and (lost := self._tasks.get(id(displaced))) is not None:
            lost.cancel()  # its lease was lost; whatever it still commits is fenced
        self.living[claim.row] = claim
        self._tasks[id(claim)] = task
        self.by_queue[claim.queue] += 1

    def let_go(self, claim: ExecutionClaim) -> None:
        """Its own commit released the row, which may be picked again before its task has heard of that.

        The later claim must not stop it then: a workflow is about to leave its session for the next one.
        """
        if self.living.get(claim.row) is claim:
            del self.living[claim.row]

    def replace(self, claim: ExecutionClaim, task: asyncio.Future[Any]) -> None:
        """Another task goes on with the same claim."""
        if self._concluding.pop(id(claim), None) is not None or id(claim) in self._tasks:
            self._tasks[id(claim)] = task

    def conclude(self, claim: ExecutionClaim) -> None:
        """Nothing is left of it but its last commit."""
        if self._tasks.pop(id(claim), None) is not None:
            self._concluding[id(claim)] = claim

    def is_by(self, claim: ExecutionClaim, task: asyncio.Future[Any]) -> bool:
        """Whether this is what works on the claim."""
        return self._tasks.get(id(claim)) is task

    def is_concluding(self, claim: ExecutionClaim) -> bool:
        return id(claim) in self._concluding

    def remove(self, claim: ExecutionClaim) -> None:
        if self.living.get(claim.row) is claim:
            del self.living[claim.row]
        if self._tasks.pop(id(claim), None) is not None or self._concluding.pop(id(claim), None) is not None:
            self.by_queue[claim.queue] -= 1

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
        for claim in list(self._concluding.values()):
            self.remove(claim)

    def disown_all(self) -> None:
        """The worker's lease is gone: nothing here is ours any more."""
        self.living.clear()
        for task in self._tasks.values():
            task.cancel()
