"""Databases and roles whose defaults are others than PostgreSQL's."""

from __future__ import annotations

from tests.store.postgres.conftest import Connect

from holdfast.store.postgres import PostgresStore


async def test_a_ledger_does_not_care_what_a_backslash_means(postgres_url: str, schema: str, connect: Connect) -> None:
    setting = "standard_conforming_strings"
    store = PostgresStore(f"{postgres_url}?{setting}=off", schema=schema)
    await store.open()
    await store.close()
    connection = await connect()
    await connection.execute(
        f"insert into {schema}.definitions values ('charge', 1, 'task', 1, 'run', 'default', 0, '{{n}}')"
    )
    await connection.execute(f"set {setting} = off")
    assert len(await connection.fetchval(f"select {schema}.start('charge', '{{\"n\": 1}}')")) == 64
