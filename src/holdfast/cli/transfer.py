"""Runs between ledgers: `export` and `import`."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click
from rich.console import Console

from holdfast import __version__
from holdfast.cli.answers import ExportAnswer, ImportAnswer
from holdfast.cli.exits import CommandError, Exit
from holdfast.cli.ids import EXECUTION
from holdfast.cli.invocation import Invocation, Ledger, shared
from holdfast.cli.output import counted
from holdfast.cli.progress import progress
from holdfast.core.durations import parse_duration
from holdfast.core.identity import PromiseId, parent_bytes
from holdfast.transfer.exporting import Exported, export
from holdfast.transfer.importing import Imported, import_file

SPOOL_BYTES = 16 * 1024 * 1024


@click.command("export")
@click.argument("execution", metavar="[ID]", type=EXECUTION, required=False)
@click.option("--all", "everything", is_flag=True, help="The whole ledger: queues, schedules and definitions too.")
@click.option("--output", "-o", "file", metavar="FILE", help="Into this file.  [default: standard output]")
@click.option("--pause", is_flag=True, help="Pause what is live first, so that it goes on only where it is imported.")
@click.option("--wait", metavar="TIME", default="30s", show_default=True, help="With --pause: for steps under way.")
@shared
def export_command(
    call: Invocation, execution: str | None, everything: bool, file: str | None, pause: bool, wait: str
) -> None:
    """Write one execution with all that belongs to it, or everything, as JSON lines that `holdfast import` takes.

    This ledger keeps what is exported. A live execution goes on here: import a copy of it with --paused, or export it
    with --pause and, once it is imported, end it here with `holdfast cancel --force`.
    """
    if (execution is None) != everything:
        raise click.UsageError("name one execution, or give --all")

    async def work(ledger: Ledger) -> Exported:
        promise = None if execution is None else await _root(ledger, execution)
        with _output(file) as out, progress(call, "exporting", "records") as tell:
            return await export(
                ledger.store,
                out.write,
                promise,
                version=__version__,
                pause=pause,
                wait_seconds=parse_duration(wait),
                progress=tell,
            )

    done = call.run(work)
    if call.as_json and file is not None:
        answer = ExportAnswer(
            file=file,
            executions=done.executions,
            live=done.live,
            records=done.records,
            paused=done.paused,
            stay_paused=done.stay_paused,
        )
        call.out.json(answer)
    _say(f"{counted(done.executions, 'execution')} exported, {done.live} of them live")
    if done.stay_paused:
        told = counted(done.stay_paused, "execution")
        _say(f"paused before, and paused where it is imported until holdfast resume: {told}")
    if done.paused:
        _say("what is live is paused here, and goes on where it is imported; then end it here: holdfast cancel --force")
        again = "import it from a file (-o) next time" if file is None else f"import {file} again"
        _say(
            f"if the import fails, all of it stays paused here: {again}, or let it go on here with holdfast resume; "
            "a second export takes the pause along"
        )
    elif done.live > done.stay_paused:
        _say(
            "what is live goes on in this ledger: import it with --paused to look at it, or export it with --pause to "
            "move it, or it is done at both places"
        )


async def _root(ledger: Ledger, execution: str) -> PromiseId:
    """The execution that this names; a child is exported with its parent, who waits for it."""
    handle = await ledger.find(execution)
    view = await handle.describe()
    if view.parent is not None:
        parent = await ledger.store.get(parent_bytes(view.promise))
        if parent is not None and not parent.status.is_terminal:
            label = PromiseId.from_bytes(parent.promise).label(parent.name)
            raise CommandError(f"{handle.label} is a child of {label}, which is {parent.status}: export that")
    return PromiseId.from_bytes(view.promise).origin


def _say(text: str) -> None:
    """Beside the lines of the export, which may be on standard output."""
    Console(file=sys.stderr, highlight=False, soft_wrap=True).print(text, style="dim")


@contextlib.contextmanager
def _output(file: str | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that is there only when it is whole."""
    if file is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(file)
    if path.exists() and not path.is_file():
        # A pipe or a device: a file in its place would be there for everybody, and nobody at its end would get a line.
        with _refusals(file), path.open("wb") as out:
            yield out
        return
    path = path.resolve()  # of a link, what it leads to
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with _refusals(file), draft.open("xb") as out:
            os.fchmod(out.fileno(), 0o600)  # payloads are nobody else's business
            yield out
            out.flush()
            os.fsync(out.fileno())
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def _refusals(file: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror or error}") from error


@click.command("import")
@click.argument("file", metavar="[FILE]", default="-")
@click.option("--skip-existing", is_flag=True, help="Leave executions that are here as they are.")
@click.option("--replace", is_flag=True, help="Take the place of what is paused or cancelled here, and not further.")
@click.option("--paused", is_flag=True, help="Keep what is live, and schedules, from going on here until `resume`.")
@click.option("--damaged", is_flag=True, help="Take in what breaks the rules of `verify`, too: to look at it.")
@shared
def import_command(
    call: Invocation, file: str, skip_existing: bool, replace: bool, paused: bool, damaged: bool
) -> None:
    """Take in what `holdfast export` wrote, from a file or standard input: all of it in one commit, or nothing.

    Every line is checked first. What is live goes on here, from its last commit.
    """

    async def work(ledger: Ledger) -> Imported:
        with _input(file) as (source, name), progress(call, "importing", "records") as tell:
            return await import_file(
                ledger.store,
                source,
                name,
                skip_existing=skip_existing,
                replace=replace,
                paused=paused,
                damaged=damaged,
                progress=tell,
            )

    done = call.run(work, create=True)
    if call.as_json:
        call.out.json(ImportAnswer(executions=done.executions, skipped=done.skipped, live=done.live))
        return
    here = f"; {done.skipped} were here already and stay as they are" if done.skipped else ""
    live = " What is live is paused." if paused else " What is live goes on here."
    call.out.line(f"{counted(done.executions, 'execution')} imported{here}.{live if done.live else ''}")


@contextlib.contextmanager
def _input(file: str) -> Iterator[tuple[BinaryIO, str]]:
    """The file, or standard input kept in a temporary one: it is read twice."""
    if file == "-":
        with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as kept:
            shutil.copyfileobj(sys.stdin.buffer, kept)
            yield kept, "standard input"  # type: ignore[misc]
        return
    try:
        source = Path(file).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror or error}", Exit.WRONG_USE) from error
    with source:
        yield source, file
