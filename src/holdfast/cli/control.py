"""Steering executions: `signal`, `cancel`, `pause`, `resume`."""

from __future__ import annotations

import json
from typing import Any

import click

from holdfast.cli.exits import CommandError, Exit
from holdfast.cli.invocation import Invocation, Ledger, shared
from holdfast.core.errors import InvalidArgumentError
from holdfast.core.status import Status
from holdfast.store.values import Delivery


@click.command("signal")
@click.argument("execution", metavar="ID")
@click.argument("name")
@click.argument("payload", metavar="[JSON]", required=False)
@click.option("--dedup-key", metavar="KEY", help="A signal with a key that was seen before is not delivered again.")
@shared
def signal_command(call: Invocation, execution: str, name: str, payload: str | None, dedup_key: str | None) -> None:
    """Send a signal, durably: it waits in the inbox until the execution reads it."""
    value = _payload(payload)

    async def send(ledger: Ledger) -> tuple[str, str, Delivery]:
        handle = await ledger.find(execution)
        return str(handle.id), handle.label, await handle.signal(name, value, dedup_key=dedup_key)

    promise, label, delivery = call.run(send)
    if call.as_json:
        call.out.json({"id": promise, "label": label, "signal": name, "delivery": delivery.value})
    elif delivery is Delivery.DUPLICATE:
        call.out.line(f"{label} has had this signal before (the same dedup key); nothing was sent")
    else:
        call.out.line(f"{name} is in the inbox of {label}")


@click.command("cancel")
@click.argument("execution", metavar="ID")
@click.option("--cascade", is_flag=True, help="With all its descendants.")
@shared
def cancel_command(call: Invocation, execution: str, cascade: bool) -> None:
    """Cancel an execution: at once if nobody works on it, else after its current step."""

    async def cancel(ledger: Ledger) -> tuple[str, str, Status, Status]:
        handle = await ledger.find(execution)
        before = await handle.status()
        return str(handle.id), handle.label, before, await handle.cancel(cascade=cascade)

    promise, label, before, status = call.run(cancel)
    if before.is_terminal and not cascade:
        raise CommandError(f"{label} has ended before, as {before}; nothing was cancelled")
    if call.as_json:
        call.out.json({"id": promise, "label": label, "status": status.value})
    elif status is Status.CANCELLED:
        call.out.line(f"{label} is cancelled")
    elif status.is_terminal:
        call.out.line(f"{label} has ended as {status}; its live descendants are cancelled")
    else:
        call.out.line(f"{label} is {status} and will be cancelled after its current step")


@click.command("pause")
@click.argument("execution", metavar="ID")
@shared
def pause_command(call: Invocation, execution: str) -> None:
    """Keep an execution from being worked on, after its current step, until `resume`."""
    _set_paused(call, execution, True)


@click.command("resume")
@click.argument("execution", metavar="ID")
@shared
def resume_command(call: Invocation, execution: str) -> None:
    """Let a paused or stranded execution go on."""
    _set_paused(call, execution, False)


def _set_paused(call: Invocation, execution: str, paused: bool) -> None:
    async def change(ledger: Ledger) -> tuple[str, str, Status]:
        handle = await ledger.find(execution)
        try:
            await (handle.pause() if paused else handle.resume())
        except InvalidArgumentError as error:  # it has ended: not wrong use, but nothing to do either
            raise CommandError(str(error)) from error
        return str(handle.id), handle.label, await handle.status()

    promise, label, status = call.run(change)
    if call.as_json:
        call.out.json({"id": promise, "label": label, "status": status.value, "paused": paused})
    else:
        call.out.line(f"{label} is paused" if paused else f"{label} goes on; it is {status}")


def _payload(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandError(
            f"the payload {text[:60]!r} is no JSON ({error}): write text as '\"yes\"', an object as '{{\"ok\": true}}'",
            Exit.WRONG_USE,
        ) from None
