"""What a flow's commits and the calls of people do to each other, one of them held open at the moment that matters."""

from __future__ import annotations

import asyncio

from tests.store.postgres.conftest import Connect, Connection
from tests.store.postgres.held import flush_in, until_it_waits, while_held
from tests.store.test_store_flow import HANDLERS, STAY, message, opened

from holdfast.core.collation import CHILDREN_SPAWNED
from holdfast.core.status import Status
from holdfast.store.effects import AdvanceExecution, Commit
from holdfast.store.flows import FLOW, Collate, OpenJob, Settle
from holdfast.store.postgres import PostgresStore
from holdfast.store.values import NewExecution
from holdfast.testing.hand import Hand, row


async def test_a_cancel_frees_what_a_paused_job_published_while_it_was_waited_for(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    """The message is not there yet when the cancel looks for those of the job; paused, it would never close it."""
    await hand.insert(row("job", kind=FLOW))
    (job,) = await hand.pick(handlers=HANDLERS)
    assert await ledger.pause(job.promise, True)
    published = message(job.promise, 0)
    begin = AdvanceExecution(status=Status.DELEGATED)
    await flush_in(held, ledger, hand.name, Commit(job, (begin, OpenJob((published,)))))
    assert await while_held(await connect(), held, ledger.cancel([job.promise])) == [Status.DELEGATED]
    (claim,) = await hand.pick(handlers=HANDLERS)
    assert claim.promise == published.promise


async def test_a_resume_frees_what_a_paused_job_publishes_in_that_moment(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    """Step 2 has read that the job is paused, and commits after the resume began: its child must not stay paused."""
    job, (parent,) = await opened(hand, 1)
    assert await ledger.pause(job, True)
    child = message(job, 7)
    await flush_in(held, ledger, hand.name, Commit(parent, (STAY, publishing(child))))
    assert await while_held(await connect(), held, ledger.pause(job, False))
    (claim,) = await hand.pick(handlers=HANDLERS)
    assert claim.promise == child.promise


async def test_a_pause_holds_what_a_job_publishes_in_that_moment(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    job, (parent,) = await opened(hand, 1)
    await flush_in(held, ledger, hand.name, Commit(parent, (STAY, publishing(message(job, 7)))))
    assert await while_held(await connect(), held, ledger.pause(job, True))
    assert await hand.pick(handlers=HANDLERS) == []
    assert await ledger.pause(job, False)
    assert len(await hand.pick(handlers=HANDLERS)) == 1


async def test_a_pause_holds_what_a_job_publishes_however_long_it_waits(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect
) -> None:
    """While one message is waited for, another publishes twice: what comes of that waits with the job too."""
    job, (quick, slow) = await opened(hand, 2)
    observer, other = await connect(), await connect()
    await other.execute("begin")
    await flush_in(other, ledger, hand.name, Commit(quick, (STAY, publishing(message(job, 7)))))
    await flush_in(held, ledger, hand.name, Commit(slow, (STAY,)))
    pausing = asyncio.create_task(ledger.pause(job, True))
    await until_it_waits(observer, pausing, other)
    await other.execute("commit")
    await until_it_waits(observer, pausing, held)
    (second,) = await hand.pick(handlers=HANDLERS)
    await other.execute("begin")
    await flush_in(other, ledger, hand.name, Commit(second, (STAY, publishing(message(job, 8), "b"))))
    await held.execute("commit")
    await until_it_waits(observer, pausing, other)
    await other.execute("commit")
    assert await pausing
    assert await hand.pick(handlers=HANDLERS) == []


async def test_a_pause_locks_the_messages_of_a_job_as_a_flush_does(
    ledger: PostgresStore, hand: Hand, held: Connection, connect: Connect, schema: str
) -> None:
    """By id, wherever their rows lie: each of the two would wait for the other."""
    job, (first, second) = await opened(hand, 2)
    await hand.apply(first, AdvanceExecution(status=Status.RUNNABLE))
    (first,) = await hand.pick(handlers=HANDLERS)  # its row lies behind the other's now
    lock = f"select from {schema}.executions where id = $1 for update"
    await held.execute(lock, first.row)
    pausing = asyncio.create_task(ledger.pause(job, True))
    await until_it_waits(await connect(), pausing, held)
    await held.execute(lock, second.row)
    await held.execute("commit")
    assert await pausing


async def test_a_deadline_frees_a_paused_message_whose_row_was_held(
    ledger: PostgresStore, hand: Hand, held: Connection, schema: str
) -> None:
    """A job past its deadline closes by its messages: one that stays paused would keep it open for ever."""
    await hand.insert(row("job", kind=FLOW, deadline=0.0))
    (job,) = await hand.pick(handlers=HANDLERS)
    await hand.apply(job, AdvanceExecution(status=Status.DELEGATED), OpenJob((message(job.promise, 0),)))
    assert await ledger.pause(job.promise, True)
    await held.execute(f"select from {schema}.executions where kind = 'message' for update")
    await ledger.fire_timers(10)
    await held.execute("commit")
    await ledger.fire_timers(10)
    assert len(await hand.pick(handlers=HANDLERS)) == 1


async def test_a_message_that_is_no_letter_yet_is_not_waited_for(
    ledger: PostgresStore, hand: Hand, held: Connection, schema: str
) -> None:
    """Who strands it has its row when it comes for the job's: who has the job's and waits for it is in a deadlock."""
    job, (claim,) = await opened(hand, 1)
    await held.execute(f"select from {schema}.executions where promise = $1 for update", job)
    async with asyncio.timeout(5):
        assert not await ledger.drop_letter(claim.promise)


def publishing(child: NewExecution, activity: str = "a") -> Collate:
    """Step 2 with one child."""
    mark = CHILDREN_SPAWNED.weight
    return Collate(
        activity=activity,
        dimension="",
        guid=activity.encode(),
        mark=mark,
        guid_add=mark,
        settle=Settle((child,)),
        acknowledge=True,
    )
