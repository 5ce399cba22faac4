"""The primitives of flows: ledgers, semaphores with any threshold, joins, and what rides on the end of a job."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.collation import (
    CHILDREN_SPAWNED,
    COMPLETION_DONE,
    GUID_ATTEMPTS,
    JOB_CLOSED,
    LEG1_ATTEMPTS,
    LEG1_DONE,
    LEG2_ENTRIES,
    WORK_DONE,
    GuidLedger,
)
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.store.base import Store, handler_of
from holdfast.store.effects import AdvanceExecution, Commit
from holdfast.store.flows import (
    FLOW,
    JOB_SEMAPHORE,
    MESSAGE,
    Arrival,
    Collate,
    EndJob,
    JobRecords,
    OpenJob,
    Settle,
)
from holdfast.store.values import Collated, ExecutionClaim, NewExecution, Receipt, Retention
from holdfast.testing.hand import Hand, keep, row

HANDLERS = [handler_of(FLOW, "Order", 1), handler_of(MESSAGE, "Order", 1)]
STAY = AdvanceExecution(status=Status.EXECUTING)


@pytest.fixture
async def hand(store: Store) -> Hand:
    return await Hand(store).start()


def message(job: bytes, number: int) -> NewExecution:
    promise = PromiseId.from_bytes(job).child(number).to_bytes()
    return row("m", kind=MESSAGE, promise=promise, step="leg1", cleans_up=True)


async def opened(hand: Hand, count: int, key: str = "job") -> tuple[bytes, list[ExecutionClaim]]:
    """A job that has begun, and its messages, claimed."""
    await hand.insert(row(key, kind=FLOW))
    (job,) = await hand.pick(handlers=HANDLERS)
    messages = tuple(message(job.promise, number) for number in range(count))
    await hand.apply(job, AdvanceExecution(status=Status.DELEGATED), OpenJob(messages))
    return job.promise, await hand.pick(count, handlers=HANDLERS)


async def records(hand: Hand, job: bytes) -> JobRecords:
    found = await hand.store.flow_records(job)
    assert found is not None
    return found


async def semaphore(hand: Hand, job: bytes, activity: str = JOB_SEMAPHORE) -> int | None:
    return {found.activity: found.status for found in (await records(hand, job)).semaphores}.get(activity)


def collate(guid: bytes = b"g", activity: str = "a", **fields: Any) -> Collate:
    return Collate(activity=activity, dimension="", guid=guid, **fields)


async def step(hand: Hand, claim: ExecutionClaim, guid: bytes = b"g", activity: str = "a", **fields: Any) -> Collated:
    receipt = await hand.apply(claim, STAY, collate(guid, activity, **fields))
    assert receipt.collated is not None
    return receipt.collated


async def entered(hand: Hand, claim: ExecutionClaim, guid: bytes = b"g", activity: str = "a") -> Collated:
    await step(hand, claim, guid, activity, add=LEG1_ATTEMPTS.weight)
    await step(hand, claim, guid, activity, add=LEG1_DONE.weight)
    await step(hand, claim, guid, activity, add=LEG2_ENTRIES.weight, guid_add=GUID_ATTEMPTS.weight, response="{}")
    return await step(hand, claim, guid, activity, mark=WORK_DONE.weight, guid_add=WORK_DONE.weight)


async def test_the_ledgers_of_section_18(hand: Hand) -> None:
    _, (claim,) = await opened(hand, 1)
    assert (await step(hand, claim, add=LEG1_ATTEMPTS.weight)).ledger == 1_000_000_000_000
    assert (await step(hand, claim, add=LEG1_DONE.weight)).ledger == 1_100_000_000_000
    entry = await step(hand, claim, add=LEG2_ENTRIES.weight, guid_add=GUID_ATTEMPTS.weight)
    assert entry == Collated(1_100_000_000_001, 1, 1)
    work = await step(hand, claim, mark=WORK_DONE.weight, guid_add=WORK_DONE.weight)
    assert work == Collated(1_110_000_000_001, 10_000_000_001, 1)


async def test_a_job_and_its_messages_commit_together(hand: Hand) -> None:
    """Ruling A8: the semaphore is the number of entries."""
    job, claims = await opened(hand, 3)
    assert len(claims) == 3
    assert await semaphore(hand, job) == 3
    assert (await hand.view(job)).status is Status.DELEGATED


async def test_a_marker_of_an_activity_is_set_once(hand: Hand) -> None:
    """Ruling A2, also for two GUIDs of one activity in one flush."""
    job, claims = await opened(hand, 2)
    guids = [b"one", b"two"]
    for claim, guid in zip(claims, guids, strict=True):
        await step(hand, claim, guid, add=LEG2_ENTRIES.weight, guid_add=GUID_ATTEMPTS.weight)
    weight = WORK_DONE.weight
    flushed = await hand.flush(
        *(Commit(c, (STAY, collate(g, mark=weight, guid_add=weight))) for c, g in zip(claims, guids, strict=True))
    )
    assert all(receipt.applied for receipt in flushed.receipts)
    (activity,) = (await records(hand, job)).activities
    assert activity.ledger == weight + 2
    assert [found.ordinal for found in (await records(hand, job)).guids] == [1, 2]


async def test_an_ordinal_never_moves(hand: Hand) -> None:
    """Ruling A3."""
    _, claims = await opened(hand, 2)
    for claim, guid in zip(claims, [b"one", b"two"], strict=True):
        await step(hand, claim, guid, add=LEG2_ENTRIES.weight, guid_add=GUID_ATTEMPTS.weight)
    again = await step(hand, claims[0], b"one", add=LEG2_ENTRIES.weight, guid_add=GUID_ATTEMPTS.weight)
    assert (again.ordinal, again.guid_ledger, again.ledger) == (1, 2, 3)


@pytest.mark.parametrize("threshold", [0, 1, 2])
async def test_the_semaphore_says_who_reached_its_threshold(hand: Hand, threshold: int) -> None:
    """Section 12.3: any threshold; in one flush as in several, exactly one GUID has it."""
    job, claims = await opened(hand, 4)
    for number, claim in enumerate(claims):
        await entered(hand, claim, b"g%d" % number, f"a{number}")
    weight = CHILDREN_SPAWNED.weight
    settle = Settle(threshold=threshold)
    flushed = await hand.flush(
        *(
            Commit(c, (STAY, collate(b"g%d" % n, f"a{n}", mark=weight, guid_add=weight, settle=settle)))
            for n, c in enumerate(claims)
        )
    )
    closers = [receipt.collated.closed for receipt in flushed.receipts if receipt.collated is not None]
    assert closers == [number == 3 - threshold for number in range(4)]
    marked = [bool(JOB_CLOSED.read(found.ledger)) for found in (await records(hand, job)).guids]
    assert marked == closers
    assert await semaphore(hand, job) == 0


async def test_children_are_counted_with_what_closes(hand: Hand) -> None:
    """Section 9.2: N - 1."""
    job, (claim,) = await opened(hand, 1)
    await entered(hand, claim)
    children = (message(job, 10), message(job, 11))
    weight = CHILDREN_SPAWNED.weight
    collated = await step(hand, claim, mark=weight, guid_add=weight, settle=Settle(children), acknowledge=True)
    assert not collated.closed
    assert await semaphore(hand, job) == 2
    assert await hand.store.get(claim.promise) is None
    assert len(await hand.pick(handlers=HANDLERS)) == 2


async def test_the_first_child_may_take_the_row_over(hand: Hand) -> None:
    job, (claim,) = await opened(hand, 1)
    await entered(hand, claim)
    children = (message(job, 10), message(job, 11))
    collated = await step(hand, claim, settle=Settle(children, onward=True), acknowledge=True)
    assert collated.onward
    assert await semaphore(hand, job) == 2
    assert await hand.store.get(claim.promise) is None
    taken = await hand.view(children[0].promise)
    assert (taken.status, taken.locked_by, taken.lease_epoch) == (Status.EXECUTING, hand.name, claim.epoch)
    (other,) = await hand.pick(handlers=HANDLERS)
    assert other.promise == children[1].promise


async def test_a_child_that_is_there_already_is_found(hand: Hand) -> None:
    job, (claim, there) = await opened(hand, 2)
    await entered(hand, claim)
    child = message(job, 1)
    assert child.promise == there.promise
    collated = await step(hand, claim, settle=Settle((child,), onward=True), acknowledge=True)
    assert not collated.onward
    assert await semaphore(hand, job) == 2
    assert await hand.store.get(claim.promise) is None


async def test_the_arrival_that_fills_a_join_publishes_it(hand: Hand) -> None:
    """Ruling A10: the others spawn nothing; one that came before counts once; a skipped one counts for nothing."""
    job, claims = await opened(hand, 4)
    joined = message(job, 20)

    def arrival(source: str, *, counts: bool = True) -> Arrival:
        return Arrival("join", "", source, "1" if counts else None, 2, joined if counts else None)

    given = [arrival("left"), arrival("left"), arrival("other", counts=False), arrival("right")]
    published = []
    for number, (claim, one) in enumerate(zip(claims, given, strict=True)):
        await entered(hand, claim, b"g%d" % number, f"a{number}")
        await step(hand, claim, b"g%d" % number, f"a{number}", settle=Settle(arrivals=(one,)), acknowledge=True)
        published.append(await hand.store.get(joined.promise) is not None)
    assert published == [False, False, False, True]
    assert await semaphore(hand, job) == 1
    assert await semaphore(hand, job, "join") == 0


async def test_two_arrivals_of_one_flush_fill_a_join_once(hand: Hand) -> None:
    job, claims = await opened(hand, 2)
    joined = message(job, 20)
    for number, claim in enumerate(claims):
        await entered(hand, claim, b"g%d" % number, f"a{number}")
    arrivals = [Settle(arrivals=(Arrival("join", "", source, "1", 2, joined),)) for source in ("left", "right")]
    flushed = await hand.flush(
        *(
            Commit(c, (STAY, collate(b"g%d" % n, f"a{n}", settle=arrivals[n], acknowledge=True)))
            for n, c in enumerate(claims)
        )
    )
    assert [receipt.status for receipt in flushed.receipts] == [Status.DONE, Status.DONE]
    assert await semaphore(hand, job) == 1
    (claim,) = await hand.pick(handlers=HANDLERS)
    assert claim.promise == joined.promise


async def closed(hand: Hand, **columns: Any) -> tuple[bytes, ExecutionClaim]:
    job, (claim,) = await opened(hand, 1)
    await entered(hand, claim)
    weight = CHILDREN_SPAWNED.weight
    collated = await step(hand, claim, mark=weight, guid_add=weight, settle=Settle(), acknowledge=True)
    assert collated.closed
    assert GuidLedger(collated.guid_ledger).job_closed
    return job, claim


async def test_a_message_that_closed_the_job_stays_for_step_3(hand: Hand) -> None:
    """Section 9.3, then ruling A11: the end of the job is in the commit of Step 3."""
    job, claim = await closed(hand)
    assert (await hand.view(claim)).status is Status.EXECUTING
    weight = COMPLETION_DONE.weight
    end = EndJob(Status.DONE, '"all"')
    await step(hand, claim, mark=weight, guid_add=weight, end=end, acknowledge=True)
    ended = await hand.view(job)
    assert (ended.status, ended.result) == (Status.DONE, '"all"')
    assert ended.ended_at is not None
    assert await hand.store.get(claim.promise) is None


async def test_a_stale_worker_moves_no_ledger(hand: Hand, store: Store) -> None:
    """Everything rides on the fence (ruling E1)."""
    job, (claim,) = await opened(hand, 1)
    await store.release(hand.name, [claim])
    receipt: Receipt = await hand.commit(claim, STAY, collate(add=LEG1_ATTEMPTS.weight, settle=Settle()))
    assert not receipt.applied
    assert receipt.collated is None
    assert (await records(hand, job)).activities == []
    assert await semaphore(hand, job) == 1


async def test_a_ledger_never_takes_a_digit_that_it_cannot_have(hand: Hand) -> None:
    _, (claim,) = await opened(hand, 1)
    await step(hand, claim, add=LEG1_DONE.weight)
    with pytest.raises(Exception, match=r"(?i)check"):
        await hand.flush(Commit(claim, (STAY, collate(add=LEG1_DONE.weight))))


async def test_a_parent_hears_of_the_end_of_its_job(hand: Hand) -> None:
    """Ruling A11: its barrier is released in the same commit."""
    from holdfast.store.effects import SpawnExecutions

    parent = await hand.take(row("parent"))
    child = row("job", kind=FLOW, promise=PromiseId.from_bytes(parent.promise).child(0).to_bytes())
    await hand.apply(parent, AdvanceExecution(status=Status.AWAITING_CHILDREN), SpawnExecutions((child,)))
    (job,) = await hand.pick(handlers=HANDLERS)
    await hand.apply(job, AdvanceExecution(status=Status.DELEGATED), OpenJob((message(job.promise, 0),)))
    (claim,) = await hand.pick(handlers=HANDLERS)
    await entered(hand, claim)
    await step(hand, claim, settle=Settle(), acknowledge=True)
    assert (await hand.view(parent)).status is Status.AWAITING_CHILDREN
    await step(hand, claim, end=EndJob(Status.DONE), acknowledge=True)
    assert (await hand.view(parent)).status is Status.RUNNABLE


async def test_purging_a_job_leaves_nothing_of_it(hand: Hand, stores: Any) -> None:
    job, claim = await closed(hand)
    await step(hand, claim, end=EndJob(Status.FAILED, None, '{"type":"E","message":""}'), acknowledge=True)
    await stores.advance(10)
    assert await hand.store.purge(Retention(age_seconds=1), 10) == 1
    assert await hand.store.flow_records(job) is None


async def test_steps_of_flows_and_plain_commits_share_a_flush(hand: Hand) -> None:
    _, (claim,) = await opened(hand, 1)
    other = await hand.take(row("plain"))
    parked = await hand.take(row("parked"))
    flushed = await hand.flush(
        Commit(other, (keep("further"),)),
        Commit(claim, (STAY, collate(add=LEG1_ATTEMPTS.weight))),
        Commit(parked, (AdvanceExecution(status=Status.AWAITING_SIGNAL, awaits=("go",)),)),
    )
    assert [receipt.applied for receipt in flushed.receipts] == [True, True, True]
    assert flushed.receipts[1].collated == Collated(LEG1_ATTEMPTS.weight, 0, 0)
    assert (await hand.view(other)).step == "further"
