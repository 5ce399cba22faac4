"""The proxy cuts where it is told to, and the store says that nobody knows."""

from __future__ import annotations

import pytest

from holdfast.core.errors import InvalidArgumentError, StoreUnavailableError
from holdfast.store.postgres import PostgresStore
from holdfast.store.values import Delivery, NewSignal
from holdfast.testing.hand import promise_of, row
from holdfast.testing.proxy import Cut, PostgresProxy
from holdfast.testing.stores import PostgresStores


@pytest.mark.parametrize(
    ("cut", "answer"),
    [(Cut.REQUEST, Delivery.DELIVERED), (Cut.REPLY, Delivery.DUPLICATE)],
    ids=["before-the-server", "after-the-commit"],
)
async def test_a_cut_around_a_commit_is_an_unknown_fate(postgres_schemas: str, cut: Cut, answer: Delivery) -> None:
    stores = PostgresStores(postgres_schemas)
    await stores.open()
    await stores.store.insert([row("a")])
    signal = NewSignal(promise_of("a"), "go", "1", "once")
    async with PostgresProxy(postgres_schemas) as proxy:
        store = PostgresStore(proxy.url, schema=stores.schema)
        await store.open()
        assert await store.deliver([NewSignal(promise_of("b"), "go", "1")]) == [Delivery.UNKNOWN]
        proxy.judge = lambda statement: cut if "deliver" in statement else None
        with pytest.raises(StoreUnavailableError):
            await store.deliver([signal])
        proxy.judge = lambda statement: None
        assert [what for what, _ in proxy.cuts] == [cut]
        assert await store.deliver([signal]) == [answer]
        assert [heard.name for heard in await store.inbox(promise_of("a"))] == ["go"]
        await store.close()
    await stores.close()


async def test_a_server_that_is_down_is_down_through_the_proxy() -> None:
    async with PostgresProxy("postgresql://nobody@127.0.0.1:1/none") as proxy:
        with pytest.raises(StoreUnavailableError):
            await PostgresStore(proxy.url).open()


def test_a_proxy_needs_a_server_with_a_host() -> None:
    with pytest.raises(InvalidArgumentError):
        PostgresProxy("sqlite:///here.db")
    with pytest.raises(InvalidArgumentError):
        _ = PostgresProxy("postgresql://nobody@127.0.0.1/none").url
