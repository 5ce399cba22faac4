"""Await and signals (seed section 5; rulings E2-E5, E12, E13), at the level of a user's machine."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Await, Done, Machine, MachineContext, Next, Outcome, PromiseId, Replay, Status, step
from holdfast.core.errors import SignalRefusedError
from holdfast.store.values import Delivery
from tests.engine.rig import Rig


def names(ctx: MachineContext[Any]) -> list[str]:
    return [signal.name for signal in ctx.awaited]


class Log:
    """A machine that waits for `awaits`, notes what it is woken with, and then does what `then` says."""

    def __init__(self, rig: Rig, awaits: Any, then: Any, timeout: float | timedelta | None = None) -> None:
        self.seen: list[tuple[list[str], list[str], bool]] = []
        outer = self

        @rig.app.machine
        class Waits(Machine[int]):
            @step(initial=True)
            async def ask(self, ctx: MachineContext[int]) -> Outcome:
                return Await(awaits, self.woken, ctx.state, timeout=timeout)

            @step
            async def woken(self, ctx: MachineContext[int]) -> Outcome:
                outer.seen.append((names(ctx), [signal.name for signal in ctx.inbox], ctx.timed_out))
                return then(self, ctx)  # type: ignore[no-any-return]

            @step
            async def after(self, ctx: MachineContext[int]) -> Outcome:
                outer.seen.append((names(ctx), [signal.name for signal in ctx.inbox], ctx.timed_out))
                return Done()

        self.machine = Waits


def go_on(machine: Any, ctx: MachineContext[int]) -> Outcome:
    return Next(machine.after, ctx.state)


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


# ---------------------------------------------------------------------- deadlines


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


# ---------------------------------------------------------------------- sending


async def test_a_signal_to_a_finished_target_is_refused(rig: Rig) -> None:
    """Ruling E5: a typed answer, not silence."""

    @rig.app.machine
    class Ends(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done()

    handle = await Ends.start(0)
    await rig.run()
    with pytest.raises(SignalRefusedError, match=r"Ends/.* has ended, so the signal 'go'"):
        await handle.signal("go")


async def test_a_signal_to_nothing_is_refused(rig: Rig) -> None:
    """Ruling E5."""
    handle = rig.app.handle(PromiseId.of("Nobody", "k"))
    with pytest.raises(SignalRefusedError, match=r"there is no execution .* to take the signal 'go'"):
        await handle.signal("go")


async def test_a_dedup_key_holds_after_the_signal_was_consumed(rig: Rig) -> None:
    """Ruling E12: for the life of its target."""
    log = Log(rig, "go", lambda machine, ctx: Next("after", ctx.state))

    @rig.app.machine
    class Twice(Machine[int]):
        @step(initial=True)
        async def ask(self, ctx: MachineContext[int]) -> Outcome:
            return Await("go", self.ask if ctx.state else self.more, ctx.state)

        @step
        async def more(self, ctx: MachineContext[int]) -> Outcome:
            return Next(self.ask, ctx.state + 1)

    handle = await Twice.start(0)
    await rig.run()
    assert await handle.signal("go", dedup_key="d1") is Delivery.DELIVERED
    assert await handle.signal("go", dedup_key="d1") is Delivery.DUPLICATE
    await rig.run()
    view = await rig.view(handle)
    assert (view.status, view.state) == (Status.AWAITING_SIGNAL, "1"), "consumed by the progress of `more`"
    assert await handle.signal("go", dedup_key="d1") is Delivery.DUPLICATE
    assert await rig.run() == 0
    assert log.seen == []


async def test_a_dedup_key_is_of_its_target_alone(rig: Rig) -> None:
    log = Log(rig, "go", go_on)
    first, second = await log.machine.start(0), await log.machine.start(0)
    assert await first.signal("go", dedup_key="d") is Delivery.DELIVERED
    assert await second.signal("go", dedup_key="d") is Delivery.DELIVERED


async def test_a_step_sends_a_signal_in_its_own_commit(rig: Rig) -> None:
    """`ctx.signal` rides on the outcome: it is sent exactly when the step counts."""
    log = Log(rig, "go", go_on)
    target = await log.machine.start(0)
    await rig.run()

    @rig.app.machine
    class Sends(Machine[str]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[str]) -> Outcome:
            ctx.signal(PromiseId.parse(ctx.state), "go", {"from": ctx.machine})
            assert await (await rig.store()).inbox(target.id.to_bytes()) == [], "not before the commit"
            return Done()

    worker = await rig.make_worker()
    await Sends.start(str(target.id))
    await worker.run_until_idle()
    assert log.seen[0] == (["go"], ["go"], False)


@pytest.mark.parametrize("answer", ["raise", "bad outcome"])
async def test_a_failed_step_sends_nothing(rig: Rig, answer: str) -> None:
    log = Log(rig, "go", go_on)
    target = await log.machine.start(0)

    @rig.app.machine
    class Sends(Machine[str]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[str]) -> Outcome:
            ctx.signal(PromiseId.parse(ctx.state), "go", "from the step")
            if answer == "raise":
                raise ValueError("after sending")
            return Next("elsewhere", ctx.state)

        async def handle(self, error: Exception, ctx: MachineContext[str]) -> Outcome:
            ctx.signal(PromiseId.parse(ctx.state), "failed", "from handle")
            return Done()

    sender = await Sends.start(str(target.id))
    await rig.run()
    assert await sender.status() is Status.DONE
    inbox = await (await rig.store()).inbox(target.id.to_bytes())
    assert [(signal.name, signal.payload) for signal in inbox] == [("failed", '"from handle"')]


async def test_a_step_may_signal_itself(rig: Rig) -> None:
    @rig.app.machine
    class Echo(Machine[int]):
        @step(initial=True)
        async def call(self, ctx: MachineContext[int]) -> Outcome:
            ctx.signal(ctx.id, "echo", 5)
            return Await("echo", self.hear, ctx.state)

        @step
        async def hear(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.awaited[0].payload)

    handle = await Echo.start(0)
    await rig.run()
    assert await handle.result() == 5
