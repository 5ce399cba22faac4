"""Commits that only go on or end: together they do what each does alone, and an odd one is odd alone (ruling E1)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast.core.status import Status
from holdfast.store.effects import GO_ON, AdvanceExecution, AppendJournal, Commit, ConsumeSignals, Effect
from holdfast.store.values import EndOf, ExecutionClaim, ExecutionView, NewSignal
from holdfast.testing.hand import Hand, done, fail, keep, park, promise_of, row, strand

MANY = 40  # more than one statement's worth of segments


def segment(first: int, count: int) -> AppendJournal:
    return AppendJournal(first, count, f'{{"v":1,"patches":{{}},"events":[],"first":{first}}}')


def sleep() -> AdvanceExecution:
    return AdvanceExecution(status=Status.AWAITING_PROMISE, step="sleep", awaits=(), wake_after=60)


def effects_of(number: int) -> tuple[Effect, ...]:
    """A little of everything that is plain."""
    shapes: tuple[tuple[Effect, ...], ...] = (
        (GO_ON, segment(0, 5)),
        (AdvanceExecution(status=Status.EXECUTING, digest="d2"), segment(0, 4)),
        (keep("other"), segment(0, 5)),
        (keep("other", '{"n": 1}'),),
        (GO_ON,),
        (done('{"r": 1}'), segment(0, 2)),
        (fail(),),
        (sleep(), segment(0, 2)),
    )
    return shapes[number % len(shapes)]


WAITS = ("has come", "consumed", "ignored", "in time")


def _waiting(how: str, claim: ExecutionClaim) -> tuple[Effect, ...]:
    """A wait for `go` and `late`, and what becomes of the `go` that is there already."""
    came = tuple(signal.id for signal in claim.inbox if signal.name == "go")
    ignored = came if how == "ignored" else ()
    advance = park("go", "late", ignore=ignored, wake_after=60 if how == "in time" else None)
    consume = (ConsumeSignals(came),) if how in ("consumed", "in time") else ()
    return advance, segment(0, 2), *consume


def facts(view: ExecutionView) -> tuple[object, ...]:
    return (
        *(view.status, view.step, view.state, view.result, view.error, view.attempt, view.crashes, view.revision),
        *(view.locked_by, view.awaits, view.journal_length, view.ended_at is None, view.lease_epoch, view.digest),
    )


async def _claims(hand: Hand, keys: Sequence[str]) -> list[ExecutionClaim]:
    await hand.insert(*(row(key) for key in keys))
    return await hand.pick(len(keys))


@pytest.mark.parametrize("was_tried", [False, True])
async def test_plain_commits_do_together_what_each_does_alone(hand: Hand, was_tried: bool) -> None:
    keys = [f"{number:02}" for number in range(2 * MANY)]
    claims = await _claims(hand, keys)
    if was_tried:
        tried = AdvanceExecution(status=Status.EXECUTING, attempt=2, progress=False, error='{"kind": "x"}')
        for claim in claims:
            assert (await hand.commit(claim, tried)).applied
    for number, claim in enumerate(claims[:MANY]):
        assert (await hand.commit(claim, *effects_of(number))).applied
    flushed = await hand.flush(*(Commit(claim, effects_of(number)) for number, claim in enumerate(claims[MANY:])))
    assert all(receipt.applied for receipt in flushed.receipts)
    for alone, together, receipt in zip(claims[:MANY], claims[MANY:], flushed.receipts, strict=True):
        one, other = await hand.view(alone), await hand.view(together)
        assert facts(one) == facts(other)
        assert other.status is receipt.status
        assert other.revision == together.revision
        assert await hand.store.journal(alone.promise) == await hand.store.journal(together.promise)


async def test_a_sleep_is_the_same_beside_a_commit_that_waits_for_a_signal(hand: Hand) -> None:
    alone, beside, other = await _claims(hand, ["a", "b", "c"])
    await hand.flush(Commit(alone, (sleep(), segment(0, 2))))
    await hand.flush(Commit(other, (park("go"),)), Commit(beside, (sleep(), segment(0, 2))))
    one, two = await hand.view(alone), await hand.view(beside)
    assert facts(one) == facts(two)
    assert one.status is Status.AWAITING_PROMISE
    assert one.wake_at is not None
    assert two.wake_at is not None


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("oddity", ["none", "cancelled", "paused"])
async def test_a_wait_for_signals_does_alone_what_it_does_beside_others(hand: Hand, wait: str, oddity: str) -> None:
    await hand.insert(row("a"), row("b"), row("c"))
    for key in ("a", "b"):
        await hand.store.deliver([NewSignal(promise_of(key), name, "1", name) for name in ("other", "go", "go on")])
    alone, beside, other = await hand.pick()
    for claim in (alone, beside):
        if oddity == "cancelled":
            await hand.store.cancel([claim.promise])
        elif oddity == "paused":
            await hand.store.pause(claim.promise, True)
    first = await hand.flush(Commit(alone, _waiting(wait, alone)))
    second = await hand.flush(Commit(other, (park("go"),)), Commit(beside, _waiting(wait, beside)))
    one, two = await hand.view(alone), await hand.view(beside)
    assert facts(one) == facts(two)
    assert one.status is (Status.RUNNABLE if wait == "has come" or oddity == "cancelled" else Status.AWAITING_SIGNAL)
    assert (one.wake_at is None, one.paused) == (two.wake_at is None, two.paused)
    assert first.receipts[0].status is second.receipts[1].status is one.status
    assert first.receipts[0].has_inbox == second.receipts[1].has_inbox
    assert first.woke is second.woke
    assert await hand.store.journal(alone.promise) == await hand.store.journal(beside.promise)


async def test_a_cancelled_row_does_not_sleep(hand: Hand) -> None:
    claim, other = await _claims(hand, ["a", "b"])
    await hand.store.cancel([claim.promise], cascade=False)
    first, second = (await hand.flush(Commit(claim, (sleep(),)), Commit(other, (sleep(),)))).receipts
    assert (first.status, first.cancel_requested) == (Status.RUNNABLE, True)
    assert (second.status, second.cancel_requested) == (Status.AWAITING_PROMISE, False)
    assert (await hand.view(claim)).wake_at is None


@pytest.mark.parametrize("oddity", ["lost", "cancelled", "paused", "signalled"])
async def test_an_odd_row_among_plain_ones_is_the_only_odd_one(hand: Hand, oddity: str) -> None:
    claims = await _claims(hand, ["a", "b", "c"])
    odd = claims[1]
    match oddity:
        case "lost":
            odd.epoch -= 1
        case "cancelled":
            await hand.store.cancel([odd.promise], cascade=False)
        case "paused":
            await hand.store.pause(odd.promise, True)
        case _:
            await hand.store.deliver([NewSignal(odd.promise, "hello", "1")])
    flushed = await hand.flush(*(Commit(claim, (GO_ON, segment(0, 3))) for claim in claims))
    first, second, third = flushed.receipts
    for receipt, claim in ((first, claims[0]), (third, claims[2])):
        assert (receipt.applied, receipt.status, receipt.has_inbox) == (True, Status.EXECUTING, False)
        view = await hand.view(claim)
        assert (view.revision, view.journal_length) == (claim.revision, 3)
    assert second.applied is (oddity != "lost")
    assert second.cancel_requested is (oddity == "cancelled")
    assert second.has_inbox == (oddity == "signalled")
    view = await hand.view(odd)
    assert view.status is (Status.RUNNABLE if oddity == "paused" else Status.EXECUTING)
    assert view.revision == odd.revision == (0 if oddity == "lost" else 1)
    assert len(await hand.store.journal(odd.promise)) == (0 if oddity == "lost" else 1)


async def test_endings_are_told_of_what_has_ended_and_of_what_is_not_there(hand: Hand) -> None:
    claims = await _claims(hand, ["a", "b", "c", "d"])
    await hand.commit(claims[0], done('{"r": 1}'))
    await hand.commit(claims[1], strand('{"type": "X", "message": "m"}'))
    await hand.commit(claims[2], GO_ON)
    asked = [claim.promise for claim in claims]
    ends = {end.promise: end for end in await hand.store.endings([*asked, promise_of("nobody")])}
    assert ends == {
        claims[0].promise: EndOf(claims[0].promise, Status.DONE, '{"r": 1}'),
        claims[1].promise: EndOf(claims[1].promise, Status.STRANDED, None, '{"type": "X", "message": "m"}'),
        promise_of("nobody"): EndOf(promise_of("nobody"), None),
    }
    assert await hand.store.endings([]) == []
    thousand = [promise_of(f"none-{number}") for number in range(1_000)]
    assert {end.promise for end in await hand.store.endings(thousand)} == set(thousand)
