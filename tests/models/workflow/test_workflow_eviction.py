"""Bodies that are dropped from memory, moved, drained, paused and killed go on as if nothing had been (B15, B16)."""

from __future__ import annotations

import asyncio
import copy
import gc
import hashlib
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from holdfast import Context, Evicted, RetryPolicy, Status
from holdfast.engine.settings import WorkerOptions
from holdfast.models.workflow.runner import WorkflowRunner
from holdfast.models.workflow.session import Session
from holdfast.models.workflow.warm import WarmSessions
from holdfast.store.effects import AdvanceExecution
from holdfast.store.values import CHILD, SIGNAL, ExecutionClaim, Picked, Receipt, Signal
from holdfast.testing.faults import FaultyStore, Held, lose_reply
from tests.models.workflow.kit import Gate, Rig


async def test_eviction_runs_finally_but_records_and_starts_nothing(rig: Rig) -> None:
    """B16: while evicting, every durable call raises Evicted."""
    seen: list[str] = []

    @rig.app.task
    async def clean(what: str) -> str:
        seen.append(what)
        return what

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        try:
            await ctx.signal("go", int)
        finally:
            seen.append("finally")
            try:
                await clean("first")
            except Evicted:
                seen.append("evicted")
                raise
            await clean("second")
        return "done"

    handle = await work.start()
    await rig.run()
    before = await rig.facts(handle)
    rig.forget()
    assert seen == ["finally", "evicted"]
    assert await rig.facts(handle) == before
    assert await rig.status(handle) is Status.AWAITING_PROMISE
    await handle.signal("go", 1)
    assert await rig.result(handle) == "done"
    assert seen[2:] == ["finally", "first", "second"]


@pytest.mark.parametrize(("setting", "begun"), [({}, 1), ({"warm_most": 0}, 2), ({"warm_bytes": 0}, 2)])
async def test_what_a_worker_keeps_in_memory_is_a_setting(rig: Rig, setting: WorkerOptions, begun: int) -> None:
    begins: list[int] = []

    @rig.app.workflow
    async def work(ctx: Context) -> int:
        begins.append(1)
        return await ctx.signal("go", int)

    async with rig.app.worker(**setting):
        handle = await work.start()
        async with asyncio.timeout(20):
            while await rig.status(handle) is not Status.AWAITING_PROMISE:  # noqa: ASYNC110
                await asyncio.sleep(0)
        await handle.signal("go", 3)
        assert await handle.result(timeout=20) == 3
    assert len(begins) == begun


async def test_a_run_that_is_picked_again_before_it_hears_of_its_park_stays_in_memory(rig: Rig) -> None:
    """Else a run that is woken often is replayed every so often, at a cost that grows with its journal."""
    begun: list[int] = []

    @rig.app.workflow
    async def work(ctx: Context) -> int:
        begun.append(1)
        return await ctx.signal("go", int)

    handle = await work.start()
    worker = await rig.worker()
    released = worker._committer._on_released

    def picked_again(claim: ExecutionClaim, advance: AdvanceExecution, receipt: Receipt) -> None:
        released(claim, advance, receipt)
        if receipt.status is Status.AWAITING_PROMISE:
            next_claim, later = copy.copy(claim), asyncio.get_running_loop().create_task(asyncio.sleep(0))
            worker._active.add(next_claim, later)
            later.add_done_callback(lambda _: worker._active.remove(next_claim))

    worker._committer._on_released = picked_again
    await rig.run()
    await handle.signal("go", 7)
    assert await rig.result(handle) == 7
    assert len(begun) == 1


async def test_a_run_that_is_picked_before_its_park_is_answered_stays_in_memory(rig: Rig) -> None:
    """A store beside the loop, or in a thread, may answer the pick first."""
    store = FaultyStore(await rig.stores.another())
    late = Rig(rig.stores, store=store.as_store)
    begun: list[int] = []

    @late.app.workflow
    async def work(ctx: Context) -> int:
        begun.append(1)
        return await ctx.signal("go", int) + await ctx.signal("go", int)

    handle = await work.start()
    await late.run()
    await handle.signal("go", 1)
    parked = Held()
    store.plan("flush", parked)
    worker = await late.worker()
    working = late.working(worker)
    await parked.carried_out.wait()
    await handle.signal("go", 2)
    await worker._picker.run_once()
    for _ in range(5):  # turns of the loop, in which it would begin anew
        await asyncio.sleep(0)
    parked.give()
    await working
    assert await late.result(handle) == 3
    assert (len(begun), store.calls["journal"]) == (1, 0)
    await late.close()


def test_a_session_that_was_left_late_is_not_counted_twice() -> None:
    """A claim that hears late that it is over may leave its session when the next one has left another."""
    warm = WarmSessions(most=10, most_bytes=1_000)
    for revision in range(50):
        session = Session("ab" * 32)
        session.journal_bytes = 300
        warm.put(b"p", (revision, 0), session)
    assert len(warm) == 1
    assert warm._bytes == 300


@pytest.mark.parametrize("stubborn", ["durable", "swallows", "raises"])
async def test_no_clean_up_code_hurts_its_worker(rig: Rig, stubborn: str) -> None:
    """A least recently used body is dropped in the middle of somebody else's commit."""

    @rig.app.task
    async def clean() -> None:
        return None

    @rig.app.workflow
    async def work(ctx: Context, how: str) -> str:
        try:
            await ctx.signal("go", int)
        finally:
            if how == "durable":
                await clean()
            elif how == "raises":
                raise ValueError("while it is dropped")
            else:
                for _ in range(3):
                    try:
                        await ctx.sleep(1)
                    except BaseException:
                        continue
        return "done"

    await rig.make_worker(warm_most=0)
    handles = [await work.start(how) for how in (stubborn, "durable")]
    await rig.run()
    assert {await rig.status(handle) for handle in handles} == {Status.AWAITING_PROMISE}
    gc.collect()


async def test_the_least_recently_used_body_goes_first(rig: Rig) -> None:
    @rig.app.workflow
    async def work(ctx: Context) -> int:
        return await ctx.signal("go", int)

    worker = await rig.make_worker(warm_most=2)
    (runner,) = [runner for runner in worker._all_runners if isinstance(runner, WorkflowRunner)]
    handles = [await work.start() for _ in range(5)]
    await rig.run()
    assert len(runner.warm) == 2
    for number, handle in enumerate(handles):
        await handle.signal("go", number)
    assert [await rig.result(handle) for handle in handles] == [0, 1, 2, 3, 4]
    assert len(runner.warm) == 0


async def test_a_warm_resume_reads_no_journal(rig: Rig) -> None:
    """DESIGN 6: and a body that was left at another revision is not used."""
    store = FaultyStore(await rig.stores.another())
    warm = Rig(rig.stores, store=store)

    @warm.app.workflow
    async def work(ctx: Context) -> int:
        return await ctx.signal("go", int) + await ctx.signal("go", int)

    handle = await work.start()
    await warm.run()
    await handle.signal("go", 1)
    await warm.run()
    assert store.calls["journal"] == 0
    warm.forget()
    await handle.signal("go", 2)
    await warm.run()
    assert store.calls["journal"] == 1
    assert await handle.result() == 3
    await warm.close()


async def test_ids_are_whole_outside_the_journal(rig: Rig) -> None:
    """B3, B15: an id is the run's and a number, also where its journal says the number alone."""
    seen: list[str | None] = []

    @rig.app.task
    async def double(number: int) -> int:
        return 2 * number

    @rig.app.workflow
    async def work(ctx: Context) -> tuple[UUID, float]:
        values = ctx.uuid(), ctx.random()
        call, signal, several = ctx.invoke(double, 1), ctx.signal("go"), ctx.join_set()
        await ctx.all(call, signal)
        seen[:] = [call.id, several.id, signal.id]
        return values

    handle = await work.start()
    await handle.signal("go")
    key, chance = await rig.result(handle)
    digests = [hashlib.sha256(f"{handle.id}.{mark}".encode()).digest() for mark in ("0:uuid", "1:float")]
    assert (key, chance) == (UUID(bytes=digests[0][:16], version=4), int.from_bytes(digests[1][:7], "big") / (1 << 56))
    assert seen == [f"{handle.id}.{number}" for number in (2, 3, 4)]


async def test_keys_and_times_survive_a_worker_killed_in_the_call_they_went_to(rig: Rig) -> None:
    """B15: whatever a call was given is durable before it begins."""
    gate = Gate()
    seen: list[tuple[UUID, datetime, int]] = []

    @rig.app.task
    async def charge(key: UUID, at: datetime, amount: int) -> None:
        seen.append((key, at, amount))
        await gate.wait()

    @rig.app.workflow
    async def pay(ctx: Context) -> None:
        amount = await ctx.signal("amount", int)
        await charge(ctx.uuid(), ctx.now(), amount)

    handle = await pay.start()
    await handle.signal("amount", 12)
    first = await rig.worker()
    working = rig.working(first)
    await gate.reached.wait()
    await rig.make_worker()
    gate.opened.set()
    await rig.kill(first, working)
    await rig.run()
    assert await rig.status(handle) is Status.DONE
    assert len(seen) == 2
    assert seen[0] == seen[1]


@pytest.mark.parametrize("kind", [SIGNAL, CHILD, None], ids=["signal", "child", "time"])
async def test_nothing_begins_before_what_came_is_committed(
    rig: Rig, kind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is, and be it the end of a child that nobody waits for, or time for the next attempt at a call:
    PostgreSQL's `pick_3` relies on it."""
    committed: list[int] = []

    @rig.app.task(retry=RetryPolicy(max_attempts=2, initial_delay=10))
    async def acts() -> None:
        view = await rig.stores.store.get(handle.id.to_bytes())
        assert view is not None
        committed.append(view.revision)
        if len(committed) == 1:
            raise ValueError("once more")

    @rig.app.workflow
    async def retries(ctx: Context) -> None:
        await acts()

    handle = await retries.start()
    worker = await rig.worker()
    await worker.run_until_idle()
    picked_at: list[int] = []
    pick = worker.store.pick

    async def pick_with_more(*arguments: Any) -> Picked:
        picked = await pick(*arguments)
        for claim in picked.claims:
            picked_at.append(claim.revision)
            assert claim.timed_out
            if kind is not None:
                name = "news" if kind == SIGNAL else f"{claim.promise.hex()}{99:08x}"
                claim.inbox = (Signal(10**9, name, '{"status":"done","result":1,"error":null,"state":null}', kind),)
                claim.timed_out = False
        return picked

    monkeypatch.setattr(worker.store, "pick", pick_with_more)
    await rig.advance(10)
    await worker.run_once()
    assert await rig.status(handle) is Status.DONE
    assert committed[1:] == [picked_at[0] + 1]


async def test_a_run_that_moves_between_workers_at_every_wait_ends_the_same(rig: Rig) -> None:
    @rig.app.task
    async def add(number: int) -> int:
        return number + 1

    @rig.app.workflow
    async def work(ctx: Context) -> list[int]:
        return [await add(await ctx.signal("n", int)) for _ in range(6)]

    handle = await work.start()
    workers = [await rig.make_worker() for _ in range(3)]
    for number in range(6):
        await workers[number % 3].run_until_idle()
        await handle.signal("n", number)
    for worker in workers:
        await worker.run_until_idle()
    assert await handle.result() == [1, 2, 3, 4, 5, 6]


async def test_a_drained_worker_gives_its_workflow_back_between_two_calls(rig: Rig) -> None:
    gate = Gate()
    ran: list[int] = []

    @rig.app.task
    async def add(number: int) -> int:
        ran.append(number)
        if number == 0:
            await gate.wait()
        return number

    @rig.app.workflow
    async def work(ctx: Context) -> list[int]:
        return [await add(number) for number in range(3)]

    handle = await work.start()
    first = await rig.worker()
    working = rig.working(first)
    await gate.reached.wait()
    stopping = asyncio.create_task(rig.stop(first))
    await asyncio.sleep(0)
    gate.opened.set()
    await stopping
    await asyncio.gather(working, return_exceptions=True)
    assert await rig.status(handle) is Status.RUNNABLE
    assert ran == [0]
    assert await rig.result(handle) == [0, 1, 2]
    assert ran == [0, 1, 2]


async def test_a_call_cut_off_by_draining_is_no_outcome(rig: Rig) -> None:
    """DESIGN 6: it runs again elsewhere, though its policy allows one attempt."""
    gate = Gate()
    ran: list[int] = []

    @rig.app.task(retry=RetryPolicy(max_attempts=1))
    async def slow() -> str:
        ran.append(1)
        await gate.wait()
        return "done"

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        ctx.now()
        return await slow()

    handle = await work.start()
    first = await rig.worker()
    working = rig.working(first)
    await gate.reached.wait()
    await rig.stop(first, 0)
    await working
    gate.opened.set()
    assert await rig.result(handle) == "done"
    assert len(ran) == 2


async def test_a_paused_workflow_rests_and_loses_nothing(rig: Rig) -> None:
    gate = Gate()
    ran: list[int] = []

    @rig.app.task(retry=RetryPolicy(max_attempts=1))
    async def add(number: int) -> int:
        ran.append(number)
        if number == 0:
            await gate.wait()
        return number

    @rig.app.workflow
    async def work(ctx: Context) -> list[int]:
        return [await add(0), await add(1), await ctx.signal("go", int)]

    handle = await work.start()
    working = rig.working(await rig.worker())
    await gate.reached.wait()
    await handle.pause()
    gate.opened.set()
    await working
    assert ran == [0]
    await handle.signal("go", 7)
    await rig.run()
    assert ran == [0]
    await handle.resume()
    assert await rig.result(handle) == [0, 1, 7]
    assert ran == [0, 1]


async def test_a_commit_whose_reply_was_lost_neither_repeats_nor_forgets(rig: Rig) -> None:
    """The time of such a commit is unknown; the body's clock must not fall back for that."""
    store = FaultyStore(await rig.stores.another())
    other = Rig(rig.stores, store=store)
    ran: list[int] = []

    @other.app.task
    async def add(number: int) -> int:
        ran.append(number)
        return number

    @other.app.workflow
    async def work(ctx: Context) -> list[object]:
        first = ctx.now()
        done = await add(1)
        return [done, ctx.now() >= first, await add(2)]

    handle = await work.start()
    store.plan("flush", lose_reply)
    await other.run()
    assert await handle.result() == [1, True, 2]
    assert ran == [1, 2]
    await other.close()
