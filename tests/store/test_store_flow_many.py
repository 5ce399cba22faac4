"""Many steps of flows in one flush: each is as if it had been committed alone. And the read at the end of jobs."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.collation import (
    CHILDREN_SPAWNED,
    GUID_ATTEMPTS,
    JOB_CLOSED,
    LEG1_ATTEMPTS,
    LEG1_DONE,
    LEG2_ENTRIES,
    WORK_DONE,
)
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.store.base import Store, handler_of
from holdfast.store.effects import AdvanceExecution, Commit
from holdfast.store.flows import FLOW, MESSAGE, Answer, Arrival, ClosingKey, Collate, OpenJob, Settle
from holdfast.store.values import Collated, ExecutionClaim, NewExecution
from holdfast.testing.hand import Hand, row

HANDLERS = [handler_of(FLOW, "Order", 1), handler_of(MESSAGE, "Order", 1)]
STAY = AdvanceExecution(status=Status.EXECUTING)
MANY = 64 + 16 + 4 + 3  # of every size that a statement can have


@pytest.fixture
async def hand(store: Store) -> Hand:
    return await Hand(store).start()


def message(job: bytes, number: int) -> NewExecution:
    promise = PromiseId.from_bytes(job).child(number).to_bytes()
    return row("m", kind=MESSAGE, promise=promise, step="leg1", cleans_up=True)


async def opened(hand: Hand, count: int) -> tuple[bytes, list[ExecutionClaim]]:
    await hand.insert(row("job", kind=FLOW))
    (job,) = await hand.pick(handlers=HANDLERS)
    messages = tuple(message(job.promise, number) for number in range(count))
    await hand.apply(job, AdvanceExecution(status=Status.DELEGATED), OpenJob(messages))
    return job.promise, await hand.pick(count, handlers=HANDLERS)


def entry(number: int, activity: str) -> Collate:
    return Collate(
        activity=activity,
        dimension="",
        guid=b"%d" % number,
        add=LEG2_ENTRIES.weight,
        guid_add=GUID_ATTEMPTS.weight,
        response=f'{{"value":{number}}}',
    )


def work(number: int, activity: str) -> Collate:
    weight = WORK_DONE.weight
    return Collate(activity=activity, dimension="", guid=b"%d" % number, mark=weight, guid_add=weight)


async def test_every_message_of_a_flush_gets_its_own_ledgers(hand: Hand) -> None:
    """Sections 4 and 7; the messages stand at different steps."""
    _, claims = await opened(hand, MANY)
    steps = [
        Collate(activity=f"a{at}", dimension="", guid=b"%d" % at, add=LEG1_ATTEMPTS.weight)
        if at % 3
        else entry(at, f"a{at}")
        for at in range(MANY)
    ]
    flushed = await hand.flush(*(Commit(claim, (STAY, step)) for claim, step in zip(claims, steps, strict=True)))
    assert [receipt.collated for receipt in flushed.receipts] == [
        Collated(LEG1_ATTEMPTS.weight, 0, 0) if at % 3 else Collated(1, 1, 1) for at in range(MANY)
    ]


async def test_guids_of_one_activity_in_one_flush_have_ordinals_of_their_own(hand: Hand) -> None:
    """Ruling A3: in the order of their commits; ruling A2: the marker is set once."""
    _, claims = await opened(hand, 20)
    flushed = await hand.flush(*(Commit(claim, (STAY, entry(at, "a"))) for at, claim in enumerate(claims)))
    assert [receipt.collated for receipt in flushed.receipts] == [Collated(at, 1, at) for at in range(1, 21)]
    flushed = await hand.flush(*(Commit(claim, (STAY, work(at, "a"))) for at, claim in enumerate(claims)))
    marked = WORK_DONE.weight
    assert [receipt.collated for receipt in flushed.receipts] == [
        Collated(marked + 20, marked + 1, at) for at in range(1, 21)
    ]


async def test_a_fenced_message_leaves_no_digit_among_many(hand: Hand) -> None:
    job, claims = await opened(hand, 5)
    claims[2].epoch += 1
    flushed = await hand.flush(*(Commit(claim, (STAY, entry(at, "a"))) for at, claim in enumerate(claims)))
    assert [receipt.applied for receipt in flushed.receipts] == [True, True, False, True, True]
    assert flushed.receipts[2].collated is None
    found = await hand.store.flow_records(job)
    assert found is not None
    assert [activity.ledger for activity in found.activities] == [4]
    assert sorted(guid.guid for guid in found.guids) == [b"0", b"1", b"3", b"4"]


async def test_of_many_that_go_on_only_the_one_whose_child_is_there_does_not(hand: Hand) -> None:
    """Step 2 in one row; a child that another published has a row of its own (section 9)."""
    job, claims = await opened(hand, 3)
    for at, claim in enumerate(claims):
        for weight in (LEG1_ATTEMPTS.weight, LEG1_DONE.weight):
            await hand.apply(claim, STAY, Collate(activity=f"a{at}", dimension="", guid=b"%d" % at, add=weight))
        await hand.apply(claim, STAY, entry(at, f"a{at}"))
        await hand.apply(claim, STAY, work(at, f"a{at}"))
    same, other = message(job, 100), message(job, 101)
    commits = []
    for at, (claim, child) in enumerate(zip(claims, (same, same, other), strict=True)):
        weight = CHILDREN_SPAWNED.weight
        step = work(at, f"a{at}")
        settled = Settle((child,), onward=True)
        step = msgspec.structs.replace(step, mark=weight, guid_add=weight, settle=settled, acknowledge=True)
        commits.append(Commit(claim, (STAY, step)))
    flushed = await hand.flush(*commits)
    collated = [receipt.collated for receipt in flushed.receipts]
    assert [found is not None and found.onward for found in collated] == [True, False, True]
    assert [receipt.status for receipt in flushed.receipts] == [Status.EXECUTING, Status.DONE, Status.EXECUTING]
    found = await hand.store.flow_records(job)
    assert found is not None
    assert {view.promise for view in found.messages} == {same.promise, other.promise}


async def worked_job(hand: Hand, count: int) -> int:
    """The row of a job whose activities have all had their Step 1."""
    _, claims = await opened(hand, count)
    for make in (entry, work):
        await hand.flush(*(Commit(claim, (STAY, make(at, f"a{at}"))) for at, claim in enumerate(claims)))
    assert claims[0].parent_row is not None
    return claims[0].parent_row


@pytest.mark.parametrize("count", [3, 101])
async def test_the_end_of_a_job_reads_the_answers_that_it_asks_for(hand: Hand, count: int) -> None:
    parent = await worked_job(hand, count)
    some, all_of_them = await hand.store.flow_closing([ClosingKey(parent, ("a2",)), ClosingKey(parent, None)])
    assert Answer("a2", "", 1, '{"value":2}') in some.answers
    assert sorted(answer.activity for answer in all_of_them.answers) == sorted(f"a{at}" for at in range(count))
    assert not some.cancel_requested
    assert some.error is None


async def test_the_end_of_a_job_reads_its_first_failure_and_no_answer_before_its_step(hand: Hand) -> None:
    """Ruling A8; an answer counts from Step 1 on."""
    job, claims = await opened(hand, 2)
    for at, claim in enumerate(claims):
        await hand.apply(claim, STAY, entry(at, f"a{at}"))
    failing = msgspec.structs.replace(work(1, "a1"), failure='{"type":"E1"}')
    await hand.apply(claims[1], STAY, failing)
    parent = claims[0].parent_row
    assert parent is not None
    await hand.store.cancel([job])
    (closing,) = await hand.store.flow_closing([ClosingKey(parent, None)])
    assert [answer.activity for answer in closing.answers] == ["a1"]
    assert closing.error == '{"type":"E1"}'
    assert closing.cancel_requested


async def test_only_the_last_move_of_a_flush_closes_the_job(hand: Hand) -> None:
    """Section 12: the semaphore moves once a commit, and one GUID sees it at its threshold."""
    _, claims = await opened(hand, 3)
    for make in (entry, work):
        await hand.flush(*(Commit(claim, (STAY, make(at, f"a{at}"))) for at, claim in enumerate(claims)))
    weight = CHILDREN_SPAWNED.weight
    commits = [
        Commit(
            claim,
            (
                STAY,
                msgspec.structs.replace(
                    work(at, f"a{at}"), mark=weight, guid_add=weight, settle=Settle(), acknowledge=True
                ),
            ),
        )
        for at, claim in enumerate(claims)
    ]
    flushed = await hand.flush(*commits)
    before = WORK_DONE.weight + weight + 1
    assert [receipt.collated for receipt in flushed.receipts] == [
        Collated(before, before, 1),
        Collated(before, before, 1),
        Collated(before, before + JOB_CLOSED.weight, 1, closed=True),
    ]
    assert [receipt.status for receipt in flushed.receipts] == [Status.DONE, Status.DONE, Status.EXECUTING]


def settling(at: int, settled: Settle) -> Collate:
    """Step 2."""
    weight = CHILDREN_SPAWNED.weight
    return msgspec.structs.replace(work(at, f"a{at}"), mark=weight, guid_add=weight, settle=settled, acknowledge=True)


async def test_what_arrives_at_joins_in_one_flush_counts_once(hand: Hand) -> None:
    """Ruling A10: also if two say the same, and if several joins hear of it."""
    job, claims = await opened(hand, 3)
    for make in (entry, work):
        await hand.flush(*(Commit(claim, (STAY, make(at, f"a{at}"))) for at, claim in enumerate(claims)))
    full, short = message(job, 100), message(job, 101)
    comes = [
        (Arrival("full", "", "a0", "1", 2, full), Arrival("short", "", "a0", "1", 2, short)),
        (Arrival("full", "", "a0", None, 2, full), Arrival("full", "", "a1", "2", 2, full)),
        (Arrival("full", "", "a0", None, 2, full), Arrival("short", "", "a2", None, 2, None)),
    ]
    flushed = await hand.flush(
        *(
            Commit(claim, (STAY, settling(at, Settle((), arrivals))))
            for at, (claim, arrivals) in enumerate(zip(claims, comes, strict=True))
        )
    )
    assert [receipt.collated is not None and receipt.collated.closed for receipt in flushed.receipts] == [False] * 3
    found = await hand.store.flow_records(job)
    assert found is not None
    assert {(view.activity, view.status) for view in found.semaphores} == {("", 1), ("full", 0), ("short", 1)}
    assert [view.promise for view in found.messages] == [full.promise]
    assert {(view.activity, view.source, view.value) for view in found.arrivals} == {
        ("full", "a0", "1"),
        ("short", "a0", "1"),
        ("full", "a1", "2"),
        ("short", "a2", None),
    }


async def test_the_only_child_of_a_paused_job_waits_with_it(hand: Hand) -> None:
    """It takes its parent's place, and the semaphore stays where it is."""
    job, (claim,) = await opened(hand, 1)
    for make in (entry, work):
        await hand.apply(claim, STAY, make(0, "a0"))
    await hand.store.pause(job, paused=True)
    child = message(job, 100)
    await hand.apply(claim, STAY, settling(0, Settle((child,))))
    assert await hand.pick(handlers=HANDLERS) == []
    await hand.store.pause(job, paused=False)
    assert [picked.promise for picked in await hand.pick(handlers=HANDLERS)] == [child.promise]
    found = await hand.store.flow_records(job)
    assert found is not None
    assert [view.status for view in found.semaphores] == [1]
