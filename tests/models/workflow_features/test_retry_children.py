"""A retry of a run that failed by a child goes on in the child: what that had done is not done again (ruling B13)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Context, Done, Handle, Machine, MachineContext, Next, Outcome, Status, current, step
from holdfast.core.errors import InvalidArgumentError
from holdfast.models.workflow.fork import RETRY
from holdfast.models.workflow.retrying import plan_retry
from tests.models.workflow.kit import Rig
from tests.models.workflow_features.shelf import ONCE, Shelf


class Family:
    """A parent, its child and the child of that, which fails at its end while the shelf is empty."""

    def __init__(self, rig: Rig) -> None:
        self.shelf = shelf = Shelf(rig)
        self.keys: list[tuple[str, str]] = []
        keys = self.keys

        @rig.app.task
        async def note(what: str) -> str:
            keys.append((what, current().idempotency_key))
            return what

        @rig.app.task(effects="at_most_once")
        async def fire(what: str) -> str:
            keys.append((what, current().idempotency_key))
            return what

        @rig.app.workflow
        async def grandchild(ctx: Context) -> str:
            await fire("grandchild")
            first = await ctx.signal("word", str)
            return f"{first} {await shelf.reserve()} {await ctx.signal('word', str)}"

        @rig.app.workflow
        async def child(ctx: Context) -> str:
            await note("child")
            return await grandchild()

        @rig.app.workflow
        async def parent(ctx: Context) -> str:
            await note("parent")
            return f"{await child()} {await note('end')}"

        self.parent, self.child = parent, child


async def failed(rig: Rig, family: Family) -> tuple[Handle[str], Handle[Any]]:
    """The parent, and its grandchild, which was told two words."""
    handle = await family.parent.options(key="p").start()
    await rig.run()
    grandchild: Handle[Any] = rig.app.handle(handle.id.child(1).child(1))
    await grandchild.signal("word", "a", dedup_key="1")
    await grandchild.signal("word", "b", dedup_key="2")
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    return handle, grandchild


@pytest.mark.parametrize("is_warm", [True, False])
async def test_completed_work_of_children_is_not_done_again(rig: Rig, is_warm: bool) -> None:
    family = Family(rig)
    if not is_warm:
        await rig.make_worker(warm_most=0)
    handle, _ = await failed(rig, family)
    again = await handle.retry()  # in vain
    await rig.run()
    assert await rig.status(again) is Status.FAILED
    family.shelf.is_empty = False
    last = await again.retry()
    assert await rig.result(last) == "a r1 b end"
    assert await rig.app.handle(family.parent.name, key="p").result() == "a r1 b end"
    assert [what for what, _ in family.keys] == ["parent", "child", "grandchild", "end"]
    assert family.shelf.ran == ["reserve"] * 3
    below = await rig.app.handle(last.id.child(1).child(1)).describe()
    assert (below.status, below.parent) == (Status.DONE, last.id.child(1).to_bytes())


async def test_a_child_that_was_retried_before_gives_its_result(rig: Rig) -> None:
    family = Family(rig)
    handle, grandchild = await failed(rig, family)
    family.shelf.is_empty = False
    by_itself = await grandchild.retry()
    with pytest.raises(InvalidArgumentError, match="was retried, and is runnable: wait for its end"):
        await handle.retry()
    assert await rig.result(by_itself) == "a r1 b"
    assert await rig.result(await handle.retry()) == "a r1 b end"
    assert [what for what, _ in family.keys] == ["parent", "child", "grandchild", "end"]
    assert family.shelf.ran == ["reserve"] * 2


async def test_a_child_that_was_retried_with_its_caller_is_not_retried_once_more(rig: Rig) -> None:
    """Its old handle means the run that goes on in its place, however often its caller was retried."""
    family = Family(rig)
    handle, grandchild = await failed(rig, family)
    child: Handle[Any] = rig.app.handle(handle.id.child(1))
    again = await handle.retry()
    await rig.run()
    assert await rig.status(again) is Status.FAILED
    assert (await grandchild.describe()).successor == again.id.child(1).child(1).to_bytes()
    family.shelf.is_empty = False
    last = await again.retry()
    places = [last.id.child(1), last.id.child(1).child(1)]
    assert [await child.newest(), await grandchild.newest()] == places
    assert [(await child.retry()).id, (await grandchild.retry()).id] == places  # as it was retried already
    await rig.run()
    assert await rig.result(last) == "a r1 b end"
    assert (await grandchild.status(), await grandchild.result()) == (Status.DONE, "a r1 b")
    assert family.shelf.ran == ["reserve"] * 3
    assert [what for what, _ in family.keys] == ["parent", "child", "grandchild", "end"]


async def test_a_child_that_was_retried_with_its_caller_and_failed_is_retried_from_there(rig: Rig) -> None:
    family = Family(rig)
    handle, grandchild = await failed(rig, family)
    again = await handle.retry()
    await rig.run()
    family.shelf.is_empty = False
    by_itself = await grandchild.retry()
    assert by_itself.id.origin == again.id.child(1).child(1)
    assert await rig.result(by_itself) == "a r1 b"
    assert await grandchild.newest() == by_itself.id
    assert await rig.result(await handle.retry()) == "a r1 b end"
    assert family.shelf.ran == ["reserve"] * 3


async def test_a_signal_to_a_child_reaches_what_it_was_retried_as_with_its_caller(rig: Rig) -> None:
    shelf = Shelf(rig)

    @rig.app.workflow
    async def child(ctx: Context) -> str:
        return await shelf.reserve() + await ctx.signal("word", str)

    @rig.app.workflow
    async def parent(ctx: Context) -> str:
        return await child()

    handle = await parent.start()
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    shelf.is_empty = False
    again = await handle.retry()
    await rig.run()
    await rig.app.handle(handle.id.child(0)).signal("word", "!")
    assert await rig.result(again) == "r1!"


async def test_of_two_who_retry_a_caller_or_its_child_at_once_one_does_the_work(rig: Rig) -> None:
    """Each looked at the ledger before the other wrote."""
    family = Family(rig)
    handle, grandchild = await failed(rig, family)
    store = await rig.app.store()
    caller, below = await handle.describe(), await grandchild.describe()
    mine = await plan_retry(store, below, grandchild.id.successor(RETRY))
    again = await handle.retry()
    with pytest.raises(InvalidArgumentError, match="has just been retried with its caller, as"):
        await store.fork(mine.row, mine.past, replaces=below.promise)
    assert await store.get(mine.row.promise) is None
    planned = await plan_retry(store, caller, again.id)
    inserted = await store.fork(planned.row, planned.past, replaces=caller.promise, children=planned.children)
    assert not inserted.created


async def test_the_call_that_failed_in_a_child_keeps_its_key(rig: Rig) -> None:
    keys: list[str] = []

    @rig.app.task(retry=ONCE)
    async def pay() -> str:
        keys.append(current().idempotency_key)
        if len(keys) < 3:
            raise ConnectionError("no answer")
        return "paid"

    @rig.app.workflow
    async def child(ctx: Context) -> str:
        return await pay()

    @rig.app.workflow
    async def parent(ctx: Context) -> str:
        return await child()

    handle = first = await parent.start()
    for _ in range(2):
        await rig.run()
        assert await rig.status(handle) is Status.FAILED
        handle = await handle.retry()
    assert await rig.result(handle) == "paid"
    assert keys == [str(first.id.child(0).child(0))] * 3


async def test_a_machine_that_failed_its_caller_goes_on_at_the_step_that_failed(rig: Rig) -> None:
    ran: list[str] = []
    broken = True

    @rig.app.machine(retry=ONCE)
    class Till(Machine[int]):
        @step(initial=True)
        async def open(self, ctx: MachineContext[int]) -> Outcome:
            ran.append("open")
            return Next(self.close, ctx.state + 1)

        @step
        async def close(self, ctx: MachineContext[int]) -> Outcome:
            ran.append("close")
            if broken:
                raise ValueError("the drawer is stuck")
            return Done(ctx.state)

    @rig.app.workflow
    async def shop(ctx: Context) -> int:
        closed: int = await ctx.invoke(Till, 6)
        return closed

    handle = await shop.start()
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    broken = False
    assert await rig.result(await handle.retry()) == 7
    assert ran == ["open", "close", "close"]


async def test_what_ran_beside_the_child_that_failed_is_taken_as_it_ended(rig: Rig) -> None:
    """All that one outage failed is retried, and what a sibling brought after its caller had failed is there."""
    ran: list[str] = []
    broken = True

    @rig.app.task(queue="far")
    async def far(what: str) -> str:
        ran.append(what)
        return what

    @rig.app.task(retry=ONCE)
    async def ship(what: str) -> str:
        if broken:
            raise ValueError("no van")
        return what

    @rig.app.workflow
    async def order(ctx: Context, what: str) -> str:
        return await far(f"{what} packed") + ", " + await ship(f"{what} sent")

    @rig.app.workflow
    async def late(ctx: Context) -> str:
        await ctx.sleep(60)
        return await far("late")

    @rig.app.workflow
    async def day(ctx: Context) -> list[str]:
        sibling = late()
        got: list[str] = await ctx.all(order("a"), order("b"))
        return [*got, await sibling]

    handle = await day.start()
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    await rig.advance(61)
    await rig.run()
    broken = False
    again = await handle.retry()
    assert await rig.result(again) == ["a packed, a sent", "b packed, b sent", "late"]
    assert sorted(ran) == ["a packed", "b packed", "late"]


async def test_a_child_may_end_before_its_caller_goes_on(rig: Rig) -> None:
    """And one that was retried by itself, in vain, is retried from there."""
    shelf = Shelf(rig)

    @rig.app.task
    async def note() -> None:
        shelf.ran.append("note")

    @rig.app.workflow(queue="far")
    async def child(ctx: Context) -> str:
        await note()
        return await shelf.reserve()

    @rig.app.workflow
    async def parent(ctx: Context) -> list[str]:
        return [await child(), await child()]

    near, far = await rig.make_worker(queues=["default"]), await rig.make_worker(queues=["far"])
    handle = await parent.start()
    for worker in (near, far, near):
        await worker.run_until_idle()
    assert await rig.status(handle) is Status.FAILED
    by_itself = await rig.app.handle(handle.id.child(0)).retry()
    await far.run_until_idle()
    assert await by_itself.status() is Status.FAILED
    shelf.is_empty = False
    again = await handle.retry()
    await far.run_until_idle()
    assert await rig.app.handle(again.id.child(0)).status() is Status.DONE
    for worker in (near, far, near):
        await worker.run_until_idle()
    assert await again.result() == ["r1", "r1"]
    assert shelf.ran == ["note", "reserve", "reserve", "reserve", "note", "reserve"]
