"""A timeline as places on the page: percentages of a bar's width, and what hovering over each part says."""

from __future__ import annotations

from msgspec import Struct

from holdfast.core.clock import to_datetime
from holdfast.core.journal.events import Failure
from holdfast.views.time_scale import Fold, Scale, Share, Tick, shares, spent
from holdfast.views.timeline import Attempt, Piece, PieceKind, Row, Timeline, Tone
from holdfast.web.dashboard import words

ROWS_A_PAGE = 200
LEAST_WIDTH = 0.001  # percent; of what has no width a browser draws not even the outline
NARROW_GAP = 24.0  # percent between two labels on a phone
FOLD_GAP = 0.2  # percent; folds that are nearer to each other are one to the eye
FOLDS_MOST = 40  # every row has a picture of them all
FAILED_MOST = 20  # attempts of a row; the journal has them all

_VERBS = {
    PieceKind.WORK: "worked",
    PieceKind.CHILD: "ran as an execution of its own",
    PieceKind.RETRY: "waited before the next attempt",
    PieceKind.SIGNAL: "waited for the signal",
    PieceKind.SLEEP: "slept",
    PieceKind.QUEUED: "waited for a worker",
    PieceKind.JOIN: "from its creation to its last result",
    PieceKind.IDLE: "what it did is not recorded",
}


class Bar(Struct, frozen=True, kw_only=True):
    """A part of a row. `css` names its colour; x and width are percentages."""

    css: str
    x: float
    width: float
    title: str


class Dot(Struct, frozen=True):
    x: float
    title: str


class Line(Struct, frozen=True, kw_only=True):
    """A row as it is drawn."""

    row: Row
    failed: list[Attempt]  # the newest
    bars: list[Bar]
    dots: list[Dot]
    took: str
    summary: str  # for a screen reader
    started: str


class Legend(Struct, frozen=True):
    kind: str
    words: str
    length: str
    percent: float
    shown: str


class Gantt(Struct, frozen=True, kw_only=True):
    lines: list[Line]
    ticks: list[Tick]
    minor: list[Tick]  # those that a narrow screen has no room to label
    folds: list[Fold]
    legend: list[Legend]
    took: str
    is_open: bool
    is_folded: bool
    marks: list[Dot]
    more_before: int
    more_after: int
    first: int


def draw(timeline: Timeline, *, fold: bool = True, first: int = 0, most: int = ROWS_A_PAGE) -> Gantt:
    """The rows from `first` on, on a scale of the whole."""
    scale = Scale(timeline, fold=fold)
    rows = timeline.rows[first : first + most]
    ticks = scale.ticks()
    return Gantt(
        lines=[_line(row, scale, timeline) for row in rows],
        ticks=ticks,
        minor=_minor(ticks),
        folds=_visible(scale.folds),
        legend=_legend(shares(spent(timeline))),
        took=words.length(timeline.end_us - timeline.start_us),
        is_open=timeline.is_open,
        is_folded=scale.is_folded,
        marks=[Dot(scale.place(mark.at_us), mark.text) for mark in timeline.marks],
        more_before=min(first, len(timeline.rows)),
        more_after=max(0, len(timeline.rows) - first - most),
        first=first,
    )


def _visible(folds: list[Fold]) -> list[Fold]:
    """What can be told apart, and of that the widest."""
    joined: list[Fold] = []
    for fold in folds:
        if joined and fold.start - joined[-1].end < FOLD_GAP:
            before = joined.pop()
            fold = Fold(before.start, fold.end, before.length_us + fold.length_us)
        joined.append(fold)
    widest = sorted(joined, key=lambda fold: fold.start - fold.end)[:FOLDS_MOST]
    return sorted(widest, key=lambda fold: fold.start)


def _minor(ticks: list[Tick]) -> list[Tick]:
    found: list[Tick] = []
    last = -100.0
    for tick in ticks:
        if tick.at - last < NARROW_GAP or (tick.at > 100 - NARROW_GAP and tick is not ticks[-1]):
            found.append(tick)
        else:
            last = tick.at
    return found


def _line(row: Row, scale: Scale, timeline: Timeline) -> Line:
    end_us = timeline.end_us if row.end_us is None else row.end_us
    took = words.length(max(0, end_us - row.start_us)) if row.pieces or row.end_us != row.start_us else ""
    return Line(
        row=row,
        failed=row.failed[-FAILED_MOST:],
        bars=[_bar(piece, scale, timeline.end_us) for piece in row.pieces],
        dots=[Dot(scale.place(mark.at_us), mark.text) for mark in row.marks]
        or ([] if row.pieces else [Dot(scale.place(row.start_us), row.name)]),
        took=took,
        summary=_summary(row, took),
        started=words.exact(to_datetime(row.start_us)),
    )


def _bar(piece: Piece, scale: Scale, now_us: int) -> Bar:
    end_us = now_us if piece.end_us is None else piece.end_us
    attempt = f"attempt {piece.attempt}, " if piece.attempt else ""
    failed = (
        {Tone.BAD: ", failed", Tone.UNUSED: ", given up"}.get(piece.tone, "") if piece.kind is PieceKind.WORK else ""
    )
    open_words = ", still" if piece.end_us is None else ""
    due = ""
    if piece.end_us is None and piece.until_us is not None:
        due = f", due {words.exact(to_datetime(piece.until_us))}"
    return Bar(
        css=f"k-{piece.kind} t-{piece.tone}",
        x=scale.place(piece.start_us),
        width=_width(scale, piece.start_us, end_us),
        title=f"{attempt}{_VERBS[piece.kind]}{open_words} {words.length(max(0, end_us - piece.start_us))}{failed}{due}",
    )


def _width(scale: Scale, start_us: int, end_us: int) -> float:
    return max(LEAST_WIDTH, round(scale.place(end_us) - scale.place(start_us), 3))


def _legend(found: list[Share]) -> list[Legend]:
    return [
        Legend(
            share.kind.value,
            words.KIND_WORDS[share.kind],
            words.length(share.length_us),
            round(share.percent, 3),
            "<1 %" if share.percent < 1 else f"{share.percent:.0f} %",
        )
        for share in sorted(found, key=lambda share: -share.length_us)
        if share.kind is not PieceKind.IDLE or share.percent >= 1
    ]


def _summary(row: Row, took: str) -> str:
    parts = [f"{row.kind} {row.name}", took]
    if row.attempts > 1:
        parts.append(f"{row.attempts} attempts")
    parts.append({Tone.GOOD: "done", Tone.BAD: "failed", Tone.OPEN: "open", Tone.UNUSED: "given up"}[row.tone])
    return ", ".join(part for part in parts if part)


def failure_text(failure: Failure) -> str:
    return f"{failure.type}: {failure.message}" if failure.message else failure.type
