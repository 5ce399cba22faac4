"""Chunks whose items wait for a retry take no room: given back, their times kept (rulings D2, D3, D5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Context, RetryPolicy, Status
from holdfast.core.errors import ExecutionCancelledError, LedgerError
from holdfast.core.sequence import FailClass, RetryGuard, SequenceLedger
from holdfast.models.batch.packing import read_ready, write_ready
from holdfast.models.batch.run import BatchRun
from holdfast.store.batches import ChunkView
from holdfast.store.records import ChunkRecord, Record
from holdfast.store.values import ExecutionView
from tests.engine.rig import Rig
from tests.models.batch.kit import AT_ONCE, committed, outcomes, until

IN_A_MINUTE = RetryPolicy(max_attempts=3, initial_delay=60, multiplier=2, jitter=0)


class Flaky:
    """Fails each of `bad` so many times, and remembers what ran."""

    def __init__(self, *bad: int, times: int = 1) -> None:
        self._left = dict.fromkeys(bad, times)
        self.ran: list[int] = []

    def __call__(self, number: int) -> None:
        self.ran.append(number)
        if self._left.get(number, 0) > 0:
            self._left[number] -= 1
            raise ValueError(f"{number} is not ready")


async def chunk_row(rig: Rig, run: BatchRun[Any], first: int = 0) -> ExecutionView:
    found = await (await rig.store()).get(run.id.child(first).to_bytes())
    assert found is not None
    return found


async def stored(rig: Rig, run: BatchRun[Any], first: int = 0) -> ChunkView:
    (found,) = await (await rig.store()).batch_chunks(run.id.to_bytes(), first, 1, "whole")
    return found


async def start_four(rig: Rig, flaky: Flaky, retry: RetryPolicy) -> BatchRun[None]:
    """One chunk of four items."""

    @rig.app.batch(chunk=4, retry=retry)
    async def work(number: int) -> None:
        flaky(number)

    return await work.start(range(4))


async def test_a_waiting_chunk_gives_its_slot_to_others(rig: Rig) -> None:
    """More chunks wait than the worker has slots, and another execution runs all the same."""
    flaky = Flaky(*range(0, 24, 4))

    @rig.app.batch(chunk=4, retry=IN_A_MINUTE)
    async def work(number: int) -> None:
        flaky(number)

    @rig.app.workflow
    async def other(ctx: Context) -> str:
        return "ran"

    worker = await rig.make_worker(concurrency=2)
    run = await work.start(range(24))
    await rig.run()
    assert worker.active == 0
    handle = await other.start()
    await rig.run()
    assert await handle.result() == "ran"
    status = await run.status()
    assert (status.succeeded, status.dispatched, status.retries, status.in_flight) == (18, 6, 6, 0)
    assert status.head is not None
    assert (status.head.seq, status.head.reason) == (0, "waits for attempt 2")
    assert {(await chunk_row(rig, run, first)).status for first in range(0, 24, 4)} == {Status.RUNNABLE}
    await rig.advance(70)
    await rig.run()
    assert (await run.result()).succeeded == 24
    assert sorted(flaky.ran) == sorted([*range(24), *range(0, 24, 4)])


async def test_a_retry_comes_at_its_time_and_not_before(rig: Rig) -> None:
    flaky = Flaky(1, times=2)
    run = await start_four(rig, flaky, IN_A_MINUTE)
    await rig.run()
    for wait, runs in ((60, 2), (120, 3)):
        await rig.advance(wait - 20)
        await rig.run()
        assert flaky.ran.count(1) == runs - 1, "too early"
        await rig.advance(40)
        await rig.run()
        assert flaky.ran.count(1) == runs
    items = await committed(run)
    assert [item.attempts for item in items] == [1, 3, 1, 1]
    assert (await stored(rig, run)).ready_ms is None


async def test_each_item_waits_for_its_own_time(rig: Rig) -> None:
    """The chunk is picked for the first that is due; the other is not tried with it."""
    flaky = Flaky(0, 3)

    @rig.app.batch(chunk=4, concurrency=1, retry=RetryPolicy(max_attempts=2, initial_delay=60, jitter=1))
    async def work(number: int) -> None:
        flaky(number)

    draws = iter([0.5, 0.0])  # 30 s and 60 s
    worker = await rig.worker()
    worker.random = lambda: next(draws)  # type: ignore[method-assign]
    run = await work.start(range(4))
    await rig.run()
    first, second = read_ready(0, (await stored(rig, run)).ready_ms).items()
    assert (first[0], second[0]) == (0, 3)
    assert 20_000 < second[1] - first[1] < 40_000
    await rig.advance(45)
    await rig.run()
    assert (flaky.ran.count(0), flaky.ran.count(3)) == (2, 1)
    assert read_ready(0, (await stored(rig, run)).ready_ms) == {3: second[1]}, "its time was kept as it was"
    await rig.advance(30)
    await rig.run()
    assert await outcomes(run) == ["success"] * 4


async def test_a_death_beside_waiting_items_keeps_their_times(rig: Rig) -> None:
    """D3: what was in flight is tried again at once; what waited still waits."""
    flaky = Flaky(0)
    gate = asyncio.Event()

    @rig.app.batch(chunk=4, concurrency=2, retry=IN_A_MINUTE)
    async def work(number: int) -> None:
        flaky(number)
        if number == 3:
            await gate.wait()

    run = await work.start(range(4))
    await rig.once()
    doomed = await rig.make_worker()
    working = asyncio.create_task(doomed.run_once())

    async def is_marked() -> bool:
        chunk = await stored(rig, run)
        return chunk.ready_ms is not None and chunk.ended == 2 and flaky.ran.count(3) == 1

    await until(is_marked)
    await rig.kill(doomed, working)  # half a minute
    gate.set()
    await rig.run()
    assert (flaky.ran.count(0), flaky.ran.count(3)) == (1, 2)
    await rig.advance(40)
    await rig.run()
    assert [item.attempts for item in await committed(run)] == [2, 1, 1, 2]


async def test_a_death_while_a_chunk_is_given_back_loses_nothing(rig: Rig) -> None:
    flaky = Flaky(2)
    run = await start_four(rig, flaky, IN_A_MINUTE)
    doomed = await rig.make_worker()
    await doomed.run_until_idle()
    await rig.make_worker()
    await rig.kill(doomed, asyncio.create_task(asyncio.sleep(0, 0)))
    await rig.run()
    assert flaky.ran.count(2) == 1
    await rig.advance(40)
    await rig.run()
    assert [item.attempts for item in await committed(run)] == [1, 1, 2, 1]
    assert len(flaky.ran) == 5


async def test_cancel_ends_a_waiting_chunk_at_once(rig: Rig) -> None:
    flaky = Flaky(1)
    run = await start_four(rig, flaky, IN_A_MINUTE)
    await rig.run()
    await run.cancel()
    await rig.run()
    with pytest.raises(ExecutionCancelledError):
        await run.result()
    assert await outcomes(run) == ["success", "cancel", "success", "success"]
    assert (await stored(rig, run)).ready_ms is None


async def test_a_pause_holds_a_waiting_chunk_and_its_time(rig: Rig) -> None:
    flaky = Flaky(1)
    run = await start_four(rig, flaky, IN_A_MINUTE)
    await rig.run()
    await run.pause()
    await rig.advance(10)
    await run.resume()
    await rig.run()
    assert flaky.ran.count(1) == 1, "a resume does not bring it forward"
    await run.pause()
    await rig.advance(70)
    await rig.run()
    assert flaky.ran.count(1) == 1
    await run.resume()
    await rig.run()
    assert await outcomes(run) == ["success"] * 4


async def test_a_short_wait_is_slept_through(rig: Rig) -> None:
    flaky = Flaky(1)
    run = await start_four(rig, flaky, RetryPolicy(max_attempts=2, initial_delay=0.02))
    await rig.run()
    assert (await run.result()).succeeded == 4


async def test_records_carry_the_times(rig: Rig) -> None:
    flaky = Flaky(1)
    run = await start_four(rig, flaky, IN_A_MINUTE)
    await rig.run()
    found: list[Record] = []

    await (await rig.store()).read_records(found.extend)
    (record,) = [record for record in found if isinstance(record, ChunkRecord)]
    assert record.ready_ms is not None
    assert record.ready_ms == (await stored(rig, run)).ready_ms
    await run.cancel()
    await rig.run()


def test_a_ledger_goes_on_with_the_times_it_told() -> None:
    """D2: a loaded retry is handed out when it is due, and no sooner."""
    ledger = SequenceLedger(lease_ms=1_000, now_ms=0, length=3, base=5, retry=RetryGuard(max_attempts=2))
    ledger.take(1, 0, limit=3)
    ledger.begin_range(5, 8, 1, 0)
    ledger.fail(6, 1, 10, FailClass.RETRYABLE, delay_ms=90)
    ledger.finish(5, 1, 10)
    ledger.fail(7, 1, 10, FailClass.RETRYABLE)
    waiting = ledger.waiting()
    assert waiting == {6: 100}
    again = SequenceLedger(lease_ms=1_000, now_ms=20, base=5, retry=RetryGuard(max_attempts=2))
    again.load(ledger.export(5, 8), read_ready(5, write_ready(5, waiting)))
    assert again.take(2, 99, limit=3) == [range(7, 8)]
    assert (again.next_ready_ms, again.waiting()) == (100, {6: 100})
    assert again.take(2, 100, limit=3) == [range(6, 7)]
    assert again.waiting() == {}


def test_times_are_kept_of_waiting_items_alone() -> None:
    assert write_ready(500, {}) is None
    assert write_ready(500, {507: 12, 501: 34}) == '{"1":34,"7":12}'
    assert read_ready(500, None) == {}
    with pytest.raises(LedgerError, match="from seq 500 on has times of retries that cannot be read"):
        read_ready(500, '{"x":1}')
    with pytest.raises(LedgerError, match="cannot be read"):
        read_ready(500, '{"1":"soon"}')


async def test_without_a_delay_nothing_is_given_back(rig: Rig) -> None:
    flaky = Flaky(1)
    run = await start_four(rig, flaky, AT_ONCE)
    await rig.run()
    assert (await chunk_row(rig, run)).status is Status.DONE
    assert (await run.result()).retries == 1
