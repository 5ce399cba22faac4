"""Connections that are kept from one test to the next: whose they are, which are not kept, and what they leave."""

from __future__ import annotations

import asyncio

from holdfast.store.postgres.connections import Connection
from holdfast.testing.kept import KeepingStore, KeptConnections
from holdfast.testing.stores import PostgresStores


async def session(store: KeepingStore) -> int:
    async with store._connections.any("look") as connection:
        return connection.get_server_pid()


def another(stores: PostgresStores) -> KeepingStore:
    store = stores.unopened()
    assert isinstance(store, KeepingStore)
    return store


async def test_a_closed_store_gives_its_connections_to_the_next(postgres_schemas: str) -> None:
    stores = PostgresStores(postgres_schemas)
    await stores.open()
    first, second = another(stores), another(stores)
    await first.open()
    await second.open()
    used = await session(first)
    assert await session(second) != used
    await first.close()
    third = another(stores)
    await third.open()
    assert await session(third) == used
    await second.close()
    await third.close()
    await stores.close()


async def test_what_is_closed_or_in_a_transaction_or_of_another_loop_is_not_kept(postgres_schemas: str) -> None:
    stores = PostgresStores(postgres_schemas)
    await stores.open()
    store = another(stores)
    kept = KeptConnections()
    kept.open()

    async def made() -> Connection:
        return (await store._connections.connect())[1]

    cut, begun, good = await made(), await made(), await made()
    cut.terminate()
    await begun.execute("begin")
    for connection in (good, cut, begun):
        await kept.give_back("kind", connection)
    assert begun.is_closed()
    assert await asyncio.to_thread(lambda: asyncio.run(_take(kept))) is None
    assert kept.take("kind") is good
    assert kept.take("kind") is None
    await kept.give_back("kind", good)
    await kept.close()
    assert good.is_closed()
    await stores.close()


async def test_settling_waits_for_what_another_session_has_begun(postgres_schemas: str) -> None:
    stores = PostgresStores(postgres_schemas)
    await stores.open()
    store = another(stores)
    _, dying = await store._connections.connect()
    await dying.execute(f"begin; select 1 from {stores.schema}.executions for update")
    settling = asyncio.ensure_future(stores.settle())
    assert await asyncio.wait([settling], timeout=0.05) == (set(), {settling})
    dying.terminate()
    await asyncio.wait_for(settling, 30)
    await stores.close()


async def _take(kept: KeptConnections) -> Connection | None:
    return kept.take("kind")
