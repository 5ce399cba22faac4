"""`holdfast flow`: draw one, show a job; `holdfast dead-letters`: list, retry and drop what got stuck."""

from __future__ import annotations

import click

from holdfast.cli.exits import CommandError, Exit
from holdfast.cli.invocation import Invocation, Ledger, shared
from holdfast.cli.output import counted
from holdfast.cli.worker import load_app
from holdfast.core.errors import NotFoundError
from holdfast.models.flow.flow import Flow
from holdfast.models.flow.letters import DeadLetter
from holdfast.models.flow.reading import JobState, read_job


@click.group("flow")
def flow_group() -> None:
    """Draw a flow, or show where a job of it stands."""


@flow_group.command("diagram")
@click.argument("target", metavar="MODULE:APP.FLOW")
@click.option("--form", type=click.Choice(["mermaid", "svg"]), default="mermaid", show_default=True)
@shared
def diagram_command(call: Invocation, target: str, form: str) -> None:
    """Print the graph of a flow, as in `holdfast flow diagram shop:app.order`."""
    drawn = _find(call, target).diagram(form)
    if call.as_json:
        call.out.json({"flow": target, "form": form, "diagram": drawn})
    else:
        click.echo(drawn, nl=False)


def _find(call: Invocation, target: str) -> Flow:
    path, dot, name = target.rpartition(".")
    if not dot or ":" not in path:
        raise CommandError(f"{target!r} names no flow: write MODULE:APP.FLOW, as in shop:app.order", Exit.WRONG_USE)
    app = load_app(path, call.database())
    found = app.find_flow(name)
    if found is None:
        raise CommandError(f"{path} has no flow {name!r}", Exit.NOT_FOUND)
    return found


@flow_group.command("show")
@click.argument("id")
@shared
def show_command(call: Invocation, id: str) -> None:
    """Show the ledgers of a job: every activity's fifteen digits, its semaphore, what is on its way."""

    async def read(ledger: Ledger) -> JobState:
        handle = await ledger.find(id)
        state = await read_job(ledger.store, handle.id.to_bytes())
        if state is None or (state.semaphore is None and not state.messages and not await _is_flow(ledger, handle.id)):
            raise NotFoundError(f"{handle.label} is no job of a flow")
        return state

    state = call.run(read)
    if call.as_json:
        call.out.json(state)
        return
    call.out.line(f"{state.flow}  {state.status}  {state.semaphore or 0} open")
    for activity in state.activities:
        place = f"{activity.activity}[{activity.dimension}]" if activity.dimension else activity.activity
        call.out.line(f"  {activity.ledger}  {place}  {counted(activity.leg2_entries, 'entry')}")
    for message in state.messages:
        call.out.line(f"  {message.step} of {message.activity} is {message.status}")


async def _is_flow(ledger: Ledger, promise: object) -> bool:
    return (await ledger.app.handle(str(promise)).describe()).kind == "flow"


@click.group("dead-letters", invoke_without_command=True)
@click.option("--flow", default=None, help="Only of this flow.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@click.option("--cursor", default=None, help="Go on after the last page.")
@shared
@click.pass_context
def letters_group(context: click.Context, call: Invocation, flow: str | None, limit: int, cursor: str | None) -> None:
    """List messages that the protocol of flows could not process; each one strands its job."""
    if context.invoked_subcommand is not None:
        return
    page = call.run(lambda ledger: ledger.app.dead_letters.list(flow=flow, limit=limit, cursor=cursor))
    if call.as_json:
        call.out.json({"dead_letters": [_shape(letter) for letter in page.items], "cursor": page.cursor})
        return
    for letter in page.items:
        way = "retry or drop" if letter.can_retry else "drop"
        call.out.line(f"{letter.id}  {letter.flow}.{letter.activity}  {letter.step}  {way}  {letter.error}")
    if not page.items:
        call.out.line("there are no dead letters")
    if page.cursor is not None:
        call.out.line(f"there are more: --cursor {page.cursor}")


def _shape(letter: DeadLetter) -> dict[str, object]:
    return {
        "id": str(letter.id),
        "job": str(letter.job),
        "flow": letter.flow,
        "activity": letter.activity,
        "dimension": letter.dimension,
        "step": letter.step,
        "error": letter.error,
        "since": letter.since,
        "can_retry": letter.can_retry,
    }


@letters_group.command("retry")
@click.argument("id")
@shared
def retry_command(call: Invocation, id: str) -> None:
    """Put a dead letter back to work; its job goes on if it has no other."""
    _move(call, id, "retry", "goes on")


@letters_group.command("drop")
@click.argument("id")
@shared
def drop_command(call: Invocation, id: str) -> None:
    """Give a dead letter up: its obligation is closed, and its job fails once nothing else is open."""
    _move(call, id, "drop", "is dropped")


def _move(call: Invocation, id: str, action: str, became: str) -> None:
    async def move(ledger: Ledger) -> str:
        handle = await ledger.find(id)
        await getattr(ledger.app.dead_letters, action)(handle.id)
        return str(handle.id)

    promise = call.run(move)
    if call.as_json:
        call.out.json({"id": promise, "done": action})
    else:
        call.out.line(f"{promise} {became}")
