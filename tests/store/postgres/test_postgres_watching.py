"""Watching on PostgreSQL: bounded reads along indexes, and a feed that waits for what is still being committed."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.store.postgres.conftest import Connect

from holdfast.store.postgres import PostgresStore
from holdfast.testing.hand import Hand, done, promise_of, row

FILL = """
insert into {schema}.executions (promise, kind, name, version, handler, step, state, input_hash, queue, priority,
  eligible_at, inserted_at, updated_at, status, ended_at)
select sha256(convert_to($1::text || g, 'utf8')), 'machine', 'Order', 1, 1, 'start', '{{}}', '', 'default', 0,
  now(), now(), now(), $1::text::{schema}.status,
  case when $1::text in ('done', 'failed') then now() - g * interval '1 second' end
from generate_series(1, $2::int) g
"""
END = """
update {schema}.executions set status = 'done', locked_by = null, ended_at = {schema}.clock() where promise = $1
"""
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


async def test_watchers_read_along_indexes(ledger: PostgresStore, schema: str, connect: Connect) -> None:
    other = await connect()
    for status, count in (("done", 8_000), ("failed", 300), ("stranded", 20), ("delegated", 2_000)):
        await other.execute(FILL.format(schema=schema), status, count)
    await other.execute(f"analyze {schema}.executions")
    feed = (LONG_AGO, 0, datetime.now(UTC), 50)
    reads: list[tuple[str, tuple[object, ...], str]] = [
        ("feed_ended", (*feed, ["done", "failed"]), "executions_finished"),
        ("feed_failed", feed, "executions_failed"),
        ("feed_stranded", feed, "executions_stranded"),
        ("pace", (60.0, 60.0, 100), "executions_finished"),
        ("tally_ended", (100,), "executions_finished"),
        ("sample", (list(range(1, 10_000, 100)),), "executions_pkey"),
    ]
    for block, arguments, index in reads:
        lines = await other.fetch(f"explain (costs off) {ledger._sql[block]}", *arguments)
        plan = "\n".join(line[0] for line in lines)
        assert index in plan, plan
        assert "Seq Scan" not in plan, plan


async def test_an_end_that_is_being_committed_holds_back_those_after_it(
    ledger: PostgresStore, schema: str, connect: Connect, hand: Hand
) -> None:
    """Else a reader would go past it, and never hear of it."""
    start = (await ledger.ends(None, 10)).position
    slow = await hand.take(row("slow"))
    quick = await hand.take(row("quick"))
    other = await connect()
    transaction = other.transaction()
    await transaction.start()
    await other.execute(END.format(schema=schema), slow.promise)
    await hand.apply(quick, done())
    held = await ledger.ends(start, 10)
    assert (held.items, held.position) == ([], start)
    await transaction.commit()
    found = (await ledger.ends(start, 10)).items
    assert [item.view.promise for item in found] == [promise_of("slow"), promise_of("quick")]
