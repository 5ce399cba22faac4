"""Cancel, pause, lost workers, hard failure (rulings D3, D4, D8, D10)."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from holdfast import RetryPolicy, Status
from holdfast.core.errors import ExecutionCancelledError, ExecutionFailedError, InvalidArgumentError
from holdfast.models.batch import chunk_run
from holdfast.models.batch.chunk_run import ChunkRun
from holdfast.store.batches import ChunkView, Which
from holdfast.store.values import Retention
from tests.engine.rig import Faulty, Rig
from tests.models.batch.kit import AT_ONCE, NO_RETRY, committed, outcomes, until


async def test_cancel_latches_gives_grace_and_then_forces(rig: Rig) -> None:
    """Rules 6 and 7: what has not begun at once, what is in flight after the grace; everything is committed."""
    begun: set[int] = set()

    @rig.app.batch(concurrency=2, chunk=5, cancel_grace=0.1)
    async def work(number: int) -> None:
        begun.add(number)
        if number == 2:
            await is_asked.wait()
        elif number:
            await asyncio.Event().wait()  # for ever

    is_asked = asyncio.Event()
    run = await work.start(range(40))
    store = await rig.store()

    async def chunk_is_asked() -> bool:
        chunk = await store.get(run.id.child(0).to_bytes())
        return chunk is not None and chunk.cancel_requested

    async with rig.app.worker():
        await until(lambda: 2 in begun)
        await run.cancel()
        await until(chunk_is_asked)
        is_asked.set()
        with pytest.raises(ExecutionCancelledError):
            await run.result()
    found = await outcomes(run)
    assert len(found) == 40
    assert found == ["success", "cancel", "success", *["cancel"] * 37]
    assert len(begun) <= 4
    status = await run.status()
    assert (status.committed, status.cancelled, status.status) == (40, found.count("cancel"), Status.CANCELLED)


async def test_a_run_that_nobody_works_on_is_cancelled_by_the_next_worker(rig: Rig) -> None:
    """D4: UNSEEN items pass through DISPATCHED."""

    @rig.app.batch(chunk=3)
    async def work(number: int) -> None: ...

    run = await work.start(range(20))
    assert await run.cancel() is Status.RUNNABLE
    await rig.run()
    assert await outcomes(run) == ["cancel"] * 20


async def test_a_cancel_that_comes_too_late_changes_nothing(rig: Rig) -> None:
    @rig.app.batch
    async def work(number: int) -> None: ...

    run = await work.start(range(3))
    await rig.run()
    assert await run.cancel() is Status.DONE
    assert await outcomes(run) == ["success"] * 3


async def test_a_paused_run_is_not_worked_on(rig: Rig) -> None:
    begun: set[int] = set()

    @rig.app.batch(chunk=4)
    async def work(number: int) -> None:
        begun.add(number)

    run = await work.start(range(12))
    await rig.once()  # dispatched
    await run.pause()
    await rig.run()
    assert not begun
    status = await run.status()
    assert status.head is not None
    assert status.head.reason == "its chunk is paused"
    await run.resume()
    await rig.run()
    assert (await run.result()).succeeded == 12


async def test_a_run_paused_through_its_handle_holds_its_chunks_as_well(rig: Rig) -> None:
    """The command line and the HTTP interface know it by its id alone."""
    begun: set[int] = set()

    @rig.app.batch(chunk=4)
    async def work(number: int) -> None:
        begun.add(number)

    run = await work.start(range(12))
    await rig.once()  # dispatched
    await rig.app.handle(run.id).pause()
    await rig.run()
    assert not begun
    await run.pause()
    await rig.app.handle(run.id).resume()
    await rig.run()
    assert (await run.result()).succeeded == 12


async def test_a_run_cancelled_by_force_ends_with_its_chunks(rig: Rig) -> None:
    """For a run that was moved elsewhere, or whose code is gone: nothing of it is worked on any more."""
    begun: set[int] = set()

    @rig.app.batch(chunk=4)
    async def work(number: int) -> None:
        begun.add(number)

    run = await work.start(range(12))
    await rig.once()  # dispatched
    assert await run.cancel(force=True, reason="moved") is Status.CANCELLED
    assert (await run.describe()).cancel_reason == "moved"
    await rig.run()
    assert not begun
    assert {child.status for child in await (await rig.store()).children(run.id.to_bytes())} == {Status.CANCELLED}


async def test_items_in_flight_when_their_worker_died_are_failed_and_tried_again(rig: Rig) -> None:
    """D3: IN_FLIGHT costs an attempt, DISPATCHED does not; nothing that was marked runs again."""
    gate = asyncio.Event()
    ran: list[int] = []

    @rig.app.batch(concurrency=2, chunk=8, retry=AT_ONCE)
    async def work(number: int) -> None:
        ran.append(number)
        if number in (3, 4) and not gate.is_set():
            await gate.wait()

    run = await work.start(range(8))
    await rig.once()
    doomed = await rig.make_worker()

    async def others_are_marked() -> bool:
        status = await run.status()
        return status.succeeded == 3 and status.in_flight >= 2

    working = asyncio.create_task(doomed.run_once())
    await until(others_are_marked)
    in_flight = (await run.status()).in_flight
    await rig.kill(doomed, working)
    gate.set()
    await rig.run()
    items = await committed(run)
    assert [item.outcome for item in items] == ["success"] * 8
    assert [item.attempts for item in items[:3]] == [1, 1, 1]
    assert sum(item.attempts == 2 for item in items) == in_flight
    assert (ran.count(0), ran.count(3)) == (1, 2)


async def test_without_budget_a_lost_item_fails_and_says_why(rig: Rig) -> None:
    gate = asyncio.Event()

    @rig.app.batch(concurrency=1, chunk=2, retry=NO_RETRY)
    async def work(number: int) -> None:
        await gate.wait()

    run = await work.start(range(2))
    await rig.once()
    doomed = await rig.make_worker()
    working = asyncio.create_task(doomed.run_once())

    async def has_begun() -> bool:
        return (await run.status()).in_flight > 0

    await until(has_begun)
    await rig.kill(doomed, working)
    gate.set()
    await rig.run()
    items = await committed(run)
    assert (items[0].outcome, items[0].fail_class, items[0].error) == (
        "fail",
        "lease_expired",
        "LeaseLostError: its worker was lost",
    )
    assert items[1].outcome == "success"


async def test_an_item_that_kills_its_worker_fails_alone(rig: Rig) -> None:
    """At its last chance an item that lost its worker runs by itself: no bystander fails with it."""
    alone: list[int] = []

    @rig.app.batch(concurrency=4, chunk=8, retry=RetryPolicy(max_attempts=2, initial_delay=0))
    async def work(number: int) -> None:
        if number == 2:
            alone.append((await run.status()).in_flight)
            await asyncio.Event().wait()  # for ever

    run = await work.start(range(4))
    await rig.once()
    for _ in range(2):
        doomed = await rig.make_worker()
        working = asyncio.create_task(doomed.run_once())
        expected = len(alone) + 1
        await until(lambda expected=expected: len(alone) == expected)
        await rig.kill(doomed, working)
    await rig.run()
    assert await outcomes(run) == ["success", "success", "fail", "success"]
    assert alone == [4, 1]


async def test_a_worker_that_drains_gives_the_rest_of_its_chunk_away(rig: Rig) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    @rig.app.batch(concurrency=1, chunk=100, retry=NO_RETRY)
    async def work(number: int) -> None:
        begun.set()
        await gate.wait()

    run = await work.start(range(30))
    await rig.once()
    leaving = await rig.make_worker()
    working = asyncio.create_task(leaving.run_once())
    await begun.wait()
    stopping = asyncio.create_task(rig.stop(leaving))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(stopping, working)
    assert 0 < (await run.status()).succeeded < 30
    await rig.run()
    assert await outcomes(run) == ["success"] * 30


async def test_chunks_that_have_no_turn_are_left_to_other_workers(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first worker picks more chunks than it can work on; one that comes later gets its share."""
    monkeypatch.setattr(chunk_run, "PATIENCE_SECONDS", 0.05)
    gate = asyncio.Event()

    @rig.app.batch(concurrency=2, chunk=2)
    async def work(number: int) -> None:
        await gate.wait()

    run = await work.start(range(12))
    store = await rig.store()

    async def holders() -> set[str | None]:
        children = await store.children(run.id.to_bytes())
        return {child.locked_by for child in children if child.status is Status.EXECUTING}

    async def is_held() -> bool:
        return bool(await holders())

    async def is_shared() -> bool:
        return len(await holders()) == 2 and (await run.status()).in_flight == 4

    async with rig.app.worker():
        await until(is_held)
        async with rig.app.worker():
            await until(is_shared)
            gate.set()
            await run.result()
    assert await outcomes(run) == ["success"] * 12


async def test_commits_whose_reply_was_lost_count_once(rig: Rig) -> None:
    faulty = Faulty(rig.stores.unopened())
    rig.app.use_store(faulty.as_store())

    @rig.app.batch(chunk=5, results=True)
    async def work(number: int) -> int:
        return number

    run = await work.start(range(30))
    faulty.inline = False
    for applied in (True, False, True, True, False):
        faulty.fail("flush", applied=applied)
    await rig.run()
    assert not faulty.pending()
    assert [item.value for item in await committed(run)] == list(range(30))
    assert (await run.result()).retries == 0


async def test_an_illegal_transition_fails_the_run_with_the_whole_report(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Illegal Transition Policy 2 and 3; a second terminal event is fatal (Atomicity 2)."""

    @rig.app.batch(chunk=8, retry=NO_RETRY)
    async def work(number: int) -> None: ...

    once = ChunkRun.succeeded

    def twice(self: ChunkRun, place: int, value: object) -> None:
        once(self, place, value)
        if self.first + place == 11:
            self._skips.append((place, "a second end"))

    monkeypatch.setattr(ChunkRun, "succeeded", twice)
    run = await work.start(range(30))
    await rig.run()
    with pytest.raises(ExecutionFailedError, match="illegal transition of seq 11") as failure:
        await run.result()
    report = str(failure.value)
    assert "TERMINAL_SUCCESS -> TERMINAL_SKIP" in report
    assert "owner" in report
    assert "ms" in report
    status = await run.status()
    assert status.committed <= 11, "nothing after it is committed, nothing before it undone (D10)"
    seen: list[int] = []

    async def follow() -> None:
        async for item in run.committed():
            seen.append(item.seq)  # noqa: PERF401  (what came before the error counts)

    with pytest.raises(ExecutionFailedError, match="illegal transition of seq 11"):
        await follow()
    assert seen == list(range(status.committed)), "whoever follows the run is told that it goes no further"


async def test_a_corrupt_state_fails_the_run(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """D10, by way of the store: a byte that no history can produce."""

    @rig.app.batch(chunk=8)
    async def work(number: int) -> None: ...

    run = await work.start(range(8))
    await rig.once()
    store = await rig.store()
    read = store.batch_chunks

    async def damaged(promise: bytes, start: int, limit: int, which: Which = "") -> list[ChunkView]:
        return [
            replace(chunk, states=b"\x01\x07" + chunk.states[2:]) if chunk.states is not None else chunk
            for chunk in await read(promise, start, limit, which)
        ]

    with monkeypatch.context() as patch:
        patch.setattr(store, "batch_chunks", damaged)
        await rig.run()
    with pytest.raises(ExecutionFailedError, match="seq 1 is stored as 0x07"):
        await run.result()


async def test_failed_items_of_a_live_run_are_not_run_again(rig: Rig) -> None:
    @rig.app.batch
    async def work(number: int) -> None: ...

    run = await work.start(range(3))
    with pytest.raises(InvalidArgumentError, match="has not ended"):
        await run.retry_failed()
    await rig.run()


async def test_a_handle_of_something_else_is_no_run(rig: Rig) -> None:
    @rig.app.task
    async def job() -> None: ...

    handle = await job.options(key="j").start()
    with pytest.raises(InvalidArgumentError, match="is a task, not a run"):
        await rig.app.batch_run(handle.id).status()


async def test_retention_takes_a_run_with_its_chunks_and_items(rig: Rig) -> None:
    @rig.app.batch(chunk=4, retry=NO_RETRY)
    async def work(number: int) -> None:
        if number == 3:
            raise ValueError

    run = await work.start(range(20))
    await rig.run()
    store = await rig.store()
    chunks = await store.children(run.id.to_bytes())
    assert len(chunks) == 5
    await rig.advance(100)
    assert await store.purge(Retention(age_seconds=10), 100) == 6
    assert await store.batch_status(run.id.to_bytes()) is None
    assert await store.batch_chunks(run.id.to_bytes(), 0, 99) == []
    assert [await store.get(chunk.promise) for chunk in chunks] == [None] * 5
