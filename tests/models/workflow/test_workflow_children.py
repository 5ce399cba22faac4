"""Nested workflows have journals of their own under the root of the tree (ruling B1); machines are called likewise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import (
    Await,
    Context,
    Done,
    Machine,
    MachineContext,
    Outcome,
    PromiseId,
    RetryPolicy,
    Status,
    Stop,
    TaskFailed,
    step,
)
from holdfast.core.journal.events import ExecutionStarted
from tests.models.workflow.kit import Rig

COLD = pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])


class RefusedError(Exception):
    pass


@COLD
async def test_each_workflow_of_a_tree_has_its_own_journal(rig: Rig, cold: bool) -> None:
    @rig.app.task
    async def add(number: int) -> int:
        return number + 1

    @rig.app.workflow
    async def inner(ctx: Context, number: int) -> int:
        ctx.random()
        return await add(number)

    @rig.app.workflow
    async def outer(ctx: Context) -> list[int]:
        return [await inner(1), await inner(2)]

    handle = await outer.options(key="tree").start()
    await rig.make_worker(warm_most=0 if cold else None)
    assert await rig.result(handle) == [2, 3]
    assert await rig.lines(handle) == [
        "ExecutionStarted",
        "InvokeScheduled root.0 inner",
        "ExecutionAwaiting [root.0] Single",
        "InvokeStarted root.0 attempt=1",
        "InvokeCompleted root.0 Ok(2) attempt=1",
        "ExecutionResumed",
        "InvokeScheduled root.1 inner",
        "ExecutionAwaiting [root.1] Single",
        "InvokeStarted root.1 attempt=1",
        "InvokeCompleted root.1 Ok(3) attempt=1",
        "ExecutionResumed",
        "ExecutionCompleted Ok([2,3])",
    ]
    child = handle.id.child(1)
    assert await rig.lines(child) == [
        "ExecutionStarted",
        "RandomGenerated root.0",
        "InvokeScheduled root.1 add",
        "ExecutionAwaiting [root.1] Single",
        "InvokeStarted root.1 attempt=1",
        "InvokeCompleted root.1 Ok(3) attempt=1",
        "ExecutionResumed",
        "ExecutionCompleted Ok(3)",
    ]
    started = (await rig.events(child))[0]
    assert isinstance(started, ExecutionStarted)
    assert started.parent_id == str(handle.id)


async def test_a_workflow_may_call_itself(rig: Rig) -> None:
    @rig.app.workflow
    async def factorial(ctx: Context, number: int) -> int:
        if number <= 1:
            return 1
        below: int = await factorial(number - 1)
        return number * below

    assert await rig.result(await factorial.start(10)) == 3628800


async def test_a_call_tree_has_sixty_four_levels_and_no_more(rig: Rig) -> None:
    @rig.app.workflow
    async def dig(ctx: Context, depth: int) -> str:
        try:
            found: str = await dig(depth + 1)
        except Exception as error:
            return f"at {depth}: {error}"
        return found

    result = await rig.result(await dig.start(0))
    assert result.startswith("at 64: ")
    assert "continue_as_new" in result


async def test_an_ancestor_that_went_on_as_another_run_is_one_level(rig: Rig) -> None:
    @rig.app.workflow
    async def dig(ctx: Context, depth: int, again: bool) -> int:
        if again:
            ctx.continue_as_new(depth, False)
        return depth if depth == 20 else await dig(depth + 1, True)

    assert await rig.result(await dig.start(0, True)) == 20


async def test_a_failed_child_raises_what_it_was_declared_to(rig: Rig) -> None:
    @rig.app.workflow(raises=(RefusedError,))
    async def child(ctx: Context, how: str) -> None:
        if how == "refused":
            raise RefusedError("not this one")
        raise KeyError(how)

    @rig.app.workflow
    async def parent(ctx: Context) -> list[str]:
        seen = []
        for how in ("refused", "other"):
            try:
                await child(how)
            except RefusedError as error:
                seen.append(f"refused: {error}")
            except TaskFailed as error:
                seen.append(str(error))
        return seen

    refused, other = await rig.result(await parent.start())
    assert refused == "refused: not this one"
    assert "KeyError" in other


async def test_children_on_a_queue_of_their_own_are_worked_on_there(rig: Rig) -> None:
    @rig.app.workflow(queue="heavy")
    async def child(ctx: Context) -> str:
        return ctx.info.name

    @rig.app.workflow
    async def parent(ctx: Context) -> str:
        return await child()

    handle = await parent.start()
    light = await rig.make_worker(queues=["default"])
    await light.run_until_idle()
    assert await rig.status(handle) is Status.AWAITING_PROMISE
    assert await (await rig.make_worker(queues=["heavy"])).run_until_idle() == 1
    await light.run_until_idle()
    assert "child" in await handle.result()


async def test_a_child_whose_caller_is_gone_reports_to_nobody(rig: Rig) -> None:
    """E10: children of a parent that ended go on."""

    @rig.app.workflow
    async def child(ctx: Context) -> str:
        await ctx.signal("go", int)
        return "grown up"

    @rig.app.workflow
    async def parent(ctx: Context) -> str:
        ctx.invoke(child)
        return "gone"

    handle = await parent.start()
    assert await rig.result(handle) == "gone"
    orphan = rig.app.handle(handle.id.child(0))
    await orphan.signal("go", 1)
    assert await rig.result(orphan) == "grown up"


@dataclass
class Parcel:
    weight: int


@COLD
async def test_a_machine_is_called_and_awaited_like_a_task(rig: Rig, cold: bool) -> None:
    @rig.app.machine
    class Shipment(Machine[Parcel]):
        @step(initial=True)
        async def ship(self, ctx: MachineContext[Parcel]) -> Outcome:
            return Await("delivered", self.end, ctx.state)

        @step
        async def end(self, ctx: MachineContext[Parcel]) -> Outcome:
            return Done({"kilos": ctx.state.weight})

    @rig.app.machine(retry=RetryPolicy(max_attempts=1))
    class Broken(Machine[int]):
        @step(initial=True)
        async def fail(self, ctx: MachineContext[int]) -> Outcome:
            return Stop("it broke")

    @rig.app.workflow
    async def work(ctx: Context) -> list[Any]:
        shipped = await ctx.invoke(Shipment, Parcel(3))
        try:
            await ctx.invoke(Broken, 1)
        except TaskFailed as error:
            return [shipped, str(error)]
        return [shipped]

    handle = await work.start()
    await rig.make_worker(warm_most=0 if cold else None)
    await rig.run()
    machine = rig.app.handle(handle.id.child(0))
    await machine.signal("delivered")
    shipped, error = await rig.result(handle)
    assert shipped == {"kilos": 3}
    assert "it broke" in error


async def test_a_child_survives_the_death_of_its_parents_worker(rig: Rig) -> None:
    @rig.app.workflow
    async def child(ctx: Context) -> int:
        return await ctx.signal("n", int)

    @rig.app.workflow
    async def parent(ctx: Context) -> int:
        return 1 + await child()

    handle = await parent.start()
    first = await rig.worker()
    await first.run_until_idle()
    await rig.make_worker()
    await rig.kill(first)
    await rig.app.handle(PromiseId.parse(f"{handle.id}.0")).signal("n", 41)
    assert await rig.result(handle) == 42
