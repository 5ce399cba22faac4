"""Runs whose worker is killed in a call: what is counted, what is given up, and what it costs to go on (B15)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import astuple

from holdfast import Context, Handle, RetryPolicy, Status, current
from holdfast.models.workflow import runner
from tests.models.workflow.kit import Gate, Rig

THRICE = RetryPolicy(max_attempts=3)


class Deadly:
    """A call of it kills its worker, by the hand of the test; `attempts` are those that began."""

    def __init__(self, rig: Rig, retry: RetryPolicy = THRICE) -> None:
        self._rig = rig
        self._gate = Gate()
        self.attempts: list[int] = []
        self.lets_pass = 0

        @rig.app.task(retry=retry)
        async def deadly() -> None:
            self.attempts.append(current().attempt)
            if self.lets_pass:
                self.lets_pass -= 1
            else:
                await self._gate.wait()

        self.call = deadly

    async def kills(self, **settings: Any) -> None:
        """A worker comes to it, and dies; another is there."""
        worker = self._rig.workers[0] if self._rig.workers else await self._rig.make_worker(**settings)
        self._gate.reached.clear()
        working, reached = self._rig.working(worker), asyncio.create_task(self._gate.reached.wait())
        await asyncio.wait([working, reached], return_when=asyncio.FIRST_COMPLETED)
        assert reached.done(), f"it was given up after {self.attempts}"
        await self._rig.make_worker(**settings)
        await self._rig.kill(worker, working)


async def _is_found_out(rig: Rig, deadly: Deadly, handle: Handle[str]) -> None:
    """Though before each attempt there is progress, with a signal that came."""
    for number in range(4):
        await handle.signal("note", number)
        await deadly.kills()
    assert deadly.attempts == [1, 1, 2, 3]
    await handle.signal("note", 4)
    assert "attempt 3 of" in await rig.result(handle)


async def _segments(rig: Rig, handle: Handle[Any]) -> int:
    return len(await rig.stores.store.journal(handle.id.to_bytes()))


async def test_after_a_crash_the_attempt_is_counted_before_it_begins(rig: Rig) -> None:
    """A call that kills every worker is found out."""
    deadly = Deadly(rig)

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        try:
            await deadly.call()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "survived"

    handle = await work.start()
    for _ in range(4):
        await deadly.kills()
    assert deadly.attempts == [1, 1, 2, 3]
    result = await rig.result(handle)
    assert "attempt 3 of" in result
    assert "lost its worker" in result


async def test_a_call_that_kills_its_worker_after_progress_of_a_run_that_was_taken_over_is_counted(rig: Rig) -> None:
    """As in a run that was never taken over: once uncounted, then as often as it may."""
    gate = Gate()
    deadly = Deadly(rig)

    @rig.app.task
    async def add(number: int) -> int:
        await gate.wait()
        return number + 1

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        total = await add(await add(0))
        try:
            await deadly.call()
        except Exception as error:
            return f"{total}, {error}"
        return "survived"

    handle = await work.start()
    first = await rig.make_worker()
    working = rig.working(first)
    await gate.reached.wait()
    await rig.make_worker()
    await rig.kill(first, working)
    gate.opened.set()
    for _ in range(4):
        await deadly.kills()
    assert deadly.attempts == [1, 1, 2, 3]
    result = await rig.result(handle)
    assert result.startswith("2, ")
    assert "attempt 3 of" in result


async def test_a_call_that_kills_its_worker_is_counted_though_signals_come_each_time(rig: Rig) -> None:
    """To take in a signal is progress; the call was open before."""
    deadly = Deadly(rig)

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        try:
            await deadly.call()
        except Exception as error:
            return str(error)
        return "survived"

    await _is_found_out(rig, deadly, await work.start())


async def test_a_call_that_kills_its_worker_is_counted_though_a_transaction_goes_first_each_time(
    rig: Rig, backend: str
) -> None:
    """That is progress, with which the claim is like any other: but not for what was open when it was taken over."""
    deadly = Deadly(rig)

    def save_here(db: Any, number: int) -> int:
        return number

    async def save_there(db: Any, number: int) -> int:
        return number

    chosen: Any = save_here if backend == "sqlite" else save_there
    save: Any = rig.app.transaction(name="save")(chosen)

    @rig.app.workflow
    async def work(ctx: Context) -> str:
        async with ctx.join_set() as jobs:
            jobs.submit(deadly.call())
            for _ in range(5):
                await save(await ctx.signal("note", int))
            try:
                (await jobs.next()).result()
            except Exception as error:
                return str(error)
        return "survived"

    await _is_found_out(rig, deadly, await work.start())


async def test_a_run_that_kills_every_worker_after_its_progress_is_stranded(rig: Rig) -> None:
    """Its call may be repeated for ever; the run has its limit, which progress sets back."""
    deadly = Deadly(rig, RetryPolicy(max_attempts=None))

    @rig.app.workflow
    async def work(ctx: Context) -> None:
        await deadly.call()
        await deadly.call()

    handle = await work.start()
    await deadly.kills(max_crashes=3)
    await deadly.kills(max_crashes=3)
    assert (await handle.describe()).crashes == 2
    deadly.lets_pass = 1
    for _ in range(3):
        assert await rig.status(handle) is Status.RUNNABLE
        await deadly.kills(max_crashes=3)
    assert await rig.status(handle) is Status.STRANDED


async def test_what_a_body_knows_of_itself_is_the_same_in_every_replay(rig: Rig) -> None:
    """So whatever it passes on of that, a worker that dies strands nothing."""
    gate = Gate()

    @rig.app.task
    async def tell(known: list[str]) -> list[str]:
        return known

    @rig.app.task
    async def wait() -> None:
        await gate.wait()

    @rig.app.workflow
    async def work(ctx: Context) -> list[str]:
        told = await tell([str(known) for known in astuple(ctx.info)])
        await wait()
        return told

    handle = await work.options(key="k").start()
    first = await rig.make_worker()
    working = rig.working(first)
    await gate.reached.wait()
    await rig.make_worker()
    await rig.kill(first, working)
    gate.opened.set()
    assert await rig.result(handle) == [str(handle.id), work.name, "1", "k"]


@pytest.mark.parametrize("steps", [8, 20])
async def test_a_run_that_was_taken_over_makes_one_commit_a_step_again(rig: Rig, steps: int) -> None:
    """Its first calls are recorded apart; once it has come further, a step is one commit as before."""
    gate = Gate()
    begun: list[str] = []

    @rig.app.task
    async def add(number: int) -> int:
        if number == 3:
            await gate.wait()
        return number + 1

    @rig.app.workflow
    async def count(ctx: Context) -> int:
        begun.append(ctx.info.id)
        number = 0
        while number < steps:
            number = await add(number)
        return number

    killed = await count.start()
    first = await rig.make_worker()
    working = rig.working(first)
    await gate.reached.wait()
    await rig.make_worker()
    await rig.kill(first, working)
    gate.opened.set()
    assert await rig.result(killed) == steps
    whole = await count.start()
    assert await rig.result(whole) == steps
    assert begun == [str(killed.id), str(killed.id), str(whole.id)]
    assert await _segments(rig, killed) == await _segments(rig, whole) + 2


async def test_what_the_row_says_of_attempts_after_progress_stays_so(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat is no progress, and does not bring back what the claim was picked with."""
    monkeypatch.setattr(runner, "BEAT_COMMIT_SECONDS", 0)
    gate, late = Gate(), Gate()

    @rig.app.task
    async def add(number: int) -> int:
        await gate.wait()
        return number + 1

    @rig.app.task
    async def beat() -> None:
        current().heartbeat("half")
        await late.wait()

    @rig.app.workflow
    async def work(ctx: Context) -> int:
        total = await add(0)
        await beat()
        return total

    handle = await work.start()
    first = await rig.make_worker()
    working = rig.working(first)
    await gate.reached.wait()
    second = await rig.make_worker()
    await rig.kill(first, working)
    assert (await handle.describe()).attempt == 1
    gate.opened.set()
    working = rig.working(second)
    await late.reached.wait()
    async with asyncio.timeout(20):
        while not await handle.progress():  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert (await handle.describe()).attempt == 0
    late.opened.set()
    await working
    assert await handle.result() == 1
