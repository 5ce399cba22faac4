"""Schedules: one start per tick, whatever crashes and however many workers there are."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import App, Context, Done, Machine, Outcome, Status, step
from holdfast.core import crashpoints
from holdfast.core.errors import ConfigurationError, InvalidArgumentError, NotFoundError
from holdfast.models.schedule import POLL_SECONDS, STARTS_A_PASS, Scheduler, make_spec
from holdfast.store.values import ExecutionFilter
from tests.models.workflow.kit import Rig

MINUTE = 60.0


async def made(rig: Rig, cron: str = "* * * * *", **settings: Any) -> Scheduler:
    """A workflow that waits for `end`, on a schedule; the loop, by hand."""

    @rig.app.workflow(name="report")
    async def report(ctx: Context, number: int = 0) -> int:
        await ctx.signal("end")
        return number

    await rig.app.register()
    await rig.app.schedules.create("minutely", cron, report, **settings)
    return Scheduler(rig.app._connection)


async def started(rig: Rig) -> list[str]:
    """The ticks that were started, oldest first."""
    page = await rig.stores.store.browse(ExecutionFilter(attributes={"schedule": "minutely"}), 1000)
    return [(view.idempotency_key or "").partition("T")[2] for view in reversed(page.items)]


async def test_a_tick_starts_one_execution_with_any_number_of_workers(rig: Rig) -> None:
    first = await made(rig, args={"number": 3}, overlap="allow")
    others = [Scheduler(rig.another_app()._connection) for _ in range(3)]
    await first.run_once()
    assert await started(rig) == []
    for _ in range(3):
        await rig.stores.advance(MINUTE)
        await asyncio.gather(*(scheduler.run_once() for scheduler in (first, *others)))
    assert await started(rig) == ["00:01:00Z", "00:02:00Z", "00:03:00Z"]


@pytest.mark.parametrize("spoilt", [{"window_seconds": 1e300}, {"timezone": "../Rome"}, {"cron": "61 * * * *"}])
async def test_a_schedule_that_nobody_can_reckon_with_does_not_hold_up_the_others(
    rig: Rig, caplog: pytest.LogCaptureFixture, spoilt: dict[str, Any]
) -> None:
    """As an import, or another version, may have brought it."""
    scheduler = await made(rig)
    store = rig.stores.store
    (sound,) = await store.schedules("minutely")
    await store.put_schedule("a-spoilt-one", json.dumps(json.loads(sound.spec) | spoilt), sound.next_at)
    await rig.stores.advance(MINUTE)
    await scheduler.run_once()
    assert await started(rig) == ["00:01:00Z"]
    assert "the schedule a-spoilt-one cannot start its tick" in caplog.text


async def test_a_schedule_that_cannot_be_read_can_be_replaced(rig: Rig) -> None:
    store = rig.stores.store
    await store.put_schedule("minutely", '{"cron": 5}', datetime(2030, 6, 1, tzinfo=UTC))
    scheduler = await made(rig)
    await rig.stores.advance(MINUTE)
    await scheduler.run_once()
    assert await started(rig) == ["00:01:00Z"]


async def test_a_schedule_that_cannot_start_does_not_hold_up_the_others(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.app.schedules.create("a-broken-one", "* * * * *", "nobody")
    scheduler = await made(rig)
    await rig.stores.advance(MINUTE)
    await scheduler.run_once()
    assert await scheduler.run_once() == POLL_SECONDS
    assert await started(rig) == ["00:01:00Z"]
    told = [record.message for record in caplog.records if "a-broken-one" in record.message]
    assert len(told) == 1
    assert "no worker of this ledger has known a definition 'nobody'" in told[0]

    @rig.app.workflow(name="nobody")
    async def somebody(ctx: Context) -> None: ...

    await rig.app.register()
    await scheduler.run_once()
    assert len(await rig.app.search({"schedule": "a-broken-one"})) == 1


@pytest.mark.parametrize("point", ["insert.before", "insert.after"])
async def test_a_crash_around_a_tick_neither_loses_nor_repeats_it(rig: Rig, point: str) -> None:
    scheduler = await made(rig)
    await rig.stores.advance(MINUTE)

    def crash(reached: str) -> None:
        if reached == point:
            raise RuntimeError("killed")

    crashpoints.set_hook(crash)
    try:
        with pytest.raises(RuntimeError, match="killed"):
            await scheduler.run_once()
    finally:
        crashpoints.set_hook(None)
    await scheduler.run_once()
    assert await started(rig) == ["00:01:00Z"]


async def end_all(rig: Rig) -> None:
    await rig.run()
    for handle in await rig.app.search({"schedule": "minutely"}):
        if not (await handle.status()).is_terminal:
            await handle.signal("end")
    await rig.run()


async def test_skip_leaves_out_ticks_while_the_last_one_runs(rig: Rig) -> None:
    scheduler = await made(rig, overlap="skip")
    for _ in range(3):
        await rig.stores.advance(MINUTE)
        await scheduler.run_once()
    await end_all(rig)
    await rig.stores.advance(MINUTE)
    await scheduler.run_once()
    assert await started(rig) == ["00:01:00Z", "00:04:00Z"]


async def test_buffer_one_starts_the_first_tick_that_waited(rig: Rig) -> None:
    scheduler = await made(rig, overlap="buffer_one")
    for _ in range(3):
        await rig.stores.advance(MINUTE)
        await scheduler.run_once()
    assert await started(rig) == ["00:01:00Z"]
    await end_all(rig)
    await scheduler.run_once()
    await scheduler.run_once()
    assert await started(rig) == ["00:01:00Z", "00:02:00Z"]


@pytest.mark.parametrize(
    ("catch_up", "ticks"),
    [("none", ["00:05:00Z"]), ("latest", ["00:05:00Z"]), ("all", [f"00:0{n}:00Z" for n in range(1, 6)])],
)
async def test_ticks_that_nobody_was_there_for(rig: Rig, catch_up: str, ticks: list[str]) -> None:
    scheduler = await made(rig, catch_up=catch_up, overlap="allow")
    await rig.stores.advance(5 * MINUTE)
    await scheduler.run_once()
    assert await started(rig) == ticks


async def test_no_catch_up_drops_what_is_late(rig: Rig) -> None:
    scheduler = await made(rig, "0 * * * *", catch_up="none")
    await rig.stores.advance(90 * MINUTE)
    await scheduler.run_once()
    assert await started(rig) == []
    await rig.stores.advance(30 * MINUTE)
    await scheduler.run_once()
    assert await started(rig) == ["02:00:00Z"]


async def test_a_window_bounds_what_is_caught_up_and_a_pass_what_is_started(rig: Rig) -> None:
    scheduler = await made(rig, catch_up="all", overlap="allow", window=150 * MINUTE)
    await rig.stores.advance(10 * 60 * MINUTE)
    await scheduler.run_once()
    assert len(await started(rig)) == STARTS_A_PASS
    await scheduler.run_once()
    ticks = await started(rig)
    assert (len(ticks), ticks[0], ticks[-1]) == (151, "07:30:00Z", "10:00:00Z")


async def test_a_paused_schedule_has_no_ticks_and_a_deleted_one_is_gone(rig: Rig) -> None:
    scheduler = await made(rig, catch_up="none")
    schedules = rig.app.schedules
    await schedules.pause("minutely")
    await rig.stores.advance(10 * MINUTE + 30)
    await scheduler.run_once()
    assert await started(rig) == []
    await schedules.resume("minutely")
    await rig.stores.advance(MINUTE)
    await scheduler.run_once()
    assert await started(rig) == ["00:11:00Z"]
    await schedules.delete("minutely")
    assert await schedules.list() == []
    for change in (schedules.pause, schedules.resume, schedules.delete, schedules.trigger):
        with pytest.raises(NotFoundError, match="no schedule"):
            await change("minutely")
        for odd in ("a\0b", "\udcff"):  # what no store can hold
            with pytest.raises(NotFoundError, match="no schedule"):
                await change(odd)


async def test_trigger_starts_at_once_with_the_same_input(rig: Rig) -> None:
    await made(rig, args={"number": 9})
    handle = await rig.app.schedules.trigger("minutely")
    await handle.signal("end")
    assert await rig.result(handle) == 9


async def test_a_changed_time_counts_from_now_and_an_unchanged_one_stays(rig: Rig) -> None:
    await made(rig, "30 6 * * *")
    schedules = rig.app.schedules
    (before,) = await schedules.list()
    await rig.stores.advance(24 * 60 * MINUTE)
    await schedules.create("minutely", "30 6 * * *", "report", overlap="allow")
    assert (await schedules.list())[0].next_at == before.next_at  # the tick that is due is not forgotten
    await schedules.create("minutely", "0 7 * * *", "report", timezone="Europe/Berlin")
    assert (await schedules.list())[0].next_at == datetime(2030, 1, 2, 6, tzinfo=UTC)


async def test_declared_with_the_code_it_is_made_by_the_worker_and_worked_by_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.models.schedule.POLL_SECONDS", 0.05)  # the clock jumps, which no scheduler hears of

    @dataclass
    class Box:
        size: int

    @rig.app.schedule("* * * * *", args={"size": 1})
    @rig.app.machine(name="Sweep")
    class Sweep(Machine[Box]):
        @step(initial=True)
        async def sweep(self, ctx: object) -> Outcome:
            return Done("swept")

    @rig.app.schedule("@hourly", name="other")
    @rig.app.task(name="tidy")
    async def tidy() -> None: ...

    with pytest.raises(ConfigurationError, match="twice"):
        rig.app.schedule("@daily", name="other")(tidy)
    async with rig.app.worker():
        assert [schedule.name for schedule in await rig.app.schedules.list()] == ["Sweep", "other"]
        await rig.stores.advance(MINUTE)
        async with asyncio.timeout(20):
            while not await rig.stores.store.count(ExecutionFilter(name="Sweep", statuses=(Status.DONE,))):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (None, "the args {} of a schedule do not fit report: Object missing required field `number`"),
        ({"number": "x"}, r"do not fit report: Expected `int`, got `str` - at `\$.number`"),
        ({"nmber": 1}, "do not fit report: it has no parameter nmber; its parameters are: number, kind"),
        ([1], "do not fit report: Expected `object`, got `array`"),
    ],
)
async def test_args_that_do_not_fit_the_code_are_refused_when_it_is_declared(rig: Rig, args: Any, said: str) -> None:
    @rig.app.workflow(name="report")
    async def report(ctx: Context, number: int, kind: str = "daily") -> None: ...

    with pytest.raises(InvalidArgumentError, match=said):
        rig.app.schedule("@daily", args=args)(report)
    with pytest.raises(InvalidArgumentError, match=said):
        await rig.app.schedules.create("daily", "@daily", report, args=args)
    assert await rig.app.schedules.list() == []
    await rig.app.schedules.create("daily", "@daily", report, args={"number": 1})


def test_the_state_of_a_machine_is_checked_too(rig: Rig) -> None:
    @rig.app.machine(name="Sweep")
    class Sweep(Machine[int]):
        @step(initial=True)
        async def sweep(self, ctx: object) -> Outcome:
            return Done("swept")

    with pytest.raises(InvalidArgumentError, match="do not fit Sweep: Expected `int`, got `object`"):
        rig.app.schedule("@daily")(Sweep)
    rig.app.schedule("@daily", args=3)(Sweep)


def test_the_input_of_a_flow_and_the_items_of_a_batch_are_checked_too(rig: Rig) -> None:
    flow = rig.app.flow("nightly")

    @flow.activity
    async def extract(day: str) -> str:
        return day

    @rig.app.batch(name="resize")
    async def resize(width: int) -> None: ...

    with pytest.raises(InvalidArgumentError, match="do not fit nightly: it has no parameter dy"):
        rig.app.schedule("@daily", args={"dy": "x"})(flow)
    with pytest.raises(
        InvalidArgumentError, match="do not fit resize: it has no parameter width; its parameters are: i"
    ):
        rig.app.schedule("@daily", args={"width": 3})(resize)
    with pytest.raises(
        InvalidArgumentError, match=r"do not fit resize: Expected `int`, got `str` - at `\$.items\[1\]`"
    ):
        rig.app.schedule("@daily", args={"items": [1, "x"]})(resize)
    rig.app.schedule("@daily", args={"day": "x"})(flow)
    rig.app.schedule("@daily", args={"items": [1, 2]})(resize)


@pytest.mark.parametrize("is_known", [True, False], ids=["the ledger knows it", "declared here alone"])
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (None, "Object missing required field `number`"),
        ({"number": "x"}, r"report cannot be started with this, at \$.number: Expected `int`, got `str`"),
        ({"nmber": 1}, "report has no parameter nmber; its parameters are: number, kind"),
        ([1], "report is started by name with a mapping of its arguments"),
    ],
)
async def test_by_name_too_what_the_code_at_hand_cannot_read_is_refused(
    rig: Rig, args: Any, said: str, is_known: bool
) -> None:
    @rig.app.workflow(name="report")
    async def report(ctx: Context, number: int, kind: str = "daily") -> None: ...

    if is_known:
        await rig.app.register()
    with pytest.raises(InvalidArgumentError, match=said):
        await rig.app.schedules.create("daily", "@daily", "report", args=args)
    assert await rig.app.schedules.list() == []
    await rig.app.schedules.create("daily", "@daily", "report", args={"number": 1})


async def test_a_schedule_of_what_is_not_known_yet_or_is_newer_than_the_code_at_hand_is_not_judged(rig: Rig) -> None:
    await rig.app.schedules.create("early", "@daily", "later", args={"anything": 1})

    async with App("new", store=rig.stores.unopened()) as new:

        @new.workflow(name="report", version=2)
        async def newer(ctx: Context, number: str) -> None: ...

        await new.register()

    @rig.app.workflow(name="report")
    async def older(ctx: Context, number: int) -> None: ...

    await rig.app.register()
    await rig.app.schedules.create("daily", "@daily", "report", args={"number": "two"})


async def test_a_trigger_is_refused_where_the_code_at_hand_cannot_read_what_it_starts(rig: Rig) -> None:
    await rig.app.schedules.create("daily", "@daily", "report", args={"number": "x"})

    @rig.app.workflow(name="report")
    async def report(ctx: Context, number: int) -> None: ...

    await rig.app.register()
    with pytest.raises(InvalidArgumentError, match=r"report cannot be started with this, at \$.number"):
        await rig.app.schedules.trigger("daily")


@pytest.mark.parametrize(
    "settings",
    [{"cron": "often"}, {"timezone": "Mars/Base"}, {"overlap": "both"}, {"catch_up": "some"}, {"definition": "a b"}],
)
def test_what_makes_no_schedule_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        make_spec(**({"cron": "* * * * *", "definition": "report"} | settings))


async def test_a_schedule_has_a_name(rig: Rig) -> None:
    for bad in ("", "every day"):
        with pytest.raises(InvalidArgumentError, match="is no name for a schedule: use 1 to"):
            await rig.app.schedules.create(bad, "* * * * *", "report")

        async def report(ctx: Context) -> None: ...

        with pytest.raises(InvalidArgumentError, match="is no name for a schedule: use 1 to"):
            rig.app.schedule("* * * * *", name=bad)(rig.app.workflow(name=f"report{len(bad)}")(report))
