"""The demo on the screen: a live picture in a terminal, a line a second in a pipe.

A `Display` is told of events ("the worker was killed") and of progress; how it looks is its own business.
"""

from __future__ import annotations

import sys
import time
from typing import Final, Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.cli.demo.process import WorkerProcess
from holdfast.cli.demo.progress import Progress
from holdfast.cli.output import STATUS_STYLES
from holdfast.core.status import Status

BAR_WIDTH: Final = 40
PLAIN_EVERY_SECONDS: Final = 1.0


class Display(Protocol):
    def event(self, text: str, style: str = "") -> None:
        """Something happened, once."""

    def update(self, progress: Progress, workers: list[WorkerProcess]) -> None:
        """The numbers have changed."""

    def close(self) -> None: ...


def make_display(console: Console, *, quiet: bool) -> Display:
    """`quiet` keeps standard output free for JSON."""
    if quiet:
        return PlainDisplay(sys.stderr)
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(sys.stdout)


class PlainDisplay:
    """Lines, for pipes and logs."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._next = 0.0

    def event(self, text: str, style: str = "") -> None:
        print(text, file=self._file, flush=True)

    def update(self, progress: Progress, workers: list[WorkerProcess]) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + PLAIN_EVERY_SECONDS
        alive = [str(worker.pid) for worker in workers if not worker.is_killed]
        print(
            f"{progress.elapsed_seconds:5.1f} s  {progress.percent:3d} %  "
            f"{progress.steps}/{progress.steps_total} steps  "
            f"{progress.orders_done}/{progress.orders} orders done  {progress.steps_a_second:.0f} steps/s  "
            f"worker {', '.join(alive) or 'none'}",
            file=self._file,
            flush=True,
        )

    def close(self) -> None:
        """Nothing is held."""


class LiveDisplay:
    """A picture that is drawn anew in place; events scroll by above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=12, transient=False)
        self._live.start()

    def event(self, text: str, style: str = "") -> None:
        self._live.console.print(Text(text, style=style))

    def update(self, progress: Progress, workers: list[WorkerProcess]) -> None:
        self._live.update(
            Group(Text(), _bars(progress), Text(), _statuses(progress), _pace(progress), *map(_life, workers))
        )

    def close(self) -> None:
        self._live.stop()


def _bars(progress: Progress) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", width=9)
    table.add_column(width=BAR_WIDTH)
    table.add_column(justify="right")
    for name, number, total in progress.bars():
        is_whole = name == "done"
        style = "green" if is_whole or number >= total else "cyan"
        bar = ProgressBar(total=max(1, total), completed=number, width=BAR_WIDTH, complete_style=style)
        table.add_row(Text(name, style="bold" if is_whole else ""), bar, Text(f"{number}/{total}", style="dim"))
    return table


def _statuses(progress: Progress) -> Text:
    text = Text("   ")
    for status in Status:
        if count := progress.statuses[status]:
            text.append(f"{count} {status.value}   ", style=STATUS_STYLES[status])
    return text


def _pace(progress: Progress) -> Text:
    return Text(f"   {progress.elapsed_seconds:.1f} s   {progress.steps_a_second:.0f} steps/s", style="dim")


def _life(worker: WorkerProcess) -> Text:
    if worker.is_killed:
        return Text(f"   ✗ worker {worker.pid} was killed after {worker.age_seconds:.1f} s", style="red")
    if worker.has_left:
        return Text(f"   ✓ worker {worker.pid} drained and left after {worker.age_seconds:.1f} s", style="green")
    return Text(f"   ● worker {worker.pid} has been at work for {worker.age_seconds:.1f} s", style="green")
