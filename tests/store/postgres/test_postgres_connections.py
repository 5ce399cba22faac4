"""Losing the server, a pooler in between, and what the errors say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import asyncpg
import pytest
import pytest_asyncio
from tests.store.postgres.conftest import Connect

from holdfast.core.errors import StoreError, StoreUnavailableError
from holdfast.core.identity import IdQuery, PromiseId
from holdfast.core.status import Status
from holdfast.store.effects import Commit, SpawnExecutions
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.address import Address
from holdfast.store.postgres.connections import end, errors_of
from holdfast.store.values import Delivery, ExecutionFilter, NewSignal, QueueSettings, Retention, Topic
from holdfast.testing.hand import HANDLER, Hand, child_rows, done, keep, park, promise_of, row, wait_children
from holdfast.testing.postgres import PostgresServer

SECRET = "s3cret"
T = TypeVar("T")


# ---------------------------------------------------------------------- what can be tried again


async def test_a_server_that_is_down_is_named_and_its_password_is_not() -> None:
    store = PostgresStore(f"postgresql://someone:{SECRET}@127.0.0.1:1/db")
    with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1:1.*try again") as caught:
        await store.open()
    assert caught.value.__cause__ is not None
    assert SECRET not in str(caught.value)
    assert SECRET not in store.url
    await store.close()


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
        asyncpg.AdminShutdownError("terminating connection due to administrator command"),
        asyncpg.CrashShutdownError("the server crashed"),
        asyncpg.CannotConnectNowError("the database system is starting up"),
        asyncpg.TooManyConnectionsError("too many clients"),
        asyncpg.DeadlockDetectedError("deadlock detected"),
        asyncpg.SerializationError("could not serialize access"),
        asyncpg.LockNotAvailableError("canceling statement due to lock timeout"),
        asyncpg.QueryCanceledError("canceling statement due to statement timeout"),
        asyncpg.ReadOnlySQLTransactionError("cannot execute UPDATE in a read-only transaction"),
        asyncpg.IdleInTransactionSessionTimeoutError("terminating connection due to idle-in-transaction timeout"),
        asyncpg.PostgresIOError("could not read block 7"),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress"),
        ConnectionResetError("reset by peer"),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_passes_is_unavailable_and_keeps_its_cause(error: BaseException) -> None:
    address = Address(f"postgresql://u:{SECRET}@db.example:5432/orders")
    with pytest.raises(StoreUnavailableError, match=r"db\.example:5432") as caught, errors_of(address, "flush"):
        raise error
    assert caught.value.__cause__ is error
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (asyncpg.TooManyConnectionsError("too many clients"), "too many clients.*raise max_connections"),
        (asyncpg.InternalClientError("cannot switch to state 12"), "could not flush: the server ended the connection"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_happened_is_said_in_words_of_an_operator(error: Exception, said: str) -> None:
    with pytest.raises(StoreUnavailableError, match=said), errors_of(Address("postgresql://db/orders"), "flush"):
        raise error


def test_a_mistake_of_our_own_is_not_called_unavailable() -> None:
    address = Address("postgresql://db/orders")
    with pytest.raises(asyncpg.UndefinedColumnError), errors_of(address, "flush"):
        raise asyncpg.UndefinedColumnError("column does not exist")
    with pytest.raises(asyncpg.InterfaceError), errors_of(address, "flush"):
        raise asyncpg.InterfaceError("the server expects 2 arguments for this query, 1 was passed")


async def test_what_the_server_cuts_off_for_its_length_may_be_tried_again(ledger: PostgresStore) -> None:
    async def work_long() -> None:
        async with ledger._connections.any("work long") as connection:
            await connection.execute("set statement_timeout = '10ms'")
            await connection.execute("select pg_sleep(60)")

    async def idle_long() -> None:
        async with ledger._connections.any("idle long") as connection:
            ended = asyncio.Event()
            connection.add_termination_listener(lambda _: ended.set())
            await connection.execute("begin; set local idle_in_transaction_session_timeout = '10ms'")
            await ended.wait()
            await connection.execute("select 1")

    with pytest.raises(StoreUnavailableError, match="could not work long: canceling statement due to"):
        await work_long()
    with pytest.raises(StoreUnavailableError, match="could not idle long: connection is closed"):
        await idle_long()
    assert await ledger.queues() == []


async def at_the_second_try(call: Callable[[], Awaitable[T]]) -> T:
    """The loop may have noticed that the connection is gone, or not; if the call fails, it fails once."""
    try:
        return await call()
    except StoreUnavailableError:
        return await call()


async def test_a_killed_connection_fails_one_call_at_most_and_the_next_one_connects_again(
    ledger: PostgresStore, connect: Connect
) -> None:
    hand = await Hand(ledger, lease_seconds=3600).start()
    claim = await hand.take(row("a"))
    await hand.apply(claim, keep())
    losses = ledger.losses
    observer = await connect()
    ended = await observer.fetch(  # waits until they are gone: one that is only told to end may answer before it does
        "select pg_terminate_backend(pid, 20000) from pg_stat_activity where application_name = 'holdfast' "
        "and datname = current_database() and query like $1",
        f"%{ledger._schema}%",
    )
    assert [gone for (gone,) in ended] == [True] * len(ended) != []
    assert (await at_the_second_try(lambda: hand.view("a"))).revision == 1
    assert ledger.losses > losses, "who goes by what it holds in memory must know"
    assert (await at_the_second_try(lambda: hand.commit(claim, done()))).applied
    lost = ledger.losses
    await ledger.close()
    assert ledger.losses == lost, "what is closed is not lost"
    await ledger.open()


async def test_a_connection_that_is_cut_with_its_cancelled_call_is_not_lost(ledger: PostgresStore) -> None:
    """Else every impatient caller would cost a worker of its process what it has in memory."""
    losses = ledger.losses
    with pytest.raises(asyncio.CancelledError):
        async with ledger._connections.any("be cancelled") as connection:
            raise asyncio.CancelledError
    assert connection.is_closed()
    assert ledger.losses == losses


async def test_a_server_that_crashes_and_comes_back_has_lost_nothing() -> None:
    """DESIGN section 10: a restart of the server costs a pause, never a step."""
    with PostgresServer(fsync=True) as server:
        store = PostgresStore(server.url())
        await store.open()
        hand = await Hand(store, lease_seconds=3600).start()
        claim = await hand.take(row("a"))
        await hand.apply(claim, keep("second"))
        await asyncio.to_thread(server.kill)
        with pytest.raises(StoreUnavailableError):
            await hand.commit(claim, keep("third"))
        with pytest.raises(StoreUnavailableError):
            await store.reclaim(hand.name, [claim])
        await asyncio.to_thread(server.start)
        (again,) = await store.reclaim(hand.name, [claim])
        assert again is not None
        assert (again.step, again.revision) == ("second", 1)
        await hand.apply(again, done())
        await store.close()


async def test_a_closed_store_says_so(ledger: PostgresStore) -> None:
    await ledger.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await ledger.now_us()
    await ledger.open()
    assert await ledger.now_us() > 0


async def test_a_flush_on_the_calling_thread_is_refused(ledger: PostgresStore) -> None:
    hand = await Hand(ledger, lease_seconds=3600).start()
    claim = await hand.take(row("a"))
    assert not ledger.commits_inline
    with pytest.raises(StoreError, match="await flush"):
        ledger.flush_now(hand.name, [Commit(claim, (done(),))])
    assert (await hand.view("a")).status is Status.EXECUTING


# ---------------------------------------------------------------------- who has which connection


async def test_a_call_that_was_cut_off_leaves_no_transaction_to_the_next(postgres_url: str, schema: str) -> None:
    """What the next call writes would never be committed, and the locks of the first stay."""
    store = PostgresStore(postgres_url, schema=schema)
    await store.open()

    async def cut_off() -> None:
        async with store._connections.any("look") as connection:
            await connection.execute("begin")
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await cut_off()
    async with store._connections.any("look") as connection:
        assert not connection.is_in_transaction()
    await store.close()


async def test_the_oldest_connection_that_is_free_is_taken(postgres_url: str, schema: str) -> None:
    """Each plans a routine at its first call: what a younger one did last says nothing about the next call."""
    store = PostgresStore(postgres_url, schema=schema)
    await store.open()
    look = store._connections.any
    async with look("look") as first, look("look") as second:
        assert first is not second
    async with look("look") as again:
        assert again is first
        async with look("look") as beside:
            assert beside is second
    await store.close()


async def test_warming_meets_no_locked_row_and_locks_none(postgres_url: str, schema: str) -> None:
    store = PostgresStore(postgres_url, schema=schema)
    await store.open()
    await store.insert([row("a"), row("b")])
    async with store._connections.any("lock") as holder, holder.transaction():
        locked = await holder.fetch(f"select from {schema}.executions for update")
        assert len(locked) == 2
        await asyncio.wait_for(store.warm(), 30)
    async with store._connections.flush() as warmed, store._connections.any("lock") as other:
        assert not warmed.is_in_transaction()
        assert len(await other.fetch(f"select from {schema}.executions for update nowait")) == 2
    await store.close()


async def test_the_first_flush_takes_over_a_connection_that_is_idle_and_no_other_does(
    postgres_url: str, schema: str
) -> None:
    store = PostgresStore(postgres_url, schema=schema)
    await store.open()
    connections = store._connections
    async with connections.any("look") as opened:
        pass
    async with connections.flush() as first:
        assert first is opened
        async with connections.any("look") as another:
            assert another is not opened
        async with connections.flush() as second:
            assert second is not another
    async with connections.flush() as again, connections.any("look") as still:
        assert again is opened
        assert still is another
    await store.close()


async def test_warming_writes_nothing(postgres_url: str, schema: str, connect: Connect) -> None:
    store = PostgresStore(postgres_url, schema=schema)
    await store.open()
    await store.insert([row("a"), row("b", partition_key="k"), row("c", priority=5)])
    other = await connect()
    await other.execute(f"insert into {schema}.partition_locks (key, holder) values ('free', null)")
    async with other.transaction():
        await other.fetch(f"select from {schema}.executions for update")
        await other.fetch(f"select from {schema}.partition_locks for update")
        assert store._connections.has_idle
        await asyncio.wait_for(store.warm(), 30)
    assert await other.fetchval(f"select count(*) from {schema}.executions where status = 'runnable'") == 3
    assert await other.fetchval(f"select count(*) from {schema}.partition_locks where holder is null") == 1
    assert await other.fetchval(f"select count(*) from {schema}.journal") == 0
    await store.close()


async def test_warming_leaves_the_connection_that_is_idle_to_others(postgres_url: str, schema: str) -> None:
    store = PostgresStore(postgres_url, schema=schema)
    await store.open()
    async with store._connections.any("look") as opened:
        pass
    await store.warm()
    async with store._connections.flush() as warmed, store._connections.any("look") as still:
        assert warmed is not opened
        assert still is opened
    await store.close()


async def test_a_flush_waits_for_the_connection_that_is_being_warmed(postgres_url: str, schema: str) -> None:
    store = PostgresStore(postgres_url, schema=schema)
    await store.open()
    async with store._connections.only_flush() as warming:
        flush = store._connections.flush()
        waiting = asyncio.ensure_future(flush.__aenter__())
        await asyncio.sleep(0.05)
        assert not waiting.done()
    assert await waiting is warming
    async with store._connections.flush() as second:  # and now there may be two
        assert second is not warming
    await flush.__aexit__(None, None, None)
    await store.close()


async def test_warming_opens_every_connection_for_flushes_and_writes_nothing(postgres_url: str, schema: str) -> None:
    store = PostgresStore(postgres_url, schema=schema)
    await store.open()
    heard: list[Topic] = []
    ear = await store.open_ear(heard.append)
    for topic in Topic:
        await ear.arm(topic)
    await store.warm()
    assert len(store._connections._flush_idle) == store.flushes_at_once == 2
    assert await store.count(ExecutionFilter()) == {}
    await asyncio.sleep(0.1)
    assert heard == []
    await ear.close()
    await store.close()


async def test_what_has_flushed_is_not_warmed_for_it(postgres_url: str, schema: str) -> None:
    """Commits that are under way would wait for it."""
    store = PostgresStore(postgres_url, schema=schema)
    await store.open()
    async with store._connections.flush(), store._connections.flush():
        await asyncio.wait_for(store.warm(), 30)
    await store.close()


@pytest.mark.parametrize("connections", [1, 2, 5])
async def test_a_store_of_any_size_can_be_warmed(postgres_url: str, schema: str, connections: int) -> None:
    store = PostgresStore(postgres_url, schema=schema, connections=connections)
    await store.open()
    await asyncio.wait_for(store.warm(), 30)
    await store.close()


async def test_four_transactions_of_user_code_run_at_once(ledger: PostgresStore) -> None:
    hand = await Hand(ledger, lease_seconds=3600).start()
    together = asyncio.Barrier(4)
    claims = [await hand.take(row(name)) for name in "abcd"]
    async with asyncio.timeout(30):
        receipts = await asyncio.gather(
            *(ledger.transact(hand.name, claim, lambda _: together.wait(), lambda _: (done(),)) for claim in claims)
        )
    assert all(receipt.applied for receipt in receipts)


# ---------------------------------------------------------------------- behind a pooler in transaction mode


async def test_a_session_with_other_prepared_statements_is_given_up_and_a_pooler_suspected(
    ledger: PostgresStore,
) -> None:
    """Behind a pooler that nobody told of, what is at work would be stranded, where it only has to wait."""
    await ledger.now_us()
    for _, connection in ledger._connections._idle:
        await connection.execute("deallocate all")
    with pytest.raises(StoreUnavailableError, match=r"does not exist\. Nothing is lost.*pgbouncer=true"):
        await ledger.now_us()
    assert await ledger.now_us()


@pytest_asyncio.fixture
async def pooled(postgres_url: str, schema: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresStore]:
    """A store of which every call gets another session, as behind PgBouncer in transaction mode."""
    store = PostgresStore(postgres_url, schema=schema, pooled=True, listen=False)
    await store.open()
    monkeypatch.setattr(store._connections, "give_back", lambda aged, idle: end(aged[1]))
    yield store
    await store.close()


async def test_everything_works_when_every_call_has_another_session(pooled: PostgresStore) -> None:
    hand = await Hand(pooled, lease_seconds=3600).start()
    parent = await hand.take(row("parent", partition_key="k", unique_key=b"u", unique_scope=("runnable",)))
    await hand.apply(parent, wait_children(), SpawnExecutions(child_rows(parent, 2)))
    first, second = await hand.pick()
    await hand.apply(first, park("go", wake_after=60))
    assert await pooled.deliver([NewSignal(first.promise, "go", "1")]) == [Delivery.DELIVERED]
    (again,) = await hand.pick()
    await hand.flush(Commit(again, (done(),)), Commit(second, (done(),)))
    assert (await hand.take()).children_ready
    assert await pooled.retire_worker(hand.name) == 1
    assert await pooled.cancel([promise_of("parent")]) == [Status.CANCELLED]
    await pooled.configure_queue(QueueSettings(name="default", concurrency=3))
    assert [stats.settings.concurrency for stats in await pooled.queues()] == [3]
    assert await pooled.waiting_priority(["default"], [HANDLER]) is None
    assert len((await pooled.browse(ExecutionFilter(), 10)).items) == 3
    root = PromiseId.from_bytes(promise_of("parent"))
    assert len(await pooled.find(IdQuery.parse(str(root)[:12]))) == 1
    assert await pooled.purge(Retention(age_seconds=-1), 10) == 3


async def test_nothing_is_kept_in_the_session(pooled: PostgresStore) -> None:
    """No settings that a pooler would refuse, no statement that another session would not know."""
    await pooled.insert([row("a")])
    async with pooled._connections.any("look") as connection:
        await connection.fetch(pooled._sql["view_by_promise"], promise_of("a"))
        assert await connection.fetchval("select count(*) from pg_prepared_statements") == 0
        assert await connection.fetchval("show plan_cache_mode") == "auto"
