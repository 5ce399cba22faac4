"""Await (seed section 5; rulings E2-E4, E13), at the level of a user's machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import Await, Child, Done, Machine, MachineContext, Next, Outcome, Replay, ScheduleChildren, Status, step
from holdfast.store.values import Delivery
from tests.engine.rig import Rig
from tests.models.machine.waiting import Log, go_on, names


@pytest.mark.parametrize("awaits", ["go", ["go"], {"go", "stop"}, ("stop", "go"), frozenset({"go"})])
async def test_one_name_or_a_set_of_names_can_be_awaited(rig: Rig, awaits: Any) -> None:
    log = Log(rig, awaits, go_on)
    handle = await log.machine.start(0)
    await rig.run()
    await handle.signal("go")
    await rig.run()
    assert log.seen[0] == (["go"], ["go"], False)


async def test_a_signal_of_another_name_wakes_nothing_and_stays(rig: Rig) -> None:
    """Section 5: only on a name match; non-matching signals stay in the inbox, visible as `ctx.inbox` (E13)."""
    log = Log(rig, "go", go_on)
    handle = await log.machine.start(0)
    await rig.run()
    assert await handle.signal("other") is Delivery.DELIVERED
    assert await rig.run() == 0
    assert await handle.status() is Status.AWAITING_SIGNAL
    await handle.signal("go")
    await rig.run()
    assert log.seen == [(["go"], ["other", "go"], False), ([], ["other"], False)]


async def test_progress_consumes_exactly_what_was_received(rig: Rig) -> None:
    """Section 5: by received id, not by name; a signal that came after the snapshot is left alone."""
    late: list[Any] = []

    @rig.app.machine
    class Waits(Machine[int]):
        @step(initial=True)
        async def ask(self, ctx: MachineContext[int]) -> Outcome:
            return Await("go", self.woken, ctx.state)

        @step
        async def woken(self, ctx: MachineContext[int]) -> Outcome:
            await rig.app.handle(ctx.id).signal("go", "late")
            return Next(self.again, ctx.state)

        @step
        async def again(self, ctx: MachineContext[int]) -> Outcome:
            late.extend(signal.payload for signal in ctx.inbox)
            return Await("go", self.last, ctx.state)

        @step
        async def last(self, ctx: MachineContext[int]) -> Outcome:
            return Done([signal.payload for signal in ctx.awaited])

    handle = await Waits.start(0)
    await rig.run()
    await handle.signal("go", "early")
    await rig.run()
    assert late == ["late"]
    assert await handle.result() == ["late"]


async def test_spawning_children_consumes_what_was_received(rig: Rig) -> None:
    """Section 5: `:schedule_childs` is progress like `:next`."""

    @rig.app.machine
    class Spawns(Machine[int]):
        @step(initial=True)
        async def ask(self, ctx: MachineContext[int]) -> Outcome:
            return Done() if ctx.state else Await("go", self.woken, ctx.state)

        @step
        async def woken(self, ctx: MachineContext[int]) -> Outcome:
            return ScheduleChildren(self.joined, [Child("Spawns", 1)], ctx.state)

        @step
        async def joined(self, ctx: MachineContext[int]) -> Outcome:
            return Done([signal.name for signal in ctx.inbox])

    handle = await Spawns.start(0)
    await handle.signal("other")
    await handle.signal("go")
    await rig.run()
    assert await handle.result() == ["other"]


async def test_a_signal_that_came_before_the_wait_is_not_lost(rig: Rig) -> None:
    """Section 5, no lost wake-up: parking with a match in the inbox is runnable at once."""
    log = Log(rig, "go", go_on)
    handle = await log.machine.start(0)
    await handle.signal("go")
    await rig.run()
    assert log.seen[0] == (["go"], ["go"], False)
    assert await handle.status() is Status.DONE


async def test_a_signal_during_the_parking_step_is_not_lost(rig: Rig) -> None:
    """Ruling E2 at the level of a machine: delivered while executing, before the park commits."""

    @rig.app.machine
    class Waits(Machine[int]):
        @step(initial=True)
        async def ask(self, ctx: MachineContext[int]) -> Outcome:
            await rig.app.handle(ctx.id).signal("go", 1)
            return Await("go", self.woken, ctx.state)

        @step
        async def woken(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.awaited[0].payload)

    handle = await Waits.start(0)
    await rig.run()
    assert await handle.result() == 1


async def test_a_pack_is_collected_by_awaiting_again(rig: Rig) -> None:
    """Section 5: re-awaiting consumes nothing; progress consumes the whole pack. E3: no spinning on what was seen."""
    woken: list[list[str]] = []

    @rig.app.machine
    class Packs(Machine[int]):
        @step(initial=True)
        async def collect(self, ctx: MachineContext[int]) -> Outcome:
            woken.append(names(ctx))
            if len(ctx.awaited) < 3:
                return Await({"part"}, self.collect, ctx.state)
            return Next(self.whole, sum(signal.payload for signal in ctx.awaited))

        @step
        async def whole(self, ctx: MachineContext[int]) -> Outcome:
            return Done([ctx.state, len(ctx.inbox)])

    handle = await Packs.start(0)
    await rig.run()
    for part in (1, 2, 3):
        await handle.signal("part", part)
        await rig.run()
    assert await handle.result() == [6, 0]
    assert woken == [[], ["part"], ["part"] * 2, ["part"] * 3], "once for each signal, never for one already seen"


async def test_awaiting_into_another_step_sees_what_is_already_there(rig: Rig) -> None:
    """Ruling E3: only a step that awaits into itself passes over what it has seen; anything else could hang."""

    @rig.app.machine
    class Hands(Machine[int]):
        @step(initial=True)
        async def ask(self, ctx: MachineContext[int]) -> Outcome:
            return Await("go", self.first, ctx.state)

        @step
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            return Await("go", self.second, ctx.state)

        @step
        async def second(self, ctx: MachineContext[int]) -> Outcome:
            return Done([signal.payload for signal in ctx.awaited])

    handle = await Hands.start(0)
    await rig.run()
    await handle.signal("go", "kept")
    await rig.run()
    assert await handle.result() == ["kept"]


async def test_awaiting_other_names_into_itself_sees_what_is_already_there(rig: Rig) -> None:
    """Ruling E3: what is passed over is what the step received, not everything in the inbox."""

    @rig.app.machine
    class Turns(Machine[list[str]]):
        @step(initial=True)
        async def turn(self, ctx: MachineContext[list[str]]) -> Outcome:
            state = [*ctx.state, *names(ctx)]
            if "b" in state:
                return Done(state)
            return Await("b" if "a" in state else "a", self.turn, state)

    handle = await Turns.start([])
    await handle.signal("b")
    await rig.run()
    assert await handle.status() is Status.AWAITING_SIGNAL
    await handle.signal("a")
    await rig.run()
    assert await handle.result() == ["a", "b"]


async def test_await_starts_its_next_step_at_attempt_zero(rig: Rig) -> None:
    """Ruling E4: it is another step."""

    @rig.app.machine
    class Waits(Machine[int]):
        @step(initial=True)
        async def ask(self, ctx: MachineContext[int]) -> Outcome:
            return Replay(ctx.state) if ctx.attempt < 2 else Await("go", self.woken, ctx.state)

        @step
        async def woken(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.attempt)

    handle = await Waits.start(0)
    await rig.run()
    assert (await rig.view(handle)).attempt == 0
    await handle.signal("go")
    await rig.run()
    assert await handle.result() == 0


async def test_replay_keeps_the_awaited_signals(rig: Rig) -> None:
    """Ruling E4: the redo must see the same inputs."""
    log = Log(rig, "go", lambda machine, ctx: Replay(ctx.state) if ctx.attempt < 2 else go_on(machine, ctx))
    handle = await log.machine.start(0)
    await rig.run()
    await handle.signal("go")
    await rig.run()
    assert log.seen == [(["go"], ["go"], False)] * 3 + [([], [], False)]


async def test_a_retry_after_an_error_keeps_the_awaited_signals(rig: Rig) -> None:
    def fail_once(machine: Any, ctx: MachineContext[int]) -> Outcome:
        if ctx.attempt == 0:
            raise ValueError("once")
        return go_on(machine, ctx)

    log = Log(rig, "go", fail_once)
    handle = await log.machine.start(0)
    await rig.run()
    await handle.signal("go")
    await rig.run()
    await rig.advance(2)
    await rig.run()
    assert log.seen == [(["go"], ["go"], False)] * 2 + [([], [], False)]


async def test_a_step_may_inspect_the_raw_inbox(rig: Rig) -> None:
    """Section 2: await is sugar over a step that inspects the inbox itself; unawaited signals are never touched."""

    @rig.app.machine
    class Polls(Machine[int]):
        @step(initial=True)
        async def look(self, ctx: MachineContext[int]) -> Outcome:
            if not ctx.inbox:
                return Replay(ctx.state, delay=5)
            assert ctx.awaited == ()
            return Next(self.after, ctx.state)

        @step
        async def after(self, ctx: MachineContext[int]) -> Outcome:
            return Done([signal.name for signal in ctx.inbox])

    handle = await Polls.start(0)
    await rig.run()
    await handle.signal("anything")
    assert await rig.run() == 0, "nobody awaits it"
    await rig.advance(5)
    await rig.run()
    assert await handle.result() == ["anything"]


async def test_signals_are_seen_in_the_order_of_delivery(rig: Rig) -> None:
    @rig.app.machine
    class Waits(Machine[int]):
        @step(initial=True)
        async def ask(self, ctx: MachineContext[int]) -> Outcome:
            return Await({"a", "b"}, self.woken, ctx.state)

        @step
        async def woken(self, ctx: MachineContext[int]) -> Outcome:
            assert [signal.id for signal in ctx.awaited] == sorted(signal.id for signal in ctx.awaited)
            return Done([signal.payload for signal in ctx.awaited])

    handle = await Waits.start(0)
    for n in range(12):
        await handle.signal("ab"[n % 2], n)
    await rig.run()
    assert await handle.result() == list(range(12))


@dataclass(frozen=True)
class Verdict:
    ok: bool
    note: str = ""


async def test_a_payload_is_plain_json_until_it_is_given_a_type(rig: Rig) -> None:
    @rig.app.machine
    class Waits(Machine[int]):
        @step(initial=True)
        async def ask(self, ctx: MachineContext[int]) -> Outcome:
            return Await("verdict", self.woken, ctx.state)

        @step
        async def woken(self, ctx: MachineContext[int]) -> Outcome:
            (signal,) = ctx.awaited
            assert signal.payload == {"ok": True, "note": "fine"}
            return Done(signal.decode(Verdict).note)

    handle = await Waits.start(0)
    await handle.signal("verdict", Verdict(ok=True, note="fine"))
    await rig.run()
    assert await handle.result() == "fine"
