"""Tells runners that something happened to a row they hold: a signal, a child's end, a cancel.

Whoever writes it cannot wake the row, because it is executing. So the holder looks, now and then and when it hears
of new work, with one statement for everything it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.engine.service import Service
from holdfast.store.base import Store


class Watcher(Service):
    name = "watcher"

    def __init__(
        self,
        store: Store,
        watched: Mapping[int, Callable[[], None]],
        worker_id: Callable[[], str],
        every_seconds: float,
    ) -> None:
        super().__init__()
        self._store = store
        self._watched = watched
        self._worker_id = worker_id
        self._every_seconds = every_seconds

    async def run_once(self) -> float | None:
        if self._watched:
            for row in await self._store.stirred(self._worker_id(), list(self._watched)):
                stirred = self._watched.get(row)
                if stirred is not None:
                    stirred()
        return self._every_seconds
