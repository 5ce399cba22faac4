"""Which hook gets which signal, where several wait for one name."""

from __future__ import annotations

from holdfast import Done, Flow, Machine, MachineContext, Status, step
from holdfast.core.identity import PromiseId
from holdfast.store.values import Delivery, NewSignal
from tests.engine.rig import Rig


def two_hooks(rig: Rig, got: list[tuple[str, int]]) -> Flow:
    flow = rig.app.flow("two")

    @flow.activity
    async def begin(n: int) -> int:
        return n

    @flow.hook(after=begin, signal="go")
    async def first(n: int, by: int) -> None:
        got.append(("first", by))

    @flow.hook(after=begin, signal="go")
    async def second(n: int, by: int) -> None:
        got.append(("second", by))

    return flow


async def test_two_signals_of_one_call_go_to_two_hooks(rig: Rig) -> None:
    """Ruling E2: both hooks wait, and neither signal may stay behind in the job's inbox."""
    got: list[tuple[str, int]] = []
    handle = await two_hooks(rig, got).start(1)
    await rig.run()
    signals = [NewSignal(handle.id.to_bytes(), "go", payload) for payload in ("1", "2")]
    assert await (await rig.store()).deliver(signals) == [Delivery.DELIVERED] * 2
    await rig.run()
    assert sorted(got) == [("first", 1), ("second", 2)]
    assert await handle.status() is Status.DONE


async def test_two_signals_of_one_commit_go_to_two_hooks(rig: Rig) -> None:
    got: list[tuple[str, int]] = []
    handle = await two_hooks(rig, got).start(1)

    @rig.app.machine
    class Sender(Machine[str]):
        @step(initial=True)
        async def send(self, ctx: MachineContext[str]) -> Done:
            for number in (1, 2):
                ctx.signal(PromiseId.parse(ctx.state), "go", number)
            return Done()

    await rig.run()
    await Sender.start(str(handle.id))
    await rig.run()
    assert sorted(got) == [("first", 1), ("second", 2)]
    assert await handle.status() is Status.DONE
