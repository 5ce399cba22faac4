"""`schedules`: list, pause, resume, trigger, delete."""

from __future__ import annotations

import asyncio
import secrets
from datetime import UTC, datetime

from holdfast import App, Context
from tests.cli.conftest import Call
from tests.cli.processes import Ran


async def _make(database: str, name: str) -> None:
    async with App("test", database) as app:

        @app.workflow(name=f"work-{name}")
        async def work(ctx: Context, number: int) -> int:
            return number

        await app.register()
        await app.schedules.create(name, "0 6 * * *", work, timezone="Europe/Berlin", args={"number": 1})


def test_a_schedule_is_listed_and_steered(in_process: Call, database: str) -> None:
    name = f"s-{secrets.token_hex(4)}"
    asyncio.run(_make(database, name))

    def call(*arguments: str) -> str:
        ran = in_process("schedules", *arguments, "--database", database)
        assert ran.code == 0, ran.err
        return ran.out

    def line(*arguments: str) -> list[str]:
        header, *lines = call(*arguments).splitlines()
        assert header.split() == ["SCHEDULE", "STATE", "WHEN", "TIMEZONE", "NEXT", "LAST", "STARTS"]
        (found,) = [line.split() for line in lines if line.startswith(name)]
        return found

    start, end = [name, "open", "0", "6", "*", "*", "*", "Europe/Berlin"], ["-", f"work-{name}"]
    listed = line()
    assert (listed[:8], listed[9:]) == (start, end)
    assert listed[8].endswith(":00:00.000Z")
    assert line("list") == listed
    assert call("pause", name) == f"{name} is paused\n"
    assert line()[1] == "paused"
    assert line()[8] == "-"
    assert call("resume", name) == f"{name} goes on\n"
    assert call("trigger", name).startswith(f"{name} started work-{name}/")
    shape = next(
        found for found in in_process("schedules", "--json", "--database", database).json if found["name"] == name
    )
    assert (shape["spec"]["cron"], shape["paused"], shape["last"]) == ("0 6 * * *", False, None)
    assert call("delete", name) == f"{name} is deleted\n"
    gone = in_process("schedules", "trigger", name, "--database", database)
    assert (gone.code, name in gone.err) == (3, True)


async def _make_unreadable(database: str, name: str) -> None:
    async with App("test", database) as app:
        await (await app.store()).put_schedule(name, '{"cron":"@solstice"}', datetime(2030, 1, 1, tzinfo=UTC))


def test_a_schedule_of_another_release_is_listed_and_can_be_deleted(in_process: Call, database: str) -> None:
    name = f"s-{secrets.token_hex(4)}"
    asyncio.run(_make_unreadable(database, name))
    listed = in_process("schedules", "--database", database)
    assert (listed.code, listed.err) == (0, "")
    (line,) = [line.split() for line in listed.out.splitlines() if line.startswith(name)]
    assert line[:2] == [name, "unreadable"]
    refused = in_process("schedules", "trigger", name, "--database", database)
    assert "create it anew, or delete it" in refused.err
    assert in_process("schedules", "delete", name, "--database", database).code == 0


async def _register(database: str, name: str) -> None:
    async with App("test", database) as app:

        @app.workflow(name=name)
        async def work(ctx: Context, number: int) -> int:
            return number

        await app.register()


def test_a_schedule_is_created_and_changed(in_process: Call, database: str) -> None:
    name = f"s-{secrets.token_hex(4)}"
    asyncio.run(_register(database, f"work-{name}"))

    def create(*arguments: str, code: int = 0) -> Ran:
        ran = in_process("schedules", "create", name, *arguments, "--database", database)
        assert ran.code == code, ran.err
        return ran

    work = f"work-{name}"
    for wrong, why in (
        (("every day", work), "cron"),
        (("0 6 * * *", work, "{"), "is no JSON"),
        (("0 6 * * *", work, '{"letter": 1}'), "has no parameter letter"),
        (("0 6 * * *", work, "--timezone", "Atlantis"), "no time zone"),
        (("0 6 * * *", work, "--overlap", "sometimes"), "sometimes"),
        (("0 6 * * *", work, "--window", "soon"), "no duration"),
    ):
        refused = create(*wrong, code=2)
        assert why in refused.err, refused.err
    made = create("0 6 * * *", work, '{"number": 1}', "--timezone", "Europe/Berlin", "--json").json
    assert (made["name"], made["paused"], made["spec"]["timezone"]) == (name, False, "Europe/Berlin")
    assert (made["spec"]["input"], made["spec"]["window_seconds"]) == ({"number": 1}, 86_400.0)
    in_process("schedules", "pause", name, "--database", database)
    changed = create("0 7 * * *", work, '{"number": 2}', "--overlap", "buffer_one", "--queue", "night")
    assert changed.out.startswith(f"{name} starts {work} next at ")
    assert changed.out.endswith("07:00:00.000Z, once it is resumed\n")
    shape = next(
        found for found in in_process("schedules", "--json", "--database", database).json if found["name"] == name
    )
    assert (shape["spec"]["overlap"], shape["spec"]["queue"], shape["paused"]) == ("buffer_one", "night", True)
    early = create("0 6 * * *", "not-yet-deployed")
    assert "no worker of this ledger has known not-yet-deployed yet" in early.out
    assert in_process("schedules", "delete", name, "--database", database).code == 0
