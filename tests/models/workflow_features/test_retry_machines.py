"""A machine that is retried at the step behind its children sees them (ruling E7), as that step did when it failed."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import (
    Await,
    Child,
    Context,
    Done,
    Handle,
    Machine,
    MachineContext,
    Next,
    Outcome,
    ScheduleChildren,
    Status,
    Stop,
    step,
)
from holdfast.store.values import Retention
from tests.models.workflow.kit import Rig
from tests.models.workflow_features.shelf import ONCE

Seen = list[tuple[str, int, Any]]


class Farm:
    """A `Tree` that fails at `failing`, which says what it saw; a leaf of 0 fails while there is no sun."""

    def __init__(self, rig: Rig, *, quorum: int | None = None, timeout: float | None = None) -> None:
        self.failing = "join"
        self.has_sun = False
        self.leaves = [1, 2]
        self.seen: list[tuple[bool, Seen]] = []
        farm = self

        @rig.app.machine(retry=ONCE)
        class Leaf(Machine[int]):
            @step(initial=True)
            async def grow(self, ctx: MachineContext[int]) -> Outcome:
                if ctx.state == 0 and not farm.has_sun:
                    return Stop("no sun")
                return Await("rain", self.ripen, ctx.state) if ctx.state == 9 else Done(ctx.state * 10)

            @step
            async def ripen(self, ctx: MachineContext[int]) -> Outcome:
                return Done(ctx.state * 10)

        @rig.app.machine(retry=ONCE)
        class Tree(Machine[int]):
            @step(initial=True)
            async def split(self, ctx: MachineContext[int]) -> Outcome:
                leaves = [Child(Leaf, leaf) for leaf in farm.leaves]
                return ScheduleChildren(self.join, leaves, ctx.state, quorum=quorum, timeout=timeout)

            @step
            async def join(self, ctx: MachineContext[int]) -> Outcome:
                return farm.look("join", ctx, Next(self.again, 1))

            @step
            async def again(self, ctx: MachineContext[int]) -> Outcome:
                return farm.look("again", ctx, ScheduleChildren(self.end, [Child(Leaf, 5)], 2))

            @step
            async def end(self, ctx: MachineContext[int]) -> Outcome:
                return farm.look("end", ctx, Done([child.result for child in ctx.children]))

        @rig.app.workflow
        async def garden(ctx: Context) -> list[int]:
            grown: list[int] = await ctx.invoke(Tree, 0)
            return grown

        self.tree, self.garden = Tree, garden

    def look(self, name: str, ctx: MachineContext[int], outcome: Outcome) -> Outcome:
        self.seen.append(
            (ctx.timed_out, [(child.status.value, child.id.path[-1], child.result) for child in ctx.children])
        )
        if self.failing == name:
            raise ValueError(name)
        return outcome


async def failed(rig: Rig, handle: Handle[Any]) -> Handle[Any]:
    await rig.run()
    assert await rig.status(handle) is Status.FAILED
    return handle


@pytest.mark.parametrize("called", [False, True], ids=["alone", "called"])
async def test_the_step_behind_children_sees_them_in_every_retry(rig: Rig, called: bool) -> None:
    farm = Farm(rig)
    handle: Handle[Any] = await (farm.garden.start() if called else farm.tree.start(0))
    await failed(rig, handle)
    for farm.failing in ("join", "again", "end", "end", ""):
        handle = await handle.retry()
        if farm.failing:
            await failed(rig, handle)
    assert await rig.result(handle) == [50]
    two, one = [("done", 0, 10), ("done", 1, 20)], [("done", 0, 50)]
    assert [seen for _, seen in farm.seen] == [two, two, two, [], [], one, one, one]


async def test_so_do_those_who_let_some_of_them_run_on(rig: Rig) -> None:
    farm = Farm(rig, timeout=60)
    farm.leaves = [1, 9]
    first = await farm.tree.start(0)
    await rig.run()
    await rig.advance(61)
    again = await (await failed(rig, first)).retry()
    await failed(rig, again)
    assert farm.seen == [(True, [("done", 0, 10), ("awaiting_signal", 1, None)])] * 2
    await rig.app.handle(first.id.child(1)).signal("rain")
    await rig.run()
    farm.failing = ""
    last = await again.retry()
    assert await rig.result(last) == [50]
    assert farm.seen[2] == (True, [("done", 0, 10), ("done", 1, 90)])
    below = [await (await rig.app.store()).children(run.id.to_bytes(), 1) for run in (first, again, last)]
    assert [[view.promise for view in views] for views in below] == [
        [],
        [],
        [first.id.child(number).to_bytes() for number in range(2)],
    ]


async def test_a_quorum_counts_for_the_retry_too(rig: Rig) -> None:
    farm = Farm(rig, quorum=1)
    farm.leaves = [9, 1]
    first = await farm.tree.start(0)
    farm.failing = "end"
    again = await (await failed(rig, first)).retry()
    farm.failing = ""
    assert await rig.result(again) == [50]
    assert farm.seen[0] == (False, [("awaiting_signal", 0, None), ("done", 1, 10)])
    assert farm.seen[2:] == [(False, [("done", 2, 50)])] * 2


async def test_a_child_that_failed_and_was_retried_gives_its_result(rig: Rig) -> None:
    farm = Farm(rig)
    farm.leaves, farm.has_sun = [0, 2], False
    handle = await failed(rig, await farm.garden.start())
    tree = handle.id.child(0)
    handle = await failed(rig, await handle.retry())
    farm.has_sun, farm.failing = True, ""
    leaf = await rig.app.handle(tree.child(0)).retry()
    assert await rig.result(leaf) == 0
    assert await rig.result(await handle.retry()) == [50]
    before, after = [("failed", 0, None), ("done", 1, 20)], [("done", 0, 0), ("done", 1, 20)]
    assert [seen for _, seen in farm.seen[:3]] == [before, before, after]


async def test_retention_leaves_what_a_retry_has_to_see(rig: Rig) -> None:
    farm = Farm(rig)
    handle = await failed(rig, await farm.tree.start(0))
    store = await rig.app.store()
    await rig.advance(100)
    leaves = Retention(age_seconds=10, name="Leaf")
    assert await store.purge(leaves, 100) == 0
    handle = await failed(rig, await handle.retry())
    await rig.advance(100)
    assert await store.purge(leaves, 100) == 0
    farm.failing = ""
    assert await rig.result(await handle.retry()) == [50]
    assert farm.seen[0] == farm.seen[1] == farm.seen[2]
    await rig.advance(100)
    assert await store.purge(leaves, 100) == 3
    farm.failing = "join"
    await failed(rig, await farm.tree.start(0))
    await rig.advance(100)
    assert await store.purge(Retention(age_seconds=10, name="Tree"), 100) > 0
    assert await store.purge(leaves, 100) == 2  # nobody is left who would
