"""What workflows ask of a store: journals, children that report into the inbox, and a holder that is told of news.

Rulings B1, B7 and B9: only the lease holder appends; others write inbox rows and wake the row.
"""

from __future__ import annotations

import json

import pytest

from holdfast.core.status import TERMINAL, Status
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution, AppendJournal, Commit, ConsumeSignals, SpawnExecutions
from holdfast.store.values import CHILD, ExecutionClaim, NewSignal, Retention, Signal
from holdfast.testing.hand import (
    ERROR,
    LEASE_SECONDS,
    Hand,
    child_rows,
    done,
    fail,
    go,
    keep,
    promise_of,
    row,
    strand,
)
from holdfast.testing.stores import Stores


def blocked(wait_children: int = 0, **columns: object) -> AdvanceExecution:
    """A workflow that waits for the ends of so many children."""
    return AdvanceExecution(
        status=Status.AWAITING_PROMISE,
        wait_children=wait_children,
        **columns,  # type: ignore[arg-type]
    )


async def call(
    hand: Hand, parent: ExecutionClaim, count: int, advance: AdvanceExecution, **columns: object
) -> list[ExecutionClaim]:
    """Spawn children that report, in one commit with the advance, and claim them."""
    rows = child_rows(parent, count, queue="calls", reports=True, **columns)
    receipt = await hand.apply(parent, advance, SpawnExecutions(rows, barrier=False))
    assert [child.created for child in receipt.children] == [True] * count
    return await hand.pick(count, queues=["calls"])


def ends(inbox: tuple[Signal, ...] | list[Signal]) -> list[bytes]:
    return [bytes.fromhex(signal.name) for signal in inbox if signal.kind == CHILD]


# ---------------------------------------------------------------------- journals


async def test_segments_come_back_in_the_order_they_were_added(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    assert claim.journal_length == 0
    await hand.apply(claim, keep(), AppendJournal(0, 3, '["first"]'))
    await hand.apply(claim, go(), AppendJournal(3, 2, '["second"]'), AppendJournal(5, 1, '["third"]'))
    assert await store.journal(claim.promise) == ['["first"]', '["second"]', '["third"]']
    assert (await hand.take()).journal_length == 6
    assert (await hand.view("a")).journal_length == 6


async def test_a_commit_without_events_leaves_the_journal_alone(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    await hand.apply(claim, go(), AppendJournal(0, 1, "[1]"))
    await hand.apply(await hand.take(), go())
    assert (await hand.take()).journal_length == 1
    assert await store.journal(claim.promise) == ["[1]"]
    assert await store.journal(promise_of("nobody")) == []


async def test_a_stale_worker_adds_nothing_to_a_journal(hand: Hand, store: Store) -> None:
    """B9 and E1: one writer, the lease holder."""
    stale = await hand.take(row("a"))
    await store.release(hand.name, [stale])
    claim = await hand.take()
    await hand.apply(claim, keep(), AppendJournal(0, 1, '["mine"]'))
    assert not (await hand.commit(stale, keep(), AppendJournal(0, 1, '["stale"]'))).applied
    assert await store.journal(claim.promise) == ['["mine"]']
    assert (await hand.view("a")).journal_length == 1


async def test_many_journals_are_written_by_one_flush(hand: Hand, store: Store) -> None:
    await hand.insert(*(row(str(n)) for n in range(20)))
    claims = await hand.pick(20)
    await hand.flush(*(Commit(claim, (go(), AppendJournal(0, n + 1, f"[{n}]"))) for n, claim in enumerate(claims)))
    for n, claim in enumerate(claims):
        assert await store.journal(claim.promise) == [f"[{n}]"]
        assert (await hand.view(claim)).journal_length == n + 1


async def test_a_journal_outlives_its_execution_until_it_is_purged(stores: Stores, hand: Hand) -> None:
    claim = await hand.take(row("a"))
    await hand.apply(claim, done(), AppendJournal(0, 1, "[1]"))
    assert await stores.store.journal(claim.promise) == ["[1]"]
    await stores.advance(60)
    assert await stores.store.purge(Retention(age_seconds=1), 10) == 1
    assert await stores.store.journal(claim.promise) == []
    await hand.beat()
    again = await hand.take(row("a"))
    assert again.journal_length == 0


# ---------------------------------------------------------------------- children that report


async def test_children_without_a_barrier_are_only_inserted(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    rows = child_rows(parent, 2, queue="calls", reports=True)
    receipt = await hand.apply(parent, keep(), SpawnExecutions(rows, barrier=False))
    assert receipt.status is Status.EXECUTING
    view = await hand.view(parent)
    assert (view.children_pending, view.barrier_round) == (0, 0)
    children = await store.children(parent.promise)
    assert [child.promise for child in children] == [new.promise for new in rows]
    assert {child.parent for child in children} == {parent.promise}
    assert [claim.parent for claim in await hand.pick(queues=["calls"])] == [parent.promise] * 2


async def test_a_run_that_only_sleeps_is_not_woken_by_a_child_it_waited_for_before(hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    first, second, third = await call(hand, parent, 3, blocked(2))
    await hand.store.pause(parent.promise, True)
    await hand.apply(first, done())
    assert (await hand.view(parent)).children_pending == 1
    await hand.store.deliver([NewSignal(parent.promise, "go", "1")])
    await hand.apply(second, done())
    await hand.store.pause(parent.promise, False)
    claim = await hand.take()
    await hand.apply(claim, blocked(wake_after=60))
    await hand.apply(third, done())
    view = await hand.view(parent)
    assert (view.status, view.children_pending) == (Status.AWAITING_PROMISE, 0)


async def test_a_parent_in_the_flush_of_its_childs_end_is_told_of_it(hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    first, second = await call(hand, parent, 2, keep())
    second.epoch -= 1
    flushed = await hand.flush(
        Commit(second, (done(),)), Commit(first, (done(),)), Commit(parent, (keep(), AppendJournal(0, 1, "[1]")))
    )
    lost, ended, kept = flushed.receipts
    assert (lost.applied, ended.applied, kept.applied) == (False, True, True)
    assert (ended.has_inbox, kept.has_inbox) == (False, True)
    assert ends(await hand.store.inbox(parent.promise)) == [first.promise]


@pytest.mark.parametrize("ended", sorted(TERMINAL))
async def test_the_end_of_a_child_is_in_its_parents_inbox(hand: Hand, store: Store, ended: Status) -> None:
    parent = await hand.take(row("parent"))
    (child,) = await call(hand, parent, 1, blocked(1))
    result = '{"total": 1.50}' if ended is Status.DONE else None
    error = ERROR if ended is Status.FAILED else None
    await hand.apply(child, AdvanceExecution(status=ended, result=result, error=error))
    claim = await hand.take()
    (end,) = claim.inbox
    assert (end.kind, bytes.fromhex(end.name)) == (CHILD, child.promise)
    payload = json.loads(end.payload)
    assert payload["status"] == ended
    assert payload["result"] == ({"total": 1.50} if ended is Status.DONE else None)
    assert payload["error"] == (json.loads(ERROR) if ended is Status.FAILED else None)


async def test_the_end_of_a_task_brings_its_state(hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    rows = child_rows(parent, 1, queue="calls", reports=True, kind="task", state='{"attempts": 3}')
    await hand.apply(parent, blocked(1), SpawnExecutions(rows, barrier=False))
    (child,) = await hand.pick(queues=["calls"], handlers=[rows[0].handler])
    await hand.apply(child, done("1"))
    (end,) = (await hand.take()).inbox
    assert json.loads(end.payload)["state"] == {"attempts": 3}


async def test_a_child_that_does_not_report_leaves_no_end(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    rows = child_rows(parent, 1, queue="calls")
    await hand.apply(parent, keep(), SpawnExecutions(rows, barrier=False))
    (child,) = await hand.pick(queues=["calls"])
    await hand.apply(child, done())
    assert await store.inbox(parent.promise) == []


async def test_a_parent_is_woken_when_enough_ends_have_come(stores: Stores, hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    first, second, third = await call(hand, parent, 3, blocked(2, wake_after=60))
    await hand.apply(first, done())
    assert (await hand.view(parent)).status is Status.AWAITING_PROMISE
    await stores.advance(2)
    flushed = await hand.flush(Commit(second, (fail(),)))
    assert flushed.woke
    view = await hand.view(parent)
    assert (view.status, view.eligible_at, view.wake_at) == (Status.RUNNABLE, stores.clock.now, None)
    claim = await hand.take()
    assert ends(claim.inbox) == [first.promise, second.promise], "in the order they ended"
    await hand.apply(third, done())
    assert ends(await stores.store.inbox(parent.promise))[2:] == [third.promise]


async def test_ends_of_one_flush_all_count(hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    children = await call(hand, parent, 4, blocked(3))
    await hand.flush(*(Commit(child, (done(),)) for child in children[:3]))
    assert len((await hand.take()).inbox) == 3


async def test_ends_of_one_flush_come_in_the_order_of_its_commits(hand: Hand) -> None:
    parent = await hand.take(row("parent"))
    first, second, third, fourth = await call(hand, parent, 4, blocked(4))
    await hand.flush(*(Commit(child, (done(),)) for child in (third, first, fourth, second)))
    inbox = (await hand.take()).inbox
    assert ends(inbox) == [child.promise for child in (third, first, fourth, second)]


async def test_a_parent_that_waits_for_no_child_is_not_woken_by_one(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    (child,) = await call(hand, parent, 1, blocked(0, wake_after=60))
    await hand.apply(child, done())
    assert (await hand.view(parent)).status is Status.AWAITING_PROMISE
    assert ends(await store.inbox(parent.promise)) == [child.promise]


async def test_ends_that_came_before_parking_count(hand: Hand) -> None:
    """E2, for ends: a wait that is satisfied already is no wait."""
    parent = await hand.take(row("parent"))
    first, second = await call(hand, parent, 2, keep())
    await hand.apply(first, done())
    assert (await hand.apply(parent, blocked(1))).status is Status.RUNNABLE
    again = await hand.take()
    assert (await hand.apply(again, blocked(2))).status is Status.AWAITING_PROMISE
    await hand.apply(second, done())
    assert (await hand.view(parent)).status is Status.RUNNABLE


async def test_an_end_that_was_consumed_does_not_count_again(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    first, second = await call(hand, parent, 2, blocked(1))
    await hand.apply(first, done())
    claim = await hand.take()
    receipt = await hand.apply(claim, blocked(1), ConsumeSignals((claim.inbox[0].id,)))
    assert receipt.status is Status.AWAITING_PROMISE
    await hand.apply(second, done())
    assert ends((await hand.take()).inbox) == [second.promise]


async def test_an_end_in_the_same_flush_as_the_parking_is_not_lost(hand: Hand) -> None:
    """E2, for ends: parent and child in one flush, in either order."""
    for order in (1, -1):
        parent = await hand.take(row(f"parent{order}"))
        (child,) = await call(hand, parent, 1, keep())
        commits = [Commit(parent, (blocked(1),)), Commit(child, (done(),))][::order]
        flushed = await hand.flush(*commits)
        assert [receipt.status for receipt in flushed.receipts][::order] == [Status.RUNNABLE, Status.DONE]
        claim = await hand.take()
        assert ends(claim.inbox) == [child.promise]
        await hand.apply(claim, done())


async def test_a_left_over_wait_does_not_wake_the_next_park(hand: Hand, store: Store) -> None:
    """Woken by something else, it parks again without waiting for children: their ends are no concern of it."""
    parent = await hand.take(row("parent"))
    first, second = await call(hand, parent, 2, blocked(2, awaits=("go",)))
    await hand.apply(first, done())
    await store.deliver([NewSignal(parent.promise, "go", "1")])
    await hand.apply(await hand.take(), blocked(0, wake_after=60))
    await hand.apply(second, done())
    assert (await hand.view(parent)).status is Status.AWAITING_PROMISE


async def test_a_signal_and_an_end_are_told_apart(hand: Hand, store: Store) -> None:
    """A signal may have any name; it never counts as the end of a child, nor an end as a signal."""
    parent = await hand.take(row("parent"))
    (child,) = await call(hand, parent, 1, blocked(1))
    forged = NewSignal(parent.promise, child.promise.hex(), "{}")
    await store.deliver([forged])
    assert (await hand.view(parent)).status is Status.AWAITING_PROMISE
    await hand.apply(child, done())
    claim = await hand.take()
    assert [signal.kind for signal in claim.inbox] == ["signal", "child"]
    receipt = await hand.apply(
        claim,
        AdvanceExecution(status=Status.AWAITING_SIGNAL, awaits=(child.promise.hex(),)),
        ConsumeSignals((claim.inbox[0].id,)),
    )
    assert receipt.status is Status.AWAITING_SIGNAL


async def test_a_child_reports_exactly_once(stores: Stores, hand: Hand, rival: Hand) -> None:
    """The report rides the terminal commit, so a crash before it reported nothing."""
    parent = await hand.take(row("parent"))
    (stale,) = await call(hand, parent, 1, blocked(1))
    await stores.advance(LEASE_SECONDS - 1)
    await rival.beat()
    await stores.advance(2)
    await stores.store.reap(10, max_crashes=10)
    assert await stores.store.inbox(parent.promise) == []
    (child,) = await rival.pick(queues=["calls"])
    await rival.apply(child, done("1"))
    assert not (await hand.commit(stale, done("2"))).applied
    assert len(await stores.store.inbox(parent.promise)) == 1


async def test_a_cancelled_child_reports_too(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    (child,) = await call(hand, parent, 1, blocked(1))
    await store.release(hand.name, [child])
    assert await store.cancel([child.promise]) == [Status.CANCELLED]
    claim = await hand.take()
    assert ends(claim.inbox) == [child.promise]
    assert json.loads(claim.inbox[0].payload)["status"] == Status.CANCELLED
    assert await store.cancel([child.promise]) == [Status.CANCELLED]
    assert len(await store.inbox(parent.promise)) == 1


async def test_a_stranded_child_has_not_ended(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    (child,) = await call(hand, parent, 1, blocked(1))
    await hand.apply(child, strand())
    assert await store.inbox(parent.promise) == []


async def test_a_parent_that_ended_gets_no_reports(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    (child,) = await call(hand, parent, 1, keep())
    await hand.apply(parent, done())
    await hand.apply(child, done())
    assert await store.inbox(parent.promise) == []


async def test_parent_and_reporting_child_end_in_one_flush(hand: Hand, store: Store) -> None:
    for order in (1, -1):
        parent = await hand.take(row(f"parent{order}"))
        (child,) = await call(hand, parent, 1, keep())
        flushed = await hand.flush(*[Commit(parent, (done(),)), Commit(child, (done(),))][::order])
        assert all(receipt.applied for receipt in flushed.receipts)
        assert await store.inbox(parent.promise) == []


# ---------------------------------------------------------------------- news for a holder


async def test_a_holder_is_told_which_of_its_rows_have_news(hand: Hand, rival: Hand, store: Store) -> None:
    await hand.insert(*(row(str(n)) for n in range(6)))
    quiet, signalled, cancelled, unasked, given_up = await hand.pick(5)
    (theirs,) = await rival.pick(1)
    for claim in (signalled, unasked, given_up, theirs):
        await store.deliver([NewSignal(claim.promise, "go", "1")])
    await store.cancel([cancelled.promise])
    await hand.apply(given_up, go(delay=60))
    asked = [claim.row for claim in (quiet, signalled, cancelled, given_up, theirs)]
    assert sorted(await store.stirred(hand.name, asked)) == sorted([signalled.row, cancelled.row])
    assert await store.stirred(hand.name, []) == []


async def test_the_end_of_a_child_is_news(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("parent"))
    (child,) = await call(hand, parent, 1, keep())
    assert await store.stirred(hand.name, [parent.row]) == []
    await hand.apply(child, done())
    assert await store.stirred(hand.name, [parent.row]) == [parent.row]
