"""Deadlines of an await: a wake with `ctx.timed_out`, and signals that race with it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Await, Done, Machine, MachineContext, Outcome, Replay, Status, step
from holdfast.verify.auditor import audit
from tests.engine.rig import Rig
from tests.models.machine.waiting import Log, go_on


@pytest.mark.parametrize("timeout", [120, timedelta(minutes=2)])
async def test_a_deadline_wakes_with_timed_out(rig: Rig, timeout: Any) -> None:
    log = Log(rig, "go", go_on, timeout=timeout)
    handle = await log.machine.start(0)
    await rig.run()
    assert (await rig.view(handle)).wake_at == rig.now + timedelta(minutes=2)
    await rig.advance(119)
    assert await rig.run() == 0
    await rig.advance(1)
    await rig.run()
    assert log.seen == [([], [], True), ([], [], False)], "only the woken step has timed out"


async def test_a_signal_in_time_disarms_the_deadline(rig: Rig) -> None:
    @rig.app.machine
    class Waits(Machine[int]):
        @step(initial=True)
        async def ask(self, ctx: MachineContext[int]) -> Outcome:
            return Await("go", self.woken, ctx.state, timeout=10)

        @step
        async def woken(self, ctx: MachineContext[int]) -> Outcome:
            return Await("never", self.last, ctx.state)

        @step
        async def last(self, ctx: MachineContext[int]) -> Outcome:
            return Done()

    handle = await Waits.start(0)
    await rig.run()
    await handle.signal("go")
    await rig.run()
    await rig.advance(3600)
    assert await rig.run() == 0
    assert await handle.status() is Status.AWAITING_SIGNAL


async def test_a_signal_that_races_with_the_deadline_is_not_called_late(rig: Rig) -> None:
    """The deadline fired, then the signal came, then the step ran: it has what it waited for."""
    log = Log(rig, "go", go_on, timeout=10)
    handle = await log.machine.start(0)
    await rig.run()
    await rig.advance(10)
    await (await rig.store()).fire_timers(10)
    await handle.signal("go")
    await rig.run()
    assert log.seen[0] == (["go"], ["go"], False)


async def test_a_deadline_without_names_is_a_durable_sleep(rig: Rig) -> None:
    log = Log(rig, (), go_on, timeout=timedelta(days=365))
    handle = await log.machine.start(0)
    await rig.run()
    assert await handle.status() is Status.AWAITING_SIGNAL
    await rig.advance(365 * 86_400)
    await rig.run()
    assert await handle.status() is Status.DONE


async def test_a_replay_of_a_timed_out_step_is_still_timed_out(rig: Rig) -> None:
    """Ruling E4: the redo sees the same inputs."""
    log = Log(
        rig, "go", lambda machine, ctx: Replay(ctx.state) if ctx.attempt == 0 else go_on(machine, ctx), timeout=10
    )
    await log.machine.start(0)
    await rig.run()
    await rig.advance(10)
    await rig.run()
    assert log.seen == [([], [], True), ([], [], True), ([], [], False)]


async def test_a_pack_that_is_not_complete_in_time_times_out(rig: Rig) -> None:
    """The parts collected so far are in `ctx.awaited`, and yet the step was woken by its deadline."""
    woken: list[tuple[int, bool]] = []

    @rig.app.machine
    class Packs(Machine[int]):
        @step(initial=True)
        async def collect(self, ctx: MachineContext[int]) -> Outcome:
            woken.append((len(ctx.awaited), ctx.timed_out))
            if ctx.timed_out:
                return Done(len(ctx.awaited))
            return Await("part", self.collect, ctx.state, timeout=60)

    handle = await Packs.start(0)
    await rig.run()
    await handle.signal("part")
    await rig.run()
    await rig.advance(60)
    await rig.run()
    assert woken == [(0, False), (1, False), (1, True)]
    assert await handle.result() == 1


async def test_a_machine_that_only_waits_for_a_time_is_sound(rig: Rig) -> None:
    """It names no signal, and need not: it has a way to be woken."""

    @rig.app.machine
    class Sleeps(Machine[int]):
        @step(initial=True)
        async def nap(self, ctx: MachineContext[int]) -> Outcome:
            return Await((), self.rise, ctx.state, timeout=60)

        @step
        async def rise(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.timed_out)

    handle = await Sleeps.start(0)
    await rig.run()
    assert await handle.status() is Status.AWAITING_SIGNAL
    assert (await audit(await rig.store()))[0] == []
    await rig.advance(60)
    await rig.run()
    assert await handle.result() is True
