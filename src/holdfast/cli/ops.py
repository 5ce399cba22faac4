"""`holdfast ops`: look at operations in a ledger folder, abort one, or run a program as a participant.

Tables in a terminal; JSON in a pipe or with `--json`. Looking at a folder also sees operations that nobody is
left in to their end (ruling C10), unless `--no-recover`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

import click
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from holdfast.cli.output import visible
from holdfast.core.errors import AmbiguousIdError, HoldfastError
from holdfast.models.operation import CorruptLedgerError, Ledger, LedgerData, OperationState, StackFrame
from holdfast.models.operation.data import encode, format_time
from holdfast.models.operation.program import run_program
from holdfast.models.operation.timing import TIMING_VARIABLE, Timing
from holdfast.models.operation.workers import LEDGER_VARIABLE, OPERATION_VARIABLE

R = TypeVar("R")
_STYLE = {"running": "green", "cleanup": "yellow", "failed": "red", "completed": "cyan", "corrupt": "red"}

ledger_option = click.option(
    "--ledger", "folder", required=True, envvar=LEDGER_VARIABLE, type=click.Path(file_okay=False, path_type=Path),
    help=f"The ledger folder (or {LEDGER_VARIABLE}).",
)  # fmt: skip
json_option = click.option("--json", "as_json", is_flag=True, help="JSON, also in a terminal.")
recover_option = click.option("--recover/--no-recover", default=True, help="See abandoned operations to their end.")
timing_option = click.option("--timing", "timing_ms", hidden=True, envvar=TIMING_VARIABLE)


@click.group()
def ops() -> None:
    """Operations: several processes on one piece of work, in a ledger folder."""


@ops.command("list")
@ledger_option
@json_option
@recover_option
@click.option("--all", "with_backups", is_flag=True, help="Operations in backup too.")
@timing_option
def list_command(folder: Path, as_json: bool, recover: bool, with_backups: bool, timing_ms: str | None) -> None:
    """List the operations in the folder."""
    ledger = _ledger(folder, timing_ms)
    found = _read_all(ledger, with_backups)
    if _wants_json(as_json):
        click.echo(json.dumps([_as_json(operation_id, data) for operation_id, data in found.items()], indent=2))
    else:
        Console().print(_operations_table(found))
    if recover:
        _recover(ledger)


@ops.command("show")
@ledger_option
@click.argument("operation")
@json_option
@recover_option
@timing_option
def show_command(folder: Path, operation: str, as_json: bool, recover: bool, timing_ms: str | None) -> None:
    """Show one operation: its phases, and every frame with the age of its heartbeat."""
    ledger = _ledger(folder, timing_ms)
    operation_id = resolve(ledger, operation)
    data = ledger.read(operation_id)
    if _wants_json(as_json):
        click.echo(json.dumps(_as_json(operation_id, data), indent=2))
    else:
        Console().print(_operation_view(data))
    if recover:
        _recover(ledger)


@ops.command("watch")
@ledger_option
@click.argument("operation", required=False)
@json_option
@click.option("--interval", default=0.5, show_default=True, help="Seconds between looks.")
@timing_option
def watch_command(folder: Path, operation: str | None, as_json: bool, interval: float, timing_ms: str | None) -> None:
    """Watch one operation until it is over, or the whole folder until interrupted."""
    ledger = _ledger(folder, timing_ms)
    operation_id = resolve(ledger, operation) if operation else None
    _run(lambda: _watch(ledger, operation_id, _wants_json(as_json), interval))


@ops.command("abort")
@ledger_option
@click.argument("operation")
@timing_option
def abort_command(folder: Path, operation: str, timing_ms: str | None) -> None:
    """Abort an operation: the next participant to beat coordinates its cleanup."""
    ledger = _ledger(folder, timing_ms)
    operation_id = resolve(ledger, operation)
    _run(lambda: ledger.request_abort(operation_id))
    click.echo(f"abort requested: {operation_id}")
    _recover(ledger)


@ops.command("exec", context_settings={"ignore_unknown_options": True})
@ledger_option
@click.option("--operation", envvar=OPERATION_VARIABLE, help=f"Which operation (or {OPERATION_VARIABLE}).")
@click.option("--participant", help="The participant id; by default the program's name and process id.")
@click.option("--create", is_flag=True, help="Create the operation; complete it on success, abort it on failure.")
@click.option("--contained", is_flag=True, help="A crash of this participant does not fail the operation.")
@click.option("--description", help="What the log and `ops show` say of it; by default the command line.")
@timing_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_command(
    folder: Path,
    operation: str | None,
    participant: str | None,
    create: bool,
    contained: bool,
    description: str | None,
    timing_ms: str | None,
    command: tuple[str, ...],
) -> None:
    """Run a program as a participant: `exec --ledger DIR --operation ID -- CMD...`

    It beats while the program runs, stops it with SIGTERM when the operation is cleaned up, and records how it
    ended. Exit code: the program's, 128+N if signal N killed it, 75 if the operation failed under it.
    """
    if operation is None and not create:
        raise click.UsageError("name the operation with --operation, or make one with --create")
    program = re.sub(r"[^A-Za-z0-9_-]", "_", Path(command[0]).name)[:40]
    name = participant or f"{program}-{os.getpid()}"
    ledger = _ledger(folder, timing_ms, name)
    operation_id = operation if create or operation is None else resolve(ledger, operation)

    async def run() -> int:
        try:
            return await run_program(
                ledger,
                operation_id,
                command,
                create=create,
                fail_on_crash=not contained,
                description=description,
            )
        finally:
            await ledger.dispose()

    click.get_current_context().exit(_run(run))


def resolve(ledger: Ledger, given: str) -> str:
    """The operation meant by an id or an unambiguous prefix of one, in the folder or in backup."""
    known = [*ledger.operations(), *ledger.backups()]
    if given in known:
        return given
    fitting = sorted({operation_id for operation_id in known if operation_id.startswith(given)})
    if len(fitting) > 1:
        raise AmbiguousIdError(f"{given} fits {len(fitting)} operations: {', '.join(fitting[:5])}; type more of it")
    return fitting[0] if fitting else given


def _ledger(folder: Path, timing_ms: str | None, participant: str | None = None) -> Ledger:
    return Ledger(folder, participant_id=participant or f"ops-{os.getpid()}", timing=Timing.parse(timing_ms))


def _run(work: Callable[[], Coroutine[object, None, R]]) -> R:
    return asyncio.run(work())


def _wants_json(as_json: bool) -> bool:
    return as_json or not sys.stdout.isatty()


def _read_all(ledger: Ledger, with_backups: bool) -> dict[str, LedgerData | CorruptLedgerError]:
    found = ledger.operations()
    for operation_id in ledger.backups() if with_backups else ():
        try:
            found.setdefault(operation_id, ledger.read(operation_id))
        except HoldfastError as error:
            found.setdefault(operation_id, CorruptLedgerError(str(error)))
    return found


def _recover(ledger: Ledger) -> None:
    if not _is_ours(ledger.base_path):
        click.echo("other users' operations are in this folder: what is abandoned is left to its owner", err=True)
        return

    async def recover() -> None:
        suspects = await ledger.begin_recovery()
        if suspects:
            click.echo(f"nobody beats in {', '.join(suspects)}: seeing to it (Ctrl-C leaves it to the next)", err=True)
        await ledger.recover()
        await ledger.dispose()

    try:
        _run(recover)
    except KeyboardInterrupt:
        click.echo("left as it is", err=True)


async def _watch(ledger: Ledger, operation_id: str | None, as_json: bool, interval: float) -> None:
    await ledger.begin_recovery()
    last = None
    console = Console()
    with Live(console=console, auto_refresh=False) if not as_json else _Silent() as live:
        while True:
            found = _read_all(ledger, with_backups=False)
            if operation_id is not None:
                found = {operation_id: found.get(operation_id) or ledger.read(operation_id)}
            if as_json:
                document = [_as_json(key, data) for key, data in found.items()]
                if document != last:
                    click.echo(json.dumps(document))
                    last = document
            elif operation_id is not None and isinstance(data := found[operation_id], LedgerData):
                live.update(_operation_view(data), refresh=True)
            else:
                live.update(_operations_table(found), refresh=True)
            if operation_id is not None and operation_id not in ledger.operations():
                break
            await asyncio.sleep(interval)
    await ledger.dispose()


class _Silent:
    """Stands in for the live display when JSON is printed."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, _view: object, *, refresh: bool) -> None:
        return None


def _as_json(operation_id: str, data: LedgerData | CorruptLedgerError) -> dict[str, object]:
    if isinstance(data, CorruptLedgerError):
        return {"operationId": operation_id, "operationState": "corrupt", "error": str(data)}
    document: dict[str, object] = json.loads(encode(data))
    return document


def _operations_table(found: dict[str, LedgerData | CorruptLedgerError]) -> Table:
    table = Table("operation", "state", "initiator", "calls", "participants", "heartbeat", "description", box=None)
    for operation_id, data in found.items():
        if isinstance(data, CorruptLedgerError):
            table.add_row(operation_id, _painted("corrupt"), "", "", "", "", _shown(str(data)))
            continue
        participants = len({frame.participant_id for frame in data.stack})
        table.add_row(
            operation_id,
            _painted(data.state.value) + (" [red]aborted[/]" if data.aborted else ""),
            _shown(data.initiator_id),
            str(len(data.stack)),
            str(participants),
            _age(data.last_heartbeat_us),
            _shown(data.description or data.failure_reason or ""),
        )
    return table


def _operation_view(data: LedgerData) -> Group:
    phases = Table(box=None, show_header=False)
    phases.add_row("operation", data.operation_id)
    phases.add_row("state", _painted(data.state.value) + (" [red]aborted[/]" if data.aborted else ""))
    phases.add_row("initiator", _shown(data.initiator_id))
    phases.add_row("started", format_time(data.start_us))
    phases.add_row("heartbeat", _age(data.last_heartbeat_us))
    if data.failure_reason:
        phases.add_row("failure", _shown(data.failure_reason))
    for name, moment_us in (("1 detected", data.detection_us), ("3 frames removed", data.removal_us)):
        if moment_us is not None:
            phases.add_row(name, format_time(moment_us))
    if data.state is OperationState.FAILED:
        phases.add_row("crashed", _shown(", ".join(data.crashed_call_ids) or "none"))
    return Group(phases, _frames_table(data.stack))


def _frames_table(frames: tuple[StackFrame, ...]) -> Table:
    table = Table("call", "participant", "pid", "state", "heartbeat", "crash", "description", box=None)
    for frame in frames:
        table.add_row(
            _shown(frame.call_id),
            _shown(frame.participant_id),
            str(frame.pid),
            frame.state.value,
            _age(frame.last_heartbeat_us),
            "fails" if frame.fail_on_crash else "contained",
            _shown(frame.description or ""),
        )
    return table


def _is_ours(folder: Path) -> bool:
    """Clean-up deletes what the files of the folder name: whoever only looks must not delete for somebody else."""
    try:
        return all(file.lstat().st_uid == os.geteuid() for file in folder.glob("*.operation.json"))
    except FileNotFoundError:  # it has just ended: the next look will tell
        return False


def _shown(text: str) -> str:
    """What participants and their programs said, line by line, without what a terminal would take for an order."""
    return escape("\n".join(map(visible, text.splitlines())))


def _painted(state: str) -> str:
    return f"[{_STYLE[state]}]{state}[/]"


def _age(moment_us: int) -> str:
    return f"{max(0.0, time.time() - moment_us / 1_000_000):.1f} s ago"
