"""Children: fan-out, barrier, quorum, deadline (seed section 11; rulings E7, E10), as a machine's user meets them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast import (
    Child,
    ChildResult,
    Done,
    Machine,
    MachineContext,
    Next,
    Outcome,
    Replay,
    ScheduleChildren,
    Status,
    Stop,
    Unique,
    step,
)
from holdfast.core.errors import NotFoundError
from tests.engine.rig import Rig

Join = Callable[[Any, MachineContext[int]], Outcome]


def results(machine: Any, ctx: MachineContext[int]) -> Outcome:
    return Done([child.result for child in ctx.children])


class Family:
    """A `Leaf` that ends as its state says, and a `Tree` that spawns `children` and then does what `join` says."""

    def __init__(
        self,
        rig: Rig,
        children: Sequence[Child[Any]],
        join: Join = results,
        *,
        quorum: int | None = None,
        timeout: float | None = None,
    ) -> None:
        self.seen: list[tuple[ChildResult, ...]] = []
        outer = self

        @rig.app.machine
        class Leaf(Machine[int]):
            @step(initial=True)
            async def first(self, ctx: MachineContext[int]) -> Outcome:
                if ctx.state < 0:
                    return Stop(f"no roots of {ctx.state}")
                return Replay(ctx.state, delay=1000) if ctx.state > 99 and ctx.attempt == 0 else Done(ctx.state)

            @step
            async def second(self, ctx: MachineContext[int]) -> Outcome:
                return Done(f"second {ctx.state}")

        @rig.app.machine
        class Tree(Machine[int]):
            @step(initial=True)
            async def split(self, ctx: MachineContext[int]) -> Outcome:
                return ScheduleChildren(self.join, children, ctx.state, quorum=quorum, timeout=timeout)

            @step
            async def join(self, ctx: MachineContext[int]) -> Outcome:
                outer.seen.append(ctx.children)
                return join(self, ctx)

            @step
            async def after(self, ctx: MachineContext[int]) -> Outcome:
                outer.seen.append(ctx.children)
                return Done()

        self.leaf, self.tree = Leaf, Tree


def leaves(*states: int, **options: Any) -> list[Child[int]]:
    return [Child("Leaf", state, **options) for state in states]


async def test_children_are_given_in_the_order_they_were_spawned(rig: Rig) -> None:
    family = Family(rig, leaves(3, 1, 2))
    handle = await family.tree.start(0)
    await rig.run()
    assert await handle.result() == [3, 1, 2]
    assert [child.id for child in family.seen[0]] == [handle.id.child(n) for n in range(3)]


async def test_a_child_shows_what_became_of_it(rig: Rig) -> None:
    """Section 11, wake-up: `{id, fsm, status, state, result, last_error}`."""
    family = Family(rig, leaves(5, -4))
    await family.tree.start(0)
    await rig.run()
    done, failed = family.seen[0]
    assert (done.machine, done.status, done.is_done, done.error) == ("Leaf", Status.DONE, True, None)
    assert (done.result_as(int), done.state_as(int)) == (5, 5)
    assert (failed.status, failed.is_done, failed.result, failed.state_as(int)) == (Status.FAILED, False, None, -4)
    assert failed.error is not None
    assert failed.error.message == "no roots of -4"


async def test_the_barrier_waits_for_termination_not_for_success(rig: Rig) -> None:
    """Section 11, failures: the parent decides; the engine does not propagate."""
    family = Family(rig, leaves(-1, -2))
    handle = await family.tree.start(0)
    await rig.run()
    assert await handle.result() == [None, None]


async def test_the_barrier_waits_for_the_last_child(rig: Rig) -> None:
    family = Family(rig, leaves(1, 100))
    handle = await family.tree.start(0)
    await rig.run()
    view = await rig.view(handle)
    assert (view.status, view.children_pending) == (Status.AWAITING_CHILDREN, 1)
    await rig.advance(1000)
    await rig.run()
    assert await handle.result() == [1, 100]


async def test_the_spawning_step_is_not_run_again(rig: Rig) -> None:
    """Section 11: the parent re-runs at its next step, so there is no re-spawning."""
    family = Family(rig, leaves(1), lambda machine, ctx: Replay(0) if ctx.attempt < 2 else results(machine, ctx))
    handle = await family.tree.start(0)
    await rig.run()
    assert [[child.result for child in seen] for seen in family.seen] == [[1], [1], [1]]
    assert len(await (await rig.store()).children(handle.id.to_bytes())) == 1


async def test_a_cancelled_child_releases_its_slot(rig: Rig) -> None:
    family = Family(rig, leaves(1, 100))
    handle = await family.tree.start(0)
    await rig.run()
    await rig.app.handle(handle.id.child(1)).cancel()
    await rig.run()
    assert await handle.result() == [1, None]
    assert family.seen[0][1].status is Status.CANCELLED


async def test_no_children_is_a_barrier_already_satisfied(rig: Rig) -> None:
    family = Family(rig, [])
    handle = await family.tree.start(0)
    await rig.run()
    assert await handle.result() == []
    assert family.seen == [()]


async def test_children_dropped_by_their_unique_key_are_not_waited_for(rig: Rig) -> None:
    """Section 11: `children_pending` is the number actually inserted."""
    family = Family(rig, leaves(1, 2, unique=Unique(key="one")) + leaves(3))
    handle = await family.tree.start(0)
    await rig.run()
    assert await handle.result() == [1, 3]


async def test_if_every_child_is_dropped_the_parent_goes_on_at_once(rig: Rig) -> None:
    family = Family(rig, leaves(1, 2, unique=Unique(key="one")))
    await family.leaf.options(unique=Unique(key="one"), delay=1000).start(0)
    handle = await family.tree.start(0)
    await rig.run()
    assert await handle.result() == []


async def test_a_quorum_releases_the_barrier_early(rig: Rig) -> None:
    family = Family(rig, leaves(1, 100, 2, 101), quorum=2)
    handle = await family.tree.start(0)
    await rig.run()
    assert await handle.result() == [1, None, 2, None]
    assert [child.status for child in family.seen[0]].count(Status.RUNNABLE) == 2


async def test_the_rest_of_a_quorum_keeps_running(rig: Rig) -> None:
    """Ruling E10: an ended parent does not touch its children, nor they it."""
    family = Family(rig, leaves(1, 100), quorum=1)
    handle = await family.tree.start(0)
    await rig.run()
    assert await handle.status() is Status.DONE
    await rig.advance(1000)
    await rig.run()
    assert await rig.app.handle(handle.id.child(1)).result() == 100
    assert await handle.status() is Status.DONE


async def test_a_quorum_above_the_number_of_children_means_all(rig: Rig) -> None:
    family = Family(rig, leaves(1, 2), quorum=7)
    handle = await family.tree.start(0)
    await rig.run()
    assert await handle.result() == [1, 2]


async def test_a_deadline_releases_the_barrier_with_timed_out(rig: Rig) -> None:
    def join(machine: Any, ctx: MachineContext[int]) -> Outcome:
        return Done([ctx.timed_out, [str(child.status) for child in ctx.children]])

    family = Family(rig, leaves(1, 100), join, timeout=60)
    handle = await family.tree.start(0)
    await rig.run()
    assert await handle.status() is Status.AWAITING_CHILDREN
    await rig.advance(60)
    await rig.run()
    assert await handle.result() == [True, ["done", "runnable"]]


async def test_children_in_time_disarm_the_deadline(rig: Rig) -> None:
    family = Family(rig, leaves(1), lambda machine, ctx: Done(ctx.timed_out), timeout=60)
    handle = await family.tree.start(0)
    await rig.run()
    assert await handle.result() is False
    assert (await rig.view(handle)).wake_at is None


async def test_children_of_an_earlier_round_do_not_count(rig: Rig) -> None:
    """Ruling E7: `ctx.children` holds those of the barrier just released; a late one of before changes nothing."""

    @rig.app.machine
    class Leaf(Machine[int]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            return Replay(ctx.state, delay=1000) if ctx.state > 99 and ctx.attempt == 0 else Done(ctx.state)

    @rig.app.machine
    class Rounds(Machine[list[list[int]]]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[list[list[int]]]) -> Outcome:
            return ScheduleChildren(self.second, [Child(Leaf, 1), Child(Leaf, 100)], ctx.state, quorum=1)

        @step
        async def second(self, ctx: MachineContext[list[list[int]]]) -> Outcome:
            state = [*ctx.state, [child.state_as(int) for child in ctx.children]]
            return ScheduleChildren(self.third, [Child(Leaf, 101), Child(Leaf, 102, delay=2000)], state)

        @step
        async def third(self, ctx: MachineContext[list[list[int]]]) -> Outcome:
            return Done([*ctx.state, [child.state_as(int) for child in ctx.children]])

    handle = await Rounds.start([])
    await rig.run()
    await rig.advance(1000)
    await rig.run()
    assert (await rig.view(handle)).children_pending == 1, "the late child of round one did not count in round two"
    await rig.advance(2000)
    await rig.run()
    await rig.advance(1000)
    await rig.run()
    assert await handle.result() == [[1, 100], [101, 102]]


async def test_after_the_join_step_there_are_no_children(rig: Rig) -> None:
    family = Family(rig, leaves(1), lambda machine, ctx: Next(machine.after, 0))
    await family.tree.start(0)
    await rig.run()
    assert [len(seen) for seen in family.seen] == [1, 0]


async def test_nesting_is_free(rig: Rig) -> None:
    """Section 11: each level is an independent barrier."""

    @rig.app.machine
    class Sum(Machine[int]):
        @step(initial=True)
        async def split(self, ctx: MachineContext[int]) -> Outcome:
            if ctx.state == 0:
                return Done(1)
            return ScheduleChildren(self.join, [Child("Sum", ctx.state - 1)] * 2, ctx.state)

        @step
        async def join(self, ctx: MachineContext[int]) -> Outcome:
            return Done(sum(child.result for child in ctx.children))

    handle = await Sum.start(5)
    await rig.run()
    assert await handle.result() == 32


async def test_a_child_may_be_of_any_kind_of_machine_and_have_options(rig: Rig) -> None:
    """Section 11, shape: each child is an ordinary insert."""
    family = Family(
        rig,
        [Child("Leaf", 7, step="second", queue="slow", priority=-3, partition_key="depot", delay=10), Child("Leaf", 8)],
    )
    handle = await family.tree.start(0)
    await rig.run()
    view = await rig.view(rig.app.handle(handle.id.child(0)))
    assert (view.step, view.queue, view.priority, view.partition_key) == ("second", "slow", -3, "depot")
    assert (view.eligible_at - rig.now).total_seconds() == 10
    assert view.parent == handle.id.to_bytes()
    await rig.advance(10)
    slow = await rig.make_worker(queues=["slow", "default"])
    await slow.run_until_idle()
    assert await handle.result() == ["second 7", 8]


async def test_a_child_is_named_by_its_class_or_by_name_and_version(rig: Rig) -> None:
    @rig.app.machine(name="Leaf", version=1)
    class LeafV1(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done("v1")

    @rig.app.machine(name="Leaf", version=2)
    class LeafV2(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done("v2")

    @rig.app.machine
    class Tree(Machine[int]):
        @step(initial=True)
        async def split(self, ctx: MachineContext[int]) -> Outcome:
            children = [Child(LeafV1, 0), Child(LeafV2, 0), Child("Leaf", 0), Child("Leaf", 0, version=1)]
            return ScheduleChildren(self.join, children, ctx.state)

        @step
        async def join(self, ctx: MachineContext[int]) -> Outcome:
            return Done([child.result for child in ctx.children])

    handle = await Tree.start(0)
    await rig.run()
    assert await handle.result() == ["v1", "v2", "v2", "v1"]


async def test_spawn_and_park_are_one_commit(rig: Rig) -> None:
    """Section 11: one child that cannot be started means that none was, and the parent did not park."""
    family = Family(rig, [*leaves(1, 2), Child("Leaf", "three")])
    handle = await family.tree.start(0)
    await rig.run()
    assert await handle.status() is Status.RUNNABLE
    assert await (await rig.store()).children(handle.id.to_bytes()) == []


async def test_children_stay_after_they_were_read(rig: Rig) -> None:
    """Section 11: unlike consumed signals; retention removes them later."""
    family = Family(rig, leaves(1, 2))
    handle = await family.tree.start(0)
    await rig.run()
    assert await rig.app.handle(handle.id.child(0)).result() == 1
    with pytest.raises(NotFoundError):
        await rig.app.handle(handle.id.child(2)).describe()


async def test_a_thousand_children(rig: Rig) -> None:
    family = Family(rig, leaves(*range(1, 90)) * 12, lambda machine, ctx: Done(sum(c.result for c in ctx.children)))
    handle = await family.tree.start(0)
    await rig.run()
    assert await handle.result() == sum(range(1, 90)) * 12
    assert len(family.seen[0]) == 1068
