"""A worker that lost its lease changes nothing (ruling E1); one that beats keeps it, however long it takes (E15)."""

from __future__ import annotations

import asyncio

from holdfast import Child, Done, Machine, MachineContext, Next, Outcome, PromiseId, ScheduleChildren, Status, step
from tests.engine.rig import LEASE_PASSED, Rig


class Stale:
    """A machine whose first run is held up until `release` is set; a second run goes straight through."""

    def __init__(self, rig: Rig) -> None:
        self.begun, self.release = asyncio.Event(), asyncio.Event()
        self.runs = 0
        outer = self

        @rig.app.machine
        class Leaf(Machine[str]):
            @step(initial=True)
            async def only(self, ctx: MachineContext[str]) -> Outcome:
                return Done(ctx.state)

        @rig.app.machine
        class Slow(Machine[str]):
            @step(initial=True)
            async def work(self, ctx: MachineContext[str]) -> Outcome:
                outer.runs += 1
                run = outer.runs
                if run == 1:
                    outer.begun.set()
                    await outer.release.wait()
                kind, _, target = ctx.state.partition(" ")
                if kind == "next":
                    return Next(self.end, f"run {run}")
                if kind == "children":
                    return ScheduleChildren(self.end, [Child(Leaf, f"run {run}")], ctx.state)
                if kind == "signal":
                    ctx.signal(PromiseId.parse(target), "hello", run)
                return Done(f"run {run}")

            @step
            async def end(self, ctx: MachineContext[str]) -> Outcome:
                return Done([ctx.state, [child.result for child in ctx.children]])

        self.machine, self.leaf = Slow, Leaf

    async def overtaken(self, rig: Rig, state: str) -> tuple[PromiseId, object]:
        """Worker one loses its lease in the middle of the step; two does the work; then one comes back and commits."""
        handle = await self.machine.start(state)
        one = await rig.make_worker()
        working = asyncio.create_task(one.run_once())
        await self.begun.wait()
        await rig.stores.advance(LEASE_PASSED)
        two = await rig.make_worker()
        await two.reap_once()
        await two.run_until_idle()
        result = await handle.result()
        self.release.set()
        await working
        assert await handle.result() == result
        assert (await rig.view(handle)).status is Status.DONE
        return handle.id, result


async def test_a_late_end_changes_nothing(rig: Rig) -> None:
    stale = Stale(rig)
    assert (await stale.overtaken(rig, "done"))[1] == "run 2"


async def test_a_late_transition_changes_nothing(rig: Rig) -> None:
    stale = Stale(rig)
    assert (await stale.overtaken(rig, "next"))[1] == ["run 2", []]


async def test_late_children_are_not_spawned(rig: Rig) -> None:
    """Everything in an outcome rides on the guard."""
    stale = Stale(rig)
    parent, result = await stale.overtaken(rig, "children")
    assert result == ["children", ["run 2"]]
    assert len(await (await rig.store()).children(parent.to_bytes())) == 1


async def test_a_late_signal_is_not_sent(rig: Rig) -> None:
    stale = Stale(rig)
    target = await stale.leaf.options(delay=10_000).start("target")
    await stale.overtaken(rig, f"signal {target.id}")
    inbox = await (await rig.store()).inbox(target.id.to_bytes())
    assert [signal.payload for signal in inbox] == ["2"]


async def test_a_stale_child_does_not_count_twice_at_the_barrier(rig: Rig) -> None:
    begun, release = asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    @rig.app.machine
    class Leaf(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            runs.append(ctx.state)
            if runs.count(0) == 1 and ctx.state == 0:
                begun.set()
                await release.wait()
            return Done(ctx.state)

    @rig.app.machine
    class Tree(Machine[int]):
        @step(initial=True)
        async def split(self, ctx: MachineContext[int]) -> Outcome:
            return ScheduleChildren(self.join, [Child(Leaf, 0), Child(Leaf, 1, delay=1000)], ctx.state)

        @step
        async def join(self, ctx: MachineContext[int]) -> Outcome:
            return Done([str(child.status) for child in ctx.children])

    handle = await Tree.start(0)
    one = await rig.make_worker()
    working = asyncio.create_task(one.run_until_idle())
    await begun.wait()
    await rig.stores.advance(LEASE_PASSED)
    two = await rig.make_worker()
    await two.reap_once()
    await two.run_until_idle()
    release.set()
    await working
    assert (await rig.view(handle)).children_pending == 1
    await rig.stores.advance(1000)
    await two.run_until_idle()
    assert await handle.result() == ["done", "done"]


async def test_a_step_may_take_longer_than_the_lease(rig: Rig) -> None:
    """Ruling E15: the lease is the worker's, and its heart beats while the step runs."""
    begun, release = asyncio.Event(), asyncio.Event()

    @rig.app.machine
    class Slow(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            begun.set()
            await release.wait()
            return Done(ctx.attempt)

    handle = await Slow.start(0)
    worker, other = await rig.make_worker(), await rig.make_worker()
    working = asyncio.create_task(worker.run_once())
    await begun.wait()
    for _ in range(10):
        await rig.advance(20)
        await other.reap_once()
    assert await other.run_once() == 0
    release.set()
    await working
    assert await handle.result() == 0
