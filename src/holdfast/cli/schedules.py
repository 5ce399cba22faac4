"""`holdfast schedules`: what is started when; list, create, pause, resume, trigger and delete."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, get_args

import click

from holdfast.cli.invocation import Invocation, Ledger, shared
from holdfast.cli.output import Cell, Grid, Value, exact
from holdfast.cli.values import json_value
from holdfast.core.durations import parse_duration
from holdfast.models.schedule import CatchUp, Overlap
from holdfast.views import ledger_shapes, reading

COLUMNS: Final = ("SCHEDULE", "STATE", "WHEN", "TIMEZONE", "NEXT", "LAST", "STARTS")


@click.group("schedules", invoke_without_command=True)
@shared
@click.pass_context
def schedules_group(context: click.Context, call: Invocation) -> None:
    """List schedules, or change one."""
    if context.invoked_subcommand is None:
        _list(call)


@schedules_group.command("list")
@shared
def list_schedules(call: Invocation) -> None:
    """List what is started when."""
    _list(call)


def _list(call: Invocation) -> None:
    async def read(ledger: Ledger) -> tuple[list[ledger_shapes.Schedule], datetime]:
        return await reading.schedules(ledger.store), ledger.now

    found, now = call.run(read)
    if call.as_json:
        call.out.json(found)
        return
    rows: list[list[Value]] = []
    for schedule in found:
        spec = schedule.spec
        state = Cell("paused", "yellow") if schedule.paused else "open" if spec else Cell("unreadable", "red")
        next_at = None if schedule.paused else schedule.next_at
        name = Cell(schedule.name, "bold")
        when, starts = ((spec.cron, spec.timezone), spec.definition) if spec else ((None, None), None)
        rows.append([name, state, *when, next_at, schedule.last_at, starts])
    call.out.grid(Grid(COLUMNS, rows), now=now, empty="there are no schedules")


@schedules_group.command("create")
@click.argument("name")
@click.argument("cron")
@click.argument("definition")
@click.argument("value", metavar="[JSON]", required=False)
@click.option("--timezone", metavar="ZONE", default="UTC", show_default=True, help="Such as Europe/Berlin.")
@click.option("--queue", help="Where what it starts waits.")
@click.option(
    "--overlap",
    type=click.Choice(get_args(Overlap)),
    default="skip",
    show_default=True,
    help="While the last one still runs: skip the tick, allow both, or let one wait.",
)
@click.option(
    "--catch-up",
    type=click.Choice(get_args(CatchUp)),
    default="latest",
    show_default=True,
    help="Of ticks that no worker was there for.",
)
@click.option("--window", metavar="TIME", default="1d", show_default=True, help="How far back they are caught up.")
@shared
def create_command(
    call: Invocation, name: str, cron: str, definition: str, value: str | None, window: str, **settings: Any
) -> None:
    """Create a schedule, or change it: `holdfast schedules create nightly '0 3 * * *' report '{"kind": "daily"}'`.

    The JSON is what `holdfast start` takes. A schedule that was paused stays so.
    """
    given, length = json_value(value, "the input"), parse_duration(window)

    async def create(ledger: Ledger) -> tuple[ledger_shapes.Schedule, bool]:
        await ledger.app.schedules.create(name, cron, definition, args=given, window=length, **settings)
        (found,) = await ledger.store.schedules(name)
        return ledger_shapes.schedule(found), bool(await ledger.store.definitions(definition))

    made, is_known = call.run(create)
    if call.as_json:
        call.out.json(made)
        return
    call.out.line(f"{name} starts {definition} next at {exact(made.next_at)}{', once it is resumed' * made.paused}")
    if not is_known:
        call.out.line(
            f"no worker of this ledger has known {definition} yet: its ticks wait for one that does", "yellow"
        )


@schedules_group.command("pause")
@click.argument("name")
@shared
def pause_command(call: Invocation, name: str) -> None:
    """No ticks until it is resumed."""
    _change(call, name, "pause", "is paused")


@schedules_group.command("resume")
@click.argument("name")
@shared
def resume_command(call: Invocation, name: str) -> None:
    """Let it tick again."""
    _change(call, name, "resume", "goes on")


@schedules_group.command("delete")
@click.argument("name")
@shared
def delete_command(call: Invocation, name: str) -> None:
    """Forget it; what it has started goes on."""
    _change(call, name, "delete", "is deleted")


@schedules_group.command("trigger")
@click.argument("name")
@shared
def trigger_command(call: Invocation, name: str) -> None:
    """Start it once, now."""

    async def start(ledger: Ledger) -> tuple[str, str]:
        handle = await ledger.app.schedules.trigger(name)
        return str(handle.id), handle.label

    promise, label = call.run(start)
    if call.as_json:
        call.out.json({"schedule": name, "id": promise, "label": label})
    else:
        call.out.line(f"{name} started {label}")


def _change(call: Invocation, name: str, action: str, became: str) -> None:
    async def change(ledger: Ledger) -> None:
        await getattr(ledger.app.schedules, action)(name)

    call.run(change)
    if call.as_json:
        call.out.json({"schedule": name, "done": action})
    else:
        call.out.line(f"{name} {became}")
