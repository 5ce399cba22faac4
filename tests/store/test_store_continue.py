"""`ContinueExecution`: a run ends and another takes its place, in one commit and only under the fence."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.errors import InvalidArgumentError, NotFoundError
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.store.base import Store
from holdfast.store.effects import Commit, ContinueExecution, DeliverSignal, SpawnExecutions
from holdfast.store.values import ForkedChild, NewSignal, Retention
from holdfast.testing.hand import Hand, child_rows, done, fail, keep, promise_of, row, wait_children
from holdfast.testing.stores import Stores


def next_of(promise: bytes) -> bytes:
    return PromiseId.from_bytes(promise).successor("continued").to_bytes()


async def test_the_old_run_ends_and_names_the_new_one(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    new = next_of(claim.promise)
    receipt = await hand.apply(claim, done(), ContinueExecution(row("a", promise=new, state='{"n":2}')))
    assert (receipt.status, receipt.successor, receipt.children) == (Status.DONE, new, ())
    old, young = await store.get_many([claim.promise, new])
    assert old is not None
    assert young is not None
    assert (old.status, old.successor) == (Status.DONE, new)
    assert (young.status, young.successor, young.parent) == (Status.RUNNABLE, None, None)


async def test_what_the_old_run_showed_last_goes_along(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    new = next_of(claim.promise)
    last = msgspec.structs.replace(done(), published='{"turn":3}')
    await hand.apply(claim, last, ContinueExecution(row("a", promise=new)))
    young = await store.get(new)
    assert young is not None
    assert young.published == '{"turn":3}'


async def test_the_first_run_always_names_the_newest(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    for _ in range(3):
        new = next_of(claim.promise)
        await hand.apply(claim, done(), ContinueExecution(row("a", promise=new)))
        claim = await hand.take()
    first = await store.get(promise_of("a"))
    assert first is not None
    assert first.successor == claim.promise


async def test_what_was_deleted_meanwhile_is_not_retried(stores: Stores, hand: Hand, store: Store) -> None:
    """Its key would lead nowhere, and start the same once more beside the run that goes on."""
    claim = await hand.take(row("a"))
    await hand.apply(claim, fail())
    await stores.advance(10)
    assert await store.purge(Retention(age_seconds=1), 10) == 1
    again = PromiseId.from_bytes(claim.promise).successor("retry").to_bytes()
    with pytest.raises(NotFoundError, match="deleted by retention"):
        await store.fork(row("a", promise=again), None, replaces=claim.promise)
    assert await store.get(again) is None


async def test_a_stale_worker_starts_no_successor(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    claim.epoch -= 1
    new = next_of(claim.promise)
    flushed = await hand.flush(Commit(claim, (done(), ContinueExecution(row("a", promise=new)))))
    assert not flushed.receipts[0].applied
    assert await store.get(new) is None


async def test_the_barrier_of_the_parent_waits_for_the_successor(hand: Hand, store: Store) -> None:
    parent = await hand.take(row("p"))
    await hand.apply(parent, wait_children(), SpawnExecutions(child_rows(parent, 1)))
    child = await hand.take()
    new = next_of(child.promise)
    await hand.apply(child, done(), ContinueExecution(row("c", promise=new)))
    view = await store.get(parent.promise)
    assert view is not None
    assert (view.status, view.children_pending) == (Status.AWAITING_CHILDREN, 1)
    claim = await hand.take()
    assert (claim.promise, claim.parent) == (new, parent.promise)
    await hand.apply(claim, done("7"))
    view = await store.get(parent.promise)
    assert view is not None
    assert view.status is Status.RUNNABLE


async def test_delivered_signals_come_before_those_still_in_the_inbox(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    await store.deliver([NewSignal(claim.promise, "n", "2", "two")])
    new = next_of(claim.promise)
    older = DeliverSignal(NewSignal(new, "n", "1"))
    await hand.apply(claim, done(), older, ContinueExecution(row("a", promise=new)))
    assert [signal.payload for signal in await store.inbox(new)] == ["1", "2"]
    assert await store.deliver([NewSignal(new, "n", "2", "two")]) == ["duplicate"]


async def test_retention_keeps_what_the_newest_run_is_found_by(hand: Hand, store: Store) -> None:
    claim = await hand.take(row("a"))
    new = next_of(claim.promise)
    await hand.apply(claim, done(), ContinueExecution(row("a", promise=new)))
    assert await store.purge(Retention(age_seconds=0), 10) == 0
    await hand.apply(await hand.take(), done())
    assert await store.purge(Retention(age_seconds=0), 10) >= 1


async def test_children_are_forked_with_their_caller_or_not_at_all(hand: Hand, store: Store) -> None:
    """One that was retried by itself a moment ago would do its work twice."""
    parent = await hand.take(row("p"))
    await hand.apply(parent, keep(), SpawnExecutions(child_rows(parent, 2), barrier=False))
    for child in (children := await hand.pick()):
        await store.deliver([NewSignal(child.promise, "word", "1")])
        await hand.apply(child, fail())
    await hand.apply(parent, fail())
    again = PromiseId.from_bytes(parent.promise).successor("retry")
    below = [
        ForkedChild(
            row("c", promise=again.child(number).to_bytes(), reports=True), None, child.promise, again.to_bytes()
        )
        for number, child in enumerate(children)
    ]
    own = PromiseId.from_bytes(children[1].promise).successor("retry").to_bytes()
    await store.fork(row("c", promise=own), None, replaces=children[1].promise)
    with pytest.raises(InvalidArgumentError, match="has just been retried by itself"):
        await store.fork(row("p", promise=again.to_bytes()), None, replaces=parent.promise, children=below)
    assert await store.get(again.to_bytes()) is None
    assert await store.get(below[0].row.promise) is None
    assert len(await store.inbox(children[0].promise)) == 1
    for _ in range(2):  # who comes second changes nothing
        await store.fork(row("p", promise=again.to_bytes()), None, replaces=parent.promise, children=below[:1])
    assert len(await store.inbox(below[0].row.promise)) == 1
    view = await store.get(below[0].row.promise)
    assert view is not None
    assert (view.parent, view.reports) == (again.to_bytes(), True)
    await store.cancel([own], cascade=False, reason=None)
    claims = await hand.pick()
    await hand.apply(next(claim for claim in claims if claim.promise == view.promise), done("7"))
    assert [signal.kind for signal in await store.inbox(again.to_bytes())] == ["child"]
