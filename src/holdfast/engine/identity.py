"""The name under which a worker holds its leases: random, never a process id, and another after each lost lease."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable, Sequence

from holdfast.core.errors import HoldfastError, StoreUnavailableError
from holdfast.engine.active import ActiveClaims
from holdfast.engine.observer import Observer
from holdfast.store.base import Store
from holdfast.store.values import Registered

log = logging.getLogger("holdfast.engine")

AGAIN_SECONDS = 0.5


class Identity:
    """`on_changed` hears when there is a new name to work under."""

    def __init__(
        self,
        store: Store,
        active: ActiveClaims,
        gate: asyncio.Lock,
        *,
        queues: Sequence[str],
        lease_seconds: float,
        on_changed: Callable[[], None],
        observer: Observer | None = None,
    ) -> None:
        self._store = store
        self._active = active
        self._gate = gate
        self._queues = list(queues)
        self._lease_seconds = lease_seconds
        self._on_changed = on_changed
        self._observer = observer
        self._name = ""
        self._changing: asyncio.Task[None] | None = None
        self._is_leaving = False

    def current(self) -> str:
        return self._name

    async def take(self) -> Registered:
        """Register under a fresh name."""
        name = f"{socket.gethostname()[:32]}-{os.getpid()}-{secrets.token_hex(8)}"
        registered = await self._store.register_worker(
            name,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=self._queues,
            lease_seconds=self._lease_seconds,
        )
        self._name = name
        return registered

    def lost(self, name: str) -> None:
        """The lease was reaped: whatever is at work here belongs to others now."""
        if name != self._name or self._changing is not None or self._is_leaving:
            return
        log.error("worker %s lost its lease (stopped or cut off for too long); going on under a new name", name)
        if self._observer is not None:
            self._observer.lease_lost()
        self._active.disown_all()
        self._changing = asyncio.get_running_loop().create_task(self._change())

    def leave(self) -> None:
        """No other name is taken from now on."""
        self._is_leaving = True

    async def settle(self, within_seconds: float | None = None) -> bool:
        """Wait for a change that is under way, and end one that takes longer than this; whether there was one."""
        changing = self._changing
        if changing is None:
            return False
        _, late = await asyncio.wait([changing], timeout=within_seconds)
        if late:
            changing.cancel()
            await asyncio.wait([changing])
        return True

    async def _change(self) -> None:
        try:
            async with self._gate:
                while True:
                    try:
                        await self.take()
                        break
                    except StoreUnavailableError:
                        if self._is_leaving:
                            break
                        await asyncio.sleep(AGAIN_SECONDS)
        except HoldfastError:
            log.exception("could not take a new identity")
        finally:
            self._changing = None
            self._on_changed()
