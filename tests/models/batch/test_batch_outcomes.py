"""Every item reaches one terminal state and is committed once, in order (seed; rulings D2, D5, D7)."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

from holdfast import RetryPolicy, Skip, Status, current
from holdfast.core.errors import ExecutionStrandedError
from holdfast.models.batch.definition import BatchResult
from holdfast.store.values import Retention
from tests.engine.rig import Rig
from tests.models.batch.kit import AT_ONCE, NO_RETRY, committed, outcomes, until


async def test_items_end_as_success_skip_or_failure_in_order(rig: Rig) -> None:
    @rig.app.batch(retry=NO_RETRY, results=True)
    async def halve(number: int) -> float:
        if number % 5 == 0:
            raise Skip("five")
        if number % 7 == 0:
            raise ValueError(f"not {number}")
        return number / 2

    run = await halve.start(range(100))
    await rig.run()
    assert await run.result() == BatchResult(total=100, succeeded=68, skipped=20, failed=12, cancelled=0, retries=0)
    items = await committed(run)
    assert [item.seq for item in items] == list(range(100))
    assert (items[1].outcome, items[1].value) == ("success", 0.5)
    assert (items[5].outcome, items[5].reason, items[5].value) == ("skip", "five", None)
    assert (items[7].outcome, items[7].error, items[7].fail_class) == ("fail", "ValueError: not 7", "retryable")
    assert items[7].input == 7
    assert [item.seq for item in await committed(run, 98)] == [98, 99]


async def test_values_are_kept_only_where_they_are_asked_for(rig: Rig) -> None:
    @rig.app.batch
    async def double(number: int) -> int:
        return number * 2

    run = await double.start([1, 2])
    await rig.run()
    assert [item.value for item in await committed(run)] == [None, None]
    chunks = await (await rig.store()).batch_chunks(run.id.to_bytes(), 0, 10, "whole")
    assert [(chunk.inputs, chunk.results, chunk.notes, chunk.attempts) for chunk in chunks] == [(None,) * 4]


async def test_a_retry_keeps_the_seq_and_counts_the_attempt(rig: Rig) -> None:
    tried: Counter[int] = Counter()
    attempts: list[int] = []

    @rig.app.batch(retry=AT_ONCE)
    async def flaky(number: int) -> None:
        tried[number] += 1
        attempts.append(current().attempt)
        if tried[number] < number:
            raise OSError("again")

    run = await flaky.start([0, 1, 2, 3, 4])
    await rig.run()
    items = await committed(run)
    assert [item.outcome for item in items] == ["success"] * 4 + ["fail"]
    assert [item.attempts for item in items] == [1, 1, 2, 3, 3]
    assert (await run.result()).retries == 5
    assert max(attempts) == 3
    assert tried[4] == 3, "retry exhaustion ends it (Retry Guard 4)"


async def test_only_classes_marked_retryable_are_tried_again(rig: Rig) -> None:
    tried: Counter[int] = Counter()

    @rig.app.batch(retry=RetryPolicy(max_attempts=3, initial_delay=0, retry_on=(OSError,)))
    async def picky(number: int) -> None:
        tried[number] += 1
        raise OSError if number else ValueError

    run = await picky.start([0, 1])
    await rig.run()
    assert tried == {0: 1, 1: 3}
    assert [item.fail_class for item in await committed(run)] == ["permanent", "retryable"]


async def test_plain_functions_run_in_threads(rig: Rig) -> None:
    seen: set[str] = set()

    @rig.app.batch(results=True, concurrency=4)
    def slow(number: int) -> str:
        seen.add(threading.current_thread().name)
        if number == 3:
            raise Skip
        return f"{number}:{current().idempotency_key[-2:]}"

    run = await slow.start(range(6))
    await rig.run()
    assert [item.value for item in await committed(run)] == ["0:.0", "1:.1", "2:.2", None, "4:.4", "5:.5"]
    assert threading.current_thread().name not in seen


async def test_a_hung_item_is_cut_off_by_its_timeout(rig: Rig) -> None:
    """D9: it cannot hold the head for ever, whatever it does with its cancellation."""
    stubborn = asyncio.Event()

    @rig.app.batch(retry=NO_RETRY, timeout=0.05, concurrency=2)
    async def hang(number: int) -> None:
        if number == 1:
            await asyncio.Event().wait()  # for ever
        if number == 2:
            try:
                await asyncio.Event().wait()  # for ever
            except asyncio.CancelledError:
                await stubborn.wait()

    run = await hang.start(range(5))
    await rig.run()
    stubborn.set()
    items = await committed(run)
    assert [item.outcome for item in items] == ["success", "fail", "fail", "success", "success"]
    assert [item.fail_class for item in items[1:3]] == ["timeout"] * 2
    assert items[1].error is not None
    assert "0.05 s" in items[1].error


async def test_an_items_own_ticks_renew_its_lease_and_nothing_else_does(rig: Rig) -> None:
    @rig.app.batch(retry=NO_RETRY, lease=0.6, concurrency=2)
    async def work(ticks: bool) -> None:
        for _ in range(16):
            await asyncio.sleep(0.05)
            if ticks:
                current().heartbeat()

    run = await work.start([True, False])
    await rig.run()
    assert [item.fail_class for item in await committed(run)] == [None, "lease_expired"]


async def test_what_cannot_be_written_as_the_result_fails_for_good(rig: Rig) -> None:
    @rig.app.batch(results=True, retry=AT_ONCE)
    async def wrong(number: int) -> int:
        return "text" if number else 1  # type: ignore[return-value]

    run = await wrong.start([0, 1])
    await rig.run()
    items = await committed(run)
    assert [(item.outcome, item.attempts) for item in items] == [("success", 1), ("fail", 1)]


async def test_a_slow_item_holds_the_head_and_not_the_others(rig: Rig) -> None:
    """D7: the rest is worked on, and the status names the seq that is awaited, and why."""
    gate = asyncio.Event()
    done: set[int] = set()

    @rig.app.batch(concurrency=3, chunk=4)
    async def work(number: int) -> None:
        if number == 2:
            await gate.wait()
        done.add(number)

    run = await work.start(range(20))

    async def is_held_up() -> bool:
        status = await run.status()
        return status.terminal == 17 and status.committed == 2

    async with rig.app.worker():
        await until(is_held_up)
        status = await run.status()
        gate.set()
        await run.result()
    assert len(done) == 20
    assert (status.committed, status.in_flight, status.taken) == (2, 1, 20)
    assert status.head is not None
    assert (status.head.seq, status.head.state, status.head.reason) == (2, "IN_FLIGHT", "attempt 1 is at work")
    assert await outcomes(run) == ["success"] * 20
    assert (await run.status()).status is Status.DONE


async def test_failed_items_come_in_pages(rig: Rig) -> None:
    @rig.app.batch(retry=NO_RETRY, chunk=10)
    async def odd(number: int) -> None:
        if number % 2:
            raise RuntimeError(str(number))

    run = await odd.start(range(60))
    await rig.run()
    first = await run.failed(limit=20)
    rest = await run.failed(after=first[-1].seq, limit=20)
    assert [item.seq for item in first + rest] == list(range(1, 60, 2))
    assert [item.input for item in first + rest] == list(range(1, 60, 2))


async def test_failed_items_of_a_live_run_have_their_input(rig: Rig) -> None:
    gate = asyncio.Event()

    @rig.app.batch(retry=NO_RETRY, chunk=10)
    async def work(number: int) -> None:
        if number == 2:
            raise RuntimeError
        if number == 5:
            await gate.wait()

    run = await work.start(range(8))

    async def has_failed() -> bool:
        return bool(await run.failed())

    async with rig.app.worker():
        await until(has_failed)
        (item,) = await run.failed()
        gate.set()
        await run.result()
    assert (item.seq, item.input) == (2, 2)


async def test_failed_items_of_a_run_that_is_gone_are_not_found(rig: Rig) -> None:
    """Rather loud than a run over nothing."""

    @rig.app.batch(retry=NO_RETRY)
    async def work(number: int) -> None:
        raise RuntimeError

    run = await work.start(range(3))
    await rig.run()
    again = await run.retry_failed()
    await rig.advance(100)
    store = await rig.store()
    await store.purge(Retention(age_seconds=10), 10)
    await rig.run()
    with pytest.raises(ExecutionStrandedError, match="is gone"):
        await again.result()


async def test_the_failed_items_of_an_ended_run_are_run_again_as_a_linked_run(rig: Rig) -> None:
    """D11: COMMITTED is final."""
    broken = True

    @rig.app.batch(retry=NO_RETRY, results=True)
    async def mend(number: int) -> int:
        if broken and number % 3 == 0:
            raise RuntimeError
        return number

    run = await mend.start(range(10))
    await rig.run()
    broken = False
    again, twice = await run.retry_failed(), await run.retry_failed()
    assert again.id == twice.id
    await rig.run()
    assert [item.value for item in await committed(again)] == [0, 3, 6, 9]
    assert (await again.describe()).attributes == f'{{"retry_of":"{run.id}"}}'
    assert (await run.result()).failed == 4


async def test_the_heat_map_covers_the_run(rig: Rig) -> None:
    @rig.app.batch(retry=NO_RETRY, chunk=10)
    async def odd(number: int) -> None:
        if number < 5:
            raise RuntimeError

    run = await odd.start(range(100))
    await rig.run()
    cells = await run.heat(4)
    assert len(cells) <= 4
    assert sum(cell.count for cell in cells) == sum(cell.ended for cell in cells) == 100
    assert [cell.failed for cell in cells] == [5, 0, 0, 0][: len(cells)]
    assert sum(cell.committed for cell in cells) == 100


@pytest.mark.parametrize("count", [0, 1])
async def test_a_run_over_little_ends(rig: Rig, count: int) -> None:
    @rig.app.batch
    async def nothing(number: int) -> None: ...

    run = await nothing.start(range(count))
    await rig.run()
    assert (await run.result()).total == count
