"""Whole ledgers as records: what one store reads out, the other takes in, and nothing is lost on the way."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.effects import AppendJournal, ConsumeSignals, RecordTransition, SpawnExecutions
from holdfast.store.records import (
    TABLES,
    ActivityRecord,
    ArrivalRecord,
    BatchRecord,
    ChunkRecord,
    ExecutionRecord,
    FailureRecord,
    GuidRecord,
    JournalRecord,
    Record,
    ScheduleRecord,
    SemaphoreRecord,
    SignalRecord,
    columns_of,
)
from holdfast.store.sql import load_text
from holdfast.store.values import Definition, NewSignal, QueueSettings
from holdfast.testing.hand import Hand, child_rows, done, keep, park, promise_of, row, wait_children
from holdfast.testing.stores import Stores

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


async def records(store: Store, promise: bytes | None = None) -> list[Record]:
    found: list[Record] = []
    within = None if promise is None else PromiseId.from_bytes(promise).subtree_range()
    await store.read_records(found.extend, within=within)
    return found


def in_batches(found: Sequence[Record], size: int = 3) -> Iterator[Sequence[Record]]:
    for at in range(0, len(found), size):
        yield found[at : at + size]


def without_lease(found: list[Record]) -> list[Record]:
    for record in found:
        if isinstance(record, ExecutionRecord) and record.status is Status.EXECUTING:
            record.status, record.locked_by = Status.RUNNABLE, None
    return found


@pytest_asyncio.fixture
async def elsewhere(backend: str, make_stores: Callable[[str], Stores]) -> AsyncIterator[Store]:
    """A ledger of the other dialect."""
    made = make_stores("postgres" if backend == "sqlite" else "sqlite")
    await made.open()
    yield made.store
    await made.close()


async def a_life(hand: Hand, store: Store) -> None:
    """A bit of everything that a ledger can hold."""
    parent = await hand.take(
        row("parent", attributes='{"n":1,"ok":true}', unique_key=b"\xff", unique_scope=("runnable",))
    )
    await hand.apply(parent, wait_children(), SpawnExecutions(child_rows(parent, 2)))
    child, ended = await hand.pick(2)
    await hand.apply(child, park("paid", wake_after=60.0))
    await hand.apply(ended, done('{"a": [1, 2.50]}'))
    await store.deliver([NewSignal(child.promise, "other", '"é"', "once"), NewSignal(child.promise, "other", "2")])
    journal = await hand.take(row("journal", partition_key="k", digest="d", idempotency_key="journal", cleans_up=True))
    await hand.apply(journal, keep(), AppendJournal(0, 2, '{"v":1,"events":[]}'))
    await hand.apply(
        journal, park("go"), AppendJournal(2, 1, '{"v":1,  "events":[]}'), RecordTransition("a", "next", "b", 0)
    )
    read = await hand.take(row("read"))
    await store.deliver([NewSignal(read.promise, "seen", "1", "seen-1")])
    await hand.apply(read, park("more"), ConsumeSignals(tuple(s.id for s in await store.inbox(read.promise))))
    await store.insert([row("blocked", partition_key="k", paused=True, delay=5.0, deadline=100.0)])
    await store.configure_queue(QueueSettings(name="slow", concurrency=2, rate=5.0, rate_seconds=60.0))
    await store.put_schedule("nightly", '{"cron":"0 0 * * *"}', NOON)
    await store.register_definitions(
        [Definition(kind="workflow", name="pay", version=2, step="", queue="q", parameters=("a", "b"))]
    )


async def test_what_one_store_reads_out_the_other_takes_in(hand: Hand, store: Store, elsewhere: Store) -> None:
    await a_life(hand, store)
    given = await records(store)
    others = {BatchRecord, ChunkRecord, ActivityRecord, GuidRecord, SemaphoreRecord, ArrivalRecord, FailureRecord}
    assert {type(record) for record in given} == set(TABLES) - others
    written = await elsewhere.write_records(in_batches(given))
    assert (written.executions, written.skipped, written.existing) == (6, 0, None)
    assert await records(elsewhere) == await records(store)


async def test_a_run_that_was_read_out_goes_on_where_it_was_taken_in(
    hand: Hand, store: Store, elsewhere: Store
) -> None:
    claim = await hand.take(row("a", state='{"n": 1}'))
    await hand.apply(claim, park("paid"))
    await store.deliver([NewSignal(claim.promise, "paid", "1", "once")])
    again = await hand.take()
    await hand.commit(again, keep())
    await elsewhere.write_records(in_batches(without_lease(await records(store, claim.promise))))
    other = await Hand(elsewhere, "there").start()
    taken = await other.take()
    assert (taken.promise, taken.state, taken.epoch) == (claim.promise, '{"n": 1}', again.epoch + 1)
    assert [signal.payload for signal in taken.inbox] == ["1"]
    assert await elsewhere.deliver([NewSignal(claim.promise, "paid", "2", "once")]) == ["duplicate"]
    await other.apply(taken, done())


async def test_a_tree_alone_is_read_out_with_what_is_its_own(hand: Hand, store: Store) -> None:
    await a_life(hand, store)
    found = await records(store, promise_of("parent"))
    ids = {record.id for record in found if isinstance(record, (ExecutionRecord, SignalRecord))}
    root = str(PromiseId.from_bytes(promise_of("parent")))
    assert ids == {root, f"{root}.0", f"{root}.1"}
    assert {type(record).__name__ for record in found} == {"ExecutionRecord", "SignalRecord"}


async def test_nothing_is_written_where_one_of_them_exists(hand: Hand, store: Store, elsewhere: Store) -> None:
    await a_life(hand, store)
    given = await records(store)
    await elsewhere.insert([row("journal", state='{"here":1}')])
    written = await elsewhere.write_records(in_batches(given))
    assert written.existing is not None
    assert written.existing.ids == (str(PromiseId.from_bytes(promise_of("journal"))),)
    assert len([record for record in await records(elsewhere) if isinstance(record, ExecutionRecord)]) == 1


async def test_what_exists_can_be_left_as_it_is(hand: Hand, store: Store, elsewhere: Store) -> None:
    await a_life(hand, store)
    given = await records(store)
    await elsewhere.insert([row("journal", state='{"here":1}')])
    written = await elsewhere.write_records(in_batches(given), skip_existing=True)
    assert (written.executions, written.skipped) == (5, 1)
    view = await elsewhere.get(promise_of("journal"))
    assert view is not None
    assert view.state == '{"here":1}'
    assert not [record for record in await records(elsewhere) if isinstance(record, JournalRecord)]


async def test_an_occupied_unique_key_refuses_all(hand: Hand, store: Store, elsewhere: Store) -> None:
    scope = ("runnable", "executing")
    await store.insert([row("a", unique_key=b"u", unique_scope=scope), row("b")])
    await elsewhere.insert([row("c", unique_key=b"u", unique_scope=scope)])
    written = await elsewhere.write_records(in_batches(await records(store)))
    assert written.existing is not None
    name = [str(PromiseId.from_bytes(promise_of(key))) for key in ("a", "c")]
    assert written.existing.unique == ((name[0], name[1]),)
    assert await elsewhere.get(promise_of("b")) is None


async def test_a_schedule_that_exists_refuses_all(store: Store, elsewhere: Store) -> None:
    await store.put_schedule("nightly", "{}", NOON)
    await elsewhere.put_schedule("nightly", '{"mine":1}', NOON)
    written = await elsewhere.write_records(in_batches(await records(store)))
    assert written.existing is not None
    assert written.existing.schedules == ("nightly",)
    assert (await elsewhere.write_records(in_batches(await records(store)), skip_existing=True)).existing is None
    assert [record.spec for record in await records(elsewhere) if isinstance(record, ScheduleRecord)] == ['{"mine":1}']


async def test_a_source_that_fails_half_way_leaves_nothing(store: Store, elsewhere: Store) -> None:
    await store.insert([row("a"), row("b")])
    given = await records(store)

    def torn() -> Iterator[Sequence[Record]]:
        yield given[:1]
        raise ValueError("line 17 is no record")

    with pytest.raises(ValueError, match="line 17"):
        await elsewhere.write_records(torn())
    assert await records(elsewhere) == []


# Columns that are no fields: a store's own numbers, ids under another name, and what is computed or begun anew.
NOT_CARRIED = {
    "executions": {"id", "promise", "parent_id", "unique_guard", "held", "listed"},
    "signals": {"id", "target_id"},
    "signal_keys": {"target_id"},
    "journal": {"execution_id", "step", "revision"},
    "transitions": {"execution_id"},
    "queues": {"tokens", "tokens_at"},
    "definitions": {"handler"},
    "schedules": set(),
    "batches": {"id"},
    "chunks": {"run_id"},
    "activities": {"job_id", "seq"},
    "guids": {"job_id", "seq"},
    "semaphores": {"job_id", "seq", "threshold", "guid", "weight"},
    "arrivals": {"job_id", "seq"},
    "failures": {"job_id", "seq"},
}
# Tables that say nothing of what is to be done: leases, locks, listeners, indexes, versions.
LEFT_BEHIND = {"attributes", "crowds", "partition_locks", "workers", "listeners", "places", "schema_version"}


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_column_of_every_table_is_carried_or_named_as_left_behind(dialect: str) -> None:
    schema = load_text(f"holdfast.store.{dialect}", "schema.sql", schema="s")
    tables = dict(re.findall(r"create table (?:s\.)?(\w+) \((.*?)\n\)", schema, re.DOTALL))
    by_table = {table.name: record for record, table in TABLES.items()}
    assert set(tables) - LEFT_BEHIND == set(by_table)
    for name, record in by_table.items():
        columns = set(re.findall(r"^  (\w+) +(?!key\b)\S", tables[name], re.MULTILINE))
        columns -= {"primary", "constraint", "case", "when", "check"}
        assert columns - NOT_CARRIED[name] == set(columns_of(record)), name
