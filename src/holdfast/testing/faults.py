"""A store between the engine and the ledger that loses, holds back and delays what it is told to.

    store = FaultyStore(stores.store)
    store.plan("flush", lose_reply)          # the next flush is carried out, and nobody hears of it
    held = Held(); store.plan("pick", held)  # the next pick is carried out; its answer waits for `held`

- Faults: `lose_request`, `lose_reply`, `Held` (the answer waits), `Late` (lost now, carried out later), `meanwhile`.
- `on_store`: an app with all its definitions, on another store for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from copy import deepcopy
from typing import Any, TypeAlias, cast

from holdfast.app import App
from holdfast.core.errors import InvalidArgumentError, StoreUnavailableError
from holdfast.store.base import Store
from holdfast.store.effects import Commit
from holdfast.store.values import Flushed

Call: TypeAlias = Callable[[], Awaitable[Any]]
Fault: TypeAlias = Callable[[Call], Awaitable[Any]]


class Borrowed:
    """An open store that somebody else opened and will close."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def open(self) -> None:
        """It is."""

    async def close(self) -> None:
        """Its owner does."""


class FaultyStore(Borrowed):
    """Each planned fault befalls one call of its method, in order; then all is well again."""

    def __init__(self, store: Store, *, inline: bool = False) -> None:
        super().__init__(store)
        self._inline = inline
        self._planned: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self.calls: defaultdict[str, int] = defaultdict(int)

    def plan(self, method: str, *faults: Fault) -> None:
        if not callable(getattr(self._store, method, None)):
            raise InvalidArgumentError(f"a store has no method {method!r} that could fail")
        self._planned[method].extend(faults)

    @property
    def as_store(self) -> Store:
        return cast(Store, self)

    @property
    def commits_inline(self) -> bool:
        return self._inline and self._store.commits_inline

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name.startswith("_") or not inspect.iscoroutinefunction(method):
            return method

        async def call(*arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            if not self._planned[name]:
                return await method(*arguments, **options)
            sent = deepcopy([*map(_without_sender, arguments)])  # what is on its way does not change with its sender's
            return await self._planned[name].popleft()(lambda: method(*sent, **options))

        return call

    def flush_now(self, worker: str, commits: Sequence[Commit]) -> Flushed:
        """Inline there is nothing to wait for: only losing makes sense."""
        self.calls["flush"] += 1
        fault = self._planned["flush"].popleft() if self._planned["flush"] else None
        if fault is lose_request:
            raise lost("the request")
        flushed = self._store.flush_now(worker, commits)
        if fault is lose_reply:
            raise lost("the reply")
        return flushed

    def step_now(self, *step: Any) -> int:
        """A flush like any other to whoever plans a fault."""
        if not self.commits_inline:
            return 0
        fault = self._planned["flush"][0] if self._planned["flush"] else None
        if fault is lose_request:
            return 0  # and the flush that follows is lost
        at_us = self._store.step_now(*step)
        if at_us:
            self.calls["flush"] += 1
            if fault is not None:
                self._planned["flush"].popleft()
            if fault is lose_reply:
                raise lost("the reply")
        return at_us


def _without_sender(argument: Any) -> Any:
    """A commit of the engine's knows who waits for it, which no store hears of."""
    if isinstance(argument, list):
        return [Commit(one.claim, one.effects) if isinstance(one, Commit) else one for one in argument]
    return argument


def lost(what: str) -> StoreUnavailableError:
    return StoreUnavailableError(f"{what} was lost on purpose: nothing is lost, try again")


async def lose_request(call: Call) -> Any:
    """The store never hears of it."""
    raise lost("the request")


async def lose_reply(call: Call) -> Any:
    """It is carried out, and the caller is told that nobody knows."""
    await call()
    raise lost("the reply")


class Held:
    """It is carried out, and the answer waits until `give` or `lose`."""

    def __init__(self) -> None:
        self.carried_out = asyncio.Event()
        self._decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def __call__(self, call: Call) -> Any:
        answer = await call()
        self.carried_out.set()
        if await self._decided:
            return answer
        raise lost("the reply")

    def give(self) -> None:
        self._decided.set_result(True)

    def lose(self) -> None:
        self._decided.set_result(False)


class Late:
    """The caller loses its connection at once; the request arrives when `carry_out` is called."""

    def __init__(self) -> None:
        self._call: Call | None = None

    async def __call__(self, call: Call) -> Any:
        self._call = call
        raise lost("the connection")

    async def carry_out(self) -> Any:
        if self._call is None:
            raise InvalidArgumentError("nothing was sent yet that could arrive late")
        return await self._call()


def meanwhile(action: Call) -> Fault:
    """`action` happens just before the call is carried out."""

    async def fault(call: Call) -> Any:
        await action()
        return await call()

    return fault


@contextlib.asynccontextmanager
async def on_store(app: App, store: Store) -> AsyncIterator[App]:
    """The app with all its definitions, on a store that stays open when this ends."""
    before = app._store
    app.use_store(store if isinstance(store, Borrowed) else cast(Store, Borrowed(store)))
    try:
        yield app
    finally:
        await app.close()
        app.use_store(before)
