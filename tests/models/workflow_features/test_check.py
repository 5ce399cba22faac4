"""`holdfast check`: what would become of runs in flight under other code, without touching them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Context
from holdfast.cli.main import run
from holdfast.core.status import Status
from holdfast.models.workflow.check import Checked
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
    assert f"1 workflow in flight: {1 - code} replay" in told
    if code:  # the two sides and the line of code, each on a line of its own
        begins = [" ".join(line.split()[:1]) for line in told.splitlines()[1:6]]
        assert begins == ["the", "journal:", "code:", "at:", "Nothing"]
    assert await asyncio.to_thread(run, ["check", f"{module}:app", "--json"]) == code
    assert f'"stranded": {code}' in capsys.readouterr().out.replace('":', '": ').replace(":  ", ": ")


def test_the_command_tells_what_a_deploy_would_break_from_what_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def found(app: App) -> list[Checked]:
        return [
            Checked("aa", "job/aa", Status.AWAITING_PROMISE, "stranded", "the code has changed"),
            Checked("bb", "job/bb", Status.STRANDED, "stranded", "its input cannot be read"),
            Checked("cc", "job/cc", Status.STRANDED, "replays"),
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
        "3 workflows in flight: 1 replay, 0 are patched, 2 would be stranded, 1 of them are so already",
    ]
