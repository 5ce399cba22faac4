"""`holdfast check`: what would become of runs in flight under other code, without touching them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Await, Context, Done, Machine, MachineContext, Outcome, step
from holdfast.cli.main import run
from holdfast.core.errors import InvalidArgumentError, NotFoundError
from holdfast.core.status import Status
from holdfast.models.check import Checked
from holdfast.store.values import ExecutionFilter
from holdfast.testing.stores import SqliteStores
from tests.models.workflow.kit import Rig


def tasks(app: App) -> tuple[Any, Any]:
    @app.task(name="one")
    async def one(number: int = 1) -> int:
        return number

    @app.task(name="two")
    async def two() -> int:
        return 2

    return one, two


async def in_flight(rig: Rig) -> None:
    one, _ = tasks(rig.app)

    @rig.app.workflow(name="job")
    async def job(ctx: Context) -> int:
        first: int = await one(1)
        await ctx.signal("go")
        return first

    await job.start()
    await rig.run()
    await job.start()  # not begun


async def verdicts(app: App) -> list[tuple[str, str]]:
    return sorted([(one.verdict, one.detail or "") async for one in app.check()])


async def test_the_same_code_replays_and_nothing_is_touched(rig: Rig) -> None:
    await in_flight(rig)
    before = (await rig.stores.store.browse(ExecutionFilter(), 10)).items
    assert [verdict for verdict, _ in await verdicts(rig.app)] == ["replays", "replays"]
    assert (await rig.stores.store.browse(ExecutionFilter(), 10)).items == before


async def test_another_order_of_calls_would_strand_what_has_begun(rig: Rig) -> None:
    await in_flight(rig)
    changed = rig.another_app()
    one, two = tasks(changed)

    @changed.workflow(name="job")
    async def job(ctx: Context) -> int:
        await two()
        await one(1)
        await ctx.signal("go")
        return 1

    (fresh, _), (stranded, why) = await verdicts(changed)
    assert (fresh, stranded) == ("replays", "stranded")
    assert "two" in why


async def test_a_patched_change_is_told_apart(rig: Rig) -> None:
    await in_flight(rig)
    changed = rig.another_app()
    one, two = tasks(changed)

    @changed.workflow(name="job")
    async def job(ctx: Context) -> int:
        if ctx.patched("two-first"):
            await two()
        await one(1)
        await ctx.signal("go")
        return 1

    assert [verdict for verdict, _ in await verdicts(changed)] == ["patched", "replays"]


async def test_code_that_is_gone_or_takes_another_input_strands(rig: Rig) -> None:
    await in_flight(rig)
    gone = rig.another_app()
    tasks(gone)
    assert {verdict for verdict, _ in await verdicts(gone)} == {"stranded"}
    other = rig.another_app()

    @other.workflow(name="job")
    async def job(ctx: Context, needed: int) -> int:
        return needed

    assert {verdict for verdict, _ in await verdicts(other)} == {"stranded"}


def everything(app: App, *, is_new: bool) -> None:
    """What waits: machines for a signal, tasks and a batch in a queue that nobody serves, a flow at a hook."""
    own = "new" if is_new else "old"

    class Steps(Machine[int]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            return Await("go", f"{own}_step", ctx.state)

    class OldSteps(Steps):
        @step
        async def old_step(self, ctx: MachineContext[int]) -> Outcome:
            return Done()

    class NewSteps(Steps):
        @step
        async def new_step(self, ctx: MachineContext[int]) -> Outcome:
            return Done()

    class OldState(Machine[int]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[int]) -> Outcome:
            return Await("go", self.first, ctx.state)

    class NewState(Machine[list[str]]):
        @step(initial=True)
        async def first(self, ctx: MachineContext[list[str]]) -> Outcome:
            return Await("go", self.first, ctx.state)

    async def read(value: Any) -> None:
        """A task, an activity, a batch."""

    async def item(value: int) -> None:
        """Of a batch."""

    async def enter(value: int) -> int:
        return value

    async def wait(value: int, answer: int) -> int:
        return answer

    read.__annotations__["value"] = list[str] if is_new else int
    app.machine(name="steps")(NewSteps if is_new else OldSteps)
    app.machine(name="state")(NewState if is_new else OldState)
    app.machine(name=f"{own}_machine")(OldState)
    app.task(name="input", queue="later")(read)
    app.task(name=f"{own}_task", queue="later")(read)
    app.batch(name=f"{own}_batch", queue="later")(item)
    app.batch(name="items", queue="later")(read)
    app.batch(name="fed", queue="later")(read)
    app.flow("job", queue="later").activity(read)
    for name, hook in (("activity", f"{own}_hook"), (f"{own}_flow", "hook")):
        flow = app.flow(name)
        flow.hook(after=flow.activity(enter), signal="go", name=hook)(wait)


async def test_what_no_worker_would_go_on_with_is_told_of_every_kind(rig: Rig) -> None:
    everything(rig.app, is_new=False)
    await rig.app.register()
    for name in ("steps", "state", "old_machine"):
        await rig.app.start_by_name(name, 1)
    for name in ("input", "old_task", "activity", "old_flow", "job"):
        await rig.app.start_by_name(name, {"value": 1})
    for name in ("items", "old_batch"):
        await rig.app.start_by_name(name, {"items": [1, 2]})
    await rig.app.find_batch("fed").start([1, 2])
    await (await rig.make_worker(queues=["default"])).run_until_idle()
    assert {one.verdict async for one in rig.app.check()} == {"replays"}
    changed = rig.another_app()
    everything(changed, is_new=True)
    found = {one.label.rpartition("/")[0]: (one.verdict, one.detail or "") async for one in changed.check()}
    for name in ("old_machine", "old_task", "old_flow", "old_batch"):
        verdict, why = found.pop(name)
        assert (verdict, why.partition(":")[0]) == ("stranded", f"there is no version 1 of {name} here")
    for name, expected, reason in (
        ("steps", "stranded", "steps version 1 has no step 'old_step'"),
        ("state", "stranded", "does not fit list[str]"),
        ("input", "stranded", "the stored input of input does not fit its parameters"),
        ("activity", "stranded", "the flow activity has no activity 'old_hook'"),
        ("job", "fails", "does not fit its parameters at $.value"),
        ("items", "fails", "its items: stored JSON does not fit list[list[str]]"),
        ("fed", "fails", "its items from 0 to 1: stored JSON does not fit list[list[str]]"),
    ):
        verdict, why = found.pop(name)
        assert verdict == expected
        assert reason in why
    assert not found


async def test_what_other_programs_have_in_flight_is_left_out_by_queue(rig: Rig) -> None:
    everything(rig.app, is_new=False)

    @rig.app.workflow(name="own", queue="own")
    async def own(ctx: Context) -> None: ...

    await own.start()
    await own.options(queue="second").start()
    await rig.app.register()
    await rig.app.start_by_name("old_task", {"value": 1})
    other = rig.another_app()
    other.workflow(name="own", queue="own")(own.fn)
    assert [one.verdict async for one in other.check(queues=["own"])] == ["replays"]
    assert [one.verdict async for one in other.check(queues=["second", "own", "own"])] == ["replays", "replays"]
    assert [one.verdict async for one in other.check()] == ["replays", "replays", "stranded"]
    with pytest.raises(InvalidArgumentError, match="queues is a list of names, not 'own'"):
        await anext(other.check(queues="own"))


async def test_a_queue_that_nobody_knows_is_a_mistake(rig: Rig) -> None:
    """Not one that the app names, that has limits or a worker, or on which something is, or was."""

    @rig.app.workflow(name="own", queue="own")
    async def own(ctx: Context) -> None: ...

    for queue in ("own", "once"):
        await own.options(queue=queue).start()
    worked = await rig.make_worker(queues=["own", "once"])
    await worked.run_until_idle()
    await rig.stop(worked)
    served = await rig.make_worker(queues=["served"])
    await rig.app.configure_queue("limited", rate=1)
    assert [one async for one in rig.app.check(queues=["own", "once", "limited", "served"])] == []
    await rig.stop(served)
    with pytest.raises(NotFoundError, match="knows a queue 'served'; there are: limited, own"):
        await anext(rig.app.check(queues=["own", "served"]))


PROGRAM = """
from holdfast import App, Context
app = App("check")
@app.workflow(name="job")
async def job(ctx: Context) -> int:
    await ctx.signal("{name}")
    return 1
"""


@pytest.mark.parametrize(("name", "code"), [("go", 0), ("stop", 1)])
async def test_the_command_exits_with_1_if_any_would_strand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, code: int
) -> None:
    stores = SqliteStores(tmp_path)
    await stores.open()
    rig = Rig(stores)

    @rig.app.workflow(name="job")
    async def job(ctx: Context) -> int:
        await ctx.signal("go")
        return 1

    await job.start()
    await rig.run()
    await rig.close()
    await stores.close()
    module = f"checked_{name}"
    (tmp_path / f"{module}.py").write_text(PROGRAM.replace("{name}", name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HOLDFAST_DATABASE", str(stores.path))
    assert await asyncio.to_thread(run, ["check", f"{module}:app"]) == code
    told = capsys.readouterr().out
    assert f"1 execution in flight: {1 - code} go on" in told
    if code:  # the two sides and the line of code, each on a line of its own
        begins = [" ".join(line.split()[:1]) for line in told.splitlines()[1:6]]
        assert begins == ["the", "journal:", "code:", "at:", "Nothing"]
    assert await asyncio.to_thread(run, ["check", f"{module}:app", "--json"]) == code
    assert f'"stranded": {code}' in capsys.readouterr().out.replace('":', '": ').replace(":  ", ": ")
    assert await asyncio.to_thread(run, ["check", f"{module}:app", "--queue", "others"]) == 3
    assert "knows a queue 'others'; there are: default" in capsys.readouterr().err


def test_the_command_tells_what_a_deploy_would_break_from_what_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def found(app: App, queues: Sequence[str]) -> list[Checked]:
        return [
            Checked("aa", "job/aa", Status.AWAITING_PROMISE, "stranded", "the code has changed"),
            Checked("bb", "job/bb", Status.STRANDED, "stranded", "its input cannot be read"),
            Checked("cc", "job/cc", Status.STRANDED, "replays"),
            *(Checked(f"d{n}", f"mail/d{n}", Status.RUNNABLE, "stranded", "gone") for n in range(12)),
        ]

    (tmp_path / "checked_told.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("holdfast.cli.check._check", found)
    assert run(["migrate", "--database", "told.db"]) == 0
    capsys.readouterr()
    assert run(["check", "checked_told:app", "--database", "told.db"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "job/aa would be stranded",
        "  the code has changed",
        "job/bb is stranded, and stays so",
        "  its input cannot be read",
        *(line for n in range(10) for line in (f"mail/d{n} would be stranded", "  gone")),
        "and 2 more of mail: see --json",
        "15 executions in flight: 1 go on, 0 patched, 14 would be stranded (1 already), 0 would fail",
    ]
