"""`schedules`: list, pause, resume, trigger, delete."""

from __future__ import annotations

import asyncio
import secrets
from datetime import UTC, datetime

from holdfast import App, Context
from tests.cli.conftest import Call


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
