"""Waiting for what executions publish: one loop, one read and one ear for all who wait in this process.

A commit that publishes says so to whoever listens; ends are heard as well, because after one nothing more is published.
Who waits for a run that goes on as another waits for that one, which shows what the one before has shown.
"""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import Raw, Struct

from holdfast.core.status import Status
from holdfast.engine.waiting import Waiting
from holdfast.store.values import Shown, Topic

_values = msgspec.json.Decoder(dict[str, Raw]).decode


class Publication(Struct, frozen=True):
    """A published value as JSON; None: the execution ended or is stranded as `status` says, without it."""

    text: str | None
    status: Status | None = None  # None beside no text: there is no such execution


class Wanted(Struct, frozen=True, eq=False):
    """What one who waits has asked for: a value of this name other than the one that was seen before."""

    name: str
    seen: str | None
    future: asyncio.Future[Publication]

    def is_settled(self, shown: Shown) -> bool:
        """Whether this is the answer, which is given then."""
        found = _found(shown, self.name, self.seen)
        if found is not None and not self.future.done():
            self.future.set_result(found)
        return self.future.done()


class Publications(Waiting[Wanted]):
    name = "publications"
    topics = (Topic.PUBLISHED, Topic.ENDED)

    async def wait(self, promise: bytes, name: str, seen: str | None = None) -> Publication:
        """Until a value of this name is shown, other than `seen`, or never will be."""
        wanted = Wanted(name, seen, asyncio.get_running_loop().create_future())
        self._waiters.setdefault(promise, []).append(wanted)
        self._ask_soon()
        try:
            return await wanted.future
        except BaseException:
            self._keep(promise, [other for other in self._waiters.get(promise, ()) if other is not wanted])
            raise

    async def look(self, promise: bytes, name: str, seen: str | None = None) -> Publication | None:
        """The same as it is now; None while it may still come."""
        while True:
            shown = next(iter(await self._store.shown([promise])), None)
            if shown is None or shown.successor is None:
                return None if shown is None else _found(shown, name, seen)
            promise = shown.successor

    async def _ask(self) -> float | None:
        await self._listen()
        began = asyncio.get_running_loop().time()
        current = {promise: self._followed.get(promise, promise) for promise in self._waiters}
        answers = {shown.promise: shown for shown in await self._store.shown(list(set(current.values())))}
        has_moved = False
        for promise, asked in current.items():
            shown = answers.get(asked)
            if shown is None:
                continue
            if shown.successor is not None:
                has_moved = True
                if promise in self._waiters:
                    self._followed[promise] = shown.successor
                continue
            self._keep(promise, [wanted for wanted in self._waiters.get(promise, ()) if not wanted.is_settled(shown)])
        if has_moved or not self._waiters:
            return 0.0 if has_moved else None
        await asyncio.sleep(self._pause_after(began))
        return self._next_poll() if self._waiters else None

    def _keep(self, promise: bytes, waiters: list[Wanted]) -> None:
        if waiters:
            self._waiters[promise] = waiters
        else:
            self._waiters.pop(promise, None)
            self._followed.pop(promise, None)

    def _future_of(self, waiter: Wanted) -> asyncio.Future[Publication]:
        return waiter.future

    def _ask_all(self) -> None:
        self.wake()

    def _hear(self, topic: Topic) -> None:
        if not self._waiters:
            return
        if topic is Topic.PUBLISHED:
            self._ask_all()
        elif topic is Topic.ENDED:
            self._put_off()  # ends are many, and few of them are of what is waited for


def _found(shown: Shown, name: str, seen: str | None) -> Publication | None:
    raw = _values(shown.published).get(name) if shown.published is not None else None
    text = None if raw is None else bytes(raw).decode()
    if text is not None and text != seen:
        return Publication(text)
    status = shown.status
    is_over = status is None or status.is_terminal or status is Status.STRANDED
    return Publication(None, status) if is_over else None
