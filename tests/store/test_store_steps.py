"""Commits that add to a journal and change at most the step of their row: a store may leave the row for later, and
nobody who reads it, fences it or takes it away can tell."""

from __future__ import annotations

import copy

import pytest
from tests.store.test_store_leases import expire

from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.behind import UNTOLD_MOST
from holdfast.store.effects import GO_ON, AdvanceExecution, AppendJournal, Commit, ConsumeSignals, Effect
from holdfast.store.records import ExecutionRecord, Record
from holdfast.store.values import ExecutionClaim, ExecutionFilter, ExecutionView, NewSignal
from holdfast.testing.hand import Hand, done, fail, go, keep, park, replay, row, strand
from holdfast.testing.stores import Stores

EVENTS = 3  # of a segment


def step(
    first: int, name: str = "on", *, is_new: bool = True, given: str = "1"
) -> tuple[AdvanceExecution, AppendJournal]:
    """A step of a workflow: it goes on to a call of `name`, which the row says already if that is not new."""
    scheduled = "".join(
        f'{{"event":"InvokeScheduled","function_name":"{called}","input":{given}}},' for called in (name, "later")
    )
    body = f'{{"v":1,"events":[{scheduled}{{"event":"ExecutionAwaiting"}}]}}'
    advance = AdvanceExecution(status=Status.EXECUTING, step=name) if is_new else GO_ON
    return advance, AppendJournal(first, EVENTS, body)


async def walked(hand: Hand, key: str = "a", steps: int = 3) -> ExecutionClaim:
    """A claim after so many steps; the first one writes its row."""
    claim = await hand.take(row(key))
    await hand.apply(claim, *step(0, "first"))
    for number in range(1, steps):
        await hand.apply(claim, *step(number * EVENTS, f"step {number}"))
    return claim


def standing(view: ExecutionView) -> tuple[object, ...]:
    return view.status, view.revision, view.journal_length, view.step


async def test_every_step_is_seen_as_it_is_committed(hand: Hand) -> None:
    claim = await walked(hand, steps=1)
    seen = await hand.view(claim)
    for number in range(1, 40):
        name = "charge" if number % 8 < 5 else "ship"
        receipt = await hand.apply(claim, *step(number * EVENTS, name, is_new=name != seen.step))
        assert (receipt.status, receipt.has_inbox) == (Status.EXECUTING, False)
        seen = await hand.view(claim)
        assert standing(seen)[:3] == (Status.EXECUTING, number + 1, (number + 1) * EVENTS)
        assert seen.revision == claim.revision
        assert seen.step == name
    assert len(await hand.store.journal(claim.promise)) == 40


async def test_steps_of_many_are_seen_together(hand: Hand) -> None:
    await hand.insert(*(row(f"{number:02}") for number in range(30)))
    claims = await hand.pick(30)
    for number in range(5):
        await hand.flush(*(Commit(claim, step(number * EVENTS, f"step {number}")) for claim in claims))
    for claim in claims:
        assert standing(await hand.view(claim)) == (Status.EXECUTING, 5, 5 * EVENTS, "step 4")
    browsed = {view.promise: standing(view) for view in (await hand.store.browse(ExecutionFilter(), 50)).items}
    assert browsed == {claim.promise: (Status.EXECUTING, 5, 5 * EVENTS, "step 4") for claim in claims}


async def test_what_is_in_a_journal_keeps_nobody_from_reading_its_row(hand: Hand, store: Store) -> None:
    """SQLite reads no JSON that is nested deeper than a thousand, or two."""
    claim = await walked(hand)
    await hand.apply(claim, *step(3 * EVENTS, "deep", given="[" * 2_500 + "]" * 2_500))
    assert standing(await hand.view("a")) == (Status.EXECUTING, 4, 4 * EVENTS, "deep")
    assert await store.disown(hand.name, []) == 1
    assert standing(await hand.view("a")) == (Status.RUNNABLE, 4, 4 * EVENTS, "deep")


async def test_a_journal_may_begin_under_a_row_that_was_written(hand: Hand) -> None:
    claim = await hand.take(row("a"))
    await hand.apply(claim, keep("other"))
    for number in range(3):
        await hand.apply(claim, *step(number * EVENTS, f"step {number}"))
        assert standing(await hand.view("a")) == (Status.EXECUTING, number + 2, (number + 1) * EVENTS, f"step {number}")


async def test_a_step_ends_what_failed_before_it(stores: Stores, hand: Hand, rival: Hand) -> None:
    """Also where the first commit of the claim just says that an attempt begins."""
    await walked(hand)
    await expire(stores, rival)
    await stores.store.reap(10, max_crashes=10)
    taken = await rival.take()
    await rival.apply(taken, AdvanceExecution(status=Status.EXECUTING, attempt=taken.attempt, progress=False))
    assert (await hand.view("a")).crashes == 1
    await rival.apply(taken, *step(3 * EVENTS, "on"))
    view = await hand.view("a")
    assert (view.crashes, view.attempt, view.step) == (0, 0, "on")


@pytest.mark.parametrize("is_lost", [False, True], ids=["heard", "reply lost"])
async def test_a_step_ends_what_a_heartbeat_has_kept(
    stores: Stores, hand: Hand, rival: Hand, store: Store, is_lost: bool
) -> None:
    """A heartbeat says again which attempt the claim began with; a step that goes on from there is of none."""
    await walked(hand)
    await expire(stores, rival)
    await store.reap(10, max_crashes=10)
    taken = await rival.take()
    await rival.apply(taken, *step(3 * EVENTS, "on"))
    before = copy.deepcopy(taken)
    beat = AdvanceExecution(status=Status.EXECUTING, attempt=taken.attempt, progress=False, beats="{}")
    await rival.apply(taken, beat)
    assert (await hand.view("a")).attempt == 1
    if is_lost:
        (again,) = await store.reclaim(rival.name, [before])
        assert again is not None
        taken = before
        taken.renewed_as(again)
    await rival.apply(taken, *step(4 * EVENTS, "further"))
    view = await hand.view("a")
    assert (view.attempt, view.step) == (0, "further")


ENDS: dict[str, tuple[Effect, ...]] = {
    "done": (done("7"),),
    "fail": (fail(),),
    "park": (park("go"),),
    "go": (go(),),
    "keep": (keep("other", '"state"'),),
    "on": (GO_ON,),
    "strand": (strand(),),
}


@pytest.mark.parametrize("shape", ["alone", "plain", "mixed"])
@pytest.mark.parametrize("end", ENDS)
async def test_the_commit_after_steps_tells_the_row_everything(hand: Hand, end: str, shape: str) -> None:
    claim = await walked(hand)
    effects = ENDS[end]
    if shape == "alone":
        receipt = await hand.apply(claim, *effects)
    else:
        other = await walked(hand, "b")
        beside: tuple[Effect, ...] = step(3 * EVENTS, "on") if shape == "plain" else (park("signal"),)
        receipt, _ = (await hand.flush(Commit(claim, effects), Commit(other, beside))).receipts
        assert receipt.applied
    seen = await hand.view("a")
    advance = effects[0]
    assert isinstance(advance, AdvanceExecution)
    assert standing(seen) == (advance.status, 4, 3 * EVENTS, advance.step or "step 2")
    assert seen.revision == claim.revision


async def test_a_replay_after_steps_keeps_its_step(hand: Hand) -> None:
    claim = await walked(hand)
    await hand.apply(claim, replay(claim))
    assert standing(await hand.view("a")) == (Status.RUNNABLE, 4, 3 * EVENTS, "step 2")


# ---------------------------------------------------------------------- alone, on the calling thread


async def test_a_step_now_is_the_same_commit_or_none(hand: Hand, store: Store) -> None:
    """Where nothing is in its way it is written at once; a server is never waited for on the loop's thread."""
    claim = await walked(hand)
    at_us = store.step_now(hand.name, claim, *step(3 * EVENTS, "now"))
    assert bool(at_us) == store.commits_inline
    if at_us:
        assert at_us <= await store.now_us()
        claim.stepped(EVENTS, "now")
    else:
        await hand.apply(claim, *step(3 * EVENTS, "now"))
    assert standing(await hand.view("a")) == (Status.EXECUTING, 4, 4 * EVENTS, "now")
    assert len(await store.journal(claim.promise)) == 4
    await hand.apply(claim, done())


@pytest.mark.parametrize("why", ["cancel", "pause", "signal", "stale", "another worker's", "begins", "changes"])
async def test_a_step_now_leaves_to_a_flush_what_is_not_plain(hand: Hand, store: Store, why: str) -> None:
    claim = await hand.take(row("a")) if why == "begins" else await walked(hand)
    worker, (advance, segment) = hand.name, step(0 if why == "begins" else 3 * EVENTS, "now")
    if why == "cancel":
        await store.cancel([claim.promise])
    elif why == "pause":
        await store.pause(claim.promise, True)
    elif why == "signal":
        await store.deliver([NewSignal(claim.promise, "go", "1")])
    elif why == "stale":
        behind = copy.deepcopy(claim)
        await hand.apply(claim, *step(3 * EVENTS, "last"))
        claim = behind
    elif why == "another worker's":
        worker = "w9"
    elif why == "changes":
        advance = AdvanceExecution(status=Status.EXECUTING, step="now", beats="{}")
    before = standing(await hand.view("a")), len(await store.journal(claim.promise))
    assert store.step_now(worker, claim, advance, segment) == 0
    assert (standing(await hand.view("a")), len(await store.journal(claim.promise))) == before


async def test_a_row_is_told_now_and_then_however_its_steps_are_written(hand: Hand, store: Store) -> None:
    """Whoever reads a row that is behind counts its segments."""
    claim = await walked(hand)
    for number in range(3, 3 + UNTOLD_MOST):
        if not store.step_now(hand.name, claim, *step(number * EVENTS, "now")):
            break
        claim.stepped(EVENTS, "now")
    else:
        raise AssertionError("the row was never told")
    await hand.apply(claim, *step(number * EVENTS, "now"))
    assert standing(await hand.view("a")) == (Status.EXECUTING, number + 1, (number + 1) * EVENTS, "now")


# ---------------------------------------------------------------------- fences


@pytest.mark.parametrize("shape", ["step", "done"])
@pytest.mark.parametrize("beside", [False, True])
async def test_a_claim_that_does_not_know_the_last_step_changes_nothing(hand: Hand, shape: str, beside: bool) -> None:
    claim = await walked(hand)
    behind = copy.deepcopy(claim)
    await hand.apply(claim, *step(3 * EVENTS, "last"))
    effects: tuple[Effect, ...] = step(3 * EVENTS, "twice") if shape == "step" else (done(),)
    commits = [Commit(behind, effects)]
    if beside:
        commits.append(Commit(await walked(hand, "b"), step(3 * EVENTS)))
    receipts = (await hand.flush(*commits)).receipts
    assert [receipt.applied for receipt in receipts] == [False, True][: len(commits)]
    assert standing(await hand.view("a")) == (Status.EXECUTING, 4, 4 * EVENTS, "last")
    await hand.apply(claim, done())


async def test_a_transaction_after_steps_holds_the_fence_and_tells_the_row(hand: Hand, store: Store) -> None:
    claim = await walked(hand)
    behind = copy.deepcopy(claim)
    await hand.apply(claim, *step(3 * EVENTS, "pay"))

    async def work_there(connection: object) -> None: ...

    work = (lambda _: None) if store.commits_in_thread else work_there
    assert not (await store.transact(hand.name, behind, work, lambda _: [keep("wrong")])).applied
    receipt = await store.transact(hand.name, claim, work, lambda _: [keep("paid")])
    assert receipt.applied
    assert standing(await hand.view("a")) == (Status.EXECUTING, 5, 4 * EVENTS, "paid")


@pytest.mark.parametrize("asked", ["cancel", "pause", "signal"])
@pytest.mark.parametrize("beside", [False, True])
async def test_what_others_ask_of_a_run_is_heard_with_its_next_step(hand: Hand, asked: str, beside: bool) -> None:
    claim = await walked(hand)
    if asked == "cancel":
        await hand.store.cancel([claim.promise])
    elif asked == "pause":
        await hand.store.pause(claim.promise, True)
    else:
        await hand.store.deliver([NewSignal(claim.promise, "go", "1")])
    commits = [Commit(claim, step(3 * EVENTS, "last"))]
    if beside:
        commits.append(Commit(await walked(hand, "b"), step(3 * EVENTS)))
    receipt = (await hand.flush(*commits)).receipts[0]
    status = Status.RUNNABLE if asked == "pause" else Status.EXECUTING
    assert (receipt.applied, receipt.status) == (True, status)
    assert (receipt.cancel_requested, receipt.has_inbox) == (asked == "cancel", asked == "signal")
    assert standing(await hand.view("a")) == (status, 4, 4 * EVENTS, "last")
    if asked == "signal":
        (signal,) = await hand.store.inbox(claim.promise)
        await hand.apply(claim, GO_ON, ConsumeSignals((signal.id,)))
        assert standing(await hand.view("a")) == (status, 5, 4 * EVENTS, "last")


# ---------------------------------------------------------------------- who takes it away


async def test_who_takes_it_from_a_dead_worker_finds_all_of_it(stores: Stores, hand: Hand, rival: Hand) -> None:
    claim = await walked(hand)
    await expire(stores, rival)
    assert (await stores.store.reap(10, max_crashes=10)).released == 1
    assert standing(await hand.view("a")) == (Status.RUNNABLE, 3, 3 * EVENTS, "step 2")
    taken = await rival.take()
    assert (taken.revision, taken.journal_length, taken.step) == (3, 3 * EVENTS, "step 2")
    assert (taken.attempt, taken.crashes) == (1, 1)
    assert not (await hand.commit(claim, *step(3 * EVENTS))).applied
    await rival.apply(taken, *step(3 * EVENTS, "on"))
    await rival.apply(taken, *step(4 * EVENTS, "and on"))
    assert standing(await hand.view("a")) == (Status.EXECUTING, 5, 5 * EVENTS, "and on")
    assert (await hand.view("a")).crashes == 0
    await rival.apply(taken, done())


async def test_a_poison_run_is_stranded_where_it_stood(stores: Stores, hand: Hand, rival: Hand) -> None:
    await walked(hand)
    await expire(stores, rival)
    assert len((await stores.store.reap(10, max_crashes=1)).stranded) == 1
    view = await hand.view("a")
    assert standing(view) == (Status.STRANDED, 3, 3 * EVENTS, "step 2")
    assert "step 2" in (view.error or "")


@pytest.mark.parametrize("way", ["release", "disown", "retire"])
async def test_what_is_given_back_tells_everything(store: Store, hand: Hand, rival: Hand, way: str) -> None:
    claim = await walked(hand)
    if way == "release":
        assert await store.release(hand.name, [claim]) == 1
    elif way == "disown":
        assert await store.disown(hand.name, []) == 1
    else:
        assert await store.retire_worker(hand.name) == 1
    assert standing(await hand.view("a")) == (Status.RUNNABLE, 3, 3 * EVENTS, "step 2")
    taken = await rival.take()
    assert (taken.revision, taken.journal_length, taken.step) == (3, 3 * EVENTS, "step 2")


async def test_a_lease_taken_anew_shows_which_steps_were_applied(hand: Hand, store: Store) -> None:
    """DESIGN section 6, unknown commits: whether a step whose reply was lost is there, its revision says."""
    claim = await walked(hand)
    lost = copy.deepcopy(claim)
    await hand.apply(claim, *step(3 * EVENTS, "lost"))
    (again,) = await store.reclaim(hand.name, [lost])
    assert again is not None
    assert (again.revision, again.journal_length, again.step) == (lost.revision + 1, 4 * EVENTS, "lost")
    lost.renewed_as(again)
    await hand.apply(lost, *step(4 * EVENTS, "on"))
    await hand.apply(lost, done())
    assert standing(await hand.view("a")) == (Status.DONE, 6, 5 * EVENTS, "on")


@pytest.mark.parametrize("asked", ["reclaim", "release"])
async def test_who_asks_for_what_another_holds_does_not_touch_it(
    store: Store, hand: Hand, rival: Hand, asked: str
) -> None:
    """A worker that lost the row, and has not heard of that."""
    claim = await walked(hand)
    if asked == "reclaim":
        assert await store.reclaim(rival.name, [claim]) == [None]
    else:
        assert await store.release(rival.name, [claim]) == 0
    await hand.apply(claim, keep("other"))
    assert standing(await hand.view("a")) == (Status.EXECUTING, 4, 3 * EVENTS, "other")
    await hand.apply(claim, done())


async def test_a_ledger_in_use_is_exported_whole(hand: Hand, store: Store) -> None:
    await walked(hand)
    found: list[Record] = []
    await store.read_records(found.extend)
    (record,) = [record for record in found if isinstance(record, ExecutionRecord)]
    assert (record.revision, record.journal_length, record.step) == (3, 3 * EVENTS, "step 2")
