"""`holdfast batch`: run one over a file with a progress bar, list what failed, try it again, export outcomes."""

from __future__ import annotations

import asyncio
import csv
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.app import App
from holdfast.cli.exits import CommandError, Exit
from holdfast.cli.invocation import Invocation, Ledger, shared
from holdfast.cli.output import Grid
from holdfast.cli.stdin import stdin_lines
from holdfast.cli.worker import load_app, run_on_fast_loop, worker_settings
from holdfast.core.durations import format_duration
from holdfast.core.error_record import ErrorRecord
from holdfast.core.status import Status
from holdfast.models.batch.definition import Batch
from holdfast.models.batch.items import BatchItem
from holdfast.models.batch.run import BatchRun
from holdfast.models.batch.sources import encode_line
from holdfast.models.batch.status import BatchStatus

LOOK_SECONDS: Final = 0.2
PAGE: Final = 1_000
_COLUMNS: Final = ("seq", "outcome", "attempts", "fail_class", "error", "reason", "value", "input")


class _Answer(msgspec.Struct, frozen=True):
    """What `--json` says of a run."""

    id: str
    label: str
    run: BatchStatus


@click.group("batch")
@shared
def batch_group(call: Invocation) -> None:
    """Run a batch over a file; look at its progress, its failures and its outcomes."""


@batch_group.command("run")
@click.argument("target", metavar="MODULE:APP.BATCH")
@click.option("--input", "input_", required=True, metavar="FILE", help="A file of lines, .jsonl of JSON; - for stdin.")
@click.option("--key", default=None, help="The same key goes on with the same run.")
@click.option("--progress", is_flag=True, help="Show a progress bar on standard error.")
@click.option("--no-work", is_flag=True, help="Only start it; workers elsewhere do the work.")
@shared
def run_command(call: Invocation, target: str, input_: str, key: str | None, progress: bool, no_work: bool) -> int:
    """Run over every line of a file, as in `holdfast batch run images:app.resize --input paths.txt --progress`.

    This process works on it until it has ended; other workers may help. Ctrl-C leaves it as it is: the same key, or
    any worker, goes on with it. The exit code is 1 if an item failed.
    """
    path, dot, name = target.rpartition(".")
    if not dot or ":" not in path:
        raise CommandError(
            f"{target!r} names no batch: write MODULE:APP.BATCH, as in images:app.resize", Exit.WRONG_USE
        )
    app = load_app(path, call.database())
    batch = app.find_batch(name)
    if input_ != "-" and not Path(input_).is_file():
        raise CommandError(f"there is no file {input_}", Exit.WRONG_USE)
    answer = run_on_fast_loop(lambda: _run(app, batch, input_, key, progress, no_work))
    _print(call, answer)
    return Exit.FAILED if answer.run.failed else Exit.OK


async def _run(
    app: App, batch: Batch[Any, Any], input_: str, key: str | None, progress: bool, no_work: bool
) -> _Answer:
    async with app:
        starter = batch.options(key=key)
        if no_work:
            run = await starter.start(_lines(batch) if input_ == "-" else Path(input_))
            await run.fed()
            return _Answer(str(run.id), run.label, await run.status())
        settings = worker_settings((), None, None, None)  # what variables and pyproject.toml say
        async with app.worker(
            queues=sorted({batch.queue, *app.queues()}),
            concurrency=settings.concurrency,
            lease_seconds=settings.lease_seconds,
            drain_seconds=settings.drain_seconds,
        ):
            run = await starter.start(_lines(batch) if input_ == "-" else Path(input_))
            with _bar(progress, batch.name) as show:
                ending = asyncio.ensure_future(run.result())
                try:
                    while not ending.done():
                        await asyncio.wait([ending], timeout=LOOK_SECONDS)
                        show(await run.status())
                    await ending
                finally:
                    ending.cancel()
        return _Answer(str(run.id), run.label, await run.status())


async def _lines(batch: Batch[Any, Any]) -> AsyncIterator[Any]:
    number = 0
    async for line in stdin_lines():
        number += 1
        if text := line.strip(b"\r\n"):
            where = f"line {number} of standard input"
            yield batch.codec.decode(encode_line(batch, text, where, is_json=False))


@contextmanager
def _bar(wanted: bool, name: str) -> Iterator[Any]:
    if not wanted:
        yield lambda status: None
        return
    console = Console(file=sys.stderr, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as shown:
        task = shown.add_task(name, total=None, rate="")

        def show(status: BatchStatus) -> None:
            failed = f", {status.failed} failed" if status.failed else ""
            shown.update(task, total=status.total, completed=status.committed, rate=f"{status.rate:,.0f}/s{failed}")

        yield show


@batch_group.command("show")
@click.argument("id")
@shared
def show_command(call: Invocation, id: str) -> None:
    """Where a run stands: counters, rate, what the next commit waits for, and the error that holds it up."""

    async def read(ledger: Ledger) -> tuple[_Answer, ErrorRecord | None]:
        run = await _find(ledger, id)
        return _Answer(str(run.id), run.label, await run.status()), await run.handle.error()

    answer, error = call.run(read)
    _print(call, answer)
    if error is not None and answer.run.status is not Status.DONE:
        call.out.block(str(error), "red")


@batch_group.command("failed")
@click.argument("id")
@click.option("--after", type=click.IntRange(min=-1), default=-1, help="Go on after this seq.")
@click.option("--limit", type=click.IntRange(1, PAGE), default=100, show_default=True)
@shared
def failed_command(call: Invocation, id: str, after: int, limit: int) -> None:
    """List failed items with their error and attempts."""

    async def read(ledger: Ledger) -> tuple[datetime, list[BatchItem[Any]]]:
        return ledger.now, await (await _find(ledger, id)).failed(after, limit)

    now, found = call.run(read)
    if call.as_json:
        call.out.json(found)
        return
    rows = [(item.seq, item.attempts, item.fail_class, item.error, _json(item.input)) for item in found]
    grid = Grid(("seq", "attempts", "class", "error", "input"), rows, frozenset({"seq", "attempts"}))
    call.out.grid(grid, now=now, empty="no item has failed")
    if len(found) == limit:
        call.out.line(f"more: --after {found[-1].seq}", "dim")


@batch_group.command("retry-failed")
@click.argument("id")
@shared
def retry_command(call: Invocation, id: str) -> None:
    """Run over the failed items of an ended run again, as another run; workers take it from there."""

    async def retry(ledger: Ledger) -> tuple[str, str]:
        again = await (await _find(ledger, id)).retry_failed()
        return str(again.id), again.label

    promise, label = call.run(retry)
    if call.as_json:
        call.out.json({"id": promise, "label": label})
    else:
        call.out.line(f"{label} runs over them")


@batch_group.command("export")
@click.argument("id")
@click.option("--format", "form", type=click.Choice(["jsonl", "csv"]), default="jsonl", show_default=True)
@click.option("--output", "-o", type=click.Path(dir_okay=False, writable=True), default="-", help="[default: stdout]")
@click.option("--from", "start", type=click.IntRange(min=0), default=0, help="The first seq.")
@shared
def export_command(call: Invocation, id: str, form: str, output: str, start: int) -> None:
    """Write the outcome of every committed item, in order; of a live run those so far."""

    async def write(ledger: Ledger) -> int:
        run = await _find(ledger, id)
        head = (await run.status()).committed
        with click.open_file(output, "w", encoding="utf-8") as file:
            return await _write(run, start, head, form, file)

    count = call.run(write)
    if output != "-":
        call.out.line(f"{count} items")


async def _write(run: BatchRun[Any], start: int, head: int, form: str, file: IO[Any]) -> int:
    sheet = csv.writer(file) if form == "csv" else None
    if sheet is not None:
        sheet.writerow(_COLUMNS)
    count = 0
    if start >= head:
        return 0
    async for item in run.committed(start):
        values = {name: getattr(item, name) for name in _COLUMNS}
        if sheet is not None:
            sheet.writerow([_json(value) if name in ("value", "input") else value for name, value in values.items()])
        else:
            file.write(msgspec.json.encode(values).decode() + "\n")
        count += 1
        if item.seq + 1 >= head:
            break
    return count


async def _find(ledger: Ledger, id: str) -> BatchRun[Any]:
    run = ledger.app.batch_run((await ledger.find(id)).id)
    await run.describe()
    return run


def _json(value: object) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()


def _print(call: Invocation, answer: _Answer) -> None:
    if call.as_json:
        call.out.json(answer)
        return
    run = answer.run
    total = "" if run.total is None else f" of {run.total:,}"
    call.out.line(f"{answer.label}  {run.status}  {run.committed:,}{total} committed")
    counted = (("succeeded", run.succeeded), ("skipped", run.skipped), ("failed", run.failed))
    more = (("cancelled", run.cancelled), ("retries", run.retries), ("in flight", run.in_flight))
    if shown := "  ".join(f"{name} {count:,}" for name, count in counted + more if count):
        call.out.line(f"  {shown}")
    if not run.status.is_terminal:
        left = "" if run.eta_seconds is None else f", about {format_duration(max(1, round(run.eta_seconds)))} left"
        call.out.line(f"  {run.rate:,.0f} a second{left}")
    if not run.closed and not run.status.is_terminal:
        call.out.line(f"  {run.taken:,} taken in, the source has not ended")
    if run.head is not None:
        call.out.line(f"  seq {run.head.seq} is next: {run.head.reason}")
