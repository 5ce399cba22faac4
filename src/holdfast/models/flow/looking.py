"""Reading together: what many messages ask for in one turn of the loop is one read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from holdfast.store.base import Store
from holdfast.store.flows import Closing, ClosingKey, Look, LookKey

Key = TypeVar("Key")
Answer = TypeVar("Answer")


class _Together(Generic[Key, Answer]):
    """Questions of one sort; the store is the same for all of them."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Key, asyncio.Future[Answer]]] = []
        self._reading: set[asyncio.Task[None]] = set()

    def ask(self, read: Callable[[list[Key]], Awaitable[list[Answer]]], key: Key) -> asyncio.Future[Answer]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((key, future))
        if len(self._waiting) == 1:
            loop.call_soon(self._begin, loop, read)
        return future

    def _begin(self, loop: asyncio.AbstractEventLoop, read: Callable[[list[Key]], Awaitable[list[Answer]]]) -> None:
        waiting, self._waiting = self._waiting, []
        task = loop.create_task(_answer(read, waiting))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)


async def _answer(
    read: Callable[[list[Key]], Awaitable[list[Answer]]], waiting: list[tuple[Key, asyncio.Future[Answer]]]
) -> None:
    try:
        found = await read([key for key, _ in waiting])
    except Exception as error:
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)
        return
    for (_, future), answer in zip(waiting, found, strict=True):
        if not future.done():  # its runner may have been cancelled
            future.set_result(answer)


class Looking:
    """One a runner."""

    def __init__(self) -> None:
        self._looks: _Together[LookKey, Look | None] = _Together()
        self._closings: _Together[ClosingKey, Closing] = _Together()

    def look(self, store: Store, key: LookKey) -> asyncio.Future[Look | None]:
        """At a message and its ledgers."""
        return self._looks.ask(store.flow_look, key)

    def closing(self, store: Store, key: ClosingKey) -> asyncio.Future[Closing]:
        """At a job that ends."""
        return self._closings.ask(store.flow_closing, key)
