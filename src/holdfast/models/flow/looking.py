"""Reading ledgers together: what many messages ask for in one turn of the loop is one read."""

from __future__ import annotations

import asyncio

from holdfast.store.base import Store
from holdfast.store.flows import Look, LookKey


class Looking:
    """One a runner."""

    def __init__(self) -> None:
        self._waiting: list[tuple[LookKey, asyncio.Future[Look | None]]] = []
        self._reading: set[asyncio.Task[None]] = set()

    def look(self, store: Store, key: LookKey) -> asyncio.Future[Look | None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Look | None] = loop.create_future()
        self._waiting.append((key, future))
        if len(self._waiting) == 1:
            loop.call_soon(self._read, loop, store)
        return future

    def _read(self, loop: asyncio.AbstractEventLoop, store: Store) -> None:
        waiting, self._waiting = self._waiting, []
        task = loop.create_task(_answer(store, waiting))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)


async def _answer(store: Store, waiting: list[tuple[LookKey, asyncio.Future[Look | None]]]) -> None:
    try:
        found = await store.flow_look([key for key, _ in waiting])
    except Exception as error:
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)
        return
    for (_, future), look in zip(waiting, found, strict=True):
        if not future.done():  # its runner may have been cancelled
            future.set_result(look)
