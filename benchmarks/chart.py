"""Charts as SVG, drawn by hand: dots on a logarithmic axis, and lines over a logarithmic axis. Pure: data in, text out.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart; text follows the reader's light or dark.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

COLOURS = ("#0072b2", "#e69f00", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#8a8a00", "#7f7f7f", "#7a3db8")
WIDTH = 860
LEFT, RIGHT = 340, 40
ROW = 32
LINE_HEIGHT = 18
PLOT_HEIGHT = 280
NOTE_LETTERS = 140  # that fit into a line
_STYLE = """text{font:13px system-ui,sans-serif;fill:#1f2328}.small{font-size:11px;fill:#59636e}
.title{font-size:16px;font-weight:600}.panel{font-weight:600}.grid{stroke:#8c959f;stroke-opacity:.35}
.one{stroke:#1f2328;stroke-width:1.5}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.one{stroke:#e6edf3}}"""


@dataclass(frozen=True)
class Dot:
    """One system's place in a row; `label` is shown when pointed at. A doubtful one is hollow."""

    series: str
    value: float
    label: str
    is_doubtful: bool = False


@dataclass(frozen=True)
class DotRow:
    """A row of a dot chart: what it is about, and the dots in it."""

    name: str
    note: str
    dots: Sequence[Dot]


@dataclass(frozen=True)
class Line:
    """Points of one thing; lines of one name share a colour, and the dashed one is told apart in the notes."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


def ticks_between(low: float, high: float) -> list[float]:
    """1, 2 and 5 of every power of ten around `low` and `high`, from the last below to the first above."""
    every = [float(f"{digit}e{power}") for power in range(-9, 10) for digit in (1, 2, 5)]
    first = max(tick for tick in every if tick <= low * (1 + 1e-9))
    last = min(tick for tick in every if tick >= high * (1 - 1e-9))
    found = [tick for tick in every if first <= tick <= last]
    return found if len(found) > 1 else [first, every[every.index(first) + 1]]


def powers(low: float, high: float) -> list[float]:
    """The powers of ten from the one at or below `low` to the one at or above `high`."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def place(value: float, low: float, high: float, start: float, end: float) -> float:
    """Where a value is on a logarithmic axis."""
    share = (math.log10(value) - math.log10(low)) / (math.log10(high) - math.log10(low))
    return round(start + share * (end - start), 1)


def short(value: float) -> str:
    """A number as an axis shows it: 1/100, 1, 10, 1,000, 5M."""
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    if value >= 1:
        return f"{value:,.0f}" if value == round(value) else f"{value:g}"
    inverse = 1 / value
    return f"1/{inverse:,.0f}" if abs(inverse - round(inverse)) < 1e-6 else f"{value:.2g}"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    css = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{css} text-anchor="{anchor}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{kind}"/>'


def _legend(series: Sequence[str], y: float) -> tuple[list[str], float]:
    """The names in their colours, in as many lines as they need; and where the chart goes on below."""
    parts: list[str] = []
    x = 16.0
    for number, name in enumerate(series):
        width = 34 + 7.4 * len(name)
        if x + width > WIDTH - 10 and x > 16:
            x, y = 16.0, y + LINE_HEIGHT
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<circle cx="{x + 5:g}" cy="{y - 4:g}" r="5" fill="{colour}"/>' + _text(x + 15, y, name))
        x += width
    return parts, y + LINE_HEIGHT + 6


def _document(title: str, notes: Sequence[str], height: float, parts: Sequence[str]) -> str:
    size = f'width="{WIDTH}" height="{height:g}" viewBox="0 0 {WIDTH} {height:g}"'
    about = f"<title>{escape(title)}</title><desc>{escape(' '.join(notes))}</desc>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{about}<style>{_STYLE}</style>'
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _head(title: str, notes: Sequence[str], series: Sequence[str]) -> tuple[list[str], float]:
    parts = [_text(16, 26, title, "title")]
    y = 46.0
    for line in itertools.chain.from_iterable(textwrap.wrap(note, NOTE_LETTERS) for note in notes):
        parts.append(_text(16, y, line, "small"))
        y += 15
    legend, y = _legend(series, y + 8)
    return parts + legend, y


def dot_chart(title: str, notes: Sequence[str], panels: Mapping[str, Sequence[DotRow]], axis: str) -> str:
    """Panels of rows; all share one logarithmic axis, on which 1 is marked."""
    dots = [dot for rows in panels.values() for row in rows for dot in row.dots]
    series = list(dict.fromkeys(dot.series for dot in dots))
    ticks = powers(min([1.0, *(dot.value for dot in dots)]), max([1.0, *(dot.value for dot in dots)]))
    low, high, end = ticks[0], ticks[-1], WIDTH - RIGHT
    parts, y = _head(title, notes, series)
    for panel, rows in panels.items():
        top = y + 22
        bottom = top + ROW * len(rows)
        parts.append(_text(16, y + 10, panel, "panel"))
        for tick in ticks:
            x = place(tick, low, high, LEFT, end)
            parts.append(_line(x, top, x, bottom, "one" if tick == 1 else "grid"))
            parts.append(_text(x, bottom + 14, short(tick), "small", "middle"))
        for number, row in enumerate(rows):
            middle = top + ROW * number + ROW / 2
            parts.append(_text(16, middle - 1, row.name) + _text(16, middle + 11, row.note, "small"))
            parts.append(_line(LEFT, middle, end, middle, "grid"))
            for dot in row.dots:
                x, colour = place(dot.value, low, high, LEFT, end), COLOURS[series.index(dot.series) % len(COLOURS)]
                inside = f'none" stroke="{colour}" stroke-width="2.5' if dot.is_doubtful else colour
                shape = f'<circle cx="{x:g}" cy="{middle:g}" r="{4.5 if dot.is_doubtful else 5.5}" fill="{inside}">'
                parts.append(f"{shape}<title>{escape(dot.label)}</title></circle>")
        y = bottom + 26
    parts.append(_text((LEFT + end) / 2, y + 4, axis, "small", "middle"))
    return _document(title, notes, y + 20, parts)


def line_chart(title: str, notes: Sequence[str], lines: Sequence[Line], x_axis: str, y_axis: str) -> str:
    """Lines over two logarithmic axes; a horizontal line is what does not grow."""
    points = [point for line in lines for point in line.points]
    xs = sorted({x for x, _ in points})
    values = [y for _, y in points]
    names = list(dict.fromkeys(line.name for line in lines))
    ticks = ticks_between(min([0.5, *values]), max([2.0, *values]))
    low, high = ticks[0], ticks[-1]
    start, end = 70, WIDTH - RIGHT
    parts, y = _head(title, notes, names)
    top, bottom = y + 8, y + 8 + PLOT_HEIGHT
    left_x, right_x = xs[0], xs[-1] if xs[-1] > xs[0] else xs[0] * 10
    for tick in ticks:
        at = place(tick, low, high, bottom, top)
        parts.append(_line(start, at, end, at, "one" if tick == 1 else "grid"))
        parts.append(_text(start - 8, at + 4, short(tick), "small", "end"))
    for x in xs:
        at = place(x, left_x, right_x, start + 20, end - 20)
        parts.append(_line(at, top, at, bottom, "grid") + _text(at, bottom + 16, short(x), "small", "middle"))
    for line in lines:
        colour = COLOURS[names.index(line.name) % len(COLOURS)]
        dash = ' stroke-dasharray="6 4"' if line.dashed else ""
        spots = [
            (place(x, left_x, right_x, start + 20, end - 20), place(value, low, high, bottom, top))
            for x, value in line.points
        ]
        path = " ".join(f"{x:g},{v:g}" for x, v in spots)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        for (x, v), (at, value) in zip(spots, line.points, strict=True):
            label = escape(f"{line.name} at {short(at)}: {value:.3g}")
            parts.append(f'<circle cx="{x:g}" cy="{v:g}" r="4" fill="{colour}"><title>{label}</title></circle>')
    parts.append(_text((start + end) / 2, bottom + 34, x_axis, "small", "middle"))
    parts.append(_text(start - 54, top - 6, y_axis, "small"))
    return _document(title, notes, bottom + 48, parts)
