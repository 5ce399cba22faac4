"""Starting by name, waiting for the end, and trying again: `start`, `wait`, `retry`, `fork`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
import msgspec

from holdfast.cli.answers import Started
from holdfast.cli.exits import CommandError, Exit
from holdfast.cli.ids import id_argument
from holdfast.cli.invocation import Invocation, Ledger, shared
from holdfast.cli.values import MOMENT, in_utc, json_value, parse_attributes, parse_signal
from holdfast.cli.worker import load_app
from holdfast.core.codec import decode_error
from holdfast.core.durations import parse_duration
from holdfast.core.errors import ExecutionEndedError, InvalidArgumentError
from holdfast.core.outcomes import Unique
from holdfast.core.status import Status
from holdfast.models.handle import Handle

wait_option = click.option("--wait", is_flag=True, help="Wait until it has ended, and show its result.")
timeout_option = click.option("--timeout", metavar="TIME", help="With --wait: how long; then exit with 1.")


@click.command("start")
@click.argument("name")
@click.argument("value", metavar="[JSON]", required=False)
@click.option("--key", help="The same name and key is the same execution: starting it twice finds the first.")
@click.option("--queue", help="Another queue than the definition's.")
@click.option("--delay", metavar="TIME", help="Not before this has passed: 30s, 2h.")
@click.option("--at", metavar="TIME", type=MOMENT, help="Not before then; in UTC, or with a zone: Z, +01:00.")
@click.option("--priority", type=int, help="Lower is earlier.")
@click.option("--partition-key", metavar="KEY", help="One of a key at a time, in order.")
@click.option("--unique-key", metavar="KEY", help="Refused while another live execution has it.")
@click.option("--deadline", metavar="TIME", help="So long after its start it is cancelled.")
@click.option("--attribute", "attributes", metavar="KEY=VALUE", multiple=True, help="To search by; may be repeated.")
@click.option("--signal", metavar="NAME[=JSON]", help="Sent in the same commit, also to what the key started before.")
@click.option("--dedup-key", metavar="KEY", help="Of the signal: with a key seen before it is not delivered again.")
@click.option("--app", "target", metavar="MODULE:APP", help="Its code: refuse what that cannot read.")
@wait_option
@timeout_option
@shared
def start_command(
    call: Invocation,
    name: str,
    value: str | None,
    target: str | None,
    attributes: tuple[str, ...],
    delay: str | None,
    at: datetime | None,
    unique_key: str | None,
    deadline: str | None,
    signal: str | None,
    wait: bool,
    timeout: str | None,
    **given: Any,
) -> int:
    """Start what a worker of this ledger has code for: a workflow, a task or a flow with an object of its arguments, a
    machine with its state, a batch with its items, as in `holdfast start checkout '{"order": 17}'` or
    `holdfast start resize '{"items": [1, 2]}'`. `-` reads the JSON from standard input.

    With --signal and --key it is started unless the key has started it before, and gets the signal, in one commit.
    """
    options = {name: found for name, found in given.items() if found is not None}
    options |= {"attributes": parse_attributes(attributes)} if attributes else {}
    options |= {"delay": parse_duration(delay)} if delay else {}
    options |= {"unique": Unique(key=unique_key)} if unique_key is not None else {}
    options |= {"at": in_utc(at)} if at else {}
    options |= {"deadline": parse_duration(deadline)} if deadline else {}
    if signal is None and given["dedup_key"] is not None:
        raise CommandError("--dedup-key is that of a signal: give one, too, with --signal", Exit.WRONG_USE)
    parsed, sent = json_value(value, "the input"), None if signal is None else parse_signal(signal)
    code = None if target is None else load_app(target, call.database())

    async def start(ledger: Ledger) -> Started:
        if sent is None:
            handle, existing = await ledger.app._start_or_find(name, parsed, code, **options)
            return msgspec.structs.replace(await _followed(ledger, handle, wait, timeout), existing=existing)
        handle, existing, delivery = await ledger.app._signal_with_start(name, *sent, parsed, code, **options)
        followed = await _followed(ledger, handle, wait, timeout)
        return msgspec.structs.replace(followed, existing=existing, delivery=delivery.value)

    return _tell(call, call.run(start), "started")


@click.command("wait")
@id_argument
@click.option("--timeout", metavar="TIME", help="How long; then exit with 1.")
@shared
def wait_command(call: Invocation, execution: str, timeout: str | None) -> int:
    """Wait until an execution has ended, or is stranded, and show its result; at once if it has ended.

    The exit code is 1 if it did not end well. It waits for the runs that go on in its place, too.
    """

    async def wait(ledger: Ledger) -> Started:
        return await _followed(ledger, await ledger.find(execution), True, timeout)

    return _tell(call, call.run(wait), "")


@click.command("retry")
@id_argument
@wait_option
@timeout_option
@shared
def retry_command(call: Invocation, execution: str, wait: bool, timeout: str | None) -> int:
    """Try a failed execution again: a workflow from its last good event, a machine from the step that failed.

    It goes on under a new id; its key, and whoever waits for it, follow.
    """

    async def retry(ledger: Ledger) -> Started:
        handle = await ledger.find(execution)
        try:
            return await _followed(ledger, await handle.retry(), wait, timeout)
        except InvalidArgumentError as error:  # it has not failed: not wrong use, but nothing to do either
            raise CommandError(str(error)) from error

    return _tell(call, call.run(retry), "goes on")


@click.command("fork")
@id_argument
@click.option(
    "--at", type=click.IntRange(min=0), required=True, help="The last event that the fork keeps: see history."
)
@wait_option
@timeout_option
@shared
def fork_command(call: Invocation, execution: str, at: int, wait: bool, timeout: str | None) -> int:
    """Start a new run with a workflow's past up to one of its events; the workflow itself is left as it is."""

    async def fork(ledger: Ledger) -> Started:
        handle = await ledger.find(execution)
        try:
            return await _followed(ledger, await handle.fork(at), wait, timeout)
        except InvalidArgumentError as error:
            raise CommandError(str(error)) from error

    return _tell(call, call.run(fork), "is forked")


async def _followed(ledger: Ledger, handle: Handle[Any], wait: bool, timeout: str | None) -> Started:
    """What was started, with its end if that is waited for."""
    if wait:
        limit = None if timeout is None else parse_duration(timeout)
        try:
            await handle.result(timeout=limit)
        except ExecutionEndedError:
            pass  # its status and error say so
        except TimeoutError:
            raise CommandError(f"{handle.label} has not ended within {timeout}; it goes on") from None
    view = await ledger.store.get((await handle.newest() if wait else handle.id).to_bytes())
    if view is None:
        raise CommandError(f"{handle.label} was deleted by retention", Exit.NOT_FOUND)
    answer = Started(id=str(handle.id), label=handle.label, status=view.status)
    if not wait:
        return answer
    result = msgspec.Raw(view.result if view.result is not None else "null")
    error = msgspec.Raw(view.error if view.error is not None and view.status is not Status.DONE else "null")
    return msgspec.structs.replace(answer, result=result, error=error)


def _tell(call: Invocation, started: Started, how: str) -> int:
    is_bad = (
        started.status in (Status.FAILED, Status.CANCELLED, Status.STRANDED) and started.result is not msgspec.UNSET
    )
    if call.as_json:
        call.out.json(started)
    elif isinstance(started.result, msgspec.Raw):
        if is_bad:
            text = bytes(started.error).decode() if isinstance(started.error, msgspec.Raw) else "null"
            why = "" if text == "null" else f": {decode_error(text)}"
            raise CommandError(f"{started.label} is {started.status}{why}")
        before = " was started before with this key and" if started.existing is True else ""
        call.out.line(f"{started.label}{before} is {started.status}", "dim")
        call.out.block(msgspec.json.format(bytes(started.result), indent=2).decode(), indent="")
    else:
        how = "was started before with this key" if started.existing is True else how
        of_signal = {"delivered": " and has the signal", "duplicate": " and has had this signal before"}
        sent = "" if started.delivery is msgspec.UNSET else of_signal[started.delivery]
        call.out.line(f"{started.label} {how}{sent}; it is {started.status}")
    return Exit.FAILED if is_bad else Exit.OK
