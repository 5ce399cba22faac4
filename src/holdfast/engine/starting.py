"""How a worker's loops begin."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from holdfast.engine.active import ActiveClaims
from holdfast.engine.picker import Picker
from holdfast.engine.service import Service
from holdfast.engine.upkeep import Reaper
from holdfast.store.base import Store

log = logging.getLogger("holdfast.engine")

BEGIN_SECONDS = 0.5  # for the first passes of the loops
HEAD_START_SECONDS = 0.05  # for the first of what was picked, before connections are warmed and the other loops begin


async def begin_loops(
    loops: Sequence[Service],
    store: Store,
    active: ActiveClaims,
    is_leaving: Callable[[], bool],
    tell: Callable[[], Awaitable[None]],
) -> None:
    """Each behind the first pass of the one before: they share a connection, and none is in the picker's way.

    The first two are the picker and the reaper, in either order. Before anything is picked the ledger is told what this
    worker has code for (`tell`): what is picked may start that by name. What the picker finds has a head start, and
    that connection to itself, also what the reaper has just taken back from a dead worker. Then more connections are
    opened and warmed. Of these whoever takes long is not waited for.
    """
    now = asyncio.get_running_loop().time
    give_up_at = now() + BEGIN_SECONDS
    warming: asyncio.Task[None] | None = None
    picker = next(service for service in loops if isinstance(service, Picker))
    try:
        for place, service in enumerate(loops):
            if service is picker and not is_leaving():
                await tell()
            if is_leaving():  # told to stop while it started
                return
            picks = picker.passes
            await service.start()
            await service.passed(0, give_up_at - now())
            if service is picker:
                await _give_head_start(active)
            elif isinstance(service, Reaper) and service.released and picks:
                await picker.passed(picks, give_up_at - now())
                await _give_head_start(active)
            if place == 1:
                warming = asyncio.create_task(store.warm())
                await asyncio.wait([warming], timeout=max(0.0, give_up_at - now()))
    finally:
        if warming is not None:
            await _end_warming(warming, store)


async def done_before(asked: asyncio.Event, work: Awaitable[object]) -> bool:
    """Whether it was: what a lifespan waits for, or the store, must not keep a worker from being stopped."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(asked.wait())
    try:
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait([working])
    if working.cancelled():
        return False
    await working
    return True


async def _give_head_start(active: ActiveClaims) -> None:
    if found := active.tasks():
        await asyncio.wait(found, timeout=HEAD_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)


async def _end_warming(warming: asyncio.Task[None], store: Store) -> None:
    warming.cancel()
    await asyncio.wait([warming])  # not `await warming`: a cancel of this start would look like its own
    if not warming.cancelled() and (error := warming.exception()) is not None:
        log.warning("the connections to %s could not be warmed, first calls are slower: %s", store.url, error)
