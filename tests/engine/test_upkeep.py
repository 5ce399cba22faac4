"""The loops that every worker runs for all: reaper, timers, retention."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from holdfast import Child, Done, Machine, MachineContext, Outcome, ScheduleChildren, step
from holdfast.core.status import Status
from holdfast.engine import upkeep
from holdfast.engine.upkeep import Reaper, RetentionSweep, Timers
from holdfast.store.sqlite import SqliteStore
from holdfast.store.values import NewExecution, Retention
from holdfast.testing.hand import Hand, done, park, row
from holdfast.testing.stores import Stores
from tests.engine.rig import LEASE_PASSED, Rig


class Calls:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def reaper(stores: Stores, released: Callable[[], None], max_crashes: int = 10) -> Reaper:
    return Reaper(stores.store, every_seconds=10, max_crashes=max_crashes, on_released=released)


async def test_the_reaper_takes_back_what_the_dead_held(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    """Section 4.3."""
    hand, released = await Hand(stores.store).start(), Calls()
    claim = await hand.take(row("a"))
    loop = reaper(stores, released)
    assert 8 <= (await loop.run_once() or 0) <= 12, "with jitter, so that a fleet does not reap in step"
    assert released.count == 0
    for _ in range(4):
        await stores.advance(LEASE_PASSED / 4)
        await loop.run_once()
    assert released.count == 1
    assert "the lease of worker w1 ran out" in caplog.text
    view = await hand.view(claim)
    assert (view.status, view.attempt, view.crashes) == (Status.RUNNABLE, 1, 1)


async def test_a_reaper_that_was_held_up_lets_the_living_beat_first(stores: Stores) -> None:
    """After a laptop slept, a clock was set or the store was away, every lease has run out, and nobody is dead."""
    alive, dead, released = await Hand(stores.store, "alive").start(), await Hand(stores.store, "dead").start(), Calls()
    claims = await alive.take(row("a")), await dead.take(row("b"))
    beats = Calls()

    async def beat() -> None:
        beats()

    loop = Reaper(
        stores.store,
        every_seconds=10,
        max_crashes=10,
        on_released=released,
        beat=beat,
        registered_us=await stores.store.now_us(),
    )
    await loop.run_once()
    assert beats.count == 0, "its lease has just begun"
    await stores.advance(LEASE_PASSED)
    assert await loop.run_once() == 10
    assert (released.count, beats.count) == (0, 1)
    assert await stores.store.beat(alive.name, 30)
    await stores.advance(LEASE_PASSED - 1)  # however late it is again, it has waited
    assert await stores.store.beat(alive.name, 30)
    await loop.run_once()
    assert [(await alive.view(claim)).status for claim in claims] == [Status.EXECUTING, Status.RUNNABLE]


async def test_the_reaper_strands_poison_loudly(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    hand, released = await Hand(stores.store).start(), Calls()
    claim = await hand.take(row("a"))
    await stores.advance(LEASE_PASSED)
    await reaper(stores, released, max_crashes=1).run_once()
    assert (await hand.view(claim)).status is Status.STRANDED
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert (
        "lost its worker 1 times without progress and is stranded; mend the cause, then resume" in record.getMessage()
    )
    assert released.count == 0


async def test_the_reaper_goes_on_at_once_while_there_is_more(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pass is bounded."""
    monkeypatch.setattr(upkeep, "ROWS_A_PASS", 2)
    hand = await Hand(stores.store).start()
    await hand.insert(*(row(f"e{n}") for n in range(5)))
    claims = await hand.pick()
    await stores.advance(LEASE_PASSED)
    loop = reaper(stores, Calls())
    waits = [await loop.run_once() for _ in range(3)]
    assert waits[0] == waits[1] == 0
    assert {(await hand.view(claim)).status for claim in claims} == {Status.RUNNABLE}


async def test_timers_wake_what_is_due_and_know_the_next(stores: Stores) -> None:
    hand, fired = await Hand(stores.store).start(), Calls()
    timers = Timers(stores.store, poll_seconds=5, on_fired=fired)
    assert await timers.run_once() == 5
    claim = await hand.take(row("a"))
    await hand.apply(claim, park("go", wake_after=2))
    assert await timers.run_once() == pytest.approx(2)
    await stores.advance(2)
    assert await timers.run_once() == 5
    assert fired.count == 1
    assert (await hand.view(claim)).status is Status.RUNNABLE


async def test_timers_go_on_at_once_while_there_is_more(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "ROWS_A_PASS", 2)
    hand, fired = await Hand(stores.store).start(), Calls()
    await hand.insert(*(row(f"e{n}") for n in range(3)))
    for claim in await hand.pick():
        await hand.apply(claim, park("go", wake_after=1))
    await stores.advance(1)
    timers = Timers(stores.store, poll_seconds=5, on_fired=fired)
    assert [await timers.run_once(), await timers.run_once()] == [0, 5]
    assert fired.count == 2


async def test_a_short_deadline_wakes_the_timers_and_a_long_one_is_left_to_the_poll(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[float] = []

    def call_later(seconds: float, callback: Callable[[], None]) -> None:
        noted.append(seconds)

    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", call_later)
    timers = Timers(stores.store, poll_seconds=5, on_fired=Calls())
    timers.note_deadline(1)
    timers.note_deadline(86_400)
    assert noted == [1], "a million parked executions must not be a million timers"


async def test_one_alarm_is_set_for_the_earliest_deadline_of_many(stores: Stores) -> None:
    timers = Timers(stores.store, poll_seconds=5, on_fired=Calls())
    loop = asyncio.get_running_loop()
    for seconds in (2.0, 1.0, 3.0, 1.5):
        timers.note_deadline(seconds)
    first = timers._alarm
    assert first is not None
    assert timers._alarm_at < loop.time() + 1.1
    timers.note_deadline(0.0)
    assert first.cancelled()
    await timers._woken.wait()
    assert timers._alarm is None, "the next deadline that is noted has an alarm of its own"


def test_a_deadline_is_noted_beside_one_that_is_due_at_once_on_uvloop_too(tmp_path: Path) -> None:
    async def note() -> None:
        timers = Timers(SqliteStore(tmp_path / "ledger.db"), poll_seconds=5, on_fired=Calls())
        timers.note_deadline(0.0)
        timers.note_deadline(1.0)
        await timers._woken.wait()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(note())


# ---------------------------------------------------------------------- retention


async def end(stores: Stores, *rows: NewExecution) -> None:
    hand = await Hand(stores.store, f"until {stores.clock.now}").start()
    await hand.insert(*rows)
    for queue in {new.queue for new in rows}:
        for claim in await hand.pick(100, queues=[queue], handlers=[new.handler for new in rows]):
            await hand.apply(claim, done())


def sweep(stores: Stores, *rules: Retention, batch: int = 100) -> RetentionSweep:
    return RetentionSweep(stores.store, rules, every_seconds=60, batch=batch)


async def kept(stores: Stores, *rows: NewExecution) -> list[bool]:
    return [view is not None for view in await stores.store.get_many([new.promise for new in rows])]


async def test_retention_deletes_what_ended_long_ago(stores: Stores) -> None:
    old, new, live = row("old"), row("new"), row("live", delay=10**6)
    await end(stores, old)
    await stores.advance(60)
    await end(stores, new)
    await stores.store.insert([live])
    loop = sweep(stores, Retention(age_seconds=50))
    assert 48 <= (await loop.run_once() or 0) <= 72
    assert await kept(stores, old, new, live) == [False, True, True]


async def test_a_rule_may_name_a_queue_or_a_definition(stores: Stores) -> None:
    rows = [row("a", queue="audit"), row("b", name="Temp"), row("c")]
    await end(stores, *rows)
    await stores.advance(60)
    await sweep(stores, Retention(age_seconds=1, queue="audit")).run_once()
    assert await kept(stores, *rows) == [False, True, True]
    await sweep(stores, Retention(age_seconds=1, name="Temp"), Retention(age_seconds=10**6)).run_once()
    assert await kept(stores, *rows) == [False, False, True]


async def test_a_full_batch_asks_for_another_at_once(stores: Stores) -> None:
    await end(stores, *(row(f"e{n}") for n in range(5)))
    await stores.advance(60)
    loop = sweep(stores, Retention(age_seconds=1), batch=2)
    assert [await loop.run_once() for _ in range(2)] == [0, 0]
    assert await loop.run_once() != 0
    assert await kept(stores, *(row(f"e{n}") for n in range(5))) == [False] * 5


async def test_a_worker_keeps_the_rules_of_its_app(rig: Rig) -> None:
    @rig.app.machine
    class Job(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done()

    rig.app.retain(3600, name="Job")
    handle = await Job.start(0)
    worker = await rig.worker()
    await worker.run_until_idle()
    (loop,) = [service for service in worker._loops if isinstance(service, RetentionSweep)]
    await loop.run_once()
    assert await handle.status() is Status.DONE
    await rig.advance(3601)
    await loop.run_once()
    assert await (await rig.store()).get(handle.id.to_bytes()) is None


async def test_a_child_is_kept_until_its_parent_has_read_it(rig: Rig) -> None:
    @rig.app.machine
    class Leaf(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.state)

    @rig.app.machine
    class Tree(Machine[int]):
        @step(initial=True)
        async def split(self, ctx: MachineContext[int]) -> Outcome:
            return ScheduleChildren(self.join, [Child(Leaf, 1), Child(Leaf, 2, delay=10_000)], 0)

        @step
        async def join(self, ctx: MachineContext[int]) -> Outcome:
            return Done([child.result for child in ctx.children])

    rig.app.retain(60)
    handle = await Tree.start(0)
    worker = await rig.worker()
    await worker.run_until_idle()
    (loop,) = [service for service in worker._loops if isinstance(service, RetentionSweep)]
    await rig.advance(10_000)
    await loop.run_once()
    await worker.run_until_idle()
    assert await handle.result() == [1, 2]
