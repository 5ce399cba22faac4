"""Looking at executions: `list`, `show`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click
import msgspec

from holdfast.cli.ids import EXECUTION, id_argument
from holdfast.cli.invocation import Invocation, Ledger, shared
from holdfast.cli.output import Cell, Grid, Output, Value
from holdfast.cli.values import MOMENT, in_utc, parse_attributes
from holdfast.core.codec import decode_error
from holdfast.core.identity import PromiseId
from holdfast.core.status import Status
from holdfast.models.workflow.progress import CallProgress, read_progress
from holdfast.store.values import ExecutionFilter, ExecutionView, Page, Signal
from holdfast.views import shapes
from holdfast.views.finding import newest
from holdfast.views.reading import LOOKED_AT

CHILDREN_SHOWN = 20
_HOW = {True: "retried as", False: "went on as"}  # by whether it failed
LIST_COLUMNS = ("ID", "STATUS", "STEP", "ATTEMPT", "QUEUE", "UPDATED", "KEY", "NOTE")


@click.command("list")
@click.option(
    "--status", "statuses", multiple=True, type=click.Choice([s.value for s in Status]), help="May be repeated."
)
@click.option("--name", help="Of this definition.")
@click.option("--queue", help="Of this queue.")
@click.option("--kind", help="Of this kind, such as machine.")
@click.option("--parent", metavar="ID", type=EXECUTION, help="The children of this execution.")
@click.option("--where", "attributes", metavar="KEY=VALUE", multiple=True, help="With this attribute; may be repeated.")
@click.option("--before", metavar="TIME", type=MOMENT, help="Started before then; in UTC, or with a zone: Z, +01:00.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many at most.")
@click.option("--cursor", help="Go on where an earlier list ended.")
@shared
def list_command(
    call: Invocation,
    statuses: tuple[str, ...],
    name: str | None,
    queue: str | None,
    kind: str | None,
    parent: str | None,
    attributes: tuple[str, ...],
    before: datetime | None,
    limit: int,
    cursor: str | None,
) -> None:
    """List executions, newest first."""

    async def read(ledger: Ledger) -> tuple[Page, datetime]:
        of = None if parent is None else (await ledger.find(parent)).id.to_bytes()
        where = ExecutionFilter(
            kind=kind,
            name=name,
            queue=queue,
            statuses=tuple(map(Status, statuses)),
            parent=of,
            attributes=parse_attributes(attributes) or None,
        )
        at = cursor
        if at is None and before is not None:
            at = await ledger.store.cursor_before(in_utc(before))
        return await ledger.store.browse(where, limit, at, look_at=LOOKED_AT), ledger.now

    page, now = call.run(read)
    out = call.out
    if out.as_json:
        out.json(shapes.ExecutionPage(executions=[shapes.summary(view) for view in page.items], cursor=page.cursor))
        return
    is_filtered = any((statuses, name, queue, kind, parent, attributes, before, cursor))
    empty = "no execution fits" if is_filtered else "the ledger is empty: nothing was started yet"
    if page.cursor is not None:
        empty = f"none fits among the newest {LOOKED_AT:,}, which were looked through"
    out.grid(execution_grid(page.items), now=now, empty=empty)
    if page.cursor is not None:
        out.line(f"there are more: --cursor {page.cursor}", "dim")


@click.command("show")
@id_argument
@shared
def show_command(call: Invocation, execution: str) -> None:
    """Show one execution: ID is its id, any prefix of it that fits no other, or its key."""

    async def read(
        ledger: Ledger,
    ) -> tuple[ExecutionView, list[Signal], list[ExecutionView], ExecutionView | None, list[CallProgress], datetime]:
        handle = await ledger.find(execution)
        view = await handle.describe()
        inbox = await ledger.store.inbox(view.promise)
        children = await ledger.store.children(view.promise)
        last, told = await newest(ledger.store, view), await read_progress(ledger.store, view)
        return view, inbox, children, last, told, ledger.now

    view, inbox, children, last, told, now = call.run(read)
    if call.as_json:
        call.out.json(shapes.details(view, inbox, children, last, told))
    else:
        _print_details(call.out, view, inbox, children, last, told, now)


# ---------------------------------------------------------------------- how they look


def execution_grid(views: Sequence[ExecutionView]) -> Grid:
    rows: list[list[Value]] = [
        [
            Cell(shapes.label_of(view), "bold"),
            view.status,
            shapes.step_of(view),
            view.attempt,
            view.queue,
            view.updated_at,
            view.idempotency_key,
            _note(view),
        ]
        for view in views
    ]
    return Grid(LIST_COLUMNS, rows, frozenset({"ATTEMPT"}))


def _note(view: ExecutionView) -> Value:
    """What a person would ask next."""
    notes = []
    if view.successor is not None:
        notes.append(f"{_HOW[view.status is Status.FAILED]} {PromiseId.from_bytes(view.successor).short}")
    if view.paused and not view.status.is_terminal:
        notes.append("paused")
    if view.cancel_requested and not view.status.is_terminal:
        notes.append("cancel requested")
    if view.crashes and not view.status.is_terminal:  # which of those at work takes its workers along
        notes.append(f"lost with its worker {'once' if view.crashes == 1 else f'{view.crashes} times'}")
    if view.awaits and view.status is Status.AWAITING_SIGNAL:
        notes.append(f"awaits {', '.join(view.awaits)}")
    if view.children_pending and view.status is Status.AWAITING_CHILDREN:
        notes.append(f"awaits {view.children_pending} of its children")
    if view.error is not None and view.status is not Status.DONE:
        return Cell("; ".join([*notes, str(decode_error(view.error))]), "red")
    return "; ".join(notes) or None


def _indented(text: str) -> str:
    """The JSON as it is stored, on several lines if it can be."""
    try:
        return msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, RecursionError):
        return text


def _print_details(
    out: Output,
    view: ExecutionView,
    inbox: Sequence[Signal],
    children: Sequence[ExecutionView],
    last: ExecutionView | None,
    told: Sequence[CallProgress],
    now: datetime,
) -> None:
    out.heading(shapes.label_of(view))
    out.pairs(_facts(view, last), now=now)
    if view.error is not None:
        record = decode_error(view.error)
        out.blank()
        out.heading("error")
        out.block(str(record), "red")  # the difference that stranded a run is several lines
        out.block("\n".join([*(f"caused by {cause}" for cause in record.causes), *record.traceback]), indent="    ")
    for name, text in (("state", view.state), ("published", view.published), ("result", view.result)):
        if text is not None:
            out.blank()
            out.heading(name)
            out.block(_indented(text))
    if told:
        out.blank()
        out.heading("progress")
        for found in told:
            out.line(f"  {found.name}  attempt {found.attempt}  {found.text}")
    if inbox:
        out.blank()
        out.heading(f"inbox ({len(inbox)})")
        for signal in inbox:
            out.line(f"  {signal.name}  {signal.payload}")
    if children:
        out.blank()
        out.heading(f"children ({len(children)})")
        out.grid(execution_grid(children[:CHILDREN_SHOWN]), now=now, empty="")
        if len(children) > CHILDREN_SHOWN:
            out.line(f"and {len(children) - CHILDREN_SHOWN} more: holdfast list --parent {shapes.id_of(view).short}")


def _facts(view: ExecutionView, last: ExecutionView | None) -> list[tuple[str, Value]]:
    went_on = None if last is None else f"{shapes.id_of(last).short}, which is {last.status}"
    awaits = ", ".join(view.awaits) if view.awaits and view.status is Status.AWAITING_SIGNAL else None
    return [
        ("id", str(shapes.id_of(view))),
        ("key", view.idempotency_key),
        ("kind", f"{view.kind}, version {view.version}"),
        ("status", view.status),
        (_HOW[view.status is Status.FAILED], went_on),
        ("paused", "yes" if view.paused else None),
        ("cancel requested", "yes" if view.cancel_requested and not view.status.is_terminal else None),
        ("cancel reason", view.cancel_reason),
        ("step", shapes.step_of(view) or None),
        ("attempt", view.attempt or None),
        ("crashes", view.crashes or None),
        ("awaits", awaits),
        ("children pending", view.children_pending or None),
        ("parent", None if view.parent is None else PromiseId.from_bytes(view.parent).short),
        ("queue", view.queue),
        ("priority", view.priority or None),
        ("partition key", view.partition_key),
        ("unique key", None if view.unique_key is None else view.unique_key.decode("utf-8", "backslashreplace")),
        ("attributes", view.attributes),
        ("worker", view.locked_by),
        ("revision", view.revision),
        ("inserted", view.inserted_at),
        ("eligible", view.eligible_at if view.status is Status.RUNNABLE else None),
        ("wakes", view.wake_at),
        ("deadline", view.deadline_at),
        ("started", view.started_at),
        ("ended", view.ended_at),
        ("updated", view.updated_at),
    ]
