"""Hooks: functions and webhooks that hear of failures, strandings and dead letters.

What is promised: each event is handed to each hook at least once, in the order of time, by one worker at a time. It is
derived from the ledger's feed of ends (`store.watching`), and how far a hook has come is in the ledger too: so it goes
on where it was after a crash, and nothing is done where the end is committed. A hook that keeps failing is tried
`attempts` times with growing pauses, then the event is passed over, loudly; who counts keeps its place in the feed
through the pauses, so only one that takes over from a worker that is gone begins to count anew. What was stranded and
resumed before a hook came to it is not told.

Whoever gets an event twice can tell: `HookEvent.delivery` is the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final, Literal, get_args

from msgspec import Raw, Struct

from holdfast.core.errors import InvalidArgumentError
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.engine.service import Service
from holdfast.engine.threads import contain
from holdfast.models.connection import Connection
from holdfast.store.flows import MESSAGE
from holdfast.store.watching import Ended

log = logging.getLogger("holdfast.hooks")

Occasion = Literal["failed", "stranded", "dead_lettered"]
OCCASIONS: Final[tuple[Occasion, ...]] = get_args(Occasion)

LEASE_SECONDS: Final = 30.0
LEAVE_SECONDS = 2.0  # for a server that fell silent, once the worker leaves
POLL_SECONDS: Final = 1.0
PAGE: Final = 100
ATTEMPTS: Final = 26  # about an hour and a half
PAUSE_MOST_SECONDS: Final = 300.0


class HookEvent(Struct, frozen=True, kw_only=True):
    """What a hook is told. `delivery` is the same whenever the same event is told again."""

    event: Occasion
    delivery: str
    at: datetime
    id: str
    label: str
    kind: str
    name: str
    queue: str
    status: Status
    error: Raw | None
    attributes: Raw


Deliver = Callable[[HookEvent], Awaitable[None]]


class Hook(Struct, frozen=True):
    """`name` is what the ledger knows it by: keep it, or it begins anew."""

    name: str
    events: tuple[Occasion, ...]
    deliver: Deliver
    attempts: int = ATTEMPTS


def function_hook(event: Occasion, function: Callable[[HookEvent], Any], name: str | None) -> Hook:
    """A hook that calls a function: `async def` on the worker's loop, `def` in a thread."""
    check_occasions((event,))
    chosen = name or f"{event}:{function.__module__}.{function.__qualname__}"

    async def deliver(told: HookEvent) -> None:
        if inspect.iscoroutinefunction(function):
            await function(told)
        else:
            await asyncio.to_thread(contain, function, told)

    return Hook(chosen, (event,), deliver)


def check_occasions(events: Sequence[str]) -> None:
    for event in events:
        if event not in OCCASIONS:
            raise InvalidArgumentError(f"a hook hears of {', '.join(OCCASIONS)}, not of {event!r}")
    if not events:
        raise InvalidArgumentError(f"a hook hears of at least one of {', '.join(OCCASIONS)}")


def occasion_of(item: Ended) -> Occasion:
    if item.status is Status.STRANDED:
        return "dead_lettered" if item.view.kind == MESSAGE else "stranded"
    return "failed"


def event_of(item: Ended) -> HookEvent:
    view = item.view
    promise = PromiseId.from_bytes(view.promise)
    event = occasion_of(item)
    stamp = f"{event}:{promise}:{item.at.isoformat()}"
    return HookEvent(
        event=event,
        delivery=hashlib.sha256(stamp.encode()).hexdigest()[:32],
        at=item.at,
        id=str(promise),
        label=promise.label(view.name),
        kind=view.kind,
        name=view.name,
        queue=view.queue,
        status=item.status,
        error=None if view.error is None else Raw(view.error),
        attributes=Raw(view.attributes or "{}"),
    )


class HookRunner(Service):
    """One hook in one worker. Of all workers, the one that holds the hook's place in the feed delivers."""

    name = "hook"

    def __init__(self, connection: Connection, hook: Hook) -> None:
        super().__init__()
        self._connection = connection
        self._hook = hook
        self._owner = secrets.token_hex(8)
        self._position: str | None = None
        self._renew_at = 0.0
        self._failures = 0
        self._failing = ""  # the delivery that these are of: another worker may have dealt with it since
        self._pause_left = 0.0  # until the next attempt, in seconds
        hears_strandings = "stranded" in hook.events or "dead_lettered" in hook.events
        self._statuses = (*((Status.FAILED,) if "failed" in hook.events else ()),) + (
            (Status.STRANDED,) if hears_strandings else ()
        )

    async def run_once(self) -> float | None:
        store = await self._connection.store()
        if not await self._has_place():
            return LEASE_SECONDS / 2
        assert self._position is not None
        if self._pause_left:
            return self._pause() if await self._move(self._position) else 0
        feed = await store.ends(self._position, PAGE, self._statuses)
        if feed.items and not await self._move(self._position):  # still ours? what is told twice is told twice rarely
            return 0
        for item in feed.items:
            if occasion_of(item) in self._hook.events and not await self._deliver(event_of(item)):
                self._pause_left = min(PAUSE_MOST_SECONDS, 0.5 * float(2**self._failures))
                return self._pause()
            if not await self._move(item.position):
                return 0
        if feed.position != self._position and not await self._move(feed.position):
            return 0
        return 0 if feed.more else POLL_SECONDS

    def _pause(self) -> float:
        """The next part of the pause: no longer than the place is kept without being renewed."""
        part = min(self._pause_left, LEASE_SECONDS / 3)
        self._pause_left -= part
        return part

    async def stop(self) -> None:
        await super().stop()
        if self._position is not None:
            self._position = None
            try:
                async with asyncio.timeout(LEAVE_SECONDS):
                    await (await self._connection.store()).leave_place(self._hook.name, self._owner)
            except Exception:
                log.warning("the place of hook %s is left to run out", self._hook.name)

    async def _has_place(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self._position is not None and now < self._renew_at:
            return True
        store = await self._connection.store()
        begin = (await store.ends(None, 1, ())).position
        self._position = await store.take_place(self._hook.name, self._owner, LEASE_SECONDS, begin)
        self._renew_at = now + LEASE_SECONDS / 3
        return self._position is not None

    async def _move(self, position: str) -> bool:
        store = await self._connection.store()
        if not await store.move_place(self._hook.name, self._owner, LEASE_SECONDS, position):
            self._position = None  # another worker has it; what it tells again is told twice, never not at all
            self._pause_left = 0.0
            return False
        self._position = position
        self._renew_at = asyncio.get_running_loop().time() + LEASE_SECONDS / 3
        return True

    async def _deliver(self, event: HookEvent) -> bool:
        """Whether this event is dealt with."""
        hook = self._hook
        if event.delivery != self._failing:
            self._failing, self._failures = event.delivery, 0
        try:
            async with asyncio.timeout(LEASE_SECONDS / 2):
                await hook.deliver(event)
        except Exception as error:
            self._failures += 1
            if self._failures < hook.attempts:
                log.warning("hook %s: %s of %s is tried again: %s", hook.name, event.event, event.label, error)
                return False
            log.error(
                "hook %s: %s of %s is given up after %d attempts", *(hook.name, event.event, event.label, hook.attempts)
            )
        self._failures = 0
        return True
