"""Journals: a segment of events rides on the commit that decides them (rulings B1, B9, B14; DESIGN section 5)."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import Any

import asyncpg
import msgspec
import pytest
from msgspec import Raw

from holdfast.core.clock import to_datetime
from holdfast.core.identity import PromiseId
from holdfast.core.journal import Segment, encode_segment
from holdfast.core.journal.events import Event, ExecutionStarted, TimerFired
from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution, AppendJournal, Commit, ConsumeSignals, SpawnExecutions
from holdfast.store.values import ExecutionClaim, NewSignal, Retention
from holdfast.testing.hand import Hand, child_rows, done, fail, go, keep, park, promise_of, replay, row
from holdfast.testing.stores import PostgresStores, SqliteStores, Stores


def segment(first: int, count: int = 1, text: str = "event") -> AppendJournal:
    return AppendJournal(first, count, json.dumps({"v": 1, "events": [text] * count}))


async def query(stores: Stores, statement: str) -> list[tuple[Any, ...]]:
    """Read the ledger's own tables; `{schema}` stands for where they are."""
    if isinstance(stores, SqliteStores):
        with closing(sqlite3.connect(stores.path)) as ledger:
            return ledger.execute(statement.replace("{schema}", "main")).fetchall()
    assert isinstance(stores, PostgresStores)
    connection = await asyncpg.connect(stores.url)
    try:
        return [tuple(found) for found in await connection.fetch(statement.replace("{schema}", stores.schema))]
    finally:
        await connection.close()


# ---------------------------------------------------------------------- what is appended


@pytest.mark.parametrize(
    "advance",
    [
        keep(),
        go(),
        AdvanceExecution(status=Status.EXECUTING),
        AdvanceExecution(status=Status.AWAITING_PROMISE),
        park("paid"),
        done(),
        fail(),
        AdvanceExecution(status=Status.EXECUTING, progress=False),
        AdvanceExecution(status=Status.RUNNABLE, progress=False),
    ],
    ids=["keep", "go", "step", "block", "park", "done", "fail", "replay-keep", "replay"],
)
async def test_a_segment_rides_on_every_kind_of_advance(hand: Hand, store: Store, advance: AdvanceExecution) -> None:
    claim = await hand.take(row("a"))
    receipt = await hand.apply(claim, advance, segment(0, 3))
    assert receipt.status is advance.status
    assert await store.journal(claim.promise) == [segment(0, 3).body]
    view = await hand.view(claim)
    assert (view.journal_length, view.revision) == (3, 1)


async def test_segments_come_back_in_order(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    for first in range(0, 30, 3):
        await hand.apply(claim, keep(), segment(first, 3, f"at {first}"))
    assert await store.journal(claim.promise) == [segment(first, 3, f"at {first}").body for first in range(0, 30, 3)]
    assert (await hand.view(claim)).journal_length == 30


async def test_the_claim_says_how_long_the_journal_is(hand: Hand) -> None:
    claim = await hand.take(row("a"))
    assert claim.journal_length == 0
    await hand.apply(claim, go(), segment(0, 4))
    assert (await hand.take()).journal_length == 4


async def test_many_commits_of_one_flush_append_each_to_their_own(hand: Hand, store: Store) -> None:
    await hand.insert(*(row(str(number)) for number in range(5)))
    claims = await hand.pick(5)
    flushed = await hand.flush(
        *(Commit(claim, (keep(), segment(0, 1, claim.promise.hex()))) for claim in reversed(claims))
    )
    assert all(receipt.applied for receipt in flushed.receipts)
    for claim in claims:
        assert await store.journal(claim.promise) == [segment(0, 1, claim.promise.hex()).body]


async def test_a_flush_may_hold_commits_with_and_without_a_segment(hand: Hand, store: Store) -> None:
    await hand.insert(*(row(str(number)) for number in range(3)))
    first, second, third = await hand.pick(3)
    await hand.flush(Commit(first, (keep(),)), Commit(second, (keep(), segment(0, 2))), Commit(third, (done(),)))
    assert [len(await store.journal(claim.promise)) for claim in (first, second, third)] == [0, 1, 0]
    assert [(await hand.view(claim)).journal_length for claim in (first, second, third)] == [0, 2, 0]


async def test_a_segment_beside_everything_else(hand: Hand, store: Store) -> None:
    """The shape of a workflow's step: inbox consumed, children started, blocked, all with the events."""
    await hand.insert(row("a"))
    await store.deliver([NewSignal(promise_of("a"), "paid", "1")])
    claim = await hand.take()
    receipt = await hand.apply(
        claim,
        AdvanceExecution(status=Status.AWAITING_PROMISE, wait_children=1),
        segment(0, 5),
        ConsumeSignals(tuple(signal.id for signal in claim.inbox)),
        SpawnExecutions(child_rows(claim, 1, queue="children"), barrier=False),
    )
    assert receipt.status is Status.AWAITING_PROMISE
    assert not receipt.has_inbox
    assert await store.journal(claim.promise) == [segment(0, 5).body]
    assert len(await store.children(claim.promise)) == 1


@pytest.mark.parametrize(
    "text",
    ['{"a":1,"a":2}', '{ "spaced" : 1.50 }', '{"n":123456789012345678901234567890}', r'{"z":"\u0000é"}', '"é😀"'],
)
async def test_the_text_of_a_segment_comes_back_as_it_went_in(hand: Hand, store: Store, text: str) -> None:
    claim = await hand.take(row("a"))
    await hand.apply(claim, keep(), AppendJournal(0, 1, text))
    assert await store.journal(claim.promise) == [text]


async def test_no_journal_is_no_segments(hand: Hand, store: Store) -> None:
    await hand.insert(row("a"))
    assert await store.journal(promise_of("a")) == []
    assert await store.journal(promise_of("nobody")) == []


# ---------------------------------------------------------------------- the fence (ruling B9)


async def test_a_fenced_commit_leaves_no_segment(stores: Stores, hand: Hand, rival: Hand) -> None:
    stale = await hand.take(row("a"))
    await hand.store.release(hand.name, [stale])
    held = await rival.take()
    receipt = await hand.commit(stale, keep(), segment(0, 2, "stale"))
    assert not receipt.applied
    assert await hand.store.journal(stale.promise) == []
    assert (await hand.view(stale)).journal_length == 0
    await rival.apply(held, keep(), segment(0, 1, "held"))
    assert await hand.store.journal(stale.promise) == [segment(0, 1, "held").body]
    assert await query(stores, "select count(*) from {schema}.journal") == [(1,)]


async def test_fenced_commits_drop_out_of_a_flush_alone(hand: Hand, rival: Hand, store: Store) -> None:
    await hand.insert(*(row(str(number)) for number in range(3)))
    claims = await hand.pick(3)
    await store.release(hand.name, [claims[1]])
    await rival.take()
    flushed = await hand.flush(*(Commit(claim, (keep(), segment(0))) for claim in claims))
    assert [receipt.applied for receipt in flushed.receipts] == [True, False, True]
    assert [len(await store.journal(claim.promise)) for claim in claims] == [1, 0, 1]


async def test_a_fenced_commit_with_children_leaves_no_segment(hand: Hand, rival: Hand, store: Store) -> None:
    stale = await hand.take(row("a"))
    await store.release(hand.name, [stale])
    await rival.take()
    receipt = await hand.commit(
        stale,
        AdvanceExecution(status=Status.AWAITING_PROMISE, wait_children=1),
        segment(0),
        SpawnExecutions(child_rows(stale, 1), barrier=False),
    )
    assert not receipt.applied
    assert await store.journal(stale.promise) == []
    assert await store.children(stale.promise) == []


async def test_a_commit_after_reclaim_appends_once(hand: Hand, store: Store) -> None:
    """The reply of a commit is lost: the row's journal_length tells whether its events are there."""
    claim = await hand.take(row("a"))
    await hand.apply(claim, keep(), segment(0, 2))
    (again,) = await store.reclaim(hand.name, [claim])
    assert again is not None
    assert (again.revision, again.journal_length) == (1, 2)
    assert not (await hand.commit(claim, keep(), segment(2))).applied
    await hand.apply(again, keep(), segment(2))
    assert len(await store.journal(claim.promise)) == 2


# ---------------------------------------------------------------------- for people


async def test_the_view_shows_one_event_a_row(stores: Stores, hand: Hand) -> None:
    claim = await hand.take(row("a"))
    now = stores.clock.now
    events: list[Event] = [
        ExecutionStarted(sequence=0, timestamp=now, component_digest="d", input=Raw(b"[1]")),
        TimerFired(sequence=1, timestamp=now + timedelta(seconds=1), promise_id=".0"),
    ]
    body = encode_segment(Segment(events=events)).decode()
    await hand.apply(claim, keep(), AppendJournal(0, 2, body))
    statement = "select promise, sequence, event, body from {schema}.journal_events order by sequence"
    shown = await query(stores, statement)
    assert [(promise, sequence, event) for promise, sequence, event, _ in shown] == [
        (claim.promise, 0, "ExecutionStarted"),
        (claim.promise, 1, "TimerFired"),
    ]
    assert [json.loads(text) for *_, text in shown] == json.loads(body)["events"]
    ((stamp,),) = await query(stores, "select timestamp from {schema}.journal_events where sequence = 0")
    assert (stamp if isinstance(stamp, str) else stamp.isoformat()).startswith(now.isoformat()[:19])


async def write_two(stores: Stores, hand: Hand, claim: ExecutionClaim, given: bytes, timer: str) -> str:
    """A journal of a begin with this input and a timer; its body."""
    now = stores.clock.now
    events: list[Event] = [
        ExecutionStarted(sequence=0, timestamp=now, component_digest="d", input=Raw(given)),
        TimerFired(sequence=1, timestamp=now, promise_id=timer),
    ]
    body = encode_segment(Segment(events=events)).decode()
    await hand.apply(claim, keep(), AppendJournal(0, 2, body))
    return body


async def test_the_view_survives_a_payload_with_nul(stores: Stores, hand: Hand) -> None:
    """PostgreSQL has no text with it, and an error in one row would be an error of the whole view."""
    claim = await hand.take(row("a"))
    body = await write_two(stores, hand, claim, b'{"text":"a\\u0000b"}', ".0")
    shown = await query(stores, "select event, body from {schema}.journal_events order by sequence")
    assert [event for event, _ in shown] == ["ExecutionStarted", "TimerFired"]
    assert json.loads(shown[0][1])["input"]["text"] in ("a\0b", "a\ufffdb")
    assert (await stores.store.journal(claim.promise)) == [body]


@pytest.mark.parametrize("path", [(), (0,), (7, 4294967295), (1, 16, 3_000_000_000)])
async def test_the_view_shows_whole_ids(stores: Stores, hand: Hand, path: tuple[int, ...]) -> None:
    """In the journal they are local to it."""
    promise = PromiseId(bytes(range(32)), path)
    claim = await hand.take(msgspec.structs.replace(row("a"), promise=promise.to_bytes()))
    await write_two(stores, hand, claim, b"[1]", ".12")
    shown = await query(stores, "select promise_id from {schema}.journal_events order by sequence")
    assert shown == [(None,), (str(promise.child(12)),)]


async def test_purge_takes_the_journal_along(stores: Stores, hand: Hand) -> None:
    claim = await hand.take(row("a"))
    await hand.apply(claim, keep(), segment(0))
    await hand.apply(claim, done(), segment(1))
    other = await hand.take(row("b"))
    await hand.apply(other, keep(), segment(0))
    await stores.advance(100)
    assert await stores.store.purge(Retention(age_seconds=10), 10) == 1
    assert await query(stores, "select count(*) from {schema}.journal") == [(1,)]
    assert len(await stores.store.journal(other.promise)) == 1


# ---------------------------------------------------------------------- the store's time


async def test_pick_and_flush_tell_the_stores_time(stores: Stores, hand: Hand) -> None:
    """What `now()` gives in a body is the store's time of the last commit (ruling B15)."""
    claim = await hand.take(row("a"))
    assert claim.picked_at_us == stores.clock.now_us()
    await stores.advance(12.5)
    flushed = await hand.flush(Commit(claim, (keep(),)))
    assert flushed.at_us == stores.clock.now_us()
    assert to_datetime(flushed.at_us) == (await hand.view(claim)).updated_at
    await stores.advance(1)
    assert (await hand.flush(Commit(claim, (keep(), segment(0))))).at_us == stores.clock.now_us()
    await stores.advance(1)
    parked = AdvanceExecution(status=Status.AWAITING_PROMISE)
    assert (await hand.flush(Commit(claim, (parked, segment(1))))).at_us == stores.clock.now_us()


async def test_a_reclaim_tells_the_time_too(stores: Stores, hand: Hand) -> None:
    claim = await hand.take(row("a"))
    await stores.advance(3)
    (again,) = await hand.store.reclaim(hand.name, [claim])
    assert again is not None
    assert again.picked_at_us == stores.clock.now_us()


# ---------------------------------------------------------------------- columns of a workflow's row


async def test_beats_published_values_and_attributes_are_kept(hand: Hand) -> None:
    claim = await hand.take(row("a", attributes='{"customer":"x"}', idempotency_key="order-17"))
    assert (claim.beats, claim.published, claim.attributes) == (None, None, '{"customer":"x"}')
    assert claim.idempotency_key == "order-17"
    await hand.apply(claim, AdvanceExecution(status=Status.EXECUTING, beats='{"x.0":1}'))
    await hand.apply(claim, AdvanceExecution(status=Status.EXECUTING, published='{"progress":0.5}'))
    await hand.apply(claim, AdvanceExecution(status=Status.EXECUTING, attributes='{"customer":"y"}'), segment(0))
    view = await hand.view(claim)
    assert (view.published, view.attributes) == ('{"progress":0.5}', '{"customer":"y"}')
    await hand.apply(claim, go())
    again = await hand.take()
    assert (again.beats, again.published, again.attributes) == (
        '{"x.0":1}',
        '{"progress":0.5}',
        '{"customer":"y"}',
    )
    assert again.idempotency_key == "order-17"
    assert (await hand.view(claim)).idempotency_key == "order-17"


async def test_columns_of_many_commits_stay_apart(hand: Hand) -> None:
    await hand.insert(*(row(str(number)) for number in range(3)))
    claims = await hand.pick(3)
    beats: list[str | None] = ['{"a":1}', None, '{"c":3}']
    await hand.flush(
        *(
            Commit(claim, (AdvanceExecution(status=Status.RUNNABLE, beats=beat), segment(0)))
            for claim, beat in zip(claims, beats, strict=True)
        )
    )
    found = {claim.promise: claim.beats for claim in await hand.pick(3)}
    assert [found[claim.promise] for claim in claims] == beats


async def test_a_fenced_commit_writes_no_columns(hand: Hand, rival: Hand, store: Store) -> None:
    stale = await hand.take(row("a"))
    await store.release(hand.name, [stale])
    await rival.take()
    assert not (await hand.commit(stale, AdvanceExecution(status=Status.EXECUTING, published='{"a":1}'))).applied
    assert (await hand.view(stale)).published is None


async def test_a_claim_names_its_parent(hand: Hand) -> None:
    parent = await hand.take(row("a"))
    assert parent.parent is None
    await hand.apply(
        parent,
        AdvanceExecution(status=Status.AWAITING_PROMISE),
        SpawnExecutions(child_rows(parent, 1, queue="children"), barrier=False),
    )
    child = await hand.take(queues=["children"])
    assert child.parent == parent.promise
    assert PromiseId.from_bytes(child.promise).parent == PromiseId.from_bytes(parent.promise)


# ---------------------------------------------------------------------- inbox and cancel under a kept lease


async def test_stirred_names_what_its_holder_should_look_at(hand: Hand, rival: Hand, store: Store) -> None:
    await hand.insert(*(row(str(number)) for number in range(4)))
    calm, signalled, cancelled, lost = await hand.pick(4)
    await store.deliver([NewSignal(signalled.promise, "paid", "1")])
    await store.cancel([cancelled.promise])
    await store.release(hand.name, [lost])
    await rival.take()
    await store.deliver([NewSignal(lost.promise, "paid", "1")])
    rows = [claim.row for claim in (calm, signalled, cancelled, lost)]
    assert await store.stirred(hand.name, rows) == sorted([signalled.row, cancelled.row])
    assert await store.stirred(rival.name, rows) == [lost.row]
    assert await store.stirred(hand.name, [calm.row]) == []
    assert await store.stirred(hand.name, []) == []


async def test_a_replay_keeps_the_journal(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    await hand.apply(claim, keep(), segment(0, 2))
    await hand.apply(claim, replay(claim))
    again: ExecutionClaim = await hand.take()
    assert (again.attempt, again.journal_length) == (1, 2)
    assert len(await store.journal(claim.promise)) == 1
