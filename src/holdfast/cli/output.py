"""What commands print: tables and colours in a terminal, aligned text in a pipe, JSON where asked for.

- `Output`: one command's way to print, chosen once.
- `Cell` and `Grid`: a table as data; how it looks is decided here alone.
- `visible`, `ago`, `counted`: text that plays no tricks on a terminal, times and numbers in a person's terms.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.core.status import Status

STATUS_STYLES: Mapping[Status, str] = {
    Status.RUNNABLE: "cyan",
    Status.EXECUTING: "bold blue",
    Status.AWAITING_SIGNAL: "magenta",
    Status.AWAITING_CHILDREN: "magenta",
    Status.AWAITING_PROMISE: "magenta",
    Status.DELEGATED: "magenta",
    Status.STRANDED: "bold red",
    Status.DONE: "green",
    Status.FAILED: "red",
    Status.CANCELLED: "yellow",
}

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    ord("\n"): "\\n",
    ord("\t"): "\\t",
    ord("\r"): "\\r",
    # Marks that turn the reading direction could make one id look like another.
    **{code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F)},
}


def visible(text: str) -> str:
    """The text on one line, with its control characters spelled out: names and payloads are other people's."""
    return text.translate(_CONTROL)


def counted(number: int, thing: str) -> str:
    """`1 order`, `20 orders`, `3 batches`, `2 activities`, `4 keys`."""
    if number == 1:
        return f"1 {thing}"
    if thing.endswith("y") and not thing.endswith("ey"):
        return f"{number} {thing[:-1]}ies"
    return f"{number} {thing}{'es' if thing.endswith('ch') else 's'}"


@dataclass(frozen=True, slots=True)
class Cell:
    """A text with a style that a pipe does not see."""

    text: str
    style: str = ""


Value: TypeAlias = Cell | Status | datetime | str | int | float | None


@dataclass(frozen=True, slots=True)
class Grid:
    """Columns and rows; numbers are aligned to the right, the last column may be long."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    right: frozenset[str] = field(default_factory=frozenset)


def ago(moment: datetime, now: datetime) -> str:
    """`3 s ago`, `in 2 h`: one unit, rounded down."""
    length = (now - moment).total_seconds()
    shown = _one_unit(abs(length))
    if shown == "0 s":
        return "now"
    return f"{shown} ago" if length > 0 else f"in {shown}"


def _one_unit(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def exact(moment: datetime | None) -> str | None:
    """ISO 8601, the time of day always in UTC."""
    return None if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Output:
    """Standard output of one command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self.is_terminal = self.console.is_terminal and not as_json

    def json(self, value: object) -> None:
        """One JSON document: indented for a person, one line for a program."""
        text = msgspec.json.encode(value)
        print((msgspec.json.format(text, indent=2) if self.console.is_terminal else text).decode())

    def line(self, text: str, style: str = "") -> None:
        """A line for people; with `--json` there is none."""
        if not self.as_json:
            self.console.print(Text(visible(text), style=style))

    def blank(self) -> None:
        if not self.as_json:
            self.console.print()

    def heading(self, text: str) -> None:
        self.line(text, "bold")

    def block(self, text: str, style: str = "", *, indent: str = "  ") -> None:
        """Text of several lines, each kept."""
        for line in text.splitlines():
            self.line(indent + line, style)

    def grid(self, grid: Grid, *, now: datetime, empty: str) -> None:
        """A table, or the sentence that says why there is none."""
        if not grid.rows:
            self.line(empty, "dim")
        elif self.is_terminal:
            self._rich(grid, now)
        else:
            self._plain(grid)

    def pairs(self, rows: Sequence[tuple[str, Value]], *, now: datetime) -> None:
        """Names and values, one a line; what has no value is left out."""
        shown = [(name, value) for name, value in rows if value is not None]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            text = Text(f"{name:<{width}}  ", style="dim")
            text.append_text(_rich_text(value, now, both=True) if self.is_terminal else Text(_plain_text(value)))
            self.console.print(text)

    def _rich(self, grid: Grid, now: datetime) -> None:
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for number, name in enumerate(grid.columns):
            is_last = number == len(grid.columns) - 1
            table.add_column(
                name,
                justify="right" if name in grid.right else "left",
                no_wrap=not is_last,
                overflow="fold" if is_last else "ellipsis",
            )
        for row in grid.rows:
            table.add_row(*(_rich_text(value, now) for value in row))
        # soft_wrap is for running text; a table folds its last column instead.
        self.console.print(table, soft_wrap=False)

    def _plain(self, grid: Grid) -> None:
        rows = [list(grid.columns), *([_plain_text(value) or "-" for value in row] for row in grid.rows)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(grid.columns))]
        if grid.columns[-1] not in grid.right:
            widths[-1] = 0  # nothing is aligned behind it, and a payload may be long
        for row in rows:
            cells = [
                text.rjust(width) if name in grid.right else text.ljust(width)
                for text, width, name in zip(row, widths, grid.columns, strict=True)
            ]
            print("  ".join(cells).rstrip())


def _rich_text(value: Value, now: datetime, *, both: bool = False) -> Text:
    if isinstance(value, Cell):
        return Text(visible(value.text), style=value.style)
    if isinstance(value, Status):
        return Text(value.value, style=STATUS_STYLES[value])
    if isinstance(value, datetime):
        shown = ago(value, now)
        return Text(f"{shown} ({exact(value)})" if both else shown)
    return Text(_plain_text(value))


def _plain_text(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, Cell):
        return visible(value.text)
    if isinstance(value, datetime):
        return exact(value) or ""
    return visible(str(value))
