"""Being told of new work: asked for only while idle, and looked for once more after asking."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Done, Machine, MachineContext, Outcome, step
from holdfast.engine.notifier import Notifier
from holdfast.engine.worker import Worker
from holdfast.store.base import ARMED_SECONDS
from holdfast.store.values import Topic
from holdfast.testing.hand import row
from holdfast.testing.stores import Stores
from tests.engine.rig import Faulty, Rig


class Listening:
    def __init__(self, stores: Stores) -> None:
        self.now = 1000.0
        self.heard = 0
        self.woken = asyncio.Event()
        self.armed: list[Topic] = []
        self.store = Faulty(stores.store)
        self.notifier = Notifier(self.store.as_store(), now=lambda: self.now, on_work=self.on_work)

    def on_work(self) -> None:
        self.heard += 1
        self.woken.set()

    async def watch_arming(self) -> None:
        """Open the ear, and note what it is armed for."""
        await self.notifier.run_once()
        ear = self.notifier._ear
        assert ear is not None
        arm = ear.arm

        async def noted(topic: Topic) -> None:
            self.armed.append(topic)
            await arm(topic)

        ear.arm = noted  # type: ignore[method-assign]


async def test_who_has_just_asked_looks_again_a_moment_later(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that was under way may have looked for listeners before, and be seen only after the first look."""
    monkeypatch.setattr("holdfast.engine.notifier.LATE_LOOK_SECONDS", 0.0)
    listening = Listening(stores)
    for now, expected in ((0.0, 2), (ARMED_SECONDS * 0.6, 1), (ARMED_SECONDS * 2, 2)):  # asked anew, held on to, anew
        listening.now, listening.heard = 1000.0 + now, 0
        listening.notifier.idle()
        await listening.notifier.run_once()
        await asyncio.sleep(0.01)
        assert listening.heard == expected
    await listening.notifier.stop()


async def test_a_busy_worker_asks_for_no_notifications(stores: Stores) -> None:
    """A notification costs the one who commits."""
    listening = Listening(stores)
    await listening.watch_arming()
    assert await listening.notifier.run_once() is None
    assert listening.armed == []
    assert listening.heard == 0
    await listening.notifier.stop()


async def test_an_idle_worker_asks_and_then_looks_once_more(stores: Stores) -> None:
    """What was committed between its last look and the asking would otherwise wait for the next poll."""
    listening = Listening(stores)
    await listening.watch_arming()
    listening.notifier.idle()
    await listening.notifier.run_once()
    assert listening.armed == [Topic.WORK]
    assert listening.heard == 1
    await listening.notifier.stop()


async def test_asking_is_repeated_while_idle_before_it_runs_out(stores: Stores) -> None:
    listening = Listening(stores)
    await listening.watch_arming()
    listening.notifier.idle()
    wait = await listening.notifier.run_once()
    assert wait is not None
    assert wait < ARMED_SECONDS
    listening.notifier.idle()
    listening.now += wait
    await listening.notifier.run_once()
    assert listening.armed == [Topic.WORK] * 2
    await listening.notifier.stop()


async def test_idle_again_and_again_wakes_the_notifier_only_when_it_is_time(stores: Stores) -> None:
    listening = Listening(stores)
    await listening.watch_arming()
    listening.notifier.idle()
    await listening.notifier.run_once()
    listening.notifier._woken.clear()
    listening.notifier.idle()
    assert not listening.notifier._woken.is_set()
    listening.now += ARMED_SECONDS / 2 + 1
    listening.notifier.idle()
    assert listening.notifier._woken.is_set()
    await listening.notifier.stop()


async def test_work_of_another_process_is_heard(stores: Stores) -> None:
    listening = Listening(stores)
    listening.notifier.idle()
    await listening.notifier.run_once()
    listening.woken.clear()
    other = await stores.another()
    await other.insert([row("a")])
    await listening.woken.wait()
    await listening.notifier.stop()


async def test_an_end_is_no_work(stores: Stores) -> None:
    listening = Listening(stores)
    listening.notifier._hear(Topic.ENDED)
    assert listening.heard == 0
    listening.notifier._hear(Topic.WORK)
    assert listening.heard == 1


async def test_a_stopped_notifier_closes_its_ear(stores: Stores) -> None:
    listening = Listening(stores)
    listening.notifier.idle()
    await listening.notifier.run_once()
    await listening.notifier.stop()
    await stores.store.insert([row("a")])
    late_look = listening.notifier._late_look
    assert late_look is not None
    assert late_look.cancelled()
    await asyncio.sleep(0)
    assert listening.heard == 1


async def test_an_idle_worker_begins_what_another_process_starts(rig: Rig) -> None:
    """With a poll of an hour, only the notification can have woken it."""
    ran = asyncio.Event()

    @rig.app.machine
    class Job(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            ran.set()
            return Done(ctx.state)

    async with rig.app.worker(poll_seconds=3600) as worker:
        await armed(worker)
        other = Rig(rig.stores)
        try:
            handle = await other.app.machine(name="Job")(Job2).start(7)
            await ran.wait()
            assert await handle.result() == 7
        finally:
            await other.close()


async def armed(worker: Worker) -> None:
    """Until it has asked for notifications."""
    notifier, asked = worker._notifier, asyncio.Event()
    look = notifier._on_work

    def looked() -> None:
        look()
        asked.set()

    notifier._on_work = looked
    if notifier._armed_at < 0:
        await asked.wait()


class Job2(Machine[int]):
    @step(initial=True)
    async def only(self, ctx: MachineContext[int]) -> Outcome:
        return Done(ctx.state)
