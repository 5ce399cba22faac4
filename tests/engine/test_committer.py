"""Group commit (DESIGN section 6): the natural queue is the batch, and a runner goes on after its commit alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core.status import Status
from holdfast.engine.committer import AT_ONCE_MOST
from holdfast.store.base import Store, WouldStall
from holdfast.store.effects import AdvanceExecution, Commit
from holdfast.store.values import ExecutionClaim, NewSignal, Receipt
from holdfast.testing.hand import Hand, done, go, keep, park
from holdfast.testing.stores import Stores
from tests.engine.desk import Desk
from tests.engine.rig import LEASE_PASSED
from tests.store.test_store_steps import EVENTS, step


async def test_a_commit_is_durable_when_its_future_is_done(desk: Desk) -> None:
    (claim,) = await desk.claims(1)
    receipt = await desk.committer.commit(claim, (done("5"),))
    assert (receipt.applied, receipt.status) == (True, Status.DONE)
    assert (await desk.hand.view(claim)).result == "5"
    assert desk.released == [(claim, Status.DONE, receipt)]
    assert claim.revision == 1


async def test_what_is_ready_in_one_turn_shares_a_flush(desk: Desk) -> None:
    claims = await desk.claims(5)
    receipts = await asyncio.gather(*(desk.committer.commit(claim, (done(),)) for claim in claims))
    assert all(receipt.applied for receipt in receipts)
    assert (desk.committer.flushes, desk.committer.commits) == (1, 5)
    assert desk.store.calls["flush"] + desk.store.calls["flush_now"] == 1


async def test_a_flush_is_made_inline_where_the_store_allows_it(desk: Desk) -> None:
    """PEERS: with a single record waiting, committing inline beats handing it to a writer thread."""
    (claim,) = await desk.claims(1)
    await desk.committer.commit(claim, (done(),))
    inline = desk.store.commits_inline
    assert (desk.store.calls["flush_now"], desk.store.calls["flush"]) == ((1, 0) if inline else (0, 1))


async def test_a_flush_that_would_stall_the_loop_is_made_beside_it(desk: Desk) -> None:
    (claim,) = await desk.claims(1)
    desk.store.fail("flush_now", WouldStall())
    assert (await desk.committer.commit(claim, (done(),))).applied
    assert (desk.store.calls["flush"], desk.store.calls["reclaim"]) == (1, 0), "nothing is unknown"


async def test_a_single_commit_does_not_wait_for_company(desk: Desk) -> None:
    """No timer anywhere: one turn of the loop after it was asked for, the commit is on its way."""
    (claim,) = await desk.claims(1)
    future = desk.committer.commit(claim, (done(),))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert desk.store.calls["flush"] + desk.store.calls["flush_now"] == 1
    await future


async def test_a_step_that_is_alone_is_written_where_it_is_sent(desk: Desk) -> None:
    """So its run goes on without a turn of the loop; but others must have theirs."""
    (claim,) = await desk.claims(1)
    await desk.committer.commit(claim, step(0))
    answers = []
    for number in range(1, AT_ONCE_MOST + 2):
        answers.append(desk.committer.step(claim, *step(number * EVENTS)))
        if not isinstance(answers[-1], int):
            assert (await answers[-1]).applied
    assert {isinstance(answer, int) for answer in answers} == ({False, True} if desk.store.commits_inline else {False})
    assert desk.committer.commits == len(answers) + 1
    view = await desk.hand.view(claim)
    assert (view.revision, view.journal_length) == (claim.revision, claim.revision * EVENTS)


async def test_a_step_shares_a_commit_with_whoever_is_at_work(desk: Desk) -> None:
    one, two = await desk.claims(2)
    await asyncio.gather(*(desk.committer.commit(claim, step(0)) for claim in (one, two)))
    flushes = desk.committer.flushes
    answers = [desk.committer.step(claim, *step(EVENTS)) for claim in (one, two)]
    assert [isinstance(answer, asyncio.Future) and (await answer).applied for answer in answers] == [True, True]
    assert desk.committer.flushes == flushes + 1


async def test_nor_for_a_claim_that_can_commit_no_more(desk: Desk) -> None:
    """Its task may have turns of the loop to go, but its row is released."""
    claim, released = await desk.claims(2)
    desk.active.let_go(released)
    future = desk.committer.commit(claim, (done(),))
    assert future.done() == desk.store.commits_inline
    assert (await future).applied


class Holding:
    """Flushes that are entered in turn and leave when they are told to."""

    def __init__(self, desk: Desk) -> None:
        self.sent: list[list[ExecutionClaim]] = []
        self._doors: list[asyncio.Event] = []
        self._entered = asyncio.Condition()
        desk.store.on_call["flush"] = self._hold

    async def _hold(self, worker: str, commits: Sequence[Commit]) -> None:
        self.sent.append([commit.claim for commit in commits])
        door = asyncio.Event()
        self._doors.append(door)
        async with self._entered:
            self._entered.notify_all()
        await door.wait()

    async def entered(self, count: int) -> None:
        async with self._entered:
            await self._entered.wait_for(lambda: len(self.sent) >= count)

    def let(self, at: int) -> None:
        self._doors[at].set()

    @property
    def sizes(self) -> list[int]:
        return list(map(len, self.sent))


@pytest.fixture
async def slow(stores: Stores) -> AsyncIterator[Desk]:
    """Its flushes take their time, none is inline."""
    made = Desk(stores, inline=False)
    yield made
    await made.close()


async def test_what_comes_during_a_flush_goes_out_together_in_the_next(slow: Desk) -> None:
    holding = Holding(slow)
    most = slow.store.as_store().flushes_at_once
    claims = await slow.claims(most + 5)
    futures = []
    for at, claim in enumerate(claims[:most], 1):
        futures.append(slow.committer.commit(claim, (done(),)))
        await holding.entered(at)
    for claim in claims[most:]:
        futures.append(slow.committer.commit(claim, (done(),)))
        await asyncio.sleep(0)
    assert holding.sizes == [1] * most
    holding.let(0)
    await holding.entered(most + 1)
    assert holding.sizes == [1] * most + [5]
    for at in range(1, most + 1):
        holding.let(at)
    assert all(receipt.applied for receipt in await asyncio.gather(*futures))
    assert (slow.committer.flushes, slow.committer.commits) == (most + 1, most + 5)


async def test_a_flush_much_smaller_than_the_one_under_way_waits_for_company(slow: Desk) -> None:
    holding = Holding(slow)
    claims = await slow.claims(14)
    futures = [slow.committer.commit(claim, (done(),)) for claim in claims[:8]]
    await holding.entered(1)
    for claim in claims[8:11]:
        futures.append(slow.committer.commit(claim, (done(),)))
        await asyncio.sleep(0)
    assert holding.sizes == [8]
    futures += [slow.committer.commit(claim, (done(),)) for claim in claims[11:]]
    if slow.store.as_store().flushes_at_once > 1:
        await holding.entered(2)  # while the first is still held
        holding.let(0)
    else:
        holding.let(0)
        await holding.entered(2)
    holding.let(1)
    await asyncio.gather(*futures)
    assert holding.sizes == [8, 6]


async def test_of_two_commits_of_one_claim_the_second_waits_for_the_first(slow: Desk) -> None:
    """Side by side the second could come first."""
    holding = Holding(slow)
    claim, other = await slow.claims(2)
    first = slow.committer.commit(claim, (keep("second"),))
    await holding.entered(1)
    second = slow.committer.commit(claim, (keep("third"),))
    beside = slow.committer.commit(other, (done(),))
    if slow.store.as_store().flushes_at_once > 1:
        await holding.entered(2)
        holding.let(1)
        assert (await beside).applied
        assert holding.sent == [[claim], [other]]
    holding.let(0)
    assert (await first).applied
    assert not second.done()
    await holding.entered(len(holding.sent) + 1)
    holding.let(-1)
    assert (await second).applied
    await beside
    assert ((await slow.hand.view(claim)).step, claim.revision) == ("third", 2)


async def test_runners_of_a_large_flush_hear_in_two_halves(stores: Stores) -> None:
    """So that the server writes what one half commits while the other is at work."""
    desk = Desk(stores, inline=False)
    try:
        claims = await desk.claims(40)
        holding = Holding(desk)
        heard: list[int] = []

        async def run(at: int, claim: ExecutionClaim) -> None:
            assert (await desk.committer.commit(claim, (keep("second"),))).applied
            heard.append(at)
            assert (await desk.committer.commit(claim, (done(),))).applied

        runners = asyncio.gather(*(run(at, claim) for at, claim in enumerate(claims)))
        await holding.entered(1)
        holding.let(0)
        await holding.entered(2)
        if stores.store.flushes_at_once > 1:
            assert holding.sizes == [40, 20]
            await holding.entered(3)  # while the second is held
            assert holding.sizes == [40, 20, 20]
            holding.let(2)
        holding.let(1)
        await runners
        assert heard == list(range(40))
        assert sum(holding.sizes) == 80
    finally:
        await desk.close()


@pytest.mark.parametrize("inline", [True, False])
async def test_a_flush_is_bounded(stores: Stores, inline: bool) -> None:
    desk = Desk(stores, inline=inline, flush_most=4)
    try:
        sent: list[ExecutionClaim] = []

        def note(name: str, arguments: tuple[Any, ...]) -> None:
            if name.startswith("flush"):
                sent.extend(commit.claim for commit in arguments[1])

        desk.store.check = note
        claims = await desk.claims(10)
        await asyncio.gather(*(desk.committer.commit(claim, (done(),)) for claim in claims))
        assert desk.committer.flushes == 3
        assert sent == claims, "in the order in which they were asked for"
        assert len(desk.released) == 10
    finally:
        await desk.close()


async def test_a_fenced_commit_drops_out_alone(desk: Desk) -> None:
    """Ruling E1: the others of its flush are applied."""
    first, stale, last = await desk.claims(3)
    await desk.hand.store.release(desk.hand.name, [stale])
    receipts = await asyncio.gather(*(desk.committer.commit(claim, (done(),)) for claim in (first, stale, last)))
    assert [receipt.applied for receipt in receipts] == [True, False, True]
    assert [claim for claim, *_ in desk.released] == [first, last]
    assert stale.revision == 0


async def test_whoever_waits_hears_of_a_commit_whatever_becomes_of_taking_note_of_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else its run waits for ever in a worker that is alive."""
    first, second = await desk.claims(2)
    released = desk.committer._on_released

    def fail_once(claim: ExecutionClaim, advance: AdvanceExecution, receipt: Receipt) -> None:
        released(claim, advance, receipt)
        if claim is first:
            raise RuntimeError("no such gauge")

    monkeypatch.setattr(desk.committer, "_on_released", fail_once)
    receipts = await asyncio.gather(*(desk.committer.commit(claim, (done(),)) for claim in (first, second)))
    assert [receipt.applied for receipt in receipts] == [True, True]
    assert [claim for claim, *_ in desk.released] == [first, second]
    assert "no such gauge" in caplog.text


async def test_a_commit_whose_lease_is_known_to_be_lost_is_not_even_sent(desk: Desk) -> None:
    lost, alive = await desk.claims(2)
    desk.active.remove(lost)
    sent: list[int] = []
    desk.store.check = lambda name, arguments: sent.append(len(arguments[1])) if name.startswith("flush") else None
    receipts = await asyncio.gather(*(desk.committer.commit(claim, (done(),)) for claim in (lost, alive)))
    assert [receipt.applied for receipt in receipts] == [False, True]
    assert sent == [1]
    assert await desk.status(lost) is Status.EXECUTING


async def test_a_runner_that_was_cancelled_does_not_disturb_the_others(desk: Desk) -> None:
    """Its step had finished, so its commit is made all the same."""
    gone, here = await desk.claims(2)
    desk.committer.commit(gone, (done(),)).cancel()
    assert (await desk.committer.commit(here, (done(),))).applied
    assert await desk.status(gone) is Status.DONE


async def test_whoever_could_pick_is_told_when_a_flush_woke_something(desk: Desk) -> None:
    first, second = await desk.claims(2)
    await desk.committer.commit(first, (park("go"),))
    assert desk.woke == 0
    await desk.committer.commit(second, (go(),))
    assert desk.woke == 1


async def test_idle_waits_for_everything_under_way(desk: Desk) -> None:
    claims = await desk.claims(3)
    futures = [desk.committer.commit(claim, (done(),)) for claim in claims]
    await desk.committer.idle()
    assert all(future.done() for future in futures)
    await desk.committer.idle()


# ---------------------------------------------------------------------- one bad commit


async def test_one_bad_commit_does_not_sink_the_others(desk: Desk) -> None:
    first, bad, last = await desk.claims(3)

    def refuse(name: str, arguments: tuple[object, ...]) -> None:
        if name.startswith("flush") and any(commit.claim is bad for commit in arguments[1]):  # type: ignore[attr-defined]
            raise ValueError("the store cannot write this")

    desk.store.check = refuse
    answers = await asyncio.gather(
        *(desk.committer.commit(claim, (done(),)) for claim in (first, bad, last)), return_exceptions=True
    )
    assert isinstance(answers[1], ValueError)
    assert [isinstance(answer, Receipt) and answer.applied for answer in answers] == [True, False, True]
    assert await desk.status(bad) is Status.EXECUTING


async def test_a_bad_commit_alone_is_its_runners_to_hear_of(desk: Desk) -> None:
    (claim,) = await desk.claims(1)
    name = "flush_now" if desk.store.inline else "flush"
    desk.store.fail(name, ValueError("the store cannot write this"))
    with pytest.raises(ValueError, match="cannot write"):
        await desk.committer.commit(claim, (done(),))
    assert (await desk.committer.commit(claim, (done(),))).applied, "the committer goes on"


# ---------------------------------------------------------------------- unknown commits


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between attempts to reach the store."""
    monkeypatch.setattr("holdfast.engine.service.Backoff.take", lambda self: 0.0)


@pytest.mark.usefixtures("at_once")
class TestALostReply:
    """PEERS: never assume either way. The row is leased anew, which fences the old connection; its revision tells."""

    @staticmethod
    def lose(desk: Desk, *, applied: bool) -> None:
        desk.store.fail("flush_now" if desk.store.inline else "flush", applied=applied)

    async def test_a_commit_that_was_not_applied_is_made_again(self, desk: Desk) -> None:
        (claim,) = await desk.claims(1)
        self.lose(desk, applied=False)
        receipt = await desk.committer.commit(claim, (done("1"),))
        assert (receipt.applied, receipt.status) == (True, Status.DONE)
        view = await desk.hand.view(claim)
        assert (view.revision, view.lease_epoch) == (1, 2)

    async def test_a_commit_that_was_applied_and_let_go_is_not_made_again(self, desk: Desk) -> None:
        """The runner has nothing more to do with the row, whoever holds it now."""
        (claim,) = await desk.claims(1)
        self.lose(desk, applied=True)
        receipt = await desk.committer.commit(claim, (go("second"),))
        assert not receipt.applied
        view = await desk.hand.view(claim)
        assert (view.status, view.step, view.revision) == (Status.RUNNABLE, "second", 1)
        assert desk.woke == 1, "it may be picked at once"

    async def test_a_commit_that_was_applied_and_kept_its_lease_goes_on(self, desk: Desk) -> None:
        (claim,) = await desk.claims(1)
        self.lose(desk, applied=True)
        receipt = await desk.committer.commit(claim, (keep("second"),))
        assert (receipt.applied, receipt.status) == (True, Status.EXECUTING)
        assert (claim.epoch, claim.revision) == (2, 1)
        assert (await desk.committer.commit(claim, (keep("third"),))).applied
        view = await desk.hand.view(claim)
        assert (view.step, view.revision) == ("third", 2)

    @pytest.mark.parametrize("applied", [False, True])
    async def test_a_step_is_made_once(self, desk: Desk, applied: bool) -> None:
        (claim,) = await desk.claims(1)
        await desk.committer.commit(claim, step(0))
        self.lose(desk, applied=applied)
        answer = desk.committer.step(claim, *step(EVENTS))
        assert not isinstance(answer, int), "it is not known yet"
        assert (await answer).applied
        assert desk.store.pending() == 0
        assert len(await desk.store.journal(claim.promise)) == 2
        again = desk.committer.step(claim, *step(2 * EVENTS))
        assert isinstance(again, int) or (await again).applied
        assert (await desk.hand.view(claim)).revision == claim.revision

    async def test_what_came_for_a_kept_row_meanwhile_is_in_the_answer(self, desk: Desk, store: Store) -> None:
        (claim,) = await desk.claims(1)
        await store.deliver([NewSignal(claim.promise, "go", "1")])
        await store.cancel([claim.promise])
        self.lose(desk, applied=True)
        receipt = await desk.committer.commit(claim, (keep("second"),))
        assert (receipt.cancel_requested, receipt.has_inbox) == (True, True)

    async def test_a_lease_lost_meanwhile_means_that_nothing_is_written(self, desk: Desk, stores: Stores) -> None:
        (claim,) = await desk.claims(1)
        await stores.advance(LEASE_PASSED)
        await stores.store.reap(10, 10)
        rival = await Hand(stores.store, "w2").start()
        (taken,) = await rival.pick()
        self.lose(desk, applied=False)
        assert not (await desk.committer.commit(claim, (done(),))).applied
        assert (await rival.apply(taken, done())).status is Status.DONE

    async def test_a_store_that_forgot_a_commit_is_not_written_to_from_memory(self, desk: Desk) -> None:
        """A failover may lose what was acknowledged: the run begins anew from what the ledger holds."""
        (claim,) = await desk.claims(1)
        claim.revision += 1  # acknowledged, and lost
        self.lose(desk, applied=False)
        assert not (await desk.committer.commit(claim, (keep("third"),))).applied
        view = await desk.hand.view(claim)
        assert (view.step, view.revision) == ("start", 0)

    async def test_of_two_claims_with_one_epoch_only_one_commits(self, desk: Desk) -> None:
        """A lease lost with the server is granted again with the same epoch, perhaps to the same worker."""
        (lost,) = await desk.claims(1)
        again = replace(lost)
        assert (await desk.committer.commit(lost, (keep("second"),))).applied
        desk.active.add(again, desk._work())
        assert not (await desk.committer.commit(again, (keep("second, once more"),))).applied
        assert (await desk.hand.view(lost)).step == "second"

    async def test_each_commit_of_a_lost_flush_has_its_own_fate(self, desk: Desk) -> None:
        released, kept, again = await desk.claims(3)
        self.lose(desk, applied=True)
        answers = asyncio.gather(
            desk.committer.commit(released, (done(),)), desk.committer.commit(kept, (keep("second"),))
        )
        first, second = await answers
        assert (first.applied, second.applied) == (False, True)
        self.lose(desk, applied=False)
        assert (await desk.committer.commit(again, (done(),))).applied

    async def test_the_store_may_stay_away_for_a_while(self, desk: Desk) -> None:
        (claim,) = await desk.claims(1)
        self.lose(desk, applied=False)
        for _ in range(3):
            desk.store.fail("reclaim")
        assert (await desk.committer.commit(claim, (done(),))).applied
        assert desk.store.calls["reclaim"] == 4
        assert desk.store.pending() == 0

    async def test_a_store_that_answers_and_takes_nothing_is_left_in_peace(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Its disk is full, say: it would be asked, written to and connected to anew a hundred times a second."""
        taken: list[float] = []

        def take() -> float:
            taken.append(0)
            return 0

        monkeypatch.setattr(desk.committer._backoff, "take", take)
        (claim,) = await desk.claims(1)
        for _ in range(4):
            self.lose(desk, applied=False)
        assert (await desk.committer.commit(claim, (keep("second"),))).applied
        assert len(taken) == 3
        assert [text.split(",")[0] for text in caplog.messages] == [
            "a commit of 1 outcomes has an unknown fate",
            "commits go on; the store took none 4 times in a row",
        ]
        self.lose(desk, applied=False)
        assert (await desk.committer.commit(claim, (done(),))).applied
        assert len(taken) == 3

    async def test_the_reply_of_a_reclaim_may_be_lost_too(self, desk: Desk) -> None:
        (claim,) = await desk.claims(1)
        self.lose(desk, applied=False)
        desk.store.fail("reclaim", applied=True)
        assert (await desk.committer.commit(claim, (done(),))).applied
        assert (await desk.hand.view(claim)).lease_epoch == 3

    async def test_no_pick_comes_in_between(self, desk: Desk) -> None:
        """It could lease the very rows in question."""
        (claim,) = await desk.claims(1)
        locked: list[bool] = []

        async def look(*_: object) -> None:
            locked.append(desk.gate.locked())

        desk.store.on_call["reclaim"] = look
        self.lose(desk, applied=False)
        await desk.committer.commit(claim, (done(),))
        assert locked == [True]
        assert not desk.gate.locked()

    async def test_a_repeated_commit_goes_before_what_came_later(self, desk: Desk) -> None:
        first, second = await desk.claims(2)
        later: list[asyncio.Future[Receipt]] = []

        async def come_later(*_: object) -> None:
            later.append(desk.committer.commit(second, (done(),)))

        desk.store.on_call["reclaim"] = come_later
        self.lose(desk, applied=False)
        await desk.committer.commit(first, (done(),))
        await later[0]
        assert [claim for claim, *_ in desk.released] == [first, second]

    async def test_a_claim_disowned_meanwhile_is_not_asked_for(self, desk: Desk) -> None:
        (claim,) = await desk.claims(1)

        def disown(name: str, arguments: tuple[object, ...]) -> None:
            if name.startswith("flush"):
                desk.active.disown_all()

        desk.store.check = disown
        self.lose(desk, applied=True)
        assert not (await desk.committer.commit(claim, (done(),))).applied

    async def test_an_answer_that_cannot_be_had_is_an_error_not_a_hang(self, desk: Desk) -> None:
        claims = await desk.claims(2)
        self.lose(desk, applied=False)
        desk.store.fail("reclaim", ValueError("unexpected"))
        answers = await asyncio.gather(
            *(desk.committer.commit(claim, (done(),)) for claim in claims), return_exceptions=True
        )
        assert [str(answer) for answer in answers] == ["unexpected"] * 2
        assert not desk.gate.locked()


async def test_of_two_commits_of_one_claim_in_one_turn_the_second_waits_for_the_first(desk: Desk) -> None:
    """A heartbeat, and the end of the run beside it."""
    claim, other = await desk.claims(2)
    beat = AdvanceExecution(status=Status.EXECUTING, progress=False, beats='{"a": 1}')
    strand = AdvanceExecution(
        status=Status.STRANDED, progress=False, error='{"type": "x", "message": "", "kind": "internal"}'
    )
    receipts = await asyncio.gather(
        desk.committer.commit(claim, (beat,)),
        desk.committer.commit(claim, (strand,)),
        desk.committer.commit(other, (keep("second"),)),
    )
    assert all(receipt.applied for receipt in receipts)
    view = await desk.hand.view(claim)
    assert (view.status, view.revision) == (Status.STRANDED, claim.revision)
