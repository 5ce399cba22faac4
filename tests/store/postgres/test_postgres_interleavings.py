"""What two transactions do to each other, with one of them held open at the moment that matters.

A raw connection calls the store's own routine inside a transaction; the store's call is seen to wait; then the
transaction ends. No test here depends on timing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import pytest
import pytest_asyncio
from tests.store.postgres.conftest import Connect, Connection

from holdfast.core.status import Status
from holdfast.store.effects import AdvanceExecution, Commit, SpawnExecutions
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.columns import signal_columns
from holdfast.store.postgres.flush import build_call
from holdfast.store.values import ExecutionClaim, NewSignal, Reaped
from holdfast.testing.hand import HANDLER, Hand, child_rows, done, keep, park, promise_of, row, wait_children

T = TypeVar("T")


@pytest_asyncio.fixture
async def hand(ledger: PostgresStore) -> Hand:
    return await Hand(ledger, "w1", lease_seconds=3600).start()


@pytest_asyncio.fixture
async def held(connect: Connect) -> AsyncIterator[Connection]:
    """A connection inside a transaction; the test commits it."""
    connection = await connect()
    await connection.execute("begin")
    yield connection
    await connection.execute("rollback")


async def until_it_waits(observer: Connection, task: asyncio.Task[T], blocker: Connection) -> None:
    """Until some session waits for a lock of `blocker`; the task must not have got through."""
    pid = blocker.get_server_pid()
    query = "select count(*) from pg_stat_activity where $1 = any (pg_blocking_pids(pid))"
    while not await observer.fetchval(query, pid):
        assert not task.done(), f"it did not wait: {task.result()!r}"


async def while_held(observer: Connection, blocker: Connection, call: Coroutine[Any, Any, T]) -> T:
    """Start `call`, see it wait for `blocker`, commit `blocker`, and return the answer."""
    task = asyncio.create_task(call)
    await until_it_waits(observer, task, blocker)
    await blocker.execute("commit")
    return await task


async def flush_in(connection: Connection, store: PostgresStore, worker: str, *commits: Commit) -> None:
    """The flush of `commits`, inside the transaction of `connection`."""
    call = build_call(commits)
    await connection.fetchrow(store._sql[call.block], worker, *call.arguments)


async def deliver_in(connection: Connection, store: PostgresStore, *signals: NewSignal) -> None:
    await connection.fetchrow(store._sql["deliver"], *signal_columns(signals))


async def pick_in(connection: Connection, store: PostgresStore, worker: str, limit: int) -> list[bytes]:
    rows = await connection.fetch(store._sql["pick"], worker, ["default"], [limit], [HANDLER], limit)
    return [row["promise"] for row in rows if row["id"] is not None]


# ---------------------------------------------------------------------- wake-ups (ruling E2)


async def test_parking_sees_the_signal_whose_delivery_it_waited_for(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    """A single statement would look with the snapshot from before it waited, and park for ever."""
    claim = await hand.take(row("a"))
    await deliver_in(held, ledger, NewSignal(claim.promise, "go", "1"))
    receipt = await while_held(await connect(), held, hand.commit(claim, park("go")))
    assert (receipt.applied, receipt.status) == (True, Status.RUNNABLE)
    assert [signal.name for signal in (await hand.take()).inbox] == ["go"]


async def test_a_delivery_wakes_the_row_whose_parking_it_waited_for(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    claim = await hand.take(row("a"))
    await flush_in(held, ledger, hand.name, Commit(claim, (park("go"),)))
    await while_held(await connect(), held, ledger.deliver([NewSignal(claim.promise, "go", "1")]))
    assert (await hand.view("a")).status is Status.RUNNABLE


async def test_a_pick_sees_the_signal_of_a_delivery_under_way_or_finds_it_later(
    ledger: PostgresStore, hand: Hand, held: Connection
) -> None:
    """The pick passes over a row that a deliverer holds, and takes it afterwards with its signal."""
    await hand.insert(row("a"))
    await deliver_in(held, ledger, NewSignal(promise_of("a"), "go", "1"))
    assert await hand.pick() == []
    await held.execute("commit")
    (claim,) = await hand.pick()
    assert [signal.name for signal in claim.inbox] == ["go"]


# ---------------------------------------------------------------------- barriers (section 11)


async def family(hand: Hand, children: int) -> list[ExecutionClaim]:
    """A parent that waits for its children, and the claims of these."""
    parent = await hand.take(row("parent"))
    await hand.apply(parent, wait_children(), SpawnExecutions(child_rows(parent, children)))
    return await hand.pick()


async def test_two_children_ending_at_once_both_count(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    first, second = await family(hand, 2)
    await flush_in(held, ledger, hand.name, Commit(first, (done(),)))
    receipt = await while_held(await connect(), held, hand.commit(second, done()))
    assert receipt.applied
    view = await hand.view("parent")
    assert (view.status, view.children_pending) == (Status.RUNNABLE, 0)
    assert (await hand.take()).children_ready


async def test_a_child_that_rolled_back_does_not_count(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    first, second = await family(hand, 2)
    await flush_in(held, ledger, hand.name, Commit(first, (done(),)))
    task = asyncio.create_task(hand.commit(second, done()))
    await until_it_waits(await connect(), task, held)
    await held.execute("rollback")
    assert (await task).applied
    assert (await hand.view("parent")).children_pending == 1
    await hand.apply(first, done())
    assert (await hand.view("parent")).status is Status.RUNNABLE


# ---------------------------------------------------------------------- leases (ruling E1, E15)


async def test_a_flush_that_waited_for_the_reaper_is_fenced(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    claim = await hand.take(row("a"))
    await hand.store.beat(hand.name, -1)
    reaped = await held.fetchrow(ledger._sql["reap"], 10, 10)
    assert reaped is not None
    assert reaped["released"] == 1
    receipt = await while_held(await connect(), held, hand.commit(claim, done()))
    assert not receipt.applied
    assert (await hand.view("a")).status is Status.RUNNABLE


async def test_a_pick_that_waited_for_the_reaper_gets_nothing(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    """A row must never be leased by a worker whose lease is gone: nobody would take it back."""
    await hand.insert(row("a"))
    await hand.store.beat(hand.name, -1)
    await held.fetchrow(ledger._sql["reap"], 10, 10)
    picked = await while_held(await connect(), held, hand.ask())
    assert picked.worker_lost
    assert (await hand.view("a")).locked_by is None


async def test_the_reaper_passes_over_a_worker_that_is_just_picking(
    ledger: PostgresStore, hand: Hand, held: Connection
) -> None:
    await hand.insert(row("a"))
    assert await pick_in(held, ledger, hand.name, 1) == [promise_of("a")]
    await hand.store.beat(hand.name, -1)
    assert await ledger.reap(10, 10) == Reaped()
    await held.execute("commit")
    reaped = await ledger.reap(10, 10)
    assert (reaped.workers, reaped.released) == ((hand.name,), 1)


async def test_reclaim_waits_for_the_lost_commit_and_shows_it(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    """DESIGN section 6, unknown commits: reading alone can say "not there" just before the old backend commits."""
    claim = await hand.take(row("a"))
    await flush_in(held, ledger, hand.name, Commit(claim, (keep("second"),)))
    (again,) = await while_held(await connect(), held, ledger.reclaim(hand.name, [claim]))
    assert again is not None
    assert (again.revision, again.step, again.epoch) == (claim.revision + 1, "second", claim.epoch + 1)


async def test_reclaim_that_waited_for_the_end_of_its_row_leaves_it_ended(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    claim = await hand.take(row("a"))
    await flush_in(held, ledger, hand.name, Commit(claim, (done(),)))
    assert await while_held(await connect(), held, ledger.reclaim(hand.name, [claim])) == [None]
    assert (await hand.view("a")).status is Status.DONE


# ---------------------------------------------------------------------- partition keys (ruling E9)


def keyed(key: str) -> Any:
    return row(key, partition_key="k")


async def drain(hand: Hand, count: int) -> list[bytes]:
    """Finish rows one by one, as many as there are; the order they came in."""
    order: list[bytes] = []
    for _ in range(2 * count + 2):
        claims = await hand.pick()
        assert len(claims) <= 1, "two rows of one key at once"
        for claim in claims:
            order.append(claim.promise)
            await hand.apply(claim, done())
    return order


async def test_a_row_blocked_while_its_key_is_settled_does_not_stay_behind(
    ledger: PostgresStore, hand: Hand, held: Connection
) -> None:
    """Who blocks a row holds its key's lock row; who settles the key passes over it and comes again."""
    await hand.insert(keyed("a"), keyed("b"))
    (claim,) = await hand.pick()
    # This pick finds "b" behind the holder and blocks it, but has not committed.
    assert await pick_in(held, ledger, hand.name, 5) == []
    await hand.apply(claim, done())
    assert await hand.pick() == []
    await held.execute("commit")
    assert await drain(hand, 1) == [promise_of("b")]


async def test_a_key_that_is_just_being_settled_blocks_nobody(
    ledger: PostgresStore, hand: Hand, held: Connection
) -> None:
    await hand.insert(keyed("a"), keyed("b"), keyed("c"))
    (claim,) = await hand.pick()
    await hand.apply(claim, done())
    # This pick settles the key and takes "b", but has not committed; then it is lost.
    assert await pick_in(held, ledger, hand.name, 5) == [promise_of("b")]
    rival = await Hand(ledger, "w2", lease_seconds=3600).start()
    assert await rival.pick() == []
    await held.execute("rollback")
    assert await drain(hand, 2) == [promise_of("b"), promise_of("c")]


async def test_pickers_that_meet_at_many_keys_take_each_once(ledger: PostgresStore, hand: Hand) -> None:
    """They take keys in one order, so none is the victim of a deadlock."""
    rows = [row(f"{n}", partition_key=f"k{n % 20}") for n in range(100)]
    await hand.insert(*rows)
    hands = [await Hand(ledger, f"p{n}", lease_seconds=3600).start() for n in range(4)]
    ended: list[bytes] = []
    while len(ended) < len(rows):
        picked = await asyncio.gather(*(one.pick(7) for one in hands))
        keys = [claim.partition_key for claims in picked for claim in claims]
        assert len(keys) == len(set(keys))
        assert keys, f"{len(rows) - len(ended)} rows are left, and nobody can take one"
        flushes = [
            one.flush(*(Commit(claim, (done(),)) for claim in claims))
            for one, claims in zip(hands, picked, strict=True)
            if claims
        ]
        await asyncio.gather(*flushes)
        ended += [claim.promise for claims in picked for claim in claims]
    assert len(set(ended)) == len(rows)


# ---------------------------------------------------------------------- ends of calls (rulings B9, E2)


async def calls(hand: Hand, count: int, advance: AdvanceExecution) -> tuple[ExecutionClaim, list[ExecutionClaim]]:
    """A parent that made `count` calls, and the claims of the calls."""
    parent = await hand.take(row("parent"))
    rows = child_rows(parent, count, queue="calls", reports=True)
    await hand.apply(parent, advance, SpawnExecutions(rows, barrier=False))
    return parent, await hand.pick(count, queues=["calls"])


def wait_for(count: int) -> AdvanceExecution:
    return AdvanceExecution(status=Status.AWAITING_PROMISE, wait_children=count)


async def test_parking_sees_the_end_whose_commit_it_waited_for(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    parent, (child,) = await calls(hand, 1, keep())
    await flush_in(held, ledger, hand.name, Commit(child, (done(),)))
    receipt = await while_held(await connect(), held, hand.commit(parent, wait_for(1)))
    assert (receipt.applied, receipt.status) == (True, Status.RUNNABLE)
    assert len((await hand.take()).inbox) == 1


async def test_an_end_wakes_the_parent_whose_parking_it_waited_for(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    parent, (child,) = await calls(hand, 1, keep())
    await flush_in(held, ledger, hand.name, Commit(parent, (wait_for(1),)))
    receipt = await while_held(await connect(), held, hand.commit(child, done()))
    assert (receipt.applied, receipt.status) == (True, Status.DONE)
    assert len((await hand.take()).inbox) == 1


async def test_two_ends_in_two_commits_at_once_count_twice(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    """Of two decrements from the same snapshot one would be lost, and the parent with it."""
    _, (first, second) = await calls(hand, 2, wait_for(2))
    await flush_in(held, ledger, hand.name, Commit(first, (done(),)))
    await while_held(await connect(), held, hand.commit(second, done()))
    assert len((await hand.take()).inbox) == 2


async def test_a_cancel_and_the_end_of_a_call_report_it_once(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    parent, (child,) = await calls(hand, 1, wait_for(1))
    await flush_in(held, ledger, hand.name, Commit(child, (done(),)))
    assert await while_held(await connect(), held, ledger.cancel([child.promise])) == [Status.DONE]
    assert len(await ledger.inbox(parent.promise)) == 1


async def test_deadlines_wait_for_nobody(ledger: PostgresStore, hand: Hand, held: Connection) -> None:
    """A pass that waited for a parent with the child in hand would deadlock with the child's own commit."""
    parent = await hand.take(row("parent"))
    rows = child_rows(parent, 2, queue="calls", reports=True, deadline=0)
    await hand.apply(parent, wait_for(2), SpawnExecutions(rows, barrier=False))
    await hand.insert(row("alone", queue="calls", deadline=0))
    (child,) = await hand.pick(1, queues=["calls"])
    await flush_in(held, ledger, hand.name, Commit(child, (done(),)))
    fired = await ledger.fire_timers(10)
    assert (fired.fired, fired.next_due_seconds) == (1, 0.0), "what is in hand stays due"
    assert (await hand.view("alone")).status is Status.CANCELLED
    await held.execute("commit")
    assert (await ledger.fire_timers(10)).fired == 1
    assert len((await hand.take()).inbox) == 2


async def test_a_crowd_behind_one_key_does_not_hide_the_rows_behind_it(ledger: PostgresStore, hand: Hand) -> None:
    """Even where its rows end one after the other between two picks, so that no pick ever finds the key held."""
    crowd = 2_500
    await hand.insert(*(keyed(f"{n}") for n in range(crowd)))
    await hand.insert(row("other", partition_key="another"))
    picked: list[bytes] = []
    for _ in range(10):
        for claim in await hand.pick():
            picked.append(claim.promise)
            await hand.apply(claim, done())
    assert promise_of("other") in picked
    assert len(picked) == 11


@pytest.mark.parametrize("cancelled", [False, True], ids=["known-elsewhere", "cancelled"])
async def test_a_crowd_behind_an_unknown_definition_hides_nothing_and_keeps_its_order(
    ledger: PostgresStore, hand: Hand, cancelled: bool
) -> None:
    """A first row that nobody here knows holds its key (ruling E9), until a worker that knows it takes it."""
    stranger = row("stranger", name="Stranger", partition_key="k")
    await hand.insert(stranger, *(keyed(f"{n}") for n in range(1_500)))
    await hand.insert(row("other", partition_key="another"))
    picked = [claim.promise for _ in range(5) for claim in await hand.pick()]
    assert picked == [promise_of("other")]
    if cancelled:
        assert await ledger.cancel([stranger.promise]) == [Status.CANCELLED]
    else:
        (claim,) = await hand.pick(handlers=[HANDLER, stranger.handler])
        assert claim.promise == stranger.promise
        await hand.apply(claim, done())
    for n in range(3):
        (claim,) = await hand.pick()
        assert claim.promise == promise_of(f"{n}")
        await hand.apply(claim, done())
