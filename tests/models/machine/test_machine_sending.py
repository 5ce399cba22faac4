"""Sending signals: refused, deduplicated, and in the commit of a step (seed section 5; rulings E5, E12)."""

from __future__ import annotations

import pytest

from holdfast import Await, Done, Machine, MachineContext, Next, Outcome, PromiseId, Status, step
from holdfast.core.errors import SignalRefusedError
from holdfast.store.values import Delivery
from tests.engine.rig import Rig
from tests.models.machine.waiting import Log, go_on


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
