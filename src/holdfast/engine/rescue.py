"""What becomes of a claim whose runner raised: it is given back if the store was away, and stranded otherwise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from holdfast.core.codec import encode_error
from holdfast.core.errors import StoreUnavailableError
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.engine.service import Backoff
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution
from holdfast.store.values import ExecutionClaim, Receipt

log = logging.getLogger("holdfast.engine")


class Rescue:
    """`commit` is the worker's: a stranding is observed and told like any other outcome."""

    def __init__(
        self,
        store: Store,
        worker_id: Callable[[], str],
        commit: Callable[[ExecutionClaim, AdvanceExecution], Awaitable[Receipt]],
        is_alive: Callable[[ExecutionClaim], bool],
        gate: asyncio.Lock,
    ) -> None:
        self._is_alive = is_alive
        self._gate = gate
        self._store = store
        self._worker_id = worker_id
        self._commit = commit

    async def save(self, claim: ExecutionClaim, error: BaseException) -> None:
        if isinstance(error, StoreUnavailableError):
            await self._give_back(claim, error)
        else:
            # A runner that raises is a fault of ours, not of the user's code: strand it, loudly, and go on.
            await self._strand(claim, error)

    async def _strand(self, claim: ExecutionClaim, error: BaseException) -> None:
        label = PromiseId.from_bytes(claim.promise).label(claim.name)
        log.error(
            "%s could not be worked on and is stranded; resume it once the cause is mended", label, exc_info=error
        )
        record = encode_error(error, kind="internal")
        # No progress: what the step was given must be there when it is resumed.
        advance = AdvanceExecution(status=Status.STRANDED, attempt=claim.attempt + 1, progress=False, error=record)
        if (await self._commit(claim, advance)).applied:
            return
        # It may have raised after a commit that it has not heard of.
        async with self._gate:
            if not self._is_alive(claim):  # the row's lease is a later claim's, or another worker's
                return
            (held,) = await self._store.reclaim(self._worker_id(), [claim])
        if held is not None:
            claim.renewed_as(held)
            await self._commit(claim, advance)

    async def _give_back(self, claim: ExecutionClaim, error: StoreUnavailableError) -> None:
        """The store was away when the runner needed to read: nothing has happened, so it may be picked again."""
        label = PromiseId.from_bytes(claim.promise).label(claim.name)
        log.warning("%s is put back, the store was unavailable: %s", label, error)
        backoff = Backoff()
        while True:
            try:
                await self._store.release(self._worker_id(), [claim])
                return
            except StoreUnavailableError:
                await asyncio.sleep(backoff.take())
