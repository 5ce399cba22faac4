"""`holdfast schedules`: what is started when; list, pause, resume, trigger and delete."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import click

from holdfast.cli.invocation import Invocation, Ledger, shared
from holdfast.cli.output import Cell, Grid, Value
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
