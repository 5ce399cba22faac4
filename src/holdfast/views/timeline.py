"""A run as a picture in time: what happened, what waited, what was tried again.

- `Timeline`, `Row`, `Piece`, `Mark`: the picture as values. Times are microseconds since 1970; what is still going on
  has no end.
- `journal_timeline`: of a workflow, from its journal and the executions of its calls.
- `timeline_steps` makes one of a machine or a task, `time_scale` says where each moment is drawn and sums up where the
  time went. How it looks is the business of the pages.

Pure: the store's now is a parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from holdfast.core.clock import to_us
from holdfast.core.durations import format_duration
from holdfast.core.journal.events import (
    CancelRequested,
    Err,
    Event,
    ExecutionAwaiting,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionResumed,
    ExecutionStarted,
    Failure,
    InvokeCompleted,
    InvokeRetrying,
    InvokeScheduled,
    InvokeStarted,
    JoinSetAwaited,
    JoinSetCreated,
    JoinSetSubmitted,
    RandomGenerated,
    SignalDelivered,
    SignalReceived,
    TimeRecorded,
    TimerFired,
    TimerScheduled,
)
from holdfast.core.status import Status
from holdfast.models.workflow.progress import told_by
from holdfast.store.values import ExecutionView


class PieceKind(StrEnum):
    """What a stretch of time was spent on."""

    WORK = "work"  # user code runs
    CHILD = "child"  # another execution works on it
    RETRY = "retry"  # an attempt failed, the next one is due later
    SIGNAL = "signal"  # waits for a signal
    SLEEP = "sleep"  # waits for a timer
    QUEUED = "queued"  # waits for a worker
    JOIN = "join"  # the span of a join set
    IDLE = "idle"  # none of these: between commits, or not recorded


class Tone(StrEnum):
    """How it ended."""

    GOOD = "good"
    BAD = "bad"
    OPEN = "open"
    UNUSED = "unused"  # given up: a timeout that was not needed, a call that was cancelled


class Piece(Struct, kw_only=True):
    """A stretch of one row. `end_us` is None while it goes on; `until_us` is when a timer or a retry is due."""

    kind: PieceKind
    start_us: int
    end_us: int | None = None
    tone: Tone = Tone.OPEN
    attempt: int = 0
    until_us: int | None = None


class Mark(Struct, frozen=True):
    """A moment on a row."""

    at_us: int
    text: str


class Attempt(Struct, frozen=True, kw_only=True):
    """A failed attempt."""

    number: int
    at_us: int
    failure: Failure


class Row(Struct, kw_only=True):
    """One operation of a run. `number` is its place among its siblings, as in its id."""

    number: str
    kind: str  # call, child, timer, timeout, signal, value, join, step
    name: str
    start_us: int
    end_us: int | None = None
    tone: Tone = Tone.OPEN
    pieces: list[Piece] = []
    marks: list[Mark] = []
    first_sequence: int = 0
    last_sequence: int = 0
    attempts: int = 0
    failed: list[Attempt] = []
    input: str | None = None  # JSON
    result: str | None = None  # JSON
    failure: Failure | None = None
    execution: str | None = None  # the id of the execution that works on it
    inside: str | None = None  # the number of its join set
    note: str = ""
    progress: str | None = None  # JSON: what it said last, while it is in flight

    @property
    def is_open(self) -> bool:
        return self.end_us is None


class Timeline(Struct, kw_only=True):
    """The whole picture, from the moment it was started to its end, or to now."""

    start_us: int
    end_us: int
    is_open: bool
    rows: list[Row]
    marks: list[Mark] = []
    queued: list[Piece] = []  # before the first step


def journal_timeline(
    view: ExecutionView, events: Iterable[Event], children: Mapping[str, ExecutionView], now_us: int
) -> Timeline:
    """Of a workflow. `children` are the executions of its calls, by id."""
    drawing = _Drawing(children)
    last_us = to_us(view.inserted_at)
    for event in events:
        last_us = max(last_us, to_us(event.timestamp))
        drawing.add(event)
    ended_us = None if view.ended_at is None else to_us(view.ended_at)
    is_open = ended_us is None
    end_us = max(last_us, now_us if ended_us is None else ended_us)
    drawing.close(None if is_open else end_us)
    drawing.tell(told_by(view))
    inserted_us = to_us(view.inserted_at)
    first_us = drawing.first_us if drawing.first_us is not None else (None if is_open else end_us)
    # A fork begins with the past of another run, which is older than the fork itself.
    start_us = min(inserted_us, first_us if first_us is not None else inserted_us)
    queued = []
    if first_us is None or first_us > inserted_us:
        tone = Tone.OPEN if first_us is None else Tone.GOOD
        queued.append(Piece(kind=PieceKind.QUEUED, start_us=inserted_us, end_us=first_us, tone=tone))
    return Timeline(
        start_us=start_us, end_us=end_us, is_open=is_open, rows=drawing.rows, marks=drawing.marks, queued=queued
    )


class _Drawing:
    """Rows under construction, one event at a time."""

    def __init__(self, children: Mapping[str, ExecutionView]) -> None:
        self.rows: list[Row] = []
        self.marks: list[Mark] = []
        self.first_us: int | None = None
        self._children = children
        self._by_id: dict[str, Row] = {}
        self._delivered: dict[tuple[str, int], Row] = {}
        self._waiting: tuple[str, ...] = ()
        self._members: dict[str, int] = {}  # of join sets, and how many of them were taken
        self._taken: dict[str, int] = {}

    def add(self, event: Event) -> None:
        at = to_us(event.timestamp)
        match event:
            case ExecutionStarted():
                self.first_us = at
            case InvokeScheduled():
                self._scheduled(event, at)
            case InvokeStarted() | InvokeRetrying() | InvokeCompleted():
                self._called(event, at)
            case TimerScheduled():
                name = f"sleep {format_duration(event.duration)}"
                row = self._row(event, event.promise_id, "timer", name, at)
                row.pieces.append(Piece(kind=PieceKind.SLEEP, start_us=at, until_us=to_us(event.fire_at)))
            case TimerFired():
                self._end(event.promise_id, at, Tone.GOOD, event.sequence)
            case SignalDelivered() | SignalReceived():
                self._signalled(event, at)
            case ExecutionAwaiting():
                self._awaiting(event, at)
            case ExecutionResumed():
                self._resumed(at)
            case RandomGenerated() | TimeRecorded():
                self._value(event, at)
            case JoinSetCreated():
                row = self._row(event, event.join_set_id, "join", "join set", at)
                row.pieces.append(Piece(kind=PieceKind.JOIN, start_us=at))
            case JoinSetSubmitted():
                self._submitted(event)
            case JoinSetAwaited():
                self._joined(event, at)
            case CancelRequested():
                self.marks.append(Mark(at, f"cancel requested: {event.reason}"))
            case ExecutionCompleted() | ExecutionFailed() | ExecutionCancelled():
                pass  # the row of the execution says how it ended

    def close(self, end_us: int | None) -> None:
        """Nothing is open after the end; before it, open rows stay so."""
        for row in self.rows:
            if row.end_us is None and end_us is not None:
                is_signal_left = row.kind == "signal" and not row.pieces
                row.end_us = end_us if row.pieces else row.start_us
                row.tone = Tone.GOOD if row.kind == "join" else Tone.UNUSED
                if is_signal_left:
                    row.note = "never read"
            for piece in row.pieces:
                if piece.end_us is None and row.end_us is not None:
                    piece.end_us = max(piece.start_us, row.end_us)
                    piece.tone = row.tone

    def tell(self, told: Mapping[str, str]) -> None:
        """How far calls in flight are, by their ids; those with an execution of their own say it there."""
        for promise_id, row in self._by_id.items():
            if row.is_open:
                child = self._children.get(promise_id)
                row.progress = (told if child is None else told_by(child)).get(promise_id)

    # ------------------------------------------------------------------ rows

    def _row(self, event: Event, promise_id: str, kind: str, name: str, at: int) -> Row:
        number = promise_id.rpartition(".")[2]
        row = Row(
            number=number, kind=kind, name=name, start_us=at, pieces=[], marks=[], failed=[],
            first_sequence=event.sequence, last_sequence=event.sequence,
        )  # fmt: skip
        self.rows.append(row)
        self._by_id[promise_id] = row
        return row

    def _remove(self, row: Row) -> None:
        """Itself, and from behind: it is one of the newest, and there may be thousands."""
        at = next(at for at in range(len(self.rows) - 1, -1, -1) if self.rows[at] is row)
        del self.rows[at]

    def _end(self, promise_id: str, at: int, tone: Tone, sequence: int) -> None:
        row = self._by_id.get(promise_id)
        if row is None:
            return
        row.end_us, row.tone, row.last_sequence = at, tone, sequence
        _close_piece(row, at, tone)

    def _scheduled(self, event: InvokeScheduled, at: int) -> None:
        child = self._children.get(event.promise_id)
        kind = "child" if child is not None and child.kind != "task" else "call"
        row = self._row(event, event.promise_id, kind, event.function_name, at)
        row.input = bytes(event.input).decode()
        if event.kind == "Http":
            row.note = "http"
        if child is not None:
            row.execution = event.promise_id
            row.pieces = execution_pieces(child)
            row.attempts = child.attempt

    def _called(self, event: InvokeStarted | InvokeRetrying | InvokeCompleted, at: int) -> None:
        row = self._by_id.get(event.promise_id)
        if row is None:
            return
        row.last_sequence = event.sequence
        match event:
            case InvokeStarted():
                row.attempts = event.attempt
                if row.execution is None:
                    _close_piece(row, at, Tone.BAD)
                    row.pieces.append(Piece(kind=PieceKind.WORK, start_us=at, attempt=event.attempt))
            case InvokeRetrying():
                row.failed.append(Attempt(number=event.failed_attempt, at_us=at, failure=event.error))
                if row.execution is None:
                    _close_piece(row, at, Tone.BAD)
                    until = to_us(event.retry_at)
                    row.pieces.append(Piece(kind=PieceKind.RETRY, start_us=at, until_us=until, tone=Tone.BAD))
            case InvokeCompleted():
                row.attempts = max(row.attempts, event.attempt)
                if isinstance(event.result, Err):
                    row.failure = event.result.error
                    tone = Tone.UNUSED if event.result.error.kind == "cancelled" else Tone.BAD
                else:
                    row.result, tone = bytes(event.result.value).decode(), Tone.GOOD
                if not row.pieces:
                    row.pieces.append(Piece(kind=PieceKind.WORK, start_us=row.start_us, attempt=event.attempt))
                self._end(event.promise_id, at, tone, event.sequence)

    def _signalled(self, event: SignalDelivered | SignalReceived, at: int) -> None:
        key = (event.signal_name, event.delivery_id)
        if isinstance(event, SignalDelivered):
            row = self._row(event, f"signal {event.signal_name}.{event.delivery_id}", "signal", event.signal_name, at)
            row.number, row.result = "", bytes(event.payload).decode()
            row.note = "arrived, not read yet"
            row.marks.append(Mark(at, f"{event.signal_name} arrived"))
            self._delivered[key] = row
            return
        arrived = self._delivered.pop(key, None)
        waited = self._by_id.get(event.promise_id)
        if waited is None:  # it was there before the body asked for it
            waited = arrived or self._row(event, event.promise_id, "signal", event.signal_name, at)
            self._by_id[event.promise_id] = waited
        elif arrived is not None:
            waited.marks += arrived.marks
            self._remove(arrived)
        waited.number = event.promise_id.rpartition(".")[2]
        waited.result, waited.note = bytes(event.payload).decode(), ""
        self._end(event.promise_id, at, Tone.GOOD, event.sequence)

    def _awaiting(self, event: ExecutionAwaiting, at: int) -> None:
        self._waiting = event.waiting_on
        for wait in event.signals:
            row = self._by_id.get(wait.promise_id)
            if row is None:
                row = self._row(event, wait.promise_id, "signal", wait.signal_name, at)
            row.end_us = None
            row.pieces.append(Piece(kind=PieceKind.SIGNAL, start_us=at))
        if event.kind == "Any" and (len(event.waiting_on) > 1 or event.join_set_id is not None):
            for promise_id in event.waiting_on:
                row = self._by_id.get(promise_id)
                if row is not None and row.kind == "timer":
                    row.kind, row.name = "timeout", row.name.replace("sleep", "timeout")

    def _resumed(self, at: int) -> None:
        """A signal that was waited for and did not come is waited for no more; nor is the timeout of one that did."""
        rows = [row for promise_id in self._waiting if (row := self._by_id.get(promise_id)) is not None]
        is_late = any(row.kind == "timeout" and not row.is_open for row in rows)
        for row in rows:
            if row.is_open and row.kind in ("signal", "timeout"):
                row.end_us, row.tone = at, Tone.UNUSED
                _close_piece(row, at, Tone.UNUSED)
                if row.kind == "signal" and is_late:
                    row.note = "did not come in time"
        self._waiting = ()

    def _value(self, event: RandomGenerated | TimeRecorded, at: int) -> None:
        if isinstance(event, RandomGenerated):
            row = self._row(event, event.promise_id, "value", f"random {event.fingerprint}".strip(), at)
            row.result = bytes(event.value).decode()
        else:
            row = self._row(event, event.promise_id, "value", "now", at)
            row.result = f'"{event.time.isoformat()}"'
        row.end_us, row.tone = at, Tone.GOOD

    def _submitted(self, event: JoinSetSubmitted) -> None:
        member = self._by_id.get(event.promise_id)
        if member is not None:
            member.inside = event.join_set_id.rpartition(".")[2]
        self._members[event.join_set_id] = self._members.get(event.join_set_id, 0) + 1

    def _joined(self, event: JoinSetAwaited, at: int) -> None:
        row = self._by_id.get(event.join_set_id)
        if row is None:
            return
        row.last_sequence = event.sequence
        members = self._members.get(event.join_set_id, 0)
        taken = self._taken[event.join_set_id] = self._taken.get(event.join_set_id, 0) + 1
        row.note = f"{taken} of {members}"
        if taken == members:
            self._end(event.join_set_id, at, Tone.GOOD, event.sequence)


def _close_piece(row: Row, at: int, tone: Tone) -> None:
    if row.pieces and row.pieces[-1].end_us is None:
        piece = row.pieces[-1]
        piece.end_us = max(piece.start_us, at)
        # A back-off that is over says nothing of how the next attempt ended.
        piece.tone = Tone.BAD if piece.kind is PieceKind.RETRY else tone


def execution_pieces(view: ExecutionView) -> list[Piece]:
    """How long an execution waited for a worker, and how long it was worked on."""
    inserted_us = to_us(view.inserted_at)
    started_us = None if view.started_at is None else to_us(view.started_at)
    ended_us = None if view.ended_at is None else to_us(view.ended_at)
    first_us = ended_us if started_us is None else started_us
    tone = {Status.DONE: Tone.GOOD, Status.FAILED: Tone.BAD, Status.CANCELLED: Tone.UNUSED}.get(view.status, Tone.OPEN)
    if view.status is Status.STRANDED:
        tone = Tone.BAD
    queued = Piece(
        kind=PieceKind.QUEUED,
        start_us=inserted_us,
        end_us=first_us,
        tone=Tone.OPEN if first_us is None else Tone.GOOD,
    )
    if started_us is None:
        return [queued]
    kind = PieceKind.WORK if view.kind == "task" else PieceKind.CHILD
    return [queued, Piece(kind=kind, start_us=started_us, end_us=ended_us, tone=tone)]
