"""Steering executions: `signal`, `cancel`, `pause`, `resume`."""

from __future__ import annotations

import click

from holdfast.cli.answers import Cancelled, Paused, Signalled
from holdfast.cli.exits import CommandError
from holdfast.cli.ids import id_argument
from holdfast.cli.invocation import Invocation, Ledger, shared
from holdfast.cli.values import json_value
from holdfast.core.errors import InvalidArgumentError
from holdfast.core.status import Status
from holdfast.store.values import Delivery


@click.command("signal")
@id_argument
@click.argument("name")
@click.argument("payload", metavar="[JSON]", required=False)
@click.option("--dedup-key", metavar="KEY", help="A signal with a key that was seen before is not delivered again.")
@shared
def signal_command(call: Invocation, execution: str, name: str, payload: str | None, dedup_key: str | None) -> None:
    """Send a signal, durably: it waits in the inbox until the execution reads it.

    Its payload is JSON: text is '"yes"'. `-` reads it from standard input.
    """
    value = json_value(payload, "the payload")

    async def send(ledger: Ledger) -> tuple[str, str, Delivery]:
        handle = await ledger.find(execution)
        return str(handle.id), handle.label, await handle.signal(name, value, dedup_key=dedup_key)

    promise, label, delivery = call.run(send)
    if call.as_json:
        call.out.json(Signalled(id=promise, label=label, signal=name, delivery=delivery.value))  # type: ignore[arg-type]
    elif delivery is Delivery.DUPLICATE:
        call.out.line(f"{label} has had this signal before (the same dedup key); nothing was sent")
    else:
        call.out.line(f"{name} is in the inbox of {label}")


@click.command("cancel")
@id_argument
@click.option("--cascade", is_flag=True, help="With all its descendants.")
@click.option("--reason", metavar="TEXT", help="Why: its clean-up is told, and whoever looks at it.")
@click.option("--force", is_flag=True, help="End what nobody works on as it stands, without its clean-up.")
@shared
def cancel_command(call: Invocation, execution: str, cascade: bool, reason: str | None, force: bool) -> None:
    """Cancel an execution: at once if nobody works on it, else after its current step.

    A workflow is asked and cleans up first. Where its code is gone (it is stranded), or it goes on in another ledger,
    --force ends it without.
    """

    async def cancel(ledger: Ledger) -> tuple[str, str, Status, Status]:
        handle = await ledger.find_newest(execution)
        before = await handle.status()
        after = await handle.cancel(cascade=cascade, reason=reason, force=force)
        return str(handle.id), handle.label, before, after

    promise, label, before, status = call.run(cancel)
    if before.is_terminal and not cascade:
        raise CommandError(f"{label} has ended before, as {before}; nothing was cancelled")
    if call.as_json:
        call.out.json(Cancelled(id=promise, label=label, status=status))
    elif status is Status.CANCELLED:
        call.out.line(f"{label} is cancelled")
    elif status.is_terminal:
        call.out.line(f"{label} has ended as {status}; its live descendants are cancelled")
    else:
        when = "when it is resumed" if status is Status.STRANDED else "after its current step"
        call.out.line(f"{label} is {status} and will be cancelled {when}")


@click.command("pause")
@id_argument
@shared
def pause_command(call: Invocation, execution: str) -> None:
    """Keep an execution from being worked on, after its current step, until `resume`."""
    _set_paused(call, execution, True)


@click.command("resume")
@id_argument
@shared
def resume_command(call: Invocation, execution: str) -> None:
    """Let a paused or stranded execution go on."""
    _set_paused(call, execution, False)


def _set_paused(call: Invocation, execution: str, paused: bool) -> None:
    async def change(ledger: Ledger) -> tuple[str, str, Status]:
        handle = await ledger.find_newest(execution)
        try:
            await (handle.pause() if paused else handle.resume())
        except InvalidArgumentError as error:  # it has ended: not wrong use, but nothing to do either
            raise CommandError(str(error)) from error
        return str(handle.id), handle.label, await handle.status()

    promise, label, status = call.run(change)
    if call.as_json:
        call.out.json(Paused(id=promise, label=label, status=status, paused=paused))
    else:
        call.out.line(f"{label} is paused" if paused else f"{label} goes on; it is {status}")
