"""Time stands still until a test moves it; on the way everything happens at its own moment."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from holdfast import App, Await, Context, Done, Machine, MachineContext, Outcome, RetryPolicy, current, step
from holdfast.errors import ExecutionFailedError
from holdfast.testing.stores import Stores
from holdfast.testing.virtual import NotEndedError, virtual_time

DAY = timedelta(days=1)


async def test_everything_on_the_way_happens_at_its_own_moment(stores: Stores) -> None:
    app, tried = App("shop"), list[datetime]()

    @app.task(queue="mail", retry=RetryPolicy(max_attempts=3, initial_delay=3600, max_delay=3600, jitter=0))
    async def mail(to: str) -> int:
        tried.append(time.now)
        if current().attempt < 3:
            raise ConnectionError("busy")
        return current().attempt

    @app.workflow
    async def reminder(ctx: Context, to: str) -> list[str]:
        begun = ctx.now()
        await ctx.sleep(30 * DAY)
        attempts = await mail(to)
        return [str(ctx.now() - begun), str(attempts)]

    async with virtual_time(app, stores=stores) as time:
        began = time.now
        handle = await reminder.options(delay=DAY).start("ann")
        with pytest.raises(NotEndedError, match=r"reminder/\w+ is runnable, and nothing is due at 2030-01-01"):
            await time.result(handle)
        await time.advance(40 * DAY)
        assert await time.result(handle) == ["30 days, 2:00:00", "3"]
        assert [at - began for at in tried] == [31 * DAY + timedelta(hours=hours) for hours in (0, 1, 2)]
        assert time.now - began == 40 * DAY


async def test_a_sleep_after_a_task_ends_with_the_length_of_the_sleep(stores: Stores) -> None:
    """A run counts the time that its tasks really take, while the ledger's clock stands."""
    app = App("shop")

    @app.task
    def write() -> None: ...  # in a thread, which takes its time

    @app.workflow
    async def reminder(ctx: Context) -> int:
        for _ in range(2):
            await write()
            await ctx.sleep(30 * DAY)
        try:
            await ctx.signal("answer", str, timeout=DAY)
        except TimeoutError:
            return 2
        return 1

    async with virtual_time(app, stores=stores) as time:
        handle = await reminder.start()
        for days in (30, 30, 1):
            with pytest.raises(NotEndedError):
                await time.result(handle)
            await time.advance(days * DAY)
        assert await time.result(handle) == 2


async def test_a_signal_in_time_and_one_that_never_comes(stores: Stores) -> None:
    app = App("shop")

    @app.workflow
    async def approval(ctx: Context) -> str:
        try:
            return await ctx.signal("decision", str, timeout=3 * DAY)
        except TimeoutError:
            return "nobody answered"

    @app.machine
    class Parcel(Machine[str]):
        @step(initial=True)
        async def wait(self, ctx: MachineContext[str]) -> Outcome:
            return Await("came", self.end, ctx.state, timeout=2 * DAY)

        @step
        async def end(self, ctx: MachineContext[str]) -> Outcome:
            return Done("late" if ctx.timed_out else "there")

    async with virtual_time(app, stores=stores) as time:
        one, two, parcel = await approval.start(), await approval.start(), await Parcel.start("a vase")
        with pytest.raises(NotEndedError, match=r"is awaiting_signal for came, until 2030-01-03 .* send what it waits"):
            await time.result(parcel)
        await time.advance(DAY)
        await one.signal("decision", "yes")
        assert await time.result(one) == "yes"
        await time.advance(5 * DAY)
        assert [await time.result(two), await time.result(parcel)] == ["nobody answered", "late"]


async def test_schedules_tick_if_they_are_asked_for(stores: Stores) -> None:
    app, ran = App("reports"), list[datetime]()

    @app.task
    async def note() -> None:
        ran.append(time.now)

    @app.schedule("0 6 * * *")
    @app.workflow
    async def report(ctx: Context) -> None:
        await note()

    async with virtual_time(app, stores=stores) as time:
        await time.advance(DAY)
        assert ran == []
    async with virtual_time(app, stores=stores, schedules=True) as time:
        await time.advance(2 * DAY)
        assert [f"{at:%d %H:%M}" for at in ran] == ["02 00:00", "02 06:00", "03 06:00"]  # the first was missed


async def test_a_queue_with_a_rate_has_its_turns(stores: Stores) -> None:
    app, ran = App("limited"), list[str]()

    @app.task(queue="slow")
    async def note() -> None:
        ran.append(f"{time.now:%H:%M:%S}")

    @app.workflow
    async def nap(ctx: Context) -> None:
        await ctx.sleep(50)

    async with virtual_time(app, stores=stores) as time:
        await app.configure_queue("slow", rate=1, rate_period=20)
        await note.start_many([()] * 4)
        await nap.start()
        await time.advance(70)
    assert ran == ["00:00:00", "00:00:20", "00:00:40", "00:01:00"]


async def test_the_result_of_a_batch(stores: Stores) -> None:
    app = App("items")

    @app.batch(retry=RetryPolicy(max_attempts=2, initial_delay=300, jitter=0))
    async def check(number: int) -> None:
        if number == 2 and current().attempt == 1:
            raise ValueError("not yet")

    async with virtual_time(app, stores=stores) as time:
        run = await check.start(range(4))
        with pytest.raises(NotEndedError, match="advance the time"):
            await time.result(run)
        await time.advance(timedelta(minutes=5))
        assert (await time.result(run)).succeeded == 4


async def test_a_tick_that_waits_for_the_last_run_starts_when_that_ends(stores: Stores) -> None:
    app = App("buffered")
    began: list[str] = []

    @app.schedule("0 2 * * *", overlap="buffer_one")
    @app.workflow(name="nightly")
    async def nightly(ctx: Context) -> None:
        began.append(f"{ctx.now():%d %H:%M}")
        await ctx.sleep(timedelta(hours=30))

    async with virtual_time(app, stores=stores, schedules=True) as time:
        await time.advance(timedelta(days=3))
    assert began == ["01 02:00", "02 08:00", "03 14:00"]


async def test_an_app_goes_back_to_its_own_ledger_and_a_failure_is_told() -> None:
    app = App("own", "own.db")

    @app.task(retry=RetryPolicy(max_attempts=1))
    async def broken() -> None:
        raise ValueError("no")

    async with virtual_time(app) as time:
        handle = await broken.start()
        with pytest.raises(ExecutionFailedError, match="ValueError: no"):
            await time.result(handle)
    assert app._store == "own.db"
