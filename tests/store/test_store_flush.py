"""Committing outcomes: every shape of the seed's section 3, under a lease that is kept or given up (E4, E11)."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from holdfast.core.identity import PromiseId
from holdfast.core.status import PARKED, TERMINAL, Status
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution, Commit, ConsumeSignals, RecordTransition, SpawnExecutions
from holdfast.store.records import Record, SignalKeyRecord, SignalRecord
from holdfast.store.values import NewSignal, Retention
from holdfast.testing.hand import (
    ERROR,
    LEASE_SECONDS,
    Hand,
    child_rows,
    done,
    fail,
    go,
    keep,
    park,
    promise_of,
    replay,
    row,
    strand,
)
from holdfast.testing.stores import Stores


async def test_a_flush_of_nothing_is_nothing(hand: Hand) -> None:
    flushed = await hand.flush()
    assert flushed.receipts == []
    assert not flushed.woke


async def test_next_goes_to_its_step_from_the_first_attempt(stores: Stores, hand: Hand) -> None:
    """Section 3, `:next`: attempt 0, eligible now."""
    claim = await hand.take(row("a"))
    await hand.apply(claim, replay(claim))
    claim = await hand.take()
    await stores.advance(3)
    receipt = await hand.apply(claim, go("label", '{"n": 1}'))
    assert receipt.status is Status.RUNNABLE
    view = await hand.view("a")
    assert (view.status, view.step, view.state, view.attempt) == (Status.RUNNABLE, "label", '{"n": 1}', 0)
    assert (view.eligible_at, view.updated_at) == (stores.clock.now, stores.clock.now)
    assert (view.locked_by, view.awaits, view.error) == (None, None, None)


async def test_next_with_a_delay_is_eligible_later(stores: Stores, hand: Hand) -> None:
    await hand.apply(await hand.take(row("a")), go(delay=7.25))
    assert (await hand.view("a")).eligible_at == stores.clock.now + timedelta(seconds=7.25)
    assert await hand.pick() == []


async def test_replay_is_the_same_step_once_more(stores: Stores, hand: Hand) -> None:
    """Section 3, `:replay`: the same step, attempt + 1, after the delay."""
    claim = await hand.take(row("a", step="pack"))
    await hand.apply(claim, AdvanceExecution(status=Status.RUNNABLE, state="2", attempt=1, delay=4, progress=False))
    view = await hand.view("a")
    assert (view.step, view.state, view.attempt) == ("pack", "2", 1)
    assert view.eligible_at == stores.clock.now + timedelta(seconds=4)
    await stores.advance(4)
    assert (await hand.take()).attempt == 1


async def test_replay_keeps_what_the_step_was_woken_with(hand: Hand, store: Store) -> None:
    """Section 5, E4: `:replay` consumes nothing and keeps `awaits`, so that the redo sees the same inputs."""
    await hand.apply(await hand.take(row("a")), park("go", "stop"))
    await store.deliver([NewSignal(promise_of("a"), "go", "1")])
    claim = await hand.take()
    await hand.apply(claim, replay(claim))
    again = await hand.take()
    assert (again.step, again.awaits, again.inbox) == ("woken", ("go", "stop"), claim.inbox)
    await hand.apply(again, go())
    assert (await hand.take()).awaits is None, "progress leaves it behind"


async def test_replay_keeps_that_the_deadline_woke_it(stores: Stores, hand: Hand) -> None:
    """E4: what the step was woken by is one of its inputs."""
    await hand.apply(await hand.take(row("a")), park("go", wake_after=1))
    await stores.advance(1)
    await stores.store.fire_timers(10)
    claim = await hand.take()
    await hand.apply(claim, replay(claim))
    again = await hand.take()
    assert again.timed_out
    await hand.apply(again, go())
    assert not (await hand.take()).timed_out


async def test_await_parks_at_the_next_step(hand: Hand) -> None:
    """Section 3, `:await`; E4: its next step starts at attempt 0."""
    claim = await hand.take(row("a"))
    await hand.apply(claim, replay(claim))
    receipt = await hand.apply(await hand.take(), park("go", "stop", step="decide"))
    assert receipt.status is Status.AWAITING_SIGNAL
    view = await hand.view("a")
    assert (view.status, view.step, view.awaits) == (Status.AWAITING_SIGNAL, "decide", ("go", "stop"))
    assert (view.attempt, view.locked_by, view.wake_at) == (0, None, None)
    assert await hand.pick() == []


@pytest.mark.parametrize("parked", sorted(PARKED - {Status.AWAITING_CHILDREN}))
async def test_a_park_may_have_a_deadline(stores: Stores, hand: Hand, parked: Status) -> None:
    await hand.apply(await hand.take(row("a")), AdvanceExecution(status=parked, awaits=("x",), wake_after=9))
    assert (await hand.view("a")).wake_at == stores.clock.now + timedelta(seconds=9)


async def test_done_records_the_result_and_ends(stores: Stores, hand: Hand) -> None:
    """Section 3, `:done`; section 10: the state is not rewritten."""
    claim = await hand.take(row("a", state='"kept"'))
    await stores.advance(2)
    receipt = await hand.apply(claim, done('{"total": 12.50}'))
    assert receipt.status is Status.DONE
    view = await hand.view("a")
    assert (view.status, view.result, view.state) == (Status.DONE, '{"total": 12.50}', '"kept"')
    assert (view.ended_at, view.locked_by, view.error) == (stores.clock.now, None, None)


async def test_stop_records_the_reason_and_fails(hand: Hand) -> None:
    """Section 3, `:stop`: failed, with the last error."""
    await hand.apply(await hand.take(row("a")), fail(ERROR))
    view = await hand.view("a")
    assert (view.status, view.error, view.result) == (Status.FAILED, ERROR, None)


@pytest.mark.parametrize("ended", sorted(TERMINAL))
async def test_an_ended_execution_is_never_picked_again(stores: Stores, hand: Hand, ended: Status) -> None:
    await hand.apply(await hand.take(row("a")), AdvanceExecution(status=ended))
    await stores.advance(1_000)
    await hand.beat()
    assert await hand.pick() == []
    assert (await hand.view("a")).status is ended


@pytest.mark.parametrize("ended", sorted(TERMINAL - {Status.FAILED}))
async def test_the_end_deletes_the_whole_inbox(hand: Hand, store: Store, ended: Status) -> None:
    """Section 5: a terminal outcome deletes the inbox, seen or unseen."""
    claim = await hand.take(row("a"))
    await store.deliver([NewSignal(claim.promise, "x", "1"), NewSignal(claim.promise, "y", "2", "key")])
    await hand.apply(claim, AdvanceExecution(status=ended))
    assert await store.inbox(claim.promise) == []


@pytest.mark.parametrize("others", range(2), ids=["alone", "with another"])
async def test_a_failure_keeps_what_was_sent_until_it_is_retried(hand: Hand, store: Store, others: int) -> None:
    """Rulings B13 and E12: a retry has the signals that nobody read, in their order, and all keys."""
    claim = await hand.take(row("a", kind="machine"))
    more = [await hand.take(row(f"b{number}")) for number in range(others)]
    sent = [NewSignal(claim.promise, "x", "1", "one"), NewSignal(claim.promise, "y", "2", "two")]
    await store.deliver([*sent, NewSignal(claim.promise, "x", "3")])
    first, *_ = await store.inbox(claim.promise)
    await hand.apply(claim, keep(), ConsumeSignals((first.id,)))
    await hand.flush(Commit(claim, (fail(),)), *(Commit(other, (fail(),)) for other in more))
    assert [signal.payload for signal in await store.inbox(claim.promise)] == ["2", "3"]
    assert await store.deliver(sent) == ["ended", "ended"]
    again = PromiseId.from_bytes(claim.promise).successor("retry").to_bytes()
    for _ in range(2):  # who comes second changes nothing
        await store.fork(row("a", promise=again), None, replaces=claim.promise)
        assert [signal.payload for signal in await store.inbox(again)] == ["2", "3"]
    assert await store.inbox(claim.promise) == []
    assert await store.deliver([msgspec.structs.replace(signal, target=again) for signal in sent]) == ["duplicate"] * 2


async def test_ends_of_children_are_nothing_to_retry_with(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("p"))
    rows = tuple(msgspec.structs.replace(child, reports=True) for child in child_rows(parent, 1))
    await hand.apply(parent, keep(), SpawnExecutions(rows, barrier=False))
    await hand.apply(await hand.take(), done())
    assert len(await store.inbox(parent.promise)) == 1
    await hand.apply(parent, fail())
    assert await store.inbox(parent.promise) == []


async def test_retention_deletes_the_inbox_of_a_failed_run(stores: Stores, hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    await store.deliver([NewSignal(claim.promise, "x", "1", "one"), NewSignal(claim.promise, "y", "2", "two")])
    first, *_ = await store.inbox(claim.promise)
    await hand.apply(claim, fail(), ConsumeSignals((first.id,)))
    found: list[Record] = []
    await store.read_records(found.extend)
    assert {SignalRecord, SignalKeyRecord} <= {type(record) for record in found}
    await stores.advance(10)
    assert await store.purge(Retention(age_seconds=1), 10) == 1
    found.clear()
    await store.read_records(found.extend)
    assert not {SignalRecord, SignalKeyRecord} & {type(record) for record in found}


async def test_stranded_keeps_the_state_and_says_why(hand: Hand) -> None:
    await hand.apply(await hand.take(row("a", state='"kept"')), strand())
    view = await hand.view("a")
    assert (view.status, view.state, view.error, view.locked_by) == (Status.STRANDED, '"kept"', ERROR, None)
    assert view.ended_at is None
    assert await hand.pick() == []


async def test_a_delegated_row_is_held_by_nobody(hand: Hand) -> None:
    receipt = await hand.apply(await hand.take(row("a")), AdvanceExecution(status=Status.DELEGATED))
    assert receipt.status is Status.DELEGATED
    view = await hand.view("a")
    assert (view.status, view.locked_by) == (Status.DELEGATED, None)
    assert await hand.pick() == []


async def test_a_kept_lease_goes_on_at_the_same_epoch(hand: Hand) -> None:
    """E11: `Next` may stay executing; step, state and attempt are as the seed has them."""
    claim = await hand.take(row("a"))
    for n in range(1, 4):
        receipt = await hand.apply(claim, keep(f"s{n}", str(n)))
        assert receipt.status is Status.EXECUTING
        view = await hand.view("a")
        assert (view.status, view.step, view.state, view.attempt) == (Status.EXECUTING, f"s{n}", str(n), 0)
        assert (view.locked_by, view.lease_epoch, view.revision) == (hand.name, claim.epoch, n)
    assert await hand.pick() == []


async def test_every_commit_moves_the_revision_by_one_and_nothing_else_does(stores: Stores, hand: Hand) -> None:
    """DESIGN sections 5 and 6: the revision tells a warm worker, and one whose reply was lost, what was applied."""
    store = stores.store
    claim = await hand.take(row("a"))
    await hand.apply(claim, keep())
    await hand.apply(claim, park("go"))
    assert (await hand.view("a")).revision == 2
    await store.deliver([NewSignal(claim.promise, "go", "1")])
    await store.pause(claim.promise, True)
    await store.pause(claim.promise, False)
    woken = await hand.take()
    assert woken.revision == 2
    await store.cancel([claim.promise])
    await store.release(hand.name, [woken])
    released = await hand.take()
    assert released.revision == 2
    await stores.advance(LEASE_SECONDS + 1)
    await store.reap(10, max_crashes=10)
    assert (await hand.view("a")).revision == 2


async def test_step_and_state_stay_where_none_is_given(hand: Hand) -> None:
    await hand.apply(await hand.take(row("a", step="s", state='"x"')), AdvanceExecution(status=Status.RUNNABLE))
    view = await hand.view("a")
    assert (view.step, view.state) == ("s", '"x"')


async def test_the_digest_is_of_the_code_that_last_ran_it(hand: Hand) -> None:
    claim = await hand.take(row("a", digest="old"))
    await hand.apply(claim, keep())
    assert (await hand.view("a")).digest == "old"
    await hand.apply(claim, AdvanceExecution(status=Status.RUNNABLE, digest="new"))
    assert (await hand.take()).digest == "new"


async def test_columns_of_a_workflow_stay_where_none_is_given(hand: Hand) -> None:
    claim = await hand.take(row("a", attributes='{"a": 1}', idempotency_key="order-17"))
    assert (claim.attributes, claim.published, claim.beats) == ('{"a": 1}', None, None)
    written = AdvanceExecution(status=Status.EXECUTING, beats='{"c": 1}', published='{"p": 2}', attributes='{"a": 3}')
    await hand.apply(claim, written)
    await hand.apply(claim, go())
    again = await hand.take()
    assert (again.attributes, again.published, again.beats) == ('{"a": 3}', '{"p": 2}', '{"c": 1}')
    view = await hand.view("a")
    assert (view.attributes, view.published) == ('{"a": 3}', '{"p": 2}')
    assert view.idempotency_key == again.idempotency_key == "order-17"


async def test_an_error_stays_until_the_next_progress(hand: Hand) -> None:
    claim = await hand.take(row("a"))
    await hand.apply(claim, replay(claim, error=ERROR))
    assert (await hand.view("a")).error == ERROR
    await hand.apply(await hand.take(), go())
    assert (await hand.view("a")).error is None


async def test_history_gets_a_line_at_the_revision_it_made(stores: Stores, hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    await hand.apply(claim, keep("label"), RecordTransition("start", "next", "label", 0))
    await stores.advance(1)
    await hand.apply(claim, fail(), RecordTransition("label", "stop", None, 2, ERROR))
    first, second = await store.history(claim.promise)
    assert (first.revision, first.step, first.outcome, first.next_step, first.attempt) == (
        1,
        "start",
        "next",
        "label",
        0,
    )
    assert (second.revision, second.step, second.outcome, second.next_step) == (2, "label", "stop", None)
    assert (second.attempt, second.error, second.at) == (2, ERROR, stores.clock.now)
    assert first.error is None


async def test_many_outcomes_are_one_flush_with_receipts_in_order(hand: Hand) -> None:
    """DESIGN section 6: outcomes that are ready together go out together."""
    await hand.insert(*(row(str(n)) for n in range(300)))
    claims = await hand.pick(300)
    kinds = [go(), keep(), park("x"), done(), fail(), strand(), go(delay=60)]
    asked = [kinds[n % len(kinds)] for n in range(300)]
    flushed = await hand.flush(*(Commit(claim, (advance,)) for claim, advance in zip(claims, asked, strict=True)))
    assert [receipt.status for receipt in flushed.receipts] == [advance.status for advance in asked]
    views = await hand.store.get_many([claim.promise for claim in claims])
    assert [view.status for view in views if view] == [advance.status for advance in asked]


async def test_commits_are_answered_in_their_order_whatever_the_order_of_rows(hand: Hand) -> None:
    await hand.insert(*(row(str(n)) for n in range(6)))
    claims = (await hand.pick())[::-1]
    flushed = await hand.flush(*(Commit(claim, (go(f"s{n}"),)) for n, claim in enumerate(claims)))
    assert [(receipt.applied, receipt.status) for receipt in flushed.receipts] == [(True, Status.RUNNABLE)] * 6
    for n, claim in enumerate(claims):
        assert (await hand.view(claim)).step == f"s{n}"


async def test_a_flush_tells_the_stores_time(stores: Stores, hand: Hand) -> None:
    claim = await hand.take(row("a"))
    assert claim.picked_at_us == stores.clock.now_us()
    await stores.advance(3)
    flushed = await hand.flush(Commit(claim, (keep(),)))
    assert flushed.at_us == stores.clock.now_us()


async def test_a_state_of_a_megabyte_fits(hand: Hand) -> None:
    state = '{"text": "' + "x" * 1_000_000 + '"}'
    await hand.apply(await hand.take(row("a")), go(state=state))
    assert (await hand.take()).state == state


@pytest.mark.parametrize(
    ("advance", "woke"),
    [
        (go(), True),
        (go(delay=5), False),
        (keep(), False),
        (park("x"), False),
        (done(), False),
        (strand(), False),
    ],
    ids=["next", "next-later", "kept-lease", "await", "done", "stranded"],
)
async def test_a_flush_says_whether_it_made_something_runnable(
    hand: Hand, advance: AdvanceExecution, woke: bool
) -> None:
    claim = await hand.take(row("a"))
    assert (await hand.flush(Commit(claim, (advance,)))).woke is woke


async def test_a_receipt_says_whether_something_is_in_the_inbox_after_the_commit(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    assert not (await hand.apply(claim, keep())).has_inbox
    await store.deliver([NewSignal(claim.promise, name, "1") for name in "xyz"])
    assert (await hand.apply(claim, keep())).has_inbox
    inbox = await store.inbox(claim.promise)
    receipt = await hand.apply(claim, keep(), ConsumeSignals((inbox[0].id, inbox[1].id)))
    assert receipt.has_inbox
    assert not (await hand.apply(claim, keep(), ConsumeSignals((inbox[2].id,)))).has_inbox
