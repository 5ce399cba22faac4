"""Which hook gets which signal, where several wait for one name."""

from __future__ import annotations

import asyncio

from holdfast import Done, Flow, Machine, MachineContext, Status, step
from holdfast.core.identity import PromiseId
from holdfast.models.flow.reading import read_job
from holdfast.store.values import Delivery, NewSignal
from tests.engine.rig import Rig
from tests.models.batch.kit import until


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


async def test_a_signal_goes_to_the_hook_that_has_waited_longest(rig: Rig) -> None:
    """Not to the one with the oldest row: a child may go on in the row of its parent."""
    flow = rig.app.flow("apart")
    got: list[tuple[str, int]] = []
    is_over = asyncio.Event()

    @flow.activity
    async def begin(n: int) -> int:
        return n

    @flow.activity(after=begin)
    async def slow(n: int) -> int:
        await is_over.wait()
        return n

    @flow.hook(after=slow, signal="go")
    async def late(n: int, by: int) -> None:
        got.append(("late", by))

    @flow.hook(after=begin, signal="go")
    async def early(n: int, by: int) -> None:
        got.append(("early", by))

    handle = await flow.start(1)

    async def early_waits() -> bool:
        return await waiting_hooks(rig, handle.id) == ["early"]

    async def both_wait() -> bool:
        return await waiting_hooks(rig, handle.id) == ["late", "early"]

    async with rig.app.worker():
        await until(early_waits)
        await rig.advance(1)
        is_over.set()
        await until(both_wait)
    for number in (1, 2):
        await handle.signal("go", number)
        await rig.run()
    assert got == [("early", 1), ("late", 2)]


async def waiting_hooks(rig: Rig, job: PromiseId) -> list[str]:
    """By the age of their rows."""
    found = await read_job(await rig.store(), job.to_bytes())
    assert found is not None
    return [message.activity for message in found.messages if message.status is Status.AWAITING_SIGNAL]
