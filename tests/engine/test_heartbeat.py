"""The worker's lease: beaten from a thread of its own; a lost one ends everything that was at work under it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Done, Handle, Machine, MachineContext, Outcome, Status, step
from holdfast.core.errors import StoreUnavailableError
from holdfast.engine import standstill
from holdfast.engine.heartbeat import Heartbeat
from holdfast.store.base import Store
from holdfast.testing.hand import Hand
from holdfast.testing.stores import Stores
from tests.engine.rig import LEASE_PASSED, Faulty, Rig, renamed


class Pulse:
    """A heartbeat whose beats can be waited for, and made to fail."""

    def __init__(self, stores: Stores, lease_seconds: float = 30.0) -> None:
        self.stores = stores
        self.worker = "w1"
        self.lost: list[str] = []
        self.was_lost = asyncio.Event()
        self.threads: set[int] = set()
        self.failures: list[Exception] = []
        self._loop = asyncio.get_running_loop()
        self._beaten = asyncio.Event()
        self.beats = 0
        self.heartbeat = Heartbeat(
            Siblings(self, stores.store).as_store(), lambda: self.worker, lease_seconds, self.lose
        )

    def lose(self, worker: str) -> None:
        self.lost.append(worker)
        self.was_lost.set()

    def on_call(self, name: str, arguments: tuple[Any, ...]) -> None:
        """In the thread of the heartbeat."""
        if name == "beat":
            self.threads.add(threading.get_ident())
            if self.failures:
                raise self.failures.pop(0)
            self._loop.call_soon_threadsafe(self._beat)

    def _beat(self) -> None:
        self.beats += 1
        self._beaten.set()

    async def beaten(self, times: int) -> None:
        goal = self.beats + times
        while self.beats < goal:
            self._beaten.clear()
            await self._beaten.wait()


class Siblings(Faulty):
    """Its sibling is watched as well."""

    def __init__(self, pulse: Pulse, store: Store) -> None:
        super().__init__(store)
        self._pulse = pulse
        self.check = pulse.on_call

    def sibling(self) -> Store:
        return Siblings(self._pulse, self._store.sibling()).as_store()


@pytest.fixture
async def pulse(stores: Stores) -> AsyncIterator[Pulse]:
    await Hand(stores.store).start()
    made = Pulse(stores, lease_seconds=0.02)
    yield made
    await made.heartbeat.stop()


async def test_a_beat_extends_the_lease(stores: Stores) -> None:
    await Hand(stores.store).start()
    pulse = Pulse(stores)
    await stores.advance(20)
    assert await pulse.heartbeat.run_once()
    (worker,) = await stores.store.workers()
    assert worker.expires_at == stores.clock.now + timedelta(seconds=30)


async def test_a_beat_without_a_lease_says_so(stores: Stores) -> None:
    pulse = Pulse(stores)
    assert not await pulse.heartbeat.run_once()
    await pulse.was_lost.wait()
    assert pulse.lost == ["w1"]


async def test_the_heart_beats_in_a_thread_of_its_own(pulse: Pulse) -> None:
    """So that a busy event loop never costs a lease."""
    await pulse.heartbeat.start()
    await pulse.beaten(3)
    assert threading.get_ident() not in pulse.threads
    assert len(pulse.threads) == 1
    assert pulse.lost == []


async def test_a_loop_that_is_stuck_does_not_stop_the_heart_and_is_told(
    pulse: Pulse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(standstill, "STILL_SECONDS", 0.0)
    loop, turned = asyncio.get_running_loop(), asyncio.Event()
    beaten = threading.Event()
    count = 0

    def on_call(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        count += name == "beat"
        if count == 5:
            beaten.set()
        if "the event loop turns again" in caplog.text:
            loop.call_soon_threadsafe(turned.set)

    pulse.on_call = on_call  # type: ignore[method-assign]
    await pulse.heartbeat.start()
    assert beaten.wait(30), "the event loop is blocked here, and yet the lease is extended"
    (told,) = [record.getMessage() for record in caplog.records]
    assert "the event loop has stood still" in told
    assert 'assert beaten.wait(30), "the event loop is blocked here' in told, "the line is named"
    await turned.wait()


async def test_a_lost_lease_is_told_on_the_workers_loop(pulse: Pulse) -> None:
    await pulse.heartbeat.start()
    await pulse.beaten(1)
    await pulse.stores.store.retire_worker("w1")
    await pulse.was_lost.wait()
    assert set(pulse.lost) == {"w1"}


async def test_a_new_identity_is_beaten_next(pulse: Pulse) -> None:
    await pulse.heartbeat.start()
    await pulse.beaten(1)
    await pulse.stores.store.retire_worker("w1")
    await pulse.was_lost.wait()
    await Hand(pulse.stores.store, "w2").start()
    pulse.worker = "w2"
    await pulse.beaten(3)
    lost = len(pulse.lost)
    await pulse.beaten(3)
    assert len(pulse.lost) == lost


@pytest.mark.parametrize("error", [StoreUnavailableError("cut"), ValueError("unexpected")])
async def test_a_beat_that_fails_is_not_the_last(
    pulse: Pulse, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    pulse.failures = [error, error]
    with caplog.at_level(logging.WARNING, "holdfast.engine"):
        await pulse.heartbeat.start()
        await pulse.beaten(2)
    assert caplog.text.count("heartbeat") >= 2
    assert pulse.lost == []


async def test_stop_ends_the_thread(pulse: Pulse) -> None:
    await pulse.heartbeat.start()
    await pulse.beaten(1)
    await pulse.heartbeat.stop()
    assert not any(thread.name == "holdfast-heartbeat" for thread in threading.enumerate())
    await pulse.heartbeat.stop()


async def test_a_beat_that_gets_no_answer_does_not_hold_who_leaves(
    pulse: Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.heartbeat.LAST_BEAT_SECONDS", 0.05)
    asked = threading.Event()

    async def silence(store: object = None) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    monkeypatch.setattr(pulse.heartbeat, "run_once", silence)
    await pulse.heartbeat.start()
    await asyncio.to_thread(asked.wait)
    async with asyncio.timeout(10):
        await pulse.heartbeat.stop()


async def test_a_heart_that_was_just_started_is_stopped(pulse: Pulse) -> None:
    for _ in range(20):
        await pulse.heartbeat.start()
        await pulse.heartbeat.stop()
        assert not any(thread.name == "holdfast-heartbeat" for thread in threading.enumerate())


# ---------------------------------------------------------------------- what a worker does when its lease is lost


class Lost:
    """A machine whose first run blocks until it is cancelled."""

    def __init__(self, rig: Rig) -> None:
        self.begun = asyncio.Event()
        self.ended: list[str] = []
        outer = self

        @rig.app.machine
        class Blocks(Machine[int]):
            @step(initial=True)
            async def only(self, ctx: MachineContext[int]) -> Outcome:
                if ctx.attempt == 0:
                    outer.begun.set()
                    try:
                        await asyncio.Event().wait()
                    except asyncio.CancelledError:
                        outer.ended.append("cancelled")
                        raise
                return Done(ctx.attempt)

        self.machine = Blocks


async def lose_lease(rig: Rig, lost: Lost) -> tuple[Handle[Any], str, str]:
    """A worker is suspended past its lease in the middle of a step, and finds out at its next beat."""
    handle = await lost.machine.start(0)
    worker = await rig.make_worker()
    before = worker.id
    working = asyncio.create_task(worker.run_once())
    await lost.begun.wait()
    await rig.stores.advance(LEASE_PASSED)
    await rig.stores.store.reap(100, 10)
    assert not await worker.beat_once()
    await working
    await renamed(worker)
    return handle, before, worker.id


async def test_a_worker_that_lost_its_lease_stops_what_it_was_doing(rig: Rig) -> None:
    """Nothing is recorded: the step belongs to others now."""
    lost = Lost(rig)
    handle, _, _ = await lose_lease(rig, lost)
    assert lost.ended == ["cancelled"]
    view = await rig.view(handle)
    assert (view.status, view.attempt, view.revision) == (Status.RUNNABLE, 1, 0)


async def test_a_worker_that_lost_its_lease_goes_on_under_a_new_name(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """PEERS: a fresh random id, never a reused one."""
    lost = Lost(rig)
    handle, before, after = await lose_lease(rig, lost)
    assert before != after
    assert f"worker {before} lost its lease" in caplog.text
    await rig.run()
    assert await handle.result() == 1
    assert [worker.id for worker in await rig.stores.store.workers()] == [after]


async def test_a_picker_that_finds_its_lease_gone_changes_the_name_too(rig: Rig) -> None:
    lost = Lost(rig)
    await lost.machine.start(0)
    worker = await rig.make_worker()
    before = worker.id
    await rig.stores.store.retire_worker(before)
    assert await worker.run_once() == 0
    await renamed(worker)
    assert worker.id != before
    working = asyncio.create_task(worker.run_once())
    await lost.begun.wait()
    assert worker.active == 1
    await rig.stop(worker, 0)
    await working


async def test_a_name_is_found_even_if_the_store_is_away_at_first(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = Faulty(rig.stores.unopened())
    other = Rig(rig.stores, store=faulty.as_store())
    try:
        other.app.machine(Idle)
        worker = await other.make_worker()
        before = worker.id
        faulty.fail("register_worker", StoreUnavailableError("down"), StoreUnavailableError("down"))
        sleep = asyncio.sleep
        monkeypatch.setattr("holdfast.engine.worker.asyncio.sleep", lambda seconds: sleep(0))
        await rig.stores.store.retire_worker(before)
        await worker.beat_once()
        await renamed(worker)
        assert worker.id != before
        assert await worker.beat_once()
        assert faulty.pending() == 0
    finally:
        await other.close()


async def test_a_worker_that_takes_a_new_name_of_a_silent_server_can_leave(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for waits in ("SETTLE_SECONDS", "SIGN_OFF_SECONDS"):
        monkeypatch.setattr(f"holdfast.engine.worker.{waits}", 0.01)
    faulty = Faulty(rig.stores.unopened())
    other = Rig(rig.stores, store=faulty.as_store())
    asked = asyncio.Event()

    async def silence(*_: object, **__: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    try:
        other.app.machine(Idle)
        worker = await other.make_worker()
        faulty.on_call = {"register_worker": silence, "retire_worker": silence}
        await rig.stores.store.retire_worker(worker.id)
        await worker.beat_once()
        await asked.wait()
        async with asyncio.timeout(10):
            await other.stop(worker, 0)
    finally:
        await other.close()


class Idle(Machine[int]):
    @step(initial=True)
    async def only(self, ctx: MachineContext[int]) -> Outcome:
        return Done()
