"""How a worker leaves: what is at work may finish its step; what does not in time is cancelled, unrecorded."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from holdfast.engine.active import ActiveClaims
from holdfast.engine.committer import Committer

log = logging.getLogger("holdfast.engine")

CANCEL_SECONDS = 5.0  # for what a cancelled step still cleans up; code that swallows its cancel must not hold a worker


class Drain:
    """`left_behind`: steps that went on after they were cancelled; their tasks are still on the loop."""

    def __init__(self, active: ActiveClaims, committer: Committer) -> None:
        self._active = active
        self._committer = committer
        self._loop = asyncio.get_running_loop()
        self._patience: asyncio.Task[Any] | None = None
        self.left_behind = 0

    def hurry(self) -> None:
        """Wait no longer for what is at work."""
        if self._patience is not None:
            self._patience.cancel()

    async def run(self, seconds: float) -> None:
        """With 0, what is at work is cancelled at once."""
        active, is_recorded = self._active, True
        if len(active) and seconds > 0:
            self._patience = self._loop.create_task(self._finish(seconds))
            await asyncio.wait([self._patience])
            # What has finished its step is recorded before the rest is cancelled.
            is_recorded = await self._record()
        active.cancel()
        give_up_at = self._loop.time() + CANCEL_SECONDS
        while tasks := active.tasks():
            await asyncio.wait(tasks, timeout=max(0.0, give_up_at - self._loop.time()))
            await asyncio.sleep(0)
            if self._loop.time() >= give_up_at and (left := active.tasks()):
                # Signing off gives their rows back, and whatever they still commit is fenced.
                log.error("%d executions did not let themselves be cancelled in %g s", len(left), CANCEL_SECONDS)
                active.disown_all()
                self.left_behind = len(left)
                break
        if not is_recorded or not await self._record():
            # Nobody here waits for it any more, and a server that fell silent answers in its own time.
            await self._committer.abandon()

    async def _record(self) -> bool:
        """Whether all is; the store may be away for longer than anybody would wait."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_SECONDS):
                await self._committer.idle()
                return True
        return False

    async def _finish(self, seconds: float) -> None:
        """Until everything at work has ended and is recorded, or the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while len(self._active):
                    if tasks := self._active.tasks():
                        await asyncio.wait(tasks)
                    await self._committer.idle()
                    await asyncio.sleep(0)
