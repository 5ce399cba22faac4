"""Looking after a ledger: `workers`, `definitions`, `gc`, `migrate`."""

from __future__ import annotations

from datetime import datetime

import click

from holdfast.cli.answers import Deleted, Migrated
from holdfast.cli.invocation import Invocation, Ledger, shared
from holdfast.cli.output import Cell, Grid, Value
from holdfast.cli.progress import progress
from holdfast.core.durations import parse_duration
from holdfast.store.values import Retention, WorkerInfo
from holdfast.views import ledger_shapes

GC_BATCH = 1_000


@click.command("workers")
@shared
def workers_command(call: Invocation) -> None:
    """List the workers that have a lease, or had one and were not cleaned up after yet."""

    async def read(ledger: Ledger) -> tuple[list[WorkerInfo], datetime]:
        return await ledger.store.workers(), ledger.now

    found, now = call.run(read)
    if call.as_json:
        call.out.json({"workers": [ledger_shapes.worker(info) for info in found]})
        return
    rows: list[list[Value]] = [
        [
            Cell(info.id, "bold"),
            info.host,
            info.pid,
            Cell("expired", "red") if info.is_expired else Cell("alive", "green"),
            info.executing,
            info.started_at,
            info.expires_at,
            ", ".join(info.queues),
        ]
        for info in found
    ]
    columns = ("WORKER", "HOST", "PID", "LEASE", "EXECUTING", "STARTED", "EXPIRES", "QUEUES")
    grid = Grid(columns, rows, frozenset({"PID", "EXECUTING"}))
    call.out.grid(grid, now=now, empty="no worker is at work on this ledger")


@click.command("definitions")
@click.option("--name", help="The versions of this one.")
@shared
def definitions_command(call: Invocation, name: str | None) -> None:
    """List what workers of this ledger have had code for: what `holdfast start` can start, and with what."""

    async def read(ledger: Ledger) -> tuple[list[ledger_shapes.DefinitionLine], datetime]:
        return [ledger_shapes.definition(found) for found in await ledger.store.definitions(name)], ledger.now

    found, now = call.run(read)
    if call.as_json:
        call.out.json({"definitions": found})
        return
    rows: list[list[Value]] = [
        [Cell(one.name, "bold"), one.kind, one.version, one.queue, one.priority or None, _takes(one)] for one in found
    ]
    grid = Grid(("NAME", "KIND", "VERSION", "QUEUE", "PRIORITY", "TAKES"), rows, frozenset({"VERSION", "PRIORITY"}))
    call.out.grid(grid, now=now, empty=f"no worker of this ledger has known {'anything' if name is None else name} yet")


def _takes(found: ledger_shapes.DefinitionLine) -> str:
    return "its state" if found.kind == "machine" else ", ".join(found.parameters)


@click.command("gc")
@click.option("--older-than", metavar="TIME", required=True, help="Ended longer ago than this: 30d, 12h, 90s.")
@click.option("--queue", help="Of this queue only.")
@click.option("--name", help="Of this definition only.")
@shared
def gc_command(call: Invocation, older_than: str, queue: str | None, name: str | None) -> None:
    """Delete executions that ended long ago, once; a worker does it regularly with `app.retain(...)`."""
    rule = Retention(age_seconds=parse_duration(older_than), queue=queue, name=name)

    async def collect(ledger: Ledger) -> int:
        deleted = 0
        with progress(call, "deleting", "executions") as tell:
            while count := await ledger.store.purge(rule, GC_BATCH):
                deleted += count
                tell(count)
        return deleted

    deleted = call.run(collect)
    if call.as_json:
        call.out.json(Deleted(deleted=deleted))
    else:
        call.out.line(f"{deleted} ended executions were deleted" if deleted != 1 else "1 ended execution was deleted")


@click.command("migrate")
@shared
def migrate_command(call: Invocation) -> None:
    """Create the ledger, or bring its schema up to date. Every worker does this too when it starts."""

    async def url(ledger: Ledger) -> str:
        return ledger.store.url

    with progress(call, "migrating"):
        shown = call.run(url, create=True)
    if call.as_json:
        call.out.json(Migrated(database=shown, migrated=True))
    else:
        call.out.line(f"{shown} is up to date")
