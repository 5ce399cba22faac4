"""Pausing one execution, and resuming a stranded one (DESIGN sections 5 and 9; ruling E11)."""

from __future__ import annotations

import pytest

from holdfast.core.status import TERMINAL, Status
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution
from holdfast.store.values import NewSignal
from holdfast.testing.hand import LEASE_SECONDS, Hand, done, go, keep, park, promise_of, row, strand
from holdfast.testing.stores import Stores


async def test_a_paused_row_waits_until_it_is_let_go(hand: Hand, store: Store) -> None:
    await hand.insert(row("a"), row("b"))
    assert await store.pause(promise_of("a"), True)
    assert (await hand.view("a")).paused
    assert [claim.promise for claim in await hand.pick()] == [promise_of("b")]
    assert await store.pause(promise_of("a"), False)
    assert [claim.promise for claim in await hand.pick()] == [promise_of("a")]


async def test_a_row_let_go_has_kept_its_place(stores: Stores, hand: Hand) -> None:
    await hand.insert(row("a"))
    await stores.store.pause(promise_of("a"), True)
    await stores.advance(1)
    await hand.insert(row("b"))
    await stores.store.pause(promise_of("a"), False)
    assert [claim.promise for claim in await hand.pick()] == [promise_of("a"), promise_of("b")]


async def test_the_holder_of_a_paused_row_gives_it_back_between_steps(hand: Hand, store: Store) -> None:
    """E11: a pause is honoured between steps; the step under way is not disturbed."""
    claim = await hand.take(row("a"))
    assert await store.pause(claim.promise, True)
    view = await hand.view("a")
    assert (view.status, view.locked_by) == (Status.EXECUTING, hand.name)
    receipt = await hand.apply(claim, keep("second", "2"))
    assert receipt.status is Status.RUNNABLE, "the lease was not kept"
    view = await hand.view("a")
    assert (view.status, view.step, view.state, view.locked_by) == (Status.RUNNABLE, "second", "2", None)
    assert not (await hand.commit(claim, keep("third"))).applied
    assert await hand.pick() == []
    await store.pause(claim.promise, False)
    assert (await hand.take()).step == "second"


async def test_a_step_on_its_way_keeps_the_lease_of_a_paused_row(hand: Hand, store: Store) -> None:
    """A commit that is no progress (a heartbeat, the start of an attempt) does not give up the lease under the step."""
    claim = await hand.take(row("a"))
    await store.pause(claim.promise, True)
    receipt = await hand.apply(claim, AdvanceExecution(status=Status.EXECUTING, progress=False))
    assert receipt.status is Status.EXECUTING
    assert (await hand.apply(claim, keep("second"))).status is Status.RUNNABLE


@pytest.mark.parametrize("advance", [done(), park("go"), go(), strand()], ids=["done", "await", "next", "stranded"])
async def test_outcomes_that_give_up_the_lease_are_as_without_a_pause(
    hand: Hand, store: Store, advance: AdvanceExecution
) -> None:
    claim = await hand.take(row("a"))
    await store.pause(claim.promise, True)
    assert (await hand.apply(claim, advance)).status is advance.status
    assert await hand.pick() == []


async def test_a_paused_row_is_woken_but_not_picked(hand: Hand, store: Store) -> None:
    await hand.apply(await hand.take(row("a")), park("go"))
    await store.pause(promise_of("a"), True)
    await store.deliver([NewSignal(promise_of("a"), "go", "1")])
    assert await hand.pick() == []
    await store.pause(promise_of("a"), False)
    assert [signal.name for signal in (await hand.take()).inbox] == ["go"]


async def test_pausing_what_is_paused_changes_nothing(hand: Hand, store: Store) -> None:
    await hand.insert(row("a"))
    assert await store.pause(promise_of("a"), True)
    assert await store.pause(promise_of("a"), True)
    assert await store.pause(promise_of("a"), False)
    assert await store.pause(promise_of("a"), False)
    assert len(await hand.pick()) == 1


@pytest.mark.parametrize("ended", sorted(TERMINAL))
async def test_what_has_ended_cannot_be_paused(hand: Hand, store: Store, ended: Status) -> None:
    await hand.apply(await hand.take(row("a")), AdvanceExecution(status=ended))
    assert not await store.pause(promise_of("a"), True)
    assert not (await hand.view("a")).paused


async def test_nobody_cannot_be_paused(store: Store) -> None:
    assert not await store.pause(promise_of("nobody"), True)


async def test_a_row_paused_at_its_start_waits(hand: Hand, store: Store) -> None:
    await hand.insert(row("a", paused=True))
    assert await hand.pick() == []
    await store.pause(promise_of("a"), False)
    assert len(await hand.pick()) == 1


# ---------------------------------------------------------------------- stranded


async def test_resume_makes_a_stranded_execution_runnable(hand: Hand, store: Store) -> None:
    """DESIGN section 5: loud, and resumable by the right code."""
    await hand.apply(await hand.take(row("a", step="pack", state="7")), strand())
    assert await store.resume(promise_of("a"))
    claim = await hand.take()
    assert (claim.step, claim.state) == ("pack", "7")
    await hand.apply(claim, done())


async def test_resume_forgives_the_crashes(stores: Stores, hand: Hand, rival: Hand) -> None:
    await hand.take(row("a"))
    await stores.advance(LEASE_SECONDS - 1)
    await rival.beat()
    await stores.advance(2)
    assert (await stores.store.reap(10, max_crashes=1)).stranded == (promise_of("a"),)
    assert await rival.pick() == []
    assert await stores.store.resume(promise_of("a"))
    claim = await rival.take()
    assert (claim.crashes, claim.attempt) == (0, 0), "the attempts that only crashed are forgiven too"


async def test_only_what_is_stranded_can_be_resumed(hand: Hand, store: Store) -> None:
    assert not await store.resume(promise_of("nobody"))
    await hand.insert(row("a"))
    assert not await store.resume(promise_of("a"))
    claim = await hand.take()
    before = await hand.view("a")
    assert not await store.resume(promise_of("a"))
    assert await hand.view("a") == before
    await hand.apply(claim, done())
    assert not await store.resume(promise_of("a"))
