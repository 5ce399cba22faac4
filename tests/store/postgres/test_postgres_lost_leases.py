"""Leases that do not wait for the disk: only where their holder commits before it begins anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

import asyncpg
import pytest
from tests.store.postgres.conftest import Connect, Connection

from holdfast.core.errors import StoreUnavailableError
from holdfast.core.status import Status
from holdfast.models.workflow.definition import KIND
from holdfast.store.effects import AppendJournal, ConsumeSignals
from holdfast.store.postgres import PostgresStore
from holdfast.store.sql import load_blocks
from holdfast.store.values import NewExecution, NewSignal, QueueRoom
from holdfast.testing.hand import HANDLER, Hand, done, go, park, row
from holdfast.testing.postgres import PostgresServer

Wake: TypeAlias = Callable[..., Awaitable[None]]


def workflow(key: str) -> NewExecution:
    return row(key, kind=KIND, handler=HANDLER)


async def waiting(hand: Hand, *rows: NewExecution) -> None:
    """They are parked, and then sent a signal."""
    for one in rows:
        claim = await hand.take(one)
        await hand.apply(claim, park("go"))
    await hand.store.deliver([NewSignal(one.promise, "go", "1") for one in rows])


async def due(hand: Hand, *rows: NewExecution) -> None:
    """They are parked, and their timers fire."""
    for one in rows:
        claim = await hand.take(one)
        await hand.apply(claim, park("go", wake_after=0))
    await hand.store.fire_timers(len(rows))


async def picked(schema: str, connect: Connect) -> tuple[int, str, str]:
    """How many a pick leases, whether its commit waits, and whether the next one of its session does."""
    connection = await connect()
    async with connection.transaction():
        statement = f"select * from {schema}.pick_3('w1', '{{default}}', '{{10}}', $1, 10, null, null, null)"
        leased = len(await connection.fetch(statement, [HANDLER])) - 1
        own = await connection.fetchval("show synchronous_commit")
    return leased, own, await connection.fetchval("show synchronous_commit")


async def test_that_of_a_workflow_that_was_sent_something(hand: Hand, schema: str, connect: Connect) -> None:
    await waiting(hand, workflow("a"), workflow("b"))
    assert await picked(schema, connect) == (2, "off", "on")


async def test_that_of_a_workflow_whose_time_has_come(hand: Hand, schema: str, connect: Connect) -> None:
    await due(hand, workflow("a"), workflow("b"))
    assert await picked(schema, connect) == (2, "off", "on")


async def test_not_if_one_of_them_may_begin_something_at_once(hand: Hand, schema: str, connect: Connect) -> None:
    await waiting(hand, workflow("a"))
    await hand.insert(workflow("new"))
    assert await picked(schema, connect) == (2, "on", "on")


@pytest.mark.parametrize("wake", [waiting, due])
async def test_not_of_anything_but_a_workflow(hand: Hand, schema: str, connect: Connect, wake: Wake) -> None:
    await wake(hand, row("machine"))
    assert await picked(schema, connect) == (1, "on", "on")


@dataclass
class Forgetful:
    """A store, and its server, which forgets what nobody waited for."""

    store: PostgresStore
    server: PostgresServer

    async def crash(self) -> None:
        self.server.kill()
        await self.store.close()
        self.server.restart()
        await self.store.open()


@pytest.fixture
async def forgetful() -> AsyncIterator[Forgetful]:
    with PostgresServer(fsync=True, settings={"wal_writer_delay": "10s"}) as server:
        store = PostgresStore(server.url())
        await store.open()
        yield Forgetful(store, server)
        await store.close()


async def test_one_that_the_server_loses_is_granted_to_another_and_fences_the_first(forgetful: Forgetful) -> None:
    store = forgetful.store
    first = await Hand(store, "w1", lease_seconds=3600).start()
    second = await Hand(store, "w2", lease_seconds=3600).start()
    kept = await first.take(row("new"))
    await waiting(first, workflow("sent"))
    (lost,) = await first.pick()
    forgetful.server.kill()
    forgetful.server.restart()
    for tried in range(20):  # one for each connection that broke, at most
        try:
            view = await first.view(lost)
            break
        except (StoreUnavailableError, asyncpg.PostgresError):
            assert tried < 19
    assert (view.status, (await first.view(kept)).status) == (Status.RUNNABLE, Status.EXECUTING)
    (found,) = await second.pick()
    assert (found.row, found.epoch) == (lost.row, lost.epoch)
    taken = ConsumeSignals(tuple(signal.id for signal in lost.inbox))
    assert not (await first.commit(lost, go(), AppendJournal(0, 1, "{}"), taken)).applied
    assert (await second.commit(found, done(), AppendJournal(0, 1, "{}"), taken)).applied


async def dead(hand: Hand, schema: str, connect: Connect) -> Connection:
    """It holds something."""
    await hand.take(row("a"))
    connection = await connect()
    await connection.execute(f"update {schema}.workers set expires_at = now()")
    return connection


@pytest.mark.parametrize(("max_crashes", "waits"), [(10, "off"), (1, "on")])
async def test_what_a_dead_worker_held_is_taken_back_without_waiting_for_the_disk_unless_it_is_stranded(
    hand: Hand, schema: str, connect: Connect, max_crashes: int, waits: str
) -> None:
    connection = await dead(hand, schema, connect)
    async with connection.transaction():
        assert await connection.fetchval(f"select workers from {schema}.reap_1(10, $1)", max_crashes) == [hand.name]
        assert await connection.fetchval("show synchronous_commit") == waits
    assert await connection.fetchval("show synchronous_commit") == "on"


async def test_what_was_taken_back_and_forgotten_is_taken_back_again(forgetful: Forgetful) -> None:
    store = forgetful.store
    first = await Hand(store, "dead", lease_seconds=0).start()
    second = await Hand(store, "other", lease_seconds=3600).start()
    claim = await first.take(row("a"))
    assert (await store.reap(10, max_crashes=10)).released == 1
    await forgetful.crash()
    view = await second.view(claim)
    assert (view.status, view.locked_by, view.crashes) == (Status.EXECUTING, "dead", 0)
    assert (await store.reap(10, max_crashes=10)).released == 1
    (again,) = await second.pick()
    assert (again.row, again.epoch, (await second.view(again)).crashes) == (claim.row, claim.epoch + 1, 1)
    assert not (await first.commit(claim, done())).applied


async def test_a_worker_is_registered_without_waiting_for_the_disk(hand: Hand, schema: str, connect: Connect) -> None:
    statement = load_blocks("holdfast.store.postgres", "sql/work.sql", schema=schema)["worker_register"]
    connection = await connect()
    async with connection.transaction():
        await connection.execute(statement, "w1", "host", 1, [], 30.0)
        assert await connection.fetchval("show synchronous_commit") == "off"
    assert await connection.fetchval("show synchronous_commit") == "on"


async def test_one_that_the_server_forgets_hears_of_it_and_left_nothing_behind(forgetful: Forgetful) -> None:
    store = forgetful.store
    hand = await Hand(store, "forgotten", lease_seconds=3600).start()
    await forgetful.crash()
    assert not await store.beat("forgotten", 3600)
    await hand.insert(row("a"))
    assert (await store.pick("forgotten", [QueueRoom("default", 1)], [HANDLER], 1)).worker_lost


async def test_one_that_has_leased_something_is_not_forgotten(forgetful: Forgetful) -> None:
    store = forgetful.store
    hand = await Hand(store, "known", lease_seconds=3600).start()
    claim = await hand.take(row("a"))
    await forgetful.crash()
    assert await store.beat("known", 3600)
    assert (await hand.view(claim)).locked_by == "known"
