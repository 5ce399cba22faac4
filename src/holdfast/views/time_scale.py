"""Where each moment of a timeline is drawn, and where its time went.

- `Scale`: from a moment to a place between 0 and 100. Long stretches in which nothing ran are folded: a sleep of a day
  would leave no room for the seconds of work around it. Order is kept, and a longer wait is never drawn shorter.
- `spent`: what each stretch of the whole run was spent on; of several things at once the one that mattered most.
- `ticks`: round moments to label.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from holdfast.core.clock import MICROSECONDS
from holdfast.views.timeline import Piece, PieceKind, Timeline

# A stretch without work is drawn at most this share of the time that was worked, before its logarithm is added.
FOLD_SHARE = 0.3
# Nothing is folded where the work is this share of the whole: it can be seen as it is.
FOLD_BELOW = 0.08
# A stretch is marked as folded from this factor on; less deceives nobody.
FOLD_SHOWN = 4.0

# Of several things at once, the first one is what the run was about.
PRECEDENCE = (
    PieceKind.WORK,
    PieceKind.CHILD,
    PieceKind.RETRY,
    PieceKind.SIGNAL,
    PieceKind.SLEEP,
    PieceKind.QUEUED,
    PieceKind.IDLE,
)

_STEPS_US = [
    *(step * 1_000 for step in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(step * MICROSECONDS for step in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200)),
    *(step * MICROSECONDS * 3_600 for step in (3, 6, 12, 24, 48, 120, 240, 720, 2_160, 8_640)),
]


class Stretch(Struct, frozen=True):
    """A part of the whole, spent on one thing."""

    kind: PieceKind
    start_us: int
    end_us: int

    @property
    def length_us(self) -> int:
        return self.end_us - self.start_us


class Share(Struct, frozen=True):
    """How much of the whole was spent on one thing."""

    kind: PieceKind
    length_us: int
    percent: float


class Fold(Struct, frozen=True):
    """A stretch that is drawn shorter than it was."""

    start: float
    end: float
    length_us: int


class Tick(Struct, frozen=True):
    at: float
    offset_us: int


def spent(timeline: Timeline) -> list[Stretch]:
    """What the run was spent on, from its start to its end, without gaps."""
    changes: dict[int, dict[PieceKind, int]] = {timeline.start_us: {}, timeline.end_us: {}}
    for piece in _pieces(timeline):
        start = min(max(piece.start_us, timeline.start_us), timeline.end_us)
        end = min(timeline.end_us if piece.end_us is None else piece.end_us, timeline.end_us)
        if piece.kind is PieceKind.JOIN or end <= start:
            continue
        for moment, change in ((start, 1), (end, -1)):
            counts = changes.setdefault(moment, {})
            counts[piece.kind] = counts.get(piece.kind, 0) + change
    found: list[Stretch] = []
    active = dict.fromkeys(PRECEDENCE, 0)
    for moment, following in pairwise(sorted(changes)):
        for kind, change in changes[moment].items():
            active[kind] += change
        kind = next((kind for kind in PRECEDENCE if active[kind] > 0), PieceKind.IDLE)
        if found and found[-1].kind is kind:
            found[-1] = Stretch(kind, found[-1].start_us, following)
        else:
            found.append(Stretch(kind, moment, following))
    return found


def shares(stretches: Sequence[Stretch]) -> list[Share]:
    """The sum of each kind, in the order of `PRECEDENCE`; what took no time is left out."""
    total = sum(stretch.length_us for stretch in stretches)
    sums = dict.fromkeys(PRECEDENCE, 0)
    for stretch in stretches:
        sums[stretch.kind] += stretch.length_us
    return [Share(kind, length, 100 * length / total) for kind, length in sums.items() if length]


class Scale:
    """From moments to places between 0 and 100."""

    def __init__(self, timeline: Timeline, *, fold: bool = True) -> None:
        cuts = _cuts(timeline)
        stretches = spent(timeline)
        starts = [stretch.start_us for stretch in stretches]
        # Every change of a stretch is a cut, so what lies between two cuts is within one stretch.
        lengths = [
            (start, end, stretches[bisect_right(starts, start) - 1].kind is PieceKind.WORK)
            for start, end in pairwise(cuts)
        ]
        worked = sum(end - start for start, end, is_busy in lengths if is_busy)
        idle = [end - start for start, end, is_busy in lengths if not is_busy]
        # Where nothing worked at all, the shortest wait is the measure; where nothing is lost, nothing is folded.
        cap = FOLD_SHARE * worked if worked else (min(idle, default=0) if len(idle) > 1 else 0)
        fold = fold and worked < FOLD_BELOW * (cuts[-1] - cuts[0])
        drawn = [
            _folded(end - start, cap) if fold and cap and not is_busy else float(end - start)
            for start, end, is_busy in lengths
        ]
        total = sum(drawn) or 1.0
        self.moments: list[int] = [cuts[0]]
        self.places: list[float] = [0.0]
        self.folds: list[Fold] = []
        for (start, end, _), length in zip(lengths, drawn, strict=True):
            place = self.places[-1] + 100 * length / total
            if length * FOLD_SHOWN < end - start:
                self.folds.append(Fold(self.places[-1], place, end - start))
            self.moments.append(end)
            self.places.append(place)

    @property
    def is_folded(self) -> bool:
        return bool(self.folds)

    def place(self, moment_us: int) -> float:
        if moment_us <= self.moments[0]:
            return 0.0
        if moment_us >= self.moments[-1]:
            return 100.0
        at = bisect_right(self.moments, moment_us) - 1
        start, end = self.moments[at], self.moments[at + 1]
        share = (moment_us - start) / (end - start)
        return round(self.places[at] + share * (self.places[at + 1] - self.places[at]), 3)

    def ticks(self, most: int = 7) -> list[Tick]:
        """Round moments since the start; where stretches are folded, only the places where drawn time is true."""
        length = self.moments[-1] - self.moments[0]
        if not length:
            return [Tick(0.0, 0)]
        if not self.folds:
            step = next((step for step in _STEPS_US if length / step <= most), _STEPS_US[-1])
            offsets: Iterable[int] = range(0, length + 1, step)
        else:
            offsets = [moment - self.moments[0] for moment in self.moments]
        found: list[Tick] = []
        for offset in offsets:
            place = self.place(self.moments[0] + offset)
            if not found or place - found[-1].at >= 100 / (most + 3):
                found.append(Tick(place, offset))
        return found


def _folded(length: int, cap: float) -> float:
    if length <= cap:
        return float(length)
    return cap * (1 + 0.5 * math.log10(length / cap))


def _cuts(timeline: Timeline) -> list[int]:
    moments = {timeline.start_us, timeline.end_us}
    for piece in _pieces(timeline):
        moments.add(piece.start_us)
        if piece.end_us is not None:
            moments.add(piece.end_us)
    return sorted(moment for moment in moments if timeline.start_us <= moment <= timeline.end_us)


def _pieces(timeline: Timeline) -> Iterator[Piece]:
    yield from timeline.queued
    for row in timeline.rows:
        yield from row.pieces
