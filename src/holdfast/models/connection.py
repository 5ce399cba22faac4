"""An app's way to its ledger: opened when first used, once for each event loop that uses it.

A program may call `asyncio.run` several times, or use the blocking facade beside its own loop; connections belong
to the loop that opened them, so each gets a store of its own. What was open on a loop that is closed is let go of when
the next one opens its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from holdfast.core.errors import ConfigurationError
from holdfast.engine.observer import Observer
from holdfast.engine.publications import Publications
from holdfast.engine.results import Results
from holdfast.models.workflow.divergence import refuse_in_body
from holdfast.store.base import Store


class _Opened(Struct, frozen=True):
    store: Store
    results: Results
    publications: Publications


class Connection:
    """Where handles and starters read and write."""

    def __init__(self, make_store: Callable[[], Store], payload_limit: int) -> None:
        self._make_store = make_store
        self.payload_limit = payload_limit
        self.observer: Observer | None = None  # sees what is started and worked on; see `app.observe`
        self._opened: dict[asyncio.AbstractEventLoop, _Opened] = {}
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Task[_Opened]] = {}

    async def store(self) -> Store:
        return (await self._open()).store

    async def results(self) -> Results:
        return (await self._open()).results

    async def publications(self) -> Publications:
        return (await self._open()).publications

    def results_here(self) -> Results | None:
        """Those of this loop, where it has them open."""
        refuse_in_body("the app's ledger")
        opened = self._opened.get(asyncio.get_running_loop())
        return None if opened is None else opened.results

    def forget(self) -> None:
        """The next use opens another ledger. What is open must be closed first."""
        if any(not loop.is_closed() for loop in self._opened):
            raise ConfigurationError("the app's ledger is in use; close the app before it is pointed at another one")

    async def close(self) -> None:
        """Close what this loop opened."""
        opened = self._opened.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened.results.stop()
            await opened.publications.stop()
            await opened.store.close()

    async def _open(self) -> _Opened:
        refuse_in_body("the app's ledger")
        loop = asyncio.get_running_loop()
        opened = self._opened.get(loop)
        if opened is not None:
            return opened
        if loop not in self._opening:  # two first uses at the same time share one opening
            self._opening[loop] = loop.create_task(self._open_now(loop))
        try:
            return await asyncio.shield(self._opening[loop])
        finally:
            if loop in self._opening and self._opening[loop].done():
                del self._opening[loop]

    async def _open_now(self, loop: asyncio.AbstractEventLoop) -> _Opened:
        await self._forsake_closed_loops()
        store = self._make_store()
        await store.open()
        opened = _Opened(store, Results(store), Publications(store))
        self._opened[loop] = opened
        return opened

    async def _forsake_closed_loops(self) -> None:
        """A program that never closes its app would run out of descriptors, a loop at a time."""
        for loop in [loop for loop in self._opened if loop.is_closed()]:
            opened = self._opened.pop(loop, None)
            if opened is not None:  # else another loop was quicker
                await opened.store.forsake()
