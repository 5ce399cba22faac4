"""What the loops have in common that wait for what others commit: an ear, reads at a hint, and polling as the net.

A loop stands for all who wait in this process, so that they share one read. It reads at once when somebody comes or a
hint is heard, and else ever more rarely; but never for more than a share of the time.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

from holdfast.core.errors import ClosedError, ConfigurationError
from holdfast.core.identity import PromiseId
from holdfast.engine.service import Service
from holdfast.store.base import ARMED_SECONDS, LATE_LOOK_SECONDS, Ear, Store
from holdfast.store.values import Topic

FIRST_POLL_SECONDS = 0.05
LAST_POLL_SECONDS = 1.0
PUT_OFF_SECONDS = 0.05  # for hints of which most say nothing new
READ_SHARE = 5  # passes wait this many times as long as their reads take: many waiters never drown the store

WaiterT = TypeVar("WaiterT")


class Waiting(Service, Generic[WaiterT]):
    topics: ClassVar[Sequence[Topic]]

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._waiters: dict[bytes, list[WaiterT]] = {}  # by what they wait for
        self._followed: dict[bytes, bytes] = {}  # by what is waited for: the run that it is now
        self._ear: Ear | None = None
        self._armed_at = float("-inf")
        self._poll_seconds = FIRST_POLL_SECONDS
        self._read_at = float("-inf")
        self._owed_seconds = 0.0  # of waiting, for reads so far
        self._late: asyncio.TimerHandle | None = None  # the pass for hints that were put off

    @abstractmethod
    async def _ask(self) -> float | None:
        """One pass, while somebody waits."""

    @abstractmethod
    def _future_of(self, waiter: WaiterT) -> asyncio.Future[Any]: ...

    @abstractmethod
    def _hear(self, topic: Topic) -> None:
        """A hint: something of this topic was committed, by whomever."""

    @abstractmethod
    def _ask_all(self) -> None:
        """Ask for a pass, or as many as it takes, for everybody who waits."""

    async def run_once(self) -> float | None:
        if not self._waiters:
            return None
        try:
            return await self._ask()
        except ConfigurationError as error:  # no later pass would do better: who waits is told, and may ask again
            self._give_up_all(error)
            return None

    def _give_up_all(self, error: ConfigurationError | None = None) -> None:
        """Tell all who wait; None: the app is closed."""
        given_up = list(self._waiters.items())
        self._waiters.clear()
        self._followed.clear()
        for promise, waiters in given_up:
            for future in map(self._future_of, waiters):
                if not future.done():
                    future.set_exception(error or _closed_while(promise))

    def _ask_soon(self) -> None:
        """Somebody came."""
        if self._task is None:
            self.begin()
        self._poll_seconds = FIRST_POLL_SECONDS
        self._woken.set()

    def _put_off(self) -> None:
        """One pass for this hint and all that follow within a moment."""
        if self._late is None:
            self._late = asyncio.get_running_loop().call_later(PUT_OFF_SECONDS, self._ask_late)

    def _ask_late(self) -> None:
        self._late = None
        self._ask_all()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._ear is None:
            self._ear = await self._store.open_ear(self._hear)
        if now - self._armed_at > ARMED_SECONDS / 2:
            was_armed = now - self._armed_at < ARMED_SECONDS
            for topic in self.topics:
                await self._ear.arm(topic)
            self._armed_at = now
            if not was_armed:
                loop.call_later(LATE_LOOK_SECONDS, self._hear, self.topics[0])

    def _pause_after(self, began: float) -> float:
        """What a read costs is waited out after the next one; what the first costs never: a server plans it then."""
        is_first = self._read_at == float("-inf")
        pause = max(0.0, self._owed_seconds - (began - self._read_at))
        self._read_at = asyncio.get_running_loop().time()
        self._owed_seconds = 0.0 if is_first else pause + (self._read_at - began) * READ_SHARE
        return pause

    def _next_poll(self) -> float:
        delay = self._poll_seconds
        self._poll_seconds = min(LAST_POLL_SECONDS, delay * 2)
        return delay

    async def stop(self) -> None:
        await super().stop()
        if self._late is not None:
            self._late.cancel()
            self._late = None
        ear, self._ear = self._ear, None
        if ear is not None:
            await ear.close()
        self._give_up_all()


def _closed_while(promise: bytes) -> ClosedError:
    """A bare CancelledError would look like a cancel of the waiter's own task."""
    return ClosedError(
        f"the app was closed while {PromiseId.from_bytes(promise).short} was waited for; the execution itself goes on: "
        "ask again through an open app"
    )
