"""Which claim of a row is the living one."""

from __future__ import annotations

import asyncio

from holdfast.engine.active import ActiveClaims
from holdfast.store.values import EXECUTIONS, ExecutionClaim


def claim(row: int, epoch: int = 1, queue: str = "default") -> ExecutionClaim:
    return ExecutionClaim(
        table=EXECUTIONS, row=row, epoch=epoch, kind="machine", name="Order", version=1, handler=1, queue=queue,
        priority=0, attempt=0, promise=b"p" * 32, revision=0, step="s", state="{}",
    )  # fmt: skip


def task() -> asyncio.Task[None]:
    async def forever() -> None:
        await asyncio.Event().wait()

    return asyncio.get_running_loop().create_task(forever())


async def ended(*tasks: asyncio.Task[None]) -> None:
    for each in tasks:
        each.cancel()
    await asyncio.wait(tasks)


async def test_a_claim_is_alive_from_add_to_remove() -> None:
    active, one, work = ActiveClaims(), claim(1, queue="ship"), task()
    assert not active.is_alive(one)
    active.add(one, work)
    assert active.is_alive(one)
    assert (len(active), active.rows(), active.of_queue("ship")) == (1, [1], 1)
    active.remove(one)
    assert not active.is_alive(one)
    assert (len(active), active.rows(), active.of_queue("ship")) == (0, [], 0)
    await ended(work)


async def test_a_newer_claim_of_a_row_displaces_the_older() -> None:
    """Its lease was lost: whatever it still commits would be fenced, so it is stopped here."""
    active, old, new, first, second = ActiveClaims(), claim(1), claim(1, epoch=2), task(), task()
    active.add(old, first)
    active.add(new, second)
    assert (active.is_alive(old), active.is_alive(new)) == (False, True)
    assert first.cancelling()
    assert not second.cancelling()
    active.remove(old)
    assert active.is_alive(new), "the end of the old one is not the end of the new one"
    await ended(first, second)


async def test_a_claim_that_released_its_row_is_not_stopped_by_the_next_one() -> None:
    """Nothing of it was lost: it has only to hear that its commit is there, and a workflow to leave its session."""
    active, old, new, first, second = ActiveClaims(), claim(1), claim(1, epoch=2), task(), task()
    active.add(old, first)
    active.let_go(old)
    active.add(new, second)
    assert not first.cancelling()
    assert len(active) == 2, "it keeps its place until it is over"
    active.let_go(old)
    active.remove(old)
    assert (active.is_alive(new), len(active)) == (True, 1)
    await ended(first, second)


async def test_removing_twice_counts_once() -> None:
    active, one, work = ActiveClaims(), claim(1), task()
    active.add(one, work)
    active.remove(one)
    active.remove(one)
    assert active.of_queue("default") == 0
    await ended(work)


async def test_another_task_goes_on_with_the_same_claim() -> None:
    active, one, first, second = ActiveClaims(), claim(1), task(), task()
    active.add(one, first)
    active.replace(one, second)
    assert active.tasks() == [second]
    active.remove(one)
    active.replace(one, first)
    assert active.tasks() == []
    await ended(first, second)


async def test_a_claim_that_concludes_is_alive_and_counts_but_nothing_works_on_it() -> None:
    active, one, work = ActiveClaims(), claim(1, queue="ship"), task()
    active.add(one, work)
    active.conclude(one)
    assert (len(active), active.running, active.tasks(), active.of_queue("ship")) == (1, 0, [], 1)
    assert (active.is_alive(one), active.is_by(one, work)) == (True, False)
    active.remove(one)
    assert (len(active), active.rows(), active.of_queue("ship")) == (0, [], 0)
    active.conclude(one)
    assert len(active) == 0, "what was removed does not come back"
    await ended(work)


async def test_a_claim_that_could_not_conclude_is_worked_on_again() -> None:
    active, one, first, second = ActiveClaims(), claim(1), task(), task()
    active.add(one, first)
    active.conclude(one)
    active.replace(one, second)
    assert (len(active), active.tasks(), active.running) == (1, [second], 1)
    await ended(first, second)


async def test_a_newer_claim_displaces_one_that_concludes() -> None:
    active, old, new, first, second = ActiveClaims(), claim(1), claim(1, epoch=2), task(), task()
    active.add(old, first)
    active.conclude(old)
    active.add(new, second)
    assert (active.is_alive(old), active.is_alive(new)) == (False, True)
    active.remove(old)
    assert (active.is_alive(new), len(active)) == (True, 1)
    await ended(first, second)


async def test_cancelling_waits_for_no_last_commit() -> None:
    """A commit that is on its way may still land; one that waits is not sent any more."""
    active, one, two, first, second = ActiveClaims(), claim(1), claim(2), task(), task()
    active.add(one, first)
    active.add(two, second)
    active.conclude(one)
    active.cancel()
    assert (active.is_alive(one), active.is_alive(two)) == (False, True)
    assert second.cancelling()
    await ended(first, second)


async def test_disowning_cancels_everything_and_keeps_counting_until_it_has_ended() -> None:
    active, claims, tasks = ActiveClaims(), [claim(1), claim(2)], [task(), task()]
    for each, work in zip(claims, tasks, strict=True):
        active.add(each, work)
    active.disown_all()
    assert [active.is_alive(each) for each in claims] == [False, False]
    assert all(work.cancelling() for work in tasks)
    assert len(active) == 2, "their places are taken until they have ended"
    again, work = claim(1, epoch=2), task()
    active.add(again, work)
    active.remove(claims[0])
    assert active.is_alive(again)
    await ended(*tasks, work)
