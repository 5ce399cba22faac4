"""LISTEN: subscribed again after a lost connection, and never more than a hint."""

from __future__ import annotations

import asyncio
from collections import Counter

import asyncpg
import pytest
from tests.store.postgres.conftest import Connect

from holdfast.core.status import Status
from holdfast.engine.results import Results
from holdfast.store.postgres import PostgresStore
from holdfast.store.values import NewSignal, Topic
from holdfast.testing.hand import Hand, done, promise_of, row


class Heard:
    """What was heard, and a way to wait for more of it."""

    def __init__(self) -> None:
        self.times: Counter[Topic] = Counter()
        self._news = asyncio.Event()

    def __call__(self, topic: Topic) -> None:
        self.times[topic] += 1
        self._news.set()

    async def until(self, topic: Topic, times: int) -> None:
        async with asyncio.timeout(30):
            while self.times[topic] < times:
                self._news.clear()
                await self._news.wait()


LISTENERS = "select pid from pg_stat_activity where application_name = 'holdfast listener' and query like $1"


async def test_a_lost_listener_subscribes_again_and_hears_both_topics(
    ledger: PostgresStore, postgres_url: str, schema: str, connect: Connect
) -> None:
    """Something may have been missed meanwhile, so both are heard; and from then on all is as before."""
    other = PostgresStore(postgres_url, schema=schema)
    await other.open()
    heard = Heard()
    ear = await other.open_ear(heard)
    await ear.arm(Topic.WORK)
    observer = await connect()
    (pid,) = [found["pid"] for found in await observer.fetch(LISTENERS, f"%{schema}%")]
    await observer.execute("select pg_terminate_backend($1)", pid)
    for topic in Topic:
        await heard.until(topic, 1)
    await ear.arm(Topic.WORK)
    await ledger.insert([row("a")])
    await heard.until(Topic.WORK, 2)
    await ear.close()
    await other.close()


async def test_nobody_is_notified_while_nobody_is_idle(
    ledger: PostgresStore, postgres_url: str, schema: str, connect: Connect
) -> None:
    """NOTIFY takes a lock that serialises commits: it is sent only where a listener is armed, once a commit."""
    listener = await connect()
    got: list[object] = []
    await listener.add_listener(schema, lambda *arguments: got.append(arguments[3]))
    await ledger.insert([row("a")])
    await listener.execute("select 1")
    assert got == []
    other = PostgresStore(postgres_url, schema=schema)
    await other.open()
    heard = Heard()
    ear = await other.open_ear(heard)
    await ear.arm(Topic.WORK)
    await ledger.insert([row(f"b{n}") for n in range(50)])
    await heard.until(Topic.WORK, 1)
    await listener.execute("select 1")
    assert got == ["work"]
    await ear.close()
    await other.close()


async def test_a_pooler_with_a_way_past_it_is_listened_past(
    ledger: PostgresStore, postgres_url: str, schema: str, connect: Connect
) -> None:
    store = PostgresStore(postgres_url, schema=schema, pooled=True, listen_url=postgres_url)
    await store.open()
    heard = Heard()
    ear = await store.open_ear(heard)
    await ear.arm(Topic.WORK)
    await ledger.insert([row("a")])
    await heard.until(Topic.WORK, 1)
    assert len(await (await connect()).fetch(LISTENERS, f"%{schema}%")) == 1
    await ear.close()
    await store.close()


async def test_where_nobody_can_listen_results_are_found_and_listening_is_made_up_for(
    ledger: PostgresStore, postgres_url: str, schema: str, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """As while all connections are taken: a hint that is lost costs a poll, never a hang."""
    admin = await connect()
    await admin.execute(f"create role {schema} login password 'hears' connection limit 0")
    try:
        listen_url = f"postgresql://{schema}:hears@{postgres_url.rpartition('@')[2]}"
        store = PostgresStore(postgres_url, schema=schema, listen_url=listen_url)
        await store.open()
        hand = await Hand(ledger, lease_seconds=3600).start()
        claim = await hand.take(row("a"))
        results = Results(store)
        waiting = asyncio.create_task(asyncio.wait_for(results.wait(claim.promise), 30))
        await hand.apply(claim, done())
        assert (await waiting).status is Status.DONE
        assert "found by polling until listening works" in caplog.text
        await results.stop()
        heard = Heard()
        ear = await store.open_ear(heard)
        await admin.execute(f"alter role {schema} connection limit -1")
        for topic in Topic:
            await heard.until(topic, 1)
        await ear.close()
        await store.close()
    finally:
        await admin.execute(f"drop role {schema}")


@pytest.mark.parametrize("count", [1, 2])
async def test_a_signal_to_what_waits_to_be_picked_is_a_hint(ledger: PostgresStore, count: int) -> None:
    """While it is delivered the row is locked, and a pick passes over it: that picker was woken in vain."""
    await ledger.insert([row("a")])
    heard: list[Topic] = []
    ear = await ledger.open_ear(heard.append)
    await ledger.deliver([NewSignal(promise_of("a"), "go", str(number)) for number in range(count)])
    assert heard == [Topic.WORK]
    await ear.close()


async def test_closing_an_ear_takes_its_arming_back(ledger: PostgresStore, schema: str, connect: Connect) -> None:
    ear = await ledger.open_ear(Heard())
    await ear.arm(Topic.ENDED)
    observer = await connect()
    assert await observer.fetchval(f"select count(*) from {schema}.listeners") == 1
    await ear.close()
    assert await observer.fetchval(f"select count(*) from {schema}.listeners") == 0
    assert await observer.fetch(LISTENERS, f"%{schema}%") == []


@pytest.mark.parametrize("options", [{"listen": False}, {"pooled": True}], ids=["not-wanted", "pooled"])
async def test_without_listening_an_ear_still_hears_its_own_store(
    postgres_url: str, schema: str, connect: Connect, options: dict[str, bool]
) -> None:
    """Behind a pooler without a way past it: this process hears itself, the rest is polled."""
    store = PostgresStore(postgres_url, schema=schema, **options)  # type: ignore[arg-type]
    await store.open()
    heard = Heard()
    ear = await store.open_ear(heard)
    await ear.arm(Topic.WORK)
    await Hand(store, lease_seconds=3600).insert(row("a"))
    assert heard.times[Topic.WORK] == 1
    assert await (await connect()).fetch(LISTENERS, f"%{schema}%") == []
    await ear.close()
    await store.close()


async def test_an_ear_closes_where_nothing_can_be_written(ledger: PostgresStore, schema: str, connect: Connect) -> None:
    """A worker that stops has more to close, also where somebody dropped the ledger."""
    ear = await ledger.open_ear(lambda _: None)
    await ear.arm(Topic.WORK)
    await (await connect()).execute(f"drop schema {schema} cascade")
    await ear.close()


async def test_who_may_only_read_waits_for_results_without_being_told(
    ledger: PostgresStore, postgres_url: str, schema: str
) -> None:
    reader = PostgresStore(f"{postgres_url}?default_transaction_read_only=on", schema=schema)
    await reader.open()
    ear = await reader.open_ear(Heard())
    for topic in Topic:
        await ear.arm(topic)
    assert not reader.losses, "the connection is as good as before"
    await ear.close()
    await reader.close()


async def test_a_replica_where_nobody_can_listen_is_listened_to_once_it_is_promoted(
    ledger: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    with monkeypatch.context() as standby:

        async def refuse(*_: object) -> None:
            raise asyncpg.ReadOnlySQLTransactionError("cannot execute LISTEN during recovery")

        standby.setattr(asyncpg.Connection, "add_listener", refuse)
        ear = await ledger.open_ear(heard)
    await heard.until(Topic.WORK, 1)
    await ear.close()
