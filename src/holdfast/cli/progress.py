"""Progress of long work: a line that moves on the terminal of a person, and nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from holdfast.cli.invocation import Invocation


@contextmanager
def progress(call: Invocation, doing: str, unit: str | None = None) -> Iterator[Callable[[int], None]]:
    """Call what this gives with how many more are done. It is on standard error: standard output is the answer."""
    console = Console(file=sys.stderr, highlight=False)
    if call.as_json or not console.is_terminal:
        yield lambda count: None
        return
    counted = "" if unit is None else " {task.completed:,.0f} " + unit
    columns = (SpinnerColumn(), TextColumn("{task.description}" + counted), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task(doing, total=None)
        yield lambda count: shown.advance(task, count)
