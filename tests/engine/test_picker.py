"""Leasing work: as much as there is room for, of what there is code for; and what to do when it is not sure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast.core.errors import StoreUnavailableError
from holdfast.core.status import Status
from holdfast.engine.active import ActiveClaims
from holdfast.engine.picker import FIRST_POLL_SECONDS, INLINE_MOST, SWEEPS_APART_SECONDS, OrphanSweep, Picker
from holdfast.engine.settings import WorkerSettings
from holdfast.store.values import ExecutionClaim
from holdfast.testing.hand import HANDLER, Hand, done, row
from holdfast.testing.stores import Stores
from tests.engine.rig import Faulty


class Bench:
    """A picker over a real store; what it picks is at work until `finish`."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.store = Faulty(stores.store)
        self.hand = Hand(stores.store)
        self.active = ActiveClaims()
        self.gate = asyncio.Lock()
        self.begun: list[ExecutionClaim] = []
        self.idle = 0
        self.released = 0
        self.lost: list[str] = []
        self.picks_as_they_ran: asyncio.Queue[int] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    def picker(self, **settings: Any) -> Picker:
        return Picker(
            self.store.as_store(),
            self.active,
            self.gate,
            WorkerSettings(**settings),
            lambda: self.hand.name,
            [HANDLER],
            begin=self._begin,
            on_idle=self._on_idle,
            on_lost=self.lost.append,
        )

    def sweep(self) -> OrphanSweep:
        return OrphanSweep(
            self.store.as_store(),
            self.active,
            self.gate,
            lambda: self.hand.name,
            30.0,
            on_released=self._on_released,
        )

    def _on_released(self) -> None:
        self.released += 1

    def _begin(self, claim: ExecutionClaim) -> None:
        async def forever() -> None:
            self.picks_as_they_ran.put_nowait(self.store.calls["pick"])
            await asyncio.Event().wait()

        self.begun.append(claim)
        self._tasks.append(asyncio.get_running_loop().create_task(forever()))
        self.active.add(claim, self._tasks[-1])

    def _on_idle(self) -> None:
        self.idle += 1

    async def finish(self, claim: ExecutionClaim) -> None:
        await self.hand.apply(claim, done())
        self.active.remove(claim)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


@pytest.fixture
async def bench(stores: Stores) -> AsyncIterator[Bench]:
    made = Bench(stores)
    await made.hand.start()
    yield made
    await made.close()


async def insert(bench: Bench, count: int, **columns: Any) -> None:
    await bench.hand.insert(*(row(f"{columns}{n}", **columns) for n in range(count)))


async def test_what_only_waits_for_its_last_commit_leaves_its_place_up_to_as_many_again(bench: Bench) -> None:
    await insert(bench, 9)
    bench.store.inline = False
    picker = bench.picker(concurrency=2)
    for expected in (1, 2):
        await picker.run_once()
        assert len(bench.begun) == expected
    for claim in list(bench.begun):
        bench.active.conclude(claim)
    for expected in (3, 4, 4):
        await picker.run_once()
        assert len(bench.begun) == expected
    bench.active.conclude(bench.begun[3])
    await picker.run_once()
    assert len(bench.begun) == 4, "a store that is slow does not let them pile up"
    await bench.finish(bench.begun[0])
    await picker.run_once()
    assert len(bench.begun) == 5


async def test_while_it_rests_others_may_take_what_this_worker_gave_back(bench: Bench) -> None:
    await insert(bench, 1)
    picker = bench.picker()
    picker.rest(3600)
    left = await picker.run_once()
    assert left is not None
    assert 3500 < left <= 3600
    assert not bench.begun
    picker.rest(0)
    await picker.run_once()
    assert len(bench.begun) == 1


async def test_a_pick_takes_half_of_the_room_and_asks_for_more_at_once(bench: Bench) -> None:
    """So that picking and committing overlap."""
    await insert(bench, 20)
    bench.store.inline = False
    picker = bench.picker(concurrency=10)
    assert await picker.run_once() == 0
    assert len(bench.begun) == 5
    assert not picker.is_full
    await picker.run_once()
    assert len(bench.begun) == 10
    assert picker.is_full


async def test_a_store_that_works_beside_the_loop_picks_more_while_what_was_picked_runs(bench: Bench) -> None:
    await insert(bench, 10)
    bench.store.inline = False
    picker = bench.picker(concurrency=10)
    await picker.start()
    picks = [await bench.picks_as_they_ran.get() for _ in range(10)]
    await picker.stop()
    assert picks == [2] * 10


async def test_a_store_that_writes_on_the_loops_thread_gives_all_at_once(bench: Bench) -> None:
    await insert(bench, 20)
    bench.store.inline = True
    picker = bench.picker(concurrency=10)
    await picker.run_once()
    assert len(bench.begun) == 10
    assert picker.is_full


async def test_between_two_picks_of_a_store_that_writes_on_the_loops_thread_what_was_picked_runs(bench: Bench) -> None:
    await insert(bench, INLINE_MOST + 1)
    bench.store.inline = True
    picker = bench.picker(concurrency=2 * INLINE_MOST)
    await picker.start()
    picks = [await bench.picks_as_they_ran.get() for _ in range(INLINE_MOST + 1)]
    await picker.stop()
    assert picks == [1] * INLINE_MOST + [2]


async def test_while_last_commits_are_written_nobody_is_asked_to_make_room(bench: Bench) -> None:
    await insert(bench, 3)
    bench.store.inline = True
    picker = bench.picker(concurrency=1)
    for _ in range(2):
        await picker.run_once()
        bench.active.conclude(bench.begun[-1])
    await picker.run_once()
    assert (len(bench.begun), bench.store.calls["waiting_priority"]) == (2, 0)


async def test_a_full_worker_picks_nothing_and_looks_at_what_waits(bench: Bench) -> None:
    """Ruling E11: what it sees decides whether leases are kept."""
    await insert(bench, 3, priority=4)
    picker = bench.picker(concurrency=1)
    await picker.run_once()
    assert bench.store.calls["pick"] == 1
    assert await picker.run_once() == 1.0
    assert bench.store.calls["pick"] == 1
    assert picker.waiting_priority == 4
    await insert(bench, 1, priority=-2)
    await picker.run_once()
    assert picker.waiting_priority == -2
    await bench.finish(bench.begun[0])
    await picker.run_once()
    assert picker.waiting_priority is None, "whoever waits will be picked"


async def test_a_queue_has_a_limit_of_its_own_in_a_worker(bench: Bench) -> None:
    await insert(bench, 10, queue="slow")
    await insert(bench, 10, queue="fast")
    picker = bench.picker(queues={"slow": 2, "fast": None}, concurrency=8)
    for _ in range(4):
        await picker.run_once()
    queues = [claim.queue for claim in bench.begun]
    assert (queues.count("slow"), queues.count("fast")) == (2, 6)
    await bench.finish(next(claim for claim in bench.begun if claim.queue == "slow"))
    await bench.finish(next(claim for claim in bench.begun if claim.queue == "fast"))
    await picker.run_once()
    queues = [claim.queue for claim in bench.begun]
    assert (queues.count("slow"), queues.count("fast")) == (3, 7)


async def test_a_worker_whose_queues_are_all_at_their_limit_is_full(bench: Bench) -> None:
    await insert(bench, 3, queue="slow")
    picker = bench.picker(queues={"slow": 1}, concurrency=50)
    await picker.run_once()
    assert await picker.run_once() == 1.0
    assert len(bench.begun) == 1


async def test_only_what_there_is_code_for_is_picked(bench: Bench) -> None:
    await bench.hand.insert(row("a", name="Unknown"), row("b"))
    await bench.picker().run_once()
    assert [claim.name for claim in bench.begun] == ["Order"]


async def test_an_idle_picker_looks_less_and_less_often(bench: Bench) -> None:
    """Polling that backs off is the safety net."""
    picker = bench.picker(poll_seconds=0.1)
    waits = [await picker.run_once() for _ in range(5)]
    assert waits == [FIRST_POLL_SECONDS * 2, FIRST_POLL_SECONDS * 4, 0.1, 0.1, 0.1]
    assert bench.idle == 5
    await insert(bench, 1)
    assert await picker.run_once() == FIRST_POLL_SECONDS, "it found something: there may be more soon"
    assert bench.idle == 5


async def test_a_picker_comes_back_when_the_next_row_is_due(bench: Bench) -> None:
    picker = bench.picker(poll_seconds=60)
    for _ in range(12):
        await picker.run_once()
    await bench.hand.insert(row("soon", delay=7.5), row("later", delay=50))
    assert await picker.run_once() == pytest.approx(7.5)
    await bench.stores.advance(7.5)
    await picker.run_once()
    assert len(bench.begun) == 1


async def test_a_short_delay_wakes_the_picker_and_a_long_one_is_left_to_the_poll(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers: list[float] = []

    def call_later(seconds: float, callback: Callable[[], None]) -> None:
        timers.append(seconds)

    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", call_later)
    picker = bench.picker(poll_seconds=2)
    picker.note_delay(0.5)
    picker.note_delay(3600)
    assert timers == [0.5], "a million long delays must not be a million timers"


async def test_a_worker_whose_lease_is_gone_picks_nothing(bench: Bench) -> None:
    await insert(bench, 1)
    await bench.stores.store.retire_worker(bench.hand.name)
    await bench.picker().run_once()
    assert bench.lost == [bench.hand.name]
    assert bench.begun == []
    assert (await bench.hand.view(row("{}0").promise)).status is Status.RUNNABLE


async def test_a_pick_whose_reply_was_lost_is_put_back_before_the_next(bench: Bench) -> None:
    """The worker may hold rows that it does not know of."""
    await insert(bench, 2)
    picker = bench.picker()
    bench.store.fail("pick", applied=True)
    with pytest.raises(StoreUnavailableError):
        await picker.run_once()
    assert bench.begun == []
    assert (await bench.hand.view(row("{}0").promise)).status is Status.EXECUTING
    await picker.run_once()
    assert bench.store.calls["disown"] == 1
    assert [(claim.attempt, claim.crashes) for claim in bench.begun] == [(0, 0)] * 2
    await picker.run_once()
    assert bench.store.calls["disown"] == 1, "once it is sure again, it asks no more"


async def test_what_is_at_work_is_not_put_back_with_it(bench: Bench) -> None:
    await insert(bench, 1)
    picker = bench.picker()
    await picker.run_once()
    await insert(bench, 1, priority=1)
    bench.store.fail("pick", applied=True)
    with pytest.raises(StoreUnavailableError):
        await picker.run_once()
    bench.store.fail("disown")
    with pytest.raises(StoreUnavailableError):
        await picker.run_once()
    await picker.run_once()
    assert len(bench.begun) == 2
    assert (await bench.hand.apply(bench.begun[0], done())).status is Status.DONE


async def test_the_gate_keeps_picks_out_while_a_commit_is_resolved(bench: Bench) -> None:
    await insert(bench, 1)
    picker = bench.picker()
    async with bench.gate:
        picking = asyncio.create_task(picker.run_once())
        for _ in range(5):
            await asyncio.sleep(0)
        assert bench.store.calls["pick"] == 0
    await picking
    assert len(bench.begun) == 1


async def test_the_orphan_sweep_puts_back_what_nobody_here_knows_of(bench: Bench) -> None:
    """A pick sent over a connection that then broke can be carried out late."""
    await insert(bench, 1)
    await bench.picker().run_once()
    await insert(bench, 1, priority=1)
    (unknown,) = await bench.hand.pick()
    sweep = bench.sweep()
    assert await sweep.run_once() == 30.0
    assert bench.released == 1
    view = await bench.hand.view(unknown)
    assert (view.status, view.attempt, view.crashes) == (Status.RUNNABLE, 0, 0)
    assert (await bench.hand.view(bench.begun[0])).status is Status.EXECUTING


async def test_sweeps_are_apart_however_often_one_is_asked_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = bench.sweep()
    await sweep.run_once()
    left = await sweep.run_once()
    assert left is not None
    assert 0 < left <= SWEEPS_APART_SECONDS
    assert (bench.store.calls["disown"], bench.released) == (1, 0)
    monkeypatch.setattr("holdfast.engine.picker.SWEEPS_APART_SECONDS", 0.0)
    sweep = bench.sweep()
    await sweep.run_once()
    assert await sweep.run_once() == 30.0
    assert bench.store.calls["disown"] == 3


async def test_a_lease_that_the_server_forgot_is_not_taken_twice_with_one_epoch(bench: Bench) -> None:
    """Else the earlier claim's commit, on its way still, lands under the lease of the later one."""
    await insert(bench, 1)
    picker = bench.picker()
    await picker.run_once()
    (earlier,) = bench.begun
    await bench.stores.store.release(bench.hand.name, [earlier])
    earlier.epoch += 1  # as if this had been its lease, lost with the server
    await picker.run_once()
    later = bench.begun[-1]
    assert later is not earlier
    assert not (await bench.hand.commit(earlier, done())).applied
    assert (await bench.hand.commit(later, done())).applied
