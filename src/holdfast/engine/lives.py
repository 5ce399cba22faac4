"""The life of a claim in this worker: begun by a pick, ended by its runner, saved where that raised.

A runner may return before its last commit is durable. The claim then concludes: it is alive until the answer comes,
but nothing works on it any more.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from msgspec import Struct

from holdfast.engine.active import ActiveClaims
from holdfast.engine.rescue import Rescue
from holdfast.store.values import ExecutionClaim, Receipt

log = logging.getLogger("holdfast.engine")


class LastCommit(Struct, eq=False, gc=False):
    """Hears what became of the last commit of a claim, once, without a future and a turn of the loop."""

    claim: ExecutionClaim
    over: Callable[[ExecutionClaim], None]
    save: Callable[[ExecutionClaim, BaseException], None]
    is_done: bool = False

    def done(self) -> bool:
        return self.is_done

    def set_result(self, _: Receipt, /) -> None:
        """It is durable, or fenced."""
        self.is_done = True
        self.over(self.claim)

    def set_exception(self, error: Exception, /) -> None:
        """It could not be written."""
        self.is_done = True
        self.save(self.claim, error)


class Lives:
    """`on_over` hears of each place that is free again; `on_fenced`, of each whose row may still be leased to us."""

    def __init__(
        self, active: ActiveClaims, rescue: Rescue, on_over: Callable[[], None], on_fenced: Callable[[], None]
    ) -> None:
        self._active = active
        self._rescue = rescue
        self._on_over = on_over
        self._on_fenced = on_fenced
        self._fenced: set[int] = set()  # by claim
        self._loop = asyncio.get_running_loop()

    def begin(
        self,
        claim: ExecutionClaim,
        work: Coroutine[Any, Any, None],
        context: contextvars.Context | None = None,
        *,
        is_answered: bool = False,
    ) -> None:
        """`is_answered` as `ActiveClaims.add` takes it."""
        # A name that is given need not be made up, and says more.
        task = self._loop.create_task(work, name=claim.name, context=context)
        self._active.add(claim, task, is_answered=is_answered)
        task.add_done_callback(partial(self._ended, claim))

    def conclude(self, claim: ExecutionClaim) -> LastCommit:
        """Nothing is left of it but the commit that is answered to this."""
        self._active.conclude(claim)
        return LastCommit(claim, self._over, self._save)

    def fenced(self, claim: ExecutionClaim) -> None:
        """A commit of it was refused. Only when it is over does nobody here know of a lease that its row may have."""
        if self._active.is_alive(claim):
            self._fenced.add(id(claim))

    def _ended(self, claim: ExecutionClaim, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._save(claim, error)
        elif self._active.is_by(claim, task):  # else it left its last commit behind
            self._over(claim)

    def _save(self, claim: ExecutionClaim, error: BaseException) -> None:
        rescue = self._loop.create_task(self._rescue.save(claim, error))
        self._active.replace(claim, rescue)
        rescue.add_done_callback(partial(self._saved, claim))

    def _saved(self, claim: ExecutionClaim, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an execution could not even be stranded; its lease is kept", exc_info=error)
        self._over(claim)

    def _over(self, claim: ExecutionClaim) -> None:
        if not self._active.remove(claim):
            return
        if self._fenced and id(claim) in self._fenced:
            self._fenced.discard(id(claim))
            self._on_fenced()
        self._on_over()
