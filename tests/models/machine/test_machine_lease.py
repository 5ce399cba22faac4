"""A kept lease (ruling E11): one commit a step and no pick; cancel, pause, priorities and signals are honoured."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Done, Machine, MachineContext, Next, Outcome, Status, step
from tests.engine.rig import Rig


@pytest.fixture
def ran() -> list[tuple[str, int]]:
    return []


class Gate:
    """Holds up the step that comes to it."""

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def pass_through(self) -> None:
        self.reached.set()
        await self.opened.wait()


def counting(rig: Rig, ran: list[tuple[str, int]], name: str = "Count", gate: Gate | None = None) -> type[Machine[int]]:
    """Counts its state down to 0, one step a number; at 5 it waits for `gate`."""

    class Count(Machine[int]):
        @step(initial=True)
        async def down(self, ctx: MachineContext[int]) -> Outcome:
            ran.append((ctx.machine, ctx.state))
            if gate is not None and ctx.state == 5:
                await gate.pass_through()
            await rig.stores.advance(1)  # so that who goes back to the queue is behind who waits in it
            return Next(self.down, ctx.state - 1) if ctx.state else Done()

    return rig.app.machine(name=name)(Count)


async def test_ten_steps_take_one_pick_and_a_commit_each(rig: Rig, ran: list[tuple[str, int]]) -> None:
    machine = counting(rig, ran)
    await machine.start(9)
    worker = await rig.worker()
    assert await worker.run_once() == 1
    assert (worker.counters["picks"], worker.counters["commits"]) == (1, 10)
    assert [state for _, state in ran] == list(range(9, -1, -1))


async def test_every_step_under_a_kept_lease_is_committed_before_the_next(rig: Rig) -> None:
    """Step, state, attempt and revision are as after a pick of their own."""
    rows = []

    @rig.app.machine
    class Looks(Machine[int]):
        @step(initial=True)
        async def look(self, ctx: MachineContext[int]) -> Outcome:
            view = await (await rig.store()).get(ctx.id.to_bytes())
            assert view is not None
            rows.append((view.status, view.state, view.attempt, view.revision, view.lease_epoch))
            return Next(self.look, ctx.state + 1) if ctx.state < 2 else Done()

    await Looks.start(0)
    await rig.run()
    assert rows == [(Status.EXECUTING, str(n), 0, n, 1) for n in range(3)]


async def test_with_room_for_others_a_lease_is_kept_past_the_bound(rig: Rig, ran: list[tuple[str, int]]) -> None:
    """Nobody waits for a free place, so nobody is kept waiting."""
    machine = counting(rig, ran)
    await machine.start(9)
    worker = await rig.make_worker(keep_steps=2)
    assert await worker.run_once() == 1
    assert worker.counters["picks"] == 1
    assert len(ran) == 10


async def test_a_full_worker_gives_way_after_the_bound(rig: Rig, ran: list[tuple[str, int]]) -> None:
    """Fairness: with every place taken, a long execution goes back to the queue now and then."""
    long, short = counting(rig, ran, "Long"), counting(rig, ran, "Short")
    await long.start(9)
    await short.start(0)
    worker = await rig.make_worker(concurrency=1, keep_steps=3, keep_seconds=3600)
    await worker.run_until_idle()
    order = [name for name, _ in ran]
    assert order == ["Long"] * 3 + ["Short"] + ["Long"] * 7


@pytest.mark.parametrize(
    ("priority", "order"),
    [
        (-1, ["Long"] * 5 + ["Other"] + ["Long"] * 5),
        (0, ["Long"] * 10 + ["Other"]),
        (5, ["Long"] * 10 + ["Other"]),
    ],
)
async def test_a_higher_priority_that_waits_is_served_before_the_next_step(
    rig: Rig, ran: list[tuple[str, int]], priority: int, order: list[str]
) -> None:
    """Ruling E11: waiting higher priorities are honoured between steps; others wait for the bound."""
    gate = Gate()
    long, other = counting(rig, ran, "Long", gate), counting(rig, ran, "Other")
    worker = await rig.make_worker(concurrency=1, keep_seconds=3600)
    await long.start(9)
    working = asyncio.create_task(worker.run_once())
    await gate.reached.wait()
    await other.options(priority=priority).start(0)
    await worker._picker.run_once()  # a full worker looks at what waits
    gate.opened.set()
    await working
    await worker.run_until_idle()
    assert [name for name, _ in ran] == order


async def test_a_partition_key_is_kept_until_its_row_ends(rig: Rig, ran: list[tuple[str, int]]) -> None:
    """Or another of its key would slip in between two steps."""
    machine = counting(rig, ran)
    worker = await rig.make_worker(concurrency=1, keep_steps=1)
    await machine.options(partition_key="k").start(4)
    assert await worker.run_once() == 1
    assert len(ran) == 5


async def test_signals_that_arrive_under_a_kept_lease_are_seen_by_the_next_step(rig: Rig) -> None:
    """As they would be after a fresh pick."""
    seen: list[list[str]] = []

    @rig.app.machine
    class Listens(Machine[int]):
        @step(initial=True)
        async def listen(self, ctx: MachineContext[int]) -> Outcome:
            seen.append([signal.name for signal in ctx.inbox])
            await rig.app.handle(ctx.id).signal(f"s{ctx.state}")
            return Next(self.listen, ctx.state + 1) if ctx.state < 2 else Done()

    await Listens.start(0)
    worker = await rig.worker()
    assert await worker.run_once() == 1
    assert seen == [[], ["s0"], ["s0", "s1"]]


async def test_a_stopping_worker_keeps_no_lease(rig: Rig, ran: list[tuple[str, int]]) -> None:
    """Asked after the step: what was at work when the drain began finishes its step, not another one."""
    gate = Gate()
    machine = counting(rig, ran, gate=gate)
    handle = await machine.start(9)
    worker = await rig.make_worker()
    working = asyncio.create_task(worker.run_once())
    await gate.reached.wait()
    stopping = asyncio.create_task(rig.stop(worker))
    await asyncio.sleep(0)
    gate.opened.set()
    await asyncio.gather(working, stopping)
    view = await rig.view(handle)
    assert (view.status, view.state, view.attempt) == (Status.RUNNABLE, "4", 0)
    assert [state for _, state in ran] == [9, 8, 7, 6, 5]
