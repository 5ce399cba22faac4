"""What a flow's commits and the calls of people do to each other, one of them held open at the moment that matters."""

from __future__ import annotations

from tests.store.postgres.conftest import Connect, Connection
from tests.store.postgres.held import flush_in, while_held
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


def publishing(child: NewExecution) -> Collate:
    """Step 2 with one child."""
    mark = CHILDREN_SPAWNED.weight
    return Collate(
        activity="a", dimension="", guid=b"g", mark=mark, guid_add=mark, settle=Settle((child,)), acknowledge=True
    )
