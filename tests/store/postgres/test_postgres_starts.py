"""Starts in the feed on PostgreSQL: rows come into sight in another order than that of their numbers.

A reader that went on after the highest row in sight would skip every one that is committed later: each test here holds
a transaction open that has drawn a number, and lets another with a higher one commit first.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import asyncpg
from asyncpg.transaction import Transaction
from tests.store.postgres.conftest import Connect, Connection

from holdfast.core.clock import to_us
from holdfast.store.postgres import PostgresStore
from holdfast.store.watching import Position, Seen
from holdfast.testing.hand import Hand, done, promise_of, row

START = """
insert into {schema}.executions (promise, kind, name, version, handler, step, state, input_hash, queue, priority,
  eligible_at, inserted_at, updated_at)
values ($1, 'machine', 'Order', 1, 1, 'start', '{{}}', '0', 'default', 0, now(), now(), now())
"""


async def begin(ledger: PostgresStore) -> str:
    feed = await ledger.ends(None, 0, (), starts=True)
    assert feed.is_settled
    return feed.position


async def starts(ledger: PostgresStore, position: str, limit: int = 100) -> tuple[list[bytes], str]:
    """What two looks find: the first sees what there is."""
    found: list[bytes] = []
    for _ in range(2):
        feed = await ledger.ends(position, limit, (), starts=True)
        found += [start.view.promise for start in feed.started]
        position = feed.position
    return found, position


async def begun(connect: Connect) -> tuple[Connection, Transaction]:
    """Another connection, in a transaction."""
    connection = await connect()
    transaction = connection.transaction()
    await transaction.start()
    return connection, transaction


async def start_in(connection: Connection, schema: str, key: str) -> None:
    await connection.execute(START.format(schema=schema), promise_of(key))


async def test_a_start_that_is_being_committed_is_not_passed_over(
    ledger: PostgresStore, schema: str, connect: Connect, hand: Hand
) -> None:
    position = await begin(ledger)
    other, transaction = await begun(connect)
    await start_in(other, schema, "slow")
    await hand.insert(row("quick"))
    found, position = await starts(ledger, position)
    assert found == []
    await transaction.commit()
    found, position = await starts(ledger, position)
    assert found == [promise_of("slow"), promise_of("quick")]
    assert (await starts(ledger, position))[0] == []


async def test_a_transaction_that_began_after_what_was_seen_holds_nothing_back(
    ledger: PostgresStore, schema: str, connect: Connect, hand: Hand
) -> None:
    """Else a ledger with many writers would never have a moment in which starts can be told."""
    position = await begin(ledger)
    first, second = await connect(), await connect()
    one, two = first.transaction(), second.transaction()
    await one.start()
    await start_in(first, schema, "a")
    await hand.insert(row("b"))
    position = (await ledger.ends(position, 10, (), starts=True)).position  # b is seen; a may come
    await two.start()
    await start_in(second, schema, "c")
    await one.commit()
    found, position = await starts(ledger, position)
    assert found == [promise_of("a"), promise_of("b")]
    await two.commit()
    assert (await starts(ledger, position))[0] == [promise_of("c")]


async def test_who_has_drawn_a_number_and_written_nothing_yet_is_waited_for(
    ledger: PostgresStore, schema: str, connect: Connect, hand: Hand
) -> None:
    """It may wait for a rival with the same key, for as long as that one likes."""
    position = await begin(ledger)
    other, transaction = await begun(connect)
    drawn = await other.fetchval(f"select nextval('{schema}.executions_id_seq')")
    await hand.insert(row("quick"))
    assert (await starts(ledger, position))[0] == []
    text = START.format(schema=schema).replace("(promise", "(id, promise").replace("($1", f"({drawn}, $1")
    await other.execute(text, promise_of("slow"))
    await transaction.commit()
    assert (await starts(ledger, position))[0] == [promise_of("slow"), promise_of("quick")]


async def test_transactions_that_start_nothing_hold_nothing_back(
    ledger: PostgresStore, schema: str, connect: Connect, hand: Hand
) -> None:
    position = await begin(ledger)
    claim = await hand.take(row("held"))
    writer, reader = await connect(), await connect()
    async with writer.transaction(), reader.transaction():
        await writer.execute(f"update {schema}.executions set priority = 1 where id = $1", claim.row)
        await reader.fetch(f"select last_value from {schema}.executions_id_seq")
        await hand.insert(row("a"))
        assert (await starts(ledger, position))[0] == [promise_of("held"), promise_of("a")]


async def test_the_place_among_starts_is_found_once_nothing_below_it_can_come(
    ledger: PostgresStore, schema: str, connect: Connect, hand: Hand
) -> None:
    other, transaction = await begun(connect)
    await start_in(other, schema, "early")
    await hand.insert(row("before"))
    feed = await ledger.ends(None, 0, (), starts=True)
    assert not feed.is_settled
    feed = await ledger.ends(feed.position, 10, starts=True)
    assert (feed.is_settled, feed.started, feed.items) == (False, [], [])
    await hand.insert(row("after"))
    await transaction.commit()
    feed = await ledger.ends(feed.position, 10, starts=True)
    assert feed.is_settled
    assert (await starts(ledger, feed.position))[0] == [promise_of("after")]


async def test_an_end_does_not_overtake_its_start(
    ledger: PostgresStore, schema: str, connect: Connect, hand: Hand
) -> None:
    position = await begin(ledger)
    other = await connect()
    async with other.transaction():
        await start_in(other, schema, "slow")
        await hand.apply(await hand.take(row("quick")), done())
        feed = await ledger.ends(position, 10, starts=True)
        assert (feed.started, feed.items) == ([], [])
    told: list[str] = []
    position = feed.position
    while "ended" not in told:
        feed = await ledger.ends(position, 10, starts=True)
        told += ["started"] * len(feed.started) + ["ended"] * len(feed.items)
        position = feed.position
    assert told == ["started", "started", "ended"]


async def test_interleaved_transactions_are_told_exactly_once(
    ledger: PostgresStore, schema: str, connect: Connect, hand: Hand
) -> None:
    """Any order of commits and rollbacks, looked at in between: what is committed is told, once."""
    chance = random.Random(20)
    connections = [await connect() for _ in range(5)]
    position = await begin(ledger)
    open_ones: dict[int, tuple[asyncpg.transaction.Transaction, list[bytes]]] = {}
    committed: list[bytes] = []
    told: list[bytes] = []
    for turn in range(150):
        number = chance.randrange(len(connections))
        if number not in open_ones:
            transaction = connections[number].transaction()
            await transaction.start()
            open_ones[number] = (transaction, [])
        transaction, mine = open_ones[number]
        match chance.randrange(4):
            case 0:
                await transaction.rollback()
                del open_ones[number]
            case 1:
                await transaction.commit()
                committed += mine
                del open_ones[number]
            case _:
                await start_in(connections[number], schema, f"k{turn}")
                mine.append(promise_of(f"k{turn}"))
        feed = await ledger.ends(position, chance.randrange(4), (), starts=True)
        told += [start.view.promise for start in feed.started]
        position = feed.started[-1].position if feed.started and chance.random() < 0.5 else feed.position
    for transaction, mine in open_ones.values():
        await transaction.commit()
        committed += mine
    for _ in committed:  # more than enough
        feed = await ledger.ends(position, 10, (), starts=True)
        told += [start.view.promise for start in feed.started]
        position = feed.position
    assert len(committed) > 20
    assert sorted(told) == sorted(committed)
    assert (await starts(ledger, position))[0] == []


async def test_a_transaction_of_which_the_server_hides_when_it_began_is_waited_for(
    ledger: PostgresStore, schema: str, connect: Connect
) -> None:
    """A reader without the right to see others' activity goes by what had written, and waits a little for the rest."""
    other, reader = await connect(), await connect()
    role = f"{schema}_reader"
    await reader.execute(f"create role {role}; grant usage on schema {schema} to {role}")
    try:
        async with other.transaction():
            await start_in(other, schema, "slow")
            seen = await reader.fetchrow(f"select * from ({ledger._sql['feed_seen']}) s")
            assert seen is not None
            now: datetime = seen["at"]
            await reader.execute(f"set role {role}")

            async def is_undecided(at: datetime, xid: int) -> bool:
                return bool(await reader.fetchval(ledger._sql["feed_undecided"], at, xid))

            long_ago = now - timedelta(hours=1)
            assert await is_undecided(long_ago, seen["xid"])  # it had written by then
            assert not await is_undecided(long_ago, 1)  # whoever had is over
            assert await is_undecided(now, 1)  # it may have been about to
            assert not await is_undecided(long_ago, 2**60)  # of another server, where numbers were higher
            await reader.execute("reset role")
            assert await is_undecided(now, 1)
            assert not await is_undecided(long_ago, seen["xid"])
    finally:
        await reader.execute(f"reset role; drop owned by {role}; drop role {role}")


async def test_a_ledger_that_forgot_commits_is_read_on_from_what_it_has(ledger: PostgresStore, hand: Hand) -> None:
    await hand.insert(row("a"))
    now = to_us(datetime.now(UTC))
    ahead = str(Position(now, 0, now, 0, Seen(500, now, 1), 500))
    position = (await ledger.ends(ahead, 10, (), starts=True)).position
    await hand.insert(row("b"))
    assert (await starts(ledger, position))[0] == [promise_of("b")]


async def test_starts_are_read_along_the_primary_key(ledger: PostgresStore, schema: str, connect: Connect) -> None:
    other = await connect()
    fill = START.replace("values ($1,", "select sha256(convert_to(g::text, 'utf8')),").replace(
        "now(), now(), now())", ""
    )
    await other.execute(fill.format(schema=schema) + "now(), now(), now() from generate_series(1, $1::int) g", 5_000)
    await other.execute(f"analyze {schema}.executions")
    for block, arguments in (("feed_seen", ()), ("feed_started", (100, 4_000, 50))):
        lines = await other.fetch(f"explain (costs off) {ledger._sql[block]}", *arguments)
        plan = "\n".join(line[0] for line in lines)
        assert "executions_pkey" in plan, plan
        assert "Seq Scan" not in plan, plan
