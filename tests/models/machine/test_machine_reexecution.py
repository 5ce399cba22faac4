"""The guarantee (seed section 1) and the three sources of re-execution (section 4), which are not to be conflated."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Await, Child, Done, Machine, MachineContext, Next, Outcome, Replay, ScheduleChildren, Status, step
from holdfast.core.errors import ExecutionStrandedError
from tests.engine.rig import Rig


async def test_the_state_is_committed_before_the_next_step_starts(rig: Rig) -> None:
    """Section 1: the engine's only guarantee."""
    seen: list[tuple[str, str]] = []

    @rig.app.machine
    class Walk(Machine[int]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            return Next(self.second, ctx.state + 1)

        @step
        async def second(self, ctx: MachineContext[int]) -> Outcome:
            view = await (await rig.store()).get(ctx.id.to_bytes())
            assert view is not None
            seen.append((view.step, view.state))
            return Done()

    await Walk.start(1)
    await rig.run()
    assert seen == [("second", "2")]


class Crash:
    """A machine whose worker dies in the middle of a step, as the ledger sees it."""

    def __init__(self, rig: Rig, *, is_handled: bool = True) -> None:
        self.rig = rig
        self.ran: list[tuple[str, int]] = []
        self.handled: list[BaseException] = []
        self.keys: list[str] = []
        self.begun = asyncio.Event()
        self.is_mended = False
        outer = self

        class Fragile(Machine[int]):
            @step(initial=True)
            async def first(self, ctx: MachineContext[int]) -> Outcome:
                outer.ran.append((ctx.step, ctx.attempt))
                return Next(self.second, ctx.state + 1)

            @step
            async def second(self, ctx: MachineContext[int]) -> Outcome:
                outer.ran.append((ctx.step, ctx.attempt))
                outer.keys.append(ctx.idempotency_key)
                outer.begun.set()
                if not outer.is_mended:
                    await asyncio.Event().wait()
                return Done(ctx.state)

            async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
                outer.handled.append(error)
                return Replay(ctx.state)

        self.machine = rig.app.machine(name="Fragile")(Fragile)

    async def die_once(self) -> None:
        """A worker picks it up, hangs in its second step, and is gone past its lease."""
        worker = await self.rig.make_worker()
        self.begun.clear()
        working = asyncio.create_task(worker.run_once())
        await self.begun.wait()
        await self.rig.kill(worker, working)


async def test_a_crashed_step_runs_again_from_the_last_commit(rig: Rig) -> None:
    """Section 4.3: attempt + 1, and the committed step is not run again."""
    crash = Crash(rig)
    handle = await crash.machine.start(1)
    await crash.die_once()
    view = await rig.view(handle)
    assert (view.status, view.step, view.attempt, view.crashes) == (Status.RUNNABLE, "second", 1, 1)
    crash.is_mended = True
    await rig.run()
    assert await handle.result() == 2
    assert crash.ran == [("first", 0), ("second", 0), ("second", 1)]


async def test_a_crash_is_no_error_for_handle(rig: Rig) -> None:
    """Section 4.3: `handle` is not called; this is the at-least-once floor."""
    crash = Crash(rig)
    await crash.machine.start(1)
    await crash.die_once()
    crash.is_mended = True
    await rig.run()
    assert crash.handled == []


async def test_the_idempotency_key_outlives_crashes_and_replays(rig: Rig) -> None:
    """It names the step, however often it is tried; the next round of the same step has another."""
    crash = Crash(rig)
    await crash.machine.start(1)
    await crash.die_once()
    await crash.die_once()
    crash.is_mended = True
    await rig.run()
    assert len(crash.keys) == 3
    assert len(set(crash.keys)) == 1


async def test_the_idempotency_key_is_another_one_in_the_next_step(rig: Rig) -> None:
    keys: list[str] = []

    @rig.app.machine
    class Loop(Machine[int]):
        @step(initial=True)
        async def again(self, ctx: MachineContext[int]) -> Outcome:
            keys.append(ctx.idempotency_key)
            if ctx.attempt < 1:
                return Replay(ctx.state)
            return Done() if ctx.state == 3 else Next(self.again, ctx.state + 1)

    await Loop.start(1)
    await rig.run()
    assert [keys[0] == keys[1], keys[2] == keys[3], keys[4] == keys[5]] == [True, True, True]
    assert len(set(keys)) == 3


async def test_the_three_sources_add_up_in_the_attempt(rig: Rig) -> None:
    """A replay, an exception and a crash each count one attempt of the same step."""
    attempts: list[int] = []
    begun = asyncio.Event()

    @rig.app.machine
    class Three(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            attempts.append(ctx.attempt)
            if ctx.attempt == 0:
                return Replay(ctx.state)
            if ctx.attempt == 1:
                raise ValueError("second")
            if ctx.attempt == 2:
                begun.set()
                await asyncio.Event().wait()
            return Done(ctx.attempt)

        async def handle(self, error: Exception, ctx: MachineContext[int]) -> Outcome:
            return Replay(ctx.state)

    handle = await Three.start(0)
    worker = await rig.make_worker()
    working = asyncio.create_task(worker.run_until_idle())
    await begun.wait()
    await rig.kill(worker, working)
    await rig.run()
    assert await handle.result() == 3
    assert attempts == [0, 1, 2, 3]


async def test_what_kills_every_worker_is_stranded_after_max_crashes(rig: Rig) -> None:
    """Loud and resumable, instead of looping for ever."""
    crash = Crash(rig)
    handle = await crash.machine.start(1)
    for _ in range(9):
        await crash.die_once()
        assert await handle.status() is Status.RUNNABLE
    await crash.die_once()
    with pytest.raises(ExecutionStrandedError, match="lost 10 times in a row"):
        await handle.result()
    assert await rig.run() == 0
    crash.is_mended = True
    await handle.resume()
    await rig.run()
    assert await handle.result() == 2
    assert len(set(crash.keys)) == 1, "the idempotency key outlives even this"


async def test_progress_forgets_earlier_crashes(rig: Rig) -> None:
    """`max_crashes` counts lease losses without progress."""
    crash = Crash(rig)
    handle = await crash.machine.start(1)
    await crash.die_once()
    crash.is_mended = True
    await rig.run()
    assert (await rig.view(handle)).crashes == 0


async def test_a_crash_before_the_join_step_commits_sees_the_same_children_again(rig: Rig) -> None:
    """Section 11: re-execution of the next step reads the same children."""
    seen: list[list[int]] = []
    begun = asyncio.Event()

    @rig.app.machine
    class Leaf(Machine[int]):
        @step(initial=True)
        async def only(self, ctx: MachineContext[int]) -> Outcome:
            return Done(ctx.state)

    @rig.app.machine
    class Tree(Machine[int]):
        @step(initial=True)
        async def split(self, ctx: MachineContext[int]) -> Outcome:
            return ScheduleChildren(self.join, [Child(Leaf, 5), Child(Leaf, 6)], ctx.state)

        @step
        async def join(self, ctx: MachineContext[int]) -> Outcome:
            seen.append([child.result for child in ctx.children])
            if len(seen) == 1:
                begun.set()
                await asyncio.Event().wait()
            return Done()

    await Tree.start(0)
    worker = await rig.make_worker()
    working = asyncio.create_task(worker.run_until_idle())
    await begun.wait()
    await rig.kill(worker, working)
    await rig.run()
    assert seen == [[5, 6], [5, 6]]


async def test_a_crash_in_a_woken_step_sees_the_same_signals_again(rig: Rig) -> None:
    """Section 5: consumption is on progress."""
    seen: list[list[object]] = []
    begun = asyncio.Event()

    @rig.app.machine
    class Waits(Machine[int]):
        @step(initial=True)
        async def ask(self, ctx: MachineContext[int]) -> Outcome:
            return Await("go", self.went, ctx.state)

        @step
        async def went(self, ctx: MachineContext[int]) -> Outcome:
            seen.append([signal.payload for signal in ctx.awaited])
            if len(seen) == 1:
                begun.set()
                await asyncio.Event().wait()
            return Done()

    handle = await Waits.start(0)
    await rig.run()
    await handle.signal("go", 1)
    worker = await rig.make_worker()
    working = asyncio.create_task(worker.run_once())
    await begun.wait()
    await rig.kill(worker, working)
    await handle.signal("go", 2)
    await rig.run()
    assert seen == [[1], [1, 2]]
