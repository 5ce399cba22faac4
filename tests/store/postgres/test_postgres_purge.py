"""Retention beside a retry that commits after it has looked, and before it holds what it found."""

from __future__ import annotations

from tests.store.postgres.conftest import Connect, Connection
from tests.store.postgres.held import while_held

from holdfast.core.identity import PromiseId
from holdfast.store.postgres import PostgresStore
from holdfast.store.values import Retention
from holdfast.testing.hand import Hand, fail, row


async def test_what_was_retried_meanwhile_stays(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect, schema: str
) -> None:
    """The first run is what the key is found by. A statement opens its indexes once it has its snapshot, and waits."""
    purging, purge = await connect(), f"select {schema}.purge_1(0, null, null, 10)"
    await purging.execute(purge)  # so that it has its plan, for which it would wait before that
    claim = await hand.take(row("a"))
    await hand.apply(claim, fail())
    await held.execute(f"alter index {schema}.executions_finished set tablespace pg_default")
    again = PromiseId.from_bytes(claim.promise).successor("retry").to_bytes()
    await ledger.insert_with(held, [row("a", promise=again)])
    await held.execute(ledger._sql["fork_successor"], again, claim.promise, claim.promise)
    assert await while_held(await connect(), held, purging.fetchval(purge)) == 0
    view = await ledger.get(claim.promise)
    assert view is not None
    assert view.successor == again


async def test_purged_crowds_leave_no_entry(ledger: PostgresStore, hand: Hand, connect: Connect, schema: str) -> None:
    """Nor is an entry gone while a row of its block is there."""
    blocks = f"select array_agg(distinct block order by block) from {schema}.crowds"
    rows = f"select array_agg(distinct id >> 8 order by id >> 8) from {schema}.executions where not listed"
    await hand.insert(*(row(str(n)) for n in range(600)))
    await hand.insert(row("alone"))
    connection = await connect()
    assert len(await connection.fetchval(blocks)) >= 3
    await ledger.cancel([row(str(n)).promise for n in range(600) if n != 300])
    while await ledger.purge(Retention(age_seconds=0), 77):
        assert await connection.fetchval(blocks) == await connection.fetchval(rows)
    assert len(await connection.fetchval(blocks)) == 1
    await ledger.cancel([row("300").promise])
    assert await ledger.purge(Retention(age_seconds=0), 77) == 1
    assert await connection.fetchval(blocks) is None


async def test_two_purges_that_empty_a_block_between_them_leave_no_entry(
    ledger: PostgresStore, hand: Hand, connect: Connect, held: Connection, schema: str
) -> None:
    """Neither sees what the other has deleted before that commits."""
    await hand.insert(*(row(str(n)) for n in range(64)))
    await ledger.cancel([row(str(n)).promise for n in range(64)])
    assert await held.fetchval(f"select {schema}.purge_1(0, null, null, 40)") == 40
    assert await while_held(await connect(), held, ledger.purge(Retention(age_seconds=0), 40)) == 24
    assert await held.fetchval(f"select count(*) from {schema}.crowds") == 0
