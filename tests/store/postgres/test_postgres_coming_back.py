"""A connection that comes back soon is waited for: another one would have to be opened, and has planned nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.connections import Connection, Connections

WAITING = "holdfast.store.postgres.connections.OPENING_SECONDS"


@pytest_asyncio.fixture
async def kept(postgres_url: str, schema: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Connections]:
    """Those of a store with one that is idle; who waits for it waits for long."""
    monkeypatch.setattr(WAITING, 60.0)
    store = PostgresStore(postgres_url, schema=schema)
    await store.open()
    yield store._connections
    await store.close()


async def use(kept: Connections, log: list[str], name: str, until: asyncio.Event) -> Connection:
    async with kept.any(name) as connection:
        log.append(name)
        await until.wait()
    return connection


async def use_shortly(kept: Connections) -> Connection:
    async with kept.any("shortly") as connection:
        return connection


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_that_comes_back_is_used_again(kept: Connections) -> None:
    opened = kept.newest
    async with kept.any("first") as first:
        second = asyncio.ensure_future(use_shortly(kept))
        await turns()
        assert not second.done()
    assert await second is first
    assert kept.newest == opened


async def test_another_is_opened_if_none_comes_back(kept: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WAITING, 0.0)
    async with kept.any("first") as first, kept.any("second") as second:
        assert second is not first


async def test_who_has_waited_is_before_who_comes_later(kept: Connections) -> None:
    """Else a loop that asks again and again would have it for ever."""
    log: list[str] = []
    go_on = asyncio.Event()
    async with kept.any("first"):
        waiting = asyncio.ensure_future(use(kept, log, "waiting", go_on))
        await turns()
    late = asyncio.ensure_future(use(kept, log, "late", go_on))
    await turns()
    assert log == ["waiting"]
    go_on.set()
    assert await waiting is await late
    assert log == ["waiting", "late"]


@pytest.mark.parametrize("is_back", [False, True], ids=["lent", "back"])
async def test_who_gives_up_waiting_takes_nothing_along(kept: Connections, is_back: bool) -> None:
    opened, forever = kept.newest, asyncio.Event()
    first = kept.any("first")
    connection = await first.__aenter__()
    waiting = asyncio.ensure_future(use(kept, [], "waiting", forever))
    await turns()
    if is_back:
        await first.__aexit__(None, None, None)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not is_back:
        await first.__aexit__(None, None, None)
    for _ in range(10):  # more often than there are places
        async with kept.any("again") as again:
            assert again is connection
    assert kept.newest == opened


async def test_nothing_is_promised_to_who_was_cancelled_in_the_same_turn(kept: Connections) -> None:
    """Who is cancelled hears of it a turn later than what it waits for; whoever came later would wait for ever."""
    first = kept.any("first")
    connection = await first.__aenter__()
    cancelled = asyncio.ensure_future(use(kept, [], "cancelled", asyncio.Event()))
    await turns()
    cancelled.cancel()
    await first.__aexit__(None, None, None)
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert not kept._coming_back.is_wanted(1)
    assert await use_shortly(kept) is connection


async def test_one_that_broke_is_replaced_for_who_waits(kept: Connections) -> None:
    async with kept.any("first") as first:
        second = asyncio.ensure_future(use_shortly(kept))
        await turns()
        first.terminate()
    assert not (await second).is_closed()
