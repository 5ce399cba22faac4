"""The roles of the documentation: its grants are enough, and no more than they say."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio
from tests.store.test_store_steps import EVENTS, step

from holdfast.core.errors import ConfigurationError
from holdfast.core.status import Status
from holdfast.store.health import Check, Level
from holdfast.store.postgres import PostgresStore
from holdfast.store.values import Definition, ExecutionFilter, NewSignal, QueueSettings, Topic
from holdfast.testing.hand import Hand, done, keep, park, row
from holdfast.testing.postgres import PostgresServer

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "postgresql.md"
ROLES = ("ledger_owner", "ledger_worker", "ledger_viewer", "shop")


@pytest_asyncio.fixture
async def url(postgres_server: PostgresServer, schema: str) -> AsyncIterator[str]:
    """Of a database of its own, with the page's roles, migrated by the owner; `{}` stands for the role."""
    admin = await asyncpg.connect(postgres_server.url())
    await admin.execute(f"create database {schema}")
    for role in ROLES:
        await admin.execute(f"create role {role} login")
    await admin.execute(f"grant create on database {schema} to ledger_owner")
    inside = await asyncpg.connect(postgres_server.url(schema))
    await inside.execute("revoke all on schema public from public; grant all on schema public to ledger_owner")
    await inside.execute("grant usage on schema public to shop")
    await inside.close()
    url = postgres_server.url(schema).replace("postgres@", "{}@")
    store = PostgresStore(url.format("ledger_owner"))
    await store.open()
    fulfil = Definition(
        name="fulfil", version=1, kind="workflow", step="", queue="default", priority=0, parameters=("number",)
    )
    await store.register_definitions([fulfil])
    await store.close()
    owner = await asyncpg.connect(url.format("ledger_owner"))
    for block in re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL):
        await owner.execute(block)
    await owner.close()
    yield url
    await admin.execute(f"drop database {schema} with (force)")
    await admin.execute("; ".join(f"drop role {role}" for role in ROLES))
    await admin.close()


async def rights(store: PostgresStore) -> Check:
    (found,) = [check for check in await store.examine() if check.name == "rights"]
    return found


async def nothing(connection: object) -> None: ...


async def test_the_grants_of_a_worker_are_enough_to_work(url: str) -> None:
    store = PostgresStore(url.format("ledger_worker"))
    await store.open()
    ear = await store.open_ear(lambda topic: None)
    await ear.arm(Topic.WORK)
    hand = await Hand(store, lease_seconds=3600).start()
    claim = await hand.take(row("a", partition_key="k", unique_key=b"u", unique_scope=("runnable",)))
    for number in range(2):
        await hand.apply(claim, *step(number * EVENTS))
    receipt = await store.transact(hand.name, claim, nothing, lambda _: [keep("paid")])
    claim.went_on(keep("paid"), receipt)
    await hand.apply(claim, park("go"))
    await store.deliver([NewSignal(claim.promise, "go", "1")])
    await hand.apply(await hand.take(), done())
    await store.configure_queue(QueueSettings(name="default", concurrency=3))
    assert (await rights(store)).level is Level.OK
    await ear.close()
    await store.close()


async def test_a_grant_that_was_forgotten_is_told(url: str) -> None:
    owner = await asyncpg.connect(url.format("ledger_owner"))
    await owner.execute("revoke all on holdfast.executions_now, holdfast.journal from ledger_worker")
    await owner.close()
    store = PostgresStore(url.format("ledger_worker"))
    await store.open()
    found = await rights(store)
    assert found.level is Level.WARN
    assert "executions_now, journal" in found.found
    await store.close()


async def test_a_viewer_sees_all_and_changes_nothing(url: str) -> None:
    store = PostgresStore(url.format("ledger_viewer"))
    await store.open()
    assert (await store.browse(ExecutionFilter(), 10)).items == []
    assert await store.queues() == []
    assert (await rights(store)).level is Level.WARN
    with pytest.raises(ConfigurationError, match="permission denied"):
        await store.insert([row("a")])
    await store.close()


async def test_who_may_start_one_thing_can_start_it_and_read_nothing(url: str) -> None:
    shop = await asyncpg.connect(url.format("shop"))
    assert len(await shop.fetchval("select public.start_fulfilment(17)")) == 64
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await shop.fetch("select from holdfast.executions")
    await shop.close()
    store = PostgresStore(url.format("ledger_viewer"))
    await store.open()
    (found,) = (await store.browse(ExecutionFilter(), 10)).items
    assert (found.idempotency_key, found.status) == ("order-17", Status.RUNNABLE)
    await store.close()
