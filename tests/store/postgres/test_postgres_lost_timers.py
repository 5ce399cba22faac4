"""Timers are fired without waiting for the disk: who loses that with the server fires them again."""

from __future__ import annotations

from tests.store.postgres.conftest import Connect

from holdfast.core.status import Status
from holdfast.store.base import DEADLINE_EXCEEDED
from holdfast.store.effects import AdvanceExecution
from holdfast.store.postgres import PostgresStore
from holdfast.testing.hand import Hand, row
from holdfast.testing.postgres import PostgresServer

DUE = AdvanceExecution(status=Status.AWAITING_PROMISE, wake_after=0)


async def fired(schema: str, connect: Connect) -> tuple[int, str, str]:
    """How many a pass fires, whether its commit waits, and whether the next one of its session does."""
    connection = await connect()
    async with connection.transaction():
        count = await connection.fetchval(f"select fired from {schema}.fire_timers_1(10, $1)", DEADLINE_EXCEEDED)
        own = await connection.fetchval("show synchronous_commit")
    return count, own, await connection.fetchval("show synchronous_commit")


async def test_that_does_not_wait(hand: Hand, schema: str, connect: Connect) -> None:
    await hand.apply(await hand.take(row("a")), DUE)
    assert await fired(schema, connect) == (1, "off", "on")


async def test_but_with_the_deadline_of_an_execution_that_ends_it(hand: Hand, schema: str, connect: Connect) -> None:
    await hand.apply(await hand.take(row("a")), DUE)
    await hand.insert(row("late", deadline=0.0))
    assert await fired(schema, connect) == (2, "on", "on")


async def test_one_that_the_server_loses_is_fired_again() -> None:
    with PostgresServer(fsync=True, settings={"wal_writer_delay": "10s"}) as server:
        store = PostgresStore(server.url())
        await store.open()
        hand = await Hand(store, "w1", lease_seconds=3600).start()
        await hand.apply(await hand.take(row("a")), DUE)
        assert (await store.fire_timers(10)).fired == 1
        server.kill()
        await store.close()
        server.restart()
        await store.open()
        assert (await hand.view("a")).status is Status.AWAITING_PROMISE
        assert (await store.fire_timers(10)).fired == 1
        assert (await hand.take()).timed_out
        await store.close()
