"""A committer at work, for tests of it and of what goes through it."""

from __future__ import annotations

import asyncio

from holdfast.core.status import Status
from holdfast.engine.active import ActiveClaims
from holdfast.engine.committer import Committer
from holdfast.store.effects import AdvanceExecution
from holdfast.store.values import ExecutionClaim, Receipt
from holdfast.testing.hand import Hand, row
from holdfast.testing.stores import Stores
from tests.engine.rig import Faulty


class Desk:
    """A committer over a real store, with claims that are at work."""

    def __init__(self, stores: Stores, *, inline: bool, flush_most: int = 500) -> None:
        self.store = Faulty(stores.store)
        self.store.inline = inline and stores.backend == "sqlite"
        self.hand = Hand(stores.store)
        self.active = ActiveClaims()
        self.gate = asyncio.Lock()
        self.released: list[tuple[ExecutionClaim, Status, Receipt]] = []
        self.fenced: list[ExecutionClaim] = []
        self.woke = 0
        self.committer = Committer(
            self.store.as_store(),
            self.active,
            self.gate,
            lambda: self.hand.name,
            flush_most=flush_most,
            on_released=self._on_released,
            on_fenced=self.fenced.append,
            on_woke=self._on_woke,
        )
        self._tasks: list[asyncio.Task[None]] = []

    def _on_released(self, claim: ExecutionClaim, advance: AdvanceExecution, receipt: Receipt) -> None:
        self.released.append((claim, advance.status, receipt))

    def _on_woke(self) -> None:
        self.woke += 1

    async def claims(self, count: int) -> list[ExecutionClaim]:
        await self.hand.start()
        await self.hand.insert(*(row(f"e{n}") for n in range(count)))
        claims = await self.hand.pick(count)
        for claim in claims:
            self.active.add(claim, self._work())
        return claims

    def _work(self) -> asyncio.Task[None]:
        async def forever() -> None:
            await asyncio.Event().wait()

        self._tasks.append(asyncio.get_running_loop().create_task(forever()))
        return self._tasks[-1]

    async def status(self, claim: ExecutionClaim) -> Status:
        return (await self.hand.view(claim)).status

    async def close(self) -> None:
        await self.committer.abandon()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
