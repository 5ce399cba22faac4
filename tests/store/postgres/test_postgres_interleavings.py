"""What two transactions do to each other, with one of them held open at the moment that matters.

A raw connection calls the store's own routine inside a transaction; the store's call is seen to wait; then the
transaction ends. No test here depends on timing.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from tests.store.postgres.conftest import Connect, Connection
from tests.store.postgres.held import deliver_in, flush_in, pick_in, until_it_waits, while_held
from tests.store.test_store_steps import EVENTS, step

from holdfast.core.errors import NotFoundError, StoreUnavailableError
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.store.effects import AdvanceExecution, Commit, SpawnExecutions
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.driver import DriverConnection
from holdfast.store.values import ExecutionClaim, ExecutionFilter, Flushed, NewSignal, QueueSettings, Reaped
from holdfast.testing.hand import Hand, child_rows, done, fail, keep, park, promise_of, row, wait_children

# ---------------------------------------------------------------------- wake-ups (ruling E2)


@pytest.mark.parametrize("others", [0, 1])
async def test_parking_sees_the_signal_whose_delivery_it_waited_for(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect, others: int
) -> None:
    """A single statement would look with the snapshot from before it waited, and park for ever."""
    await hand.insert(row("a"), *(row(str(n)) for n in range(others)))
    claim, *beside = await hand.pick()
    await deliver_in(held, ledger, NewSignal(claim.promise, "go", "1"))
    commits = [Commit(claim, (park("go"),)), *(Commit(other, (done(),)) for other in beside)]
    flushed = await while_held(await connect(), held, hand.flush(*commits))
    assert (flushed.receipts[0].applied, flushed.receipts[0].status) == (True, Status.RUNNABLE)
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


# ---------------------------------------------------------------------- steps that leave their row alone


async def walkers(hand: Hand, *keys: str) -> list[ExecutionClaim]:
    """Runs whose next step leaves the row alone."""
    await hand.insert(*(row(key) for key in keys))
    claims = await hand.pick()
    await hand.flush(*(Commit(claim, step(0)) for claim in claims))
    return claims


async def test_a_step_waits_for_who_has_its_row_and_the_others_of_its_flush_do_not(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    claims = await walkers(hand, "a", "b")
    await deliver_in(held, ledger, NewSignal(claims[0].promise, "go", "1"))
    task = asyncio.create_task(hand.flush(*(Commit(claim, step(EVENTS)) for claim in claims)))
    await until_it_waits(await connect(), task, held)
    assert [(await hand.view(key)).journal_length for key in ("a", "b")] == [EVENTS, 2 * EVENTS]
    await held.execute("commit")
    receipts = (await task).receipts
    assert [(receipt.applied, receipt.has_inbox, receipt.untold) for receipt in receipts] == [
        (True, True, 0),
        (True, False, EVENTS),
    ]
    assert [(await hand.view(key)).journal_length for key in ("a", "b")] == [2 * EVENTS, 2 * EVENTS]


async def test_a_step_alone_that_waited_for_a_delivery_hears_of_it_with_the_next(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    """As of a signal that comes after it: it looks with the snapshot from before it waited."""
    (claim,) = await walkers(hand, "a")
    await deliver_in(held, ledger, NewSignal(claim.promise, "go", "1"))
    flushed = await while_held(await connect(), held, hand.flush(Commit(claim, step(EVENTS))))
    receipts = [*flushed.receipts, await hand.apply(claim, *step(2 * EVENTS))]
    assert [(receipt.applied, receipt.has_inbox) for receipt in receipts] == [(True, False), (True, True)]
    assert (await hand.view("a")).journal_length == 3 * EVENTS


@pytest.mark.parametrize("alone", [True, False])
async def test_a_step_that_waited_for_who_took_its_row_is_fenced(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect, alone: bool
) -> None:
    claims = await walkers(hand, "a") if alone else await walkers(hand, "a", "b")
    taken = claims[0]
    await held.fetch(ledger._sql["reclaim"], hand.name, [taken.row], [taken.epoch])
    call = hand.flush(*(Commit(claim, step(EVENTS)) for claim in claims))
    flushed = await while_held(await connect(), held, call)
    assert [receipt.applied for receipt in flushed.receipts] == [False, True][: len(claims)]
    view = await hand.view("a")
    assert (view.journal_length, view.revision, view.lease_epoch) == (EVENTS, 1, taken.epoch + 1)


@pytest.mark.parametrize("ending", [done(), park("go")], ids=["done", "park"])
async def test_a_step_is_not_held_while_its_flush_waits_for_a_row_before_it(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect, ending: AdvanceExecution
) -> None:
    """Every lock in the order of ids: whoever has the earlier row and wants the later must get it."""
    first, second = await walkers(hand, "a", "b")
    await deliver_in(held, ledger, NewSignal(first.promise, "other", "1"))
    task = asyncio.create_task(hand.flush(Commit(second, step(EVENTS)), Commit(first, (ending,))))
    await until_it_waits(await connect(), task, held)
    await deliver_in(held, ledger, NewSignal(second.promise, "go", "1"))
    await held.execute("commit")
    receipts = (await task).receipts
    assert [receipt.applied for receipt in receipts] == [True, True]
    assert receipts[0].has_inbox
    assert (await hand.view("b")).journal_length == 2 * EVENTS


async def test_a_step_that_could_not_be_written_is_of_unknown_fate_for_all_of_its_flush(
    ledger: PostgresStore, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are committed: a caller that sent them again, one by one, would find its own work in the way."""
    first, second = await walkers(hand, "a", "b")
    await ledger.pause(first.promise, True)

    async def broken(*_: object) -> Flushed:
        raise ValueError("no such text")

    with monkeypatch.context() as patched:
        patched.setattr(ledger, "_flush_rows", broken)
        with pytest.raises(StoreUnavailableError, match="but for 1 of its commits: no such text"):
            await hand.flush(Commit(first, step(EVENTS)), Commit(second, step(EVENTS)))
    held = await ledger.reclaim(hand.name, [first, second])
    assert [found.revision for found in held if found is not None] == [1, 2]


async def test_user_code_that_a_step_under_way_has_fenced_takes_no_effect(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    """A step only locks its row: the fence before user code, which waited for that, has not seen it."""
    (claim,) = await walkers(hand, "a")
    segment = step(EVENTS)[1]
    fence = (hand.name, claim.row, claim.epoch, claim.revision, claim.told_revision, segment.first)
    await held.fetchrow(ledger._sql["flush_step"], *fence, segment.first, segment.count, segment.body, None)

    async def pay(connection: Connection) -> None:
        await connection.execute(f"create table {ledger._schema}.paid ()")

    observer = await connect()
    receipt = await while_held(observer, held, ledger.transact(hand.name, claim, pay, lambda _: [keep("paid")]))
    assert not receipt.applied
    assert await observer.fetchval("select to_regclass($1)", f"{ledger._schema}.paid") is None
    view = await hand.view("a")
    assert (view.revision, view.journal_length, view.step) == (2, 2 * EVENTS, "on")


async def test_a_flush_of_which_nothing_is_written_says_why(ledger: PostgresStore, hand: Hand) -> None:
    """Of unknown fate it would be sent again as it is, for ever; so it is sent one by one, and the others go on."""
    first, second = await walkers(hand, "a", "b")
    await hand.flush(Commit(first, step(EVENTS)), Commit(second, step(EVENTS)))
    for claim in (first, second):
        await ledger.pause(claim.promise, True)
    with pytest.raises(asyncpg.UniqueViolationError):
        await hand.flush(Commit(first, step(EVENTS)), Commit(second, step(2 * EVENTS)))


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


async def test_the_end_of_a_child_holds_no_parent_while_it_waits_for_a_row_before_it(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    """Every lock in the order of ids: whoever has the earlier row and wants the parent must get it."""
    earlier = await hand.take(row("earlier"))
    (child,) = await family(hand, 1)
    await deliver_in(held, ledger, NewSignal(earlier.promise, "go", "1"))
    task = asyncio.create_task(hand.flush(Commit(child, (done(),)), Commit(earlier, (keep(),))))
    await until_it_waits(await connect(), task, held)
    await deliver_in(held, ledger, NewSignal(promise_of("parent"), "go", "1"))
    await held.execute("commit")
    assert [receipt.applied for receipt in (await task).receipts] == [True, True]
    assert (await hand.view("parent")).status is Status.RUNNABLE


async def test_a_cascade_reaches_the_children_whose_spawning_it_waited_for(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    """They are not there yet when it looks for descendants, and are before it has the lock of their parent."""
    parent = await hand.take(row("parent"))
    spawn = SpawnExecutions(child_rows(parent, 2))
    await flush_in(held, ledger, hand.name, Commit(parent, (wait_children(), spawn)))
    await while_held(await connect(), held, ledger.cancel([parent.promise], cascade=True))
    family = [await hand.view("parent"), *await ledger.children(parent.promise)]
    assert [view.status for view in family] == [Status.CANCELLED] * 3


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


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_pick_that_meets_the_reaper_gets_nothing(
    ledger: PostgresStore, hand: Hand, held: Connection, key: str | None
) -> None:
    """A row must never be leased by a worker whose lease is gone: nobody would take it back."""
    await hand.insert(row("a", partition_key=key))
    await hand.store.beat(hand.name, -1)
    await held.fetchrow(ledger._sql["reap"], 10, 10)
    assert (await hand.ask()).worker_lost
    assert (await hand.view("a")).locked_by is None


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_pick_keeps_nothing_from_those_whom_the_end_of_its_worker_waits_for(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect, key: str | None
) -> None:
    """One that was sent over a connection that is lost: it would have the later row, and wait for the worker's."""
    await hand.take(row("earlier"))
    await hand.insert(row("later", partition_key=key))
    await deliver_in(held, ledger, NewSignal(promise_of("earlier"), "go", "1"))
    retiring = asyncio.create_task(ledger.retire_worker(hand.name))
    await until_it_waits(await connect(), retiring, held)
    assert (await hand.ask()).worker_lost
    await deliver_in(held, ledger, NewSignal(promise_of("later"), "go", "1"))
    await held.execute("commit")
    assert await retiring == 1


async def test_a_pick_passes_by_a_beat_under_way(ledger: PostgresStore, hand: Hand, held: Connection) -> None:
    await hand.insert(row("a"))
    assert await held.fetchval(ledger._sql["worker_beat"], hand.name, 60.0) == hand.name
    assert [claim.promise for claim in await hand.pick()] == [promise_of("a")]


@pytest.mark.parametrize("queues", [("default",), ("default", "other")])
async def test_an_idle_worker_writes_nothing(
    ledger: PostgresStore, hand: Hand, connect: Connect, queues: tuple[str, ...]
) -> None:
    """Each look would wait for the disk, and let others wait for it. A row that was locked says by whom last."""
    await hand.insert(row("later", delay=3600))
    assert await hand.pick(queues=queues) == []
    locked_last = f"select xmax::text from {ledger._schema}.workers"
    assert await (await connect()).fetchval(locked_last) == "0"


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


# ---------------------------------------------------------------------- reading


@pytest.mark.parametrize("moves", ["released", "unpaused"])
async def test_a_row_that_moves_while_a_page_is_read_is_on_it_once(
    ledger: PostgresStore, hand: Hand, monkeypatch: pytest.MonkeyPatch, moves: str
) -> None:
    """A page of several statuses is several statements; they are of one snapshot."""
    claim = await hand.take(row("a"))
    if moves == "unpaused":
        await ledger.release(hand.name, [claim])
        await ledger.pause(claim.promise, True)
    moved: list[str] = []
    fetch = DriverConnection.fetch

    async def fetch_later(self: DriverConnection, query: str, *arguments: Any, **settings: Any) -> Any:
        if not moved and "$1 + 1" in query:  # between what is held back and what is up for picking
            moved.append(moves)
            if moves == "released":
                await ledger.release(hand.name, [claim])
            else:
                await ledger.pause(claim.promise, False)
        return await fetch(self, query, *arguments, **settings)

    monkeypatch.setattr(DriverConnection, "fetch", fetch_later)
    page = await ledger.browse(ExecutionFilter(statuses=(Status.EXECUTING, Status.RUNNABLE)), 10)
    assert moved == [moves]
    assert [view.promise for view in page.items] == [claim.promise]


# ---------------------------------------------------------------------- starting


async def test_what_was_started_before_is_found_without_writing(
    ledger: PostgresStore, schema: str, connect: Connect
) -> None:
    """Alone or in a list: an insert that is undone would leave dead rows behind, and a part of the log."""
    rows = [row(f"{number:03}") for number in range(200)]
    assert all(found.created for found in await ledger.insert(rows))
    connection = await connect()
    size = f"select pg_relation_size('{schema}.executions')"
    before = await connection.fetchval(size)
    for _ in range(5):
        assert not any(found.created for found in await ledger.insert(rows))
    for one in rows:
        assert not (await ledger.insert([one]))[0].created
    assert await connection.fetchval(size) == before


# ---------------------------------------------------------------------- rates


async def test_a_bucket_does_not_fill_twice_for_the_time_that_a_pick_waited(
    ledger: PostgresStore, schema: str, hand: Hand, held: Connection, connect: Connect
) -> None:
    """Pickers of a limited queue take turns; one that waited began before the last token was taken."""
    queues = f"{schema}.queues"
    await ledger.configure_queue(QueueSettings(name="default", rate=1, rate_seconds=3600))
    await hand.insert(row("a"))
    await held.execute(f"select from {queues} for update")
    task = asyncio.create_task(hand.pick())
    await until_it_waits(await connect(), task, held)
    taken_at = await held.fetchval(f"update {queues} set tokens = 0, tokens_at = clock_timestamp() returning tokens_at")
    await held.execute("commit")
    assert await task == []
    assert await held.fetchval(f"select tokens_at from {queues}") > taken_at


async def test_a_retry_waits_for_retention_and_makes_no_run_that_nothing_leads_to(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect, schema: str
) -> None:
    claim = await hand.take(row("a"))
    await hand.apply(claim, fail())
    await held.execute(f"select {schema}.purge_1(0, null, null, 10)")
    again = PromiseId.from_bytes(claim.promise).successor("retry").to_bytes()
    with pytest.raises(NotFoundError):
        await while_held(await connect(), held, ledger.fork(row("a", promise=again), None, replaces=claim.promise))
    assert await ledger.get(again) is None
