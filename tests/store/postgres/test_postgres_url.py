"""URLs: what libpq and hosted databases write is understood, what nobody knows is named, and secrets are not shown."""

from __future__ import annotations

import re
from typing import Any

import asyncpg
import pytest

from holdfast.core.errors import ConfigurationError
from holdfast.store import store_from_url
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.address import Address
from holdfast.testing.postgres import PostgresServer


async def test_a_database_that_does_not_exist_is_a_mistake_of_the_setup(postgres_server: PostgresServer) -> None:
    store = PostgresStore(postgres_server.url("no_such_database"))
    with pytest.raises(ConfigurationError, match="no_such_database"):
        await store.open()
    await store.close()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://db/orders", "postgresql://db/orders"),
        ("postgres://u:p@db:6432/orders?sslmode=require", "postgresql://u@db:6432/orders"),
        ("postgresql://u%40x:p%3Aq@[::1]:5432/o", "postgresql://u%40x@[::1]:5432/o"),
        ("postgresql:///orders?host=/run/postgresql", "postgresql:///orders"),
        ("postgresql://u:p@db1:5432,[::1]:6432,db3/o", "postgresql://u@db1:5432,[::1]:6432,db3/o"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert PostgresStore(url).url == shown


@pytest.mark.parametrize(
    "url",
    [
        "mysql://db/orders",
        "postgresql://db:port/orders",
        "postgresql://a:1,b:x/o",
        "postgresql://a:p@w/x@b/o",
        "orders.db",
    ],
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="postgresql://user"):
        PostgresStore(url)


def test_a_url_says_that_a_pooler_is_in_between() -> None:
    assert Address("postgresql://db/orders?pgbouncer=true&sslmode=prefer").pooled
    assert Address("postgresql://db/orders?pgbouncer=true").dsn == "postgresql://db/orders"
    assert not Address("postgresql://db/orders").pooled


async def test_of_several_servers_with_their_ports_the_one_that_answers_is_taken(
    postgres_url: str, schema: str
) -> None:
    store = PostgresStore(postgres_url.replace("127.0.0.1:", "127.0.0.1:1,127.0.0.1:", 1), schema=schema)
    await store.open()
    await store.close()


async def test_a_server_that_does_not_answer_is_passed_over_and_asked_last(
    postgres_url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failover from a machine that is silent: the driver has one timeout for all, and never comes to the second."""
    real, asked = asyncpg.connect, list[str]()

    async def connect(server: str, **settings: Any) -> object:
        asked.append(server)
        if "@silent/" in server:
            raise TimeoutError
        return await real(server, **settings)

    monkeypatch.setattr(asyncpg, "connect", connect)
    store = PostgresStore(re.sub("@(.*)/", r"@silent,\1/", postgres_url), schema=schema)
    await store.open()
    async with store._connections.any("look"), store._connections.any("look"):
        assert ["silent" in server for server in asked] == [True, False, False]
    await store.close()


@pytest.mark.parametrize(
    ("url", "each"),
    [
        (
            "postgresql://u@a:1,b/o?sslmode=prefer",
            ["postgresql://u@a:1/o?sslmode=prefer", "postgresql://u@b/o?sslmode=prefer"],
        ),
        ("postgresql://u@/o?host=a,b&port=1,2", ["postgresql://u@/o?host=a&port=1", "postgresql://u@/o?host=b&port=2"]),
        ("postgresql://u@/o?host=a,b&port=1", ["postgresql://u@/o?host=a&port=1", "postgresql://u@/o?host=b&port=1"]),
        ("postgresql://u@/o?host=/run/pg", ["postgresql://u@/o?host=%2Frun%2Fpg"]),
        ("postgresql://u:p%40q@[::1]:5/o", ["postgresql://u:p%40q@[::1]:5/o"]),
    ],
)
def test_each_server_of_a_url_is_asked_by_itself(url: str, each: list[str]) -> None:
    assert Address(url).servers() == each


async def test_what_only_libpq_knows_in_a_url_does_not_reach_the_server(postgres_url: str, schema: str) -> None:
    ours = "connect_timeout=3&channel_binding=prefer&gssencmode=disable&keepalives=1&tcp_user_timeout=1000"
    store = PostgresStore(f"{postgres_url}?{ours}&statement_timeout=45s", schema=schema)
    assert store._address.connect_seconds == 3
    await store.open()
    async with store._connections.any("look") as connection:
        assert await connection.fetchval("show statement_timeout") == "45s"
    await store.close()


async def test_a_url_names_the_schema_for_those_who_have_nothing_else(postgres_url: str, schema: str) -> None:
    given = PostgresStore(postgres_url, schema=schema)
    named = store_from_url(f"{postgres_url}?holdfast_schema={schema}")
    assert given.url == named.url == named.sibling().url
    assert given.url.endswith(f"?holdfast_schema={schema}")
    assert "holdfast_schema" not in PostgresStore(postgres_url).url
    await named.open()
    try:
        assert (await given.schema_state()).found is not None
    finally:
        await named.close()
    with pytest.raises(ConfigurationError, match="'No' is no name for a schema"):
        store_from_url(f"{postgres_url}?holdfast_schema=No")


async def test_what_nobody_knows_in_a_url_is_named(postgres_url: str, schema: str) -> None:
    for parameter in ("schema=public", "statement_timeout=soon", "max_connections=5"):
        store = PostgresStore(f"{postgres_url}?{parameter}", schema=schema)
        with pytest.raises(ConfigurationError, match=f"{parameter.partition('=')[0]}.*take out"):
            await store.open()
    with pytest.raises(ConfigurationError, match="channel_binding=require"):
        PostgresStore(f"{postgres_url}?channel_binding=require")
