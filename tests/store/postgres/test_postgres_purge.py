"""Retention beside a retry that commits after it has looked, and before it holds what it found."""

from __future__ import annotations

from tests.store.postgres.conftest import Connect, Connection
from tests.store.postgres.held import while_held

from holdfast.core.identity import PromiseId
from holdfast.store.postgres import PostgresStore
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
