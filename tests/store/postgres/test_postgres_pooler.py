"""Poolers: what works behind one, and what is told where it cannot."""

from __future__ import annotations

import pytest
import pytest_asyncio
from tests.store.postgres.pooler import Pooler

from holdfast.core.errors import ConfigurationError, StoreUnavailableError
from holdfast.store.postgres import PostgresStore
from holdfast.store.values import Topic
from holdfast.testing.hand import Hand, done, row
from holdfast.testing.postgres import PostgresServer

URL_SAYS_SO = "?pgbouncer=true"


@pytest_asyncio.fixture
async def url(postgres_server: PostgresServer, schema: str) -> str:
    """Of a ledger on a server that asks for no password: the pooler has none."""
    store = PostgresStore(postgres_server.url(), schema=schema)
    await store.open()
    await store.close()
    return postgres_server.url()


async def test_two_stores_share_one_session_of_a_pooler_in_transaction_mode(url: str, schema: str) -> None:
    async with Pooler(url) as pooler:
        stores = [PostgresStore(pooler.url + URL_SAYS_SO, schema=schema) for _ in range(2)]
        for store in stores:
            await store.open()
        hands = [await Hand(store, f"w{n}", lease_seconds=3600).start() for n, store in enumerate(stores)]
        for hand in hands:
            await hand.apply(await hand.take(row(hand.name)), done())
        assert len(pooler.idle) == 1
        for store in stores:
            await store.close()


async def test_a_pooler_in_transaction_mode_that_the_url_does_not_tell_of_is_found_out(url: str, schema: str) -> None:
    """Prepared statements may work behind it; notifications and settings of the session get lost."""
    async with Pooler(url) as pooler:
        with pytest.raises(ConfigurationError, match=r"transaction mode.*add pgbouncer=true to"):
            await PostgresStore(pooler.url, schema=schema).open()


async def test_a_pooler_in_session_mode_is_as_good_as_none(url: str, schema: str) -> None:
    async with Pooler(url, mode="session") as pooler:
        store = PostgresStore(pooler.url, schema=schema)
        await store.open()
        heard: list[Topic] = []
        ear = await store.open_ear(heard.append)
        await ear.close()
        await store.close()


async def test_a_pooler_in_statement_mode_is_refused_before_anything_is_done(url: str, schema: str) -> None:
    async with Pooler(url, mode="statement") as pooler:
        with pytest.raises(StoreUnavailableError, match="give the pooler pool_mode = transaction, or session"):
            await PostgresStore(pooler.url + URL_SAYS_SO, schema=schema).open()


async def test_a_way_past_the_pooler_that_leads_through_one_is_refused(url: str, schema: str) -> None:
    async with Pooler(url) as pooler:
        store = PostgresStore(url, schema=schema, pooled=True, listen_url=pooler.url)
        await store.open()
        with pytest.raises(ConfigurationError, match="transaction mode"):
            await store.open_ear(lambda topic: None)
        await store.close()
        with pytest.raises(ConfigurationError, match="give one past the pooler"):
            PostgresStore(url, listen_url=pooler.url + URL_SAYS_SO)


async def test_settings_that_a_pooler_does_not_pass_on_belong_to_the_role(url: str, schema: str) -> None:
    async with Pooler(url) as pooler:
        with pytest.raises(StoreUnavailableError, match=r"statement_timeout\..*give them to the role"):
            await PostgresStore(f"{pooler.url}{URL_SAYS_SO}&statement_timeout=45s", schema=schema).open()
