"""Waiting for executions to end: every waiter of a process shares one loop, one read and one ear.

A worker in the same process says directly what ended, so that no read is needed; for the work of others the ear
hears a hint and the loop asks for all that is waited for at once. Polling that backs off is the net. Who waits for a
run that goes on as another waits for that one. Of a crowd a pass asks for a part only, those first who have waited
longest: they are the likeliest to have ended, and a pass over thousands would be late for the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from time import monotonic
from typing import Any

from msgspec import Struct

from holdfast.core.errors import ConfigurationError
from holdfast.core.status import Status
from holdfast.engine.waiting import Waiting
from holdfast.store.base import Store
from holdfast.store.values import EndOf, Topic

TOLD_SECONDS = 0.05  # hints are put off for so long after a worker of this process told what ended
CROWD_HEAD = 500  # of a crowd a pass asks for so many that have waited longest,
CROWD_TURN = 500  # and for so many of the others in turn;
CROWD_NEW = 2_000  # but first for so many that were never asked for: they may have ended long ago
CROWD_SECONDS = 0.025  # between two passes over a crowd,
CROWD_TOLD_SECONDS = 0.1  # and where a worker of this process tells what ends


class Ending(Struct, frozen=True, gc=False):
    """How an execution ended, or that it is stranded; None as status: there is no such execution."""

    status: Status | None
    result: str | None = None
    error: str | None = None
    cancel_reason: str | None = None


class Crowd:
    """One who waits for many: a future that is done once all have ended, or one of them not well if that is enough."""

    __slots__ = ("endings", "future", "left", "until_failure")

    def __init__(self, promises: Sequence[bytes], future: asyncio.Future[None], *, until_failure: bool) -> None:
        self.endings: dict[bytes, Ending] = {}
        self.future = future
        self.left = len(promises)
        self.until_failure = until_failure

    def tell(self, promise: bytes, ending: Ending) -> None:
        self.endings[promise] = ending
        self.left -= 1
        if (not self.left or (self.until_failure and ending.status is not Status.DONE)) and not self.future.done():
            self.future.set_result(None)


class Results(Waiting["asyncio.Future[Ending] | Crowd"]):
    name = "results"
    topics = (Topic.ENDED,)

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._new: dict[bytes, None] = {}  # what was never asked for
        self._turn = CROWD_HEAD  # the place in a crowd up to which was asked
        self._turns_left = 0  # until each of a crowd has been asked for, after a hint or a poll
        self._told_at = float("-inf")  # by a worker of this process

    async def wait(self, promise: bytes) -> Ending:
        """Until it has ended, is stranded, or turns out not to exist."""
        future = self.expect(promise)
        try:
            return await future
        except BaseException:
            self.give_up(promise, future)
            raise

    async def look(self, promise: bytes) -> Ending | None:
        """How it has ended, or that it is stranded; None while it lives."""
        while True:
            found = await self._store.endings([promise])
            if not found:
                return None
            if found[0].successor is None:
                return _ending(found[0])
            promise = found[0].successor

    async def wait_all(self, promises: Sequence[bytes], *, until_failure: bool) -> dict[bytes, Ending]:
        """`wait` for many, at the cost of one future; `until_failure`: one that did not end well is answer enough."""
        crowd = Crowd(promises, asyncio.get_running_loop().create_future(), until_failure=until_failure)
        for promise in promises:
            self._add(promise, crowd)
        self._ask_soon()
        try:
            if promises:
                await crowd.future
        finally:
            if crowd.left:
                for promise in promises:
                    self.give_up(promise, crowd)
        return crowd.endings

    def expect(self, promise: bytes) -> asyncio.Future[Ending]:
        """`wait` as a future. Who does not wait for it any more must `give_up`."""
        future: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._add(promise, future)
        self._ask_soon()
        return future

    def _add(self, promise: bytes, waiter: asyncio.Future[Ending] | Crowd) -> None:
        waiters = self._waiters.get(promise)
        if waiters is None:
            self._waiters[promise] = [waiter]
            self._new[promise] = None
        else:
            waiters.append(waiter)

    def give_up(self, promise: bytes, waiter: asyncio.Future[Ending] | Crowd) -> None:
        waiters = self._waiters.get(promise)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[promise]
                self._new.pop(promise, None)
                self._followed.pop(promise, None)

    def ended(self, promise: bytes, status: Status, result: str | None, error: str | None) -> None:
        """Told by a worker of this process, in the turn of the loop in which the commit became durable."""
        self._told_at = monotonic()
        if self._followed and promise in self._followed.values():
            self._ask_all()
        if status is Status.CANCELLED:  # only the ledger knows why
            if promise in self._waiters:
                self._ask_all()
        elif promise in self._waiters and promise not in self._followed:
            # A failed run may have been retried; then only the ledger knows what it is now.
            self._settle(promise, Ending(status, result, error))

    async def _ask(self) -> float | None:
        await self._listen()
        began = asyncio.get_running_loop().time()
        promises = self._to_ask()
        is_crowd = len(promises) < len(self._waiters)
        current = [self._followed.get(promise, promise) for promise in promises]
        ends = {end.promise: end for end in await self._store.endings(list(dict.fromkeys(current)))}
        moved = some_live = False
        settled = 0
        for promise, asked in zip(promises, current, strict=True):
            end = ends.get(asked)
            if end is None:
                some_live = True
            elif promise not in self._waiters:
                continue  # told of meanwhile, or given up
            elif end.successor is not None:
                self._followed[promise] = end.successor
                moved = True
            else:
                self._settle(promise, _ending(end))
                settled += 1
        if moved or (is_crowd and settled >= CROWD_HEAD):  # where so many have ended there are more
            return 0.0
        if not some_live:  # who comes next, as in a loop over handles, is not to wait for the pause below
            return 0.0 if is_crowd else None
        pause = self._pause_after(began)
        if is_crowd:
            is_told = monotonic() - self._told_at <= TOLD_SECONDS
            pause = max(pause, CROWD_TOLD_SECONDS if is_told else CROWD_SECONDS)
        await asyncio.sleep(pause)
        if not self._waiters:
            return None
        if is_crowd:
            self._turns_left -= 1
            if self._turns_left > 0 or self._new:
                return 0.0
            self._turns_left = self._turns()
        return self._next_poll()

    def _to_ask(self) -> list[bytes]:
        promises = list(self._waiters)
        if len(promises) <= CROWD_HEAD + CROWD_TURN:
            self._new.clear()
            return promises
        if self._new:
            asked = list(islice(self._new, CROWD_NEW))
            for promise in asked:
                del self._new[promise]
            return list(dict.fromkeys(promises[:CROWD_HEAD] + asked))
        first = self._turn if self._turn < len(promises) else CROWD_HEAD
        self._turn = first + CROWD_TURN
        return promises[:CROWD_HEAD] + promises[first : self._turn]

    def _turns(self) -> int:
        """How many passes ask for every one of a crowd."""
        return -(-len(self._waiters) // CROWD_TURN)

    def _ask_all(self) -> None:
        self._turns_left = self._turns()
        self.wake()

    def _future_of(self, waiter: asyncio.Future[Ending] | Crowd) -> asyncio.Future[Any]:
        return waiter.future if isinstance(waiter, Crowd) else waiter

    def _give_up_all(self, error: ConfigurationError | None = None) -> None:
        self._new.clear()
        super()._give_up_all(error)

    def _hear(self, topic: Topic) -> None:
        if topic is not Topic.ENDED or not self._waiters:
            return
        if monotonic() - self._told_at > TOLD_SECONDS:
            self._ask_all()
        else:
            self._put_off()  # most are this process's own then, of ends that it was told of: not each is worth a read

    def _settle(self, promise: bytes, ending: Ending) -> None:
        self._followed.pop(promise, None)
        self._new.pop(promise, None)
        for waiter in self._waiters.pop(promise, ()):
            if isinstance(waiter, Crowd):
                waiter.tell(promise, ending)
            elif not waiter.done():
                waiter.set_result(ending)


def _ending(end: EndOf) -> Ending:
    return Ending(end.status, end.result, end.error, end.cancel_reason if end.status is Status.CANCELLED else None)
