"""Timelines of what has no journal: machines by their history, tasks by their attempts, others by their row."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.clock import to_us
from holdfast.core.error_record import decode_error
from holdfast.core.errors import DecodeError
from holdfast.core.journal.events import Failure
from holdfast.core.status import Status
from holdfast.models.workflow.progress import told_by
from holdfast.models.workflow.task import TaskState
from holdfast.store.values import ExecutionView, Transition
from holdfast.views.shapes import step_of
from holdfast.views.timeline import Attempt, Mark, Piece, PieceKind, Row, Timeline, Tone, execution_pieces

# What a machine waited for after an outcome, until the step that follows was committed.
_WAIT_AFTER = {"Await": PieceKind.SIGNAL, "ScheduleChildren": PieceKind.CHILD, "Replay": PieceKind.RETRY}
_task_state = msgspec.json.Decoder(TaskState).decode


def steps_timeline(view: ExecutionView, history: Sequence[Transition], now_us: int) -> Timeline:
    """Of a machine that keeps its history; without one, its current step is all there is.

    A transition is dated by its commit. A step begins when the one before it was committed, so the wait of a step that
    was parked is drawn as a wait up to the commit that ended it.
    """
    rows: list[Row] = []
    begun_us = to_us(view.inserted_at if view.started_at is None else view.started_at)
    waited: PieceKind | None = None
    for line in history:
        at_us = to_us(line.at)
        begun_us = min(begun_us, at_us)
        failure = failure_of(line.error)
        tone = Tone.BAD if failure is not None else Tone.GOOD
        row = Row(
            number=str(line.revision),
            kind="step",
            name=line.step,
            start_us=begun_us,
            end_us=at_us,
            tone=tone,
            attempts=line.attempt + 1,
            failure=failure,
            note=f"{line.outcome} → {line.next_step}" if line.next_step else line.outcome,
            pieces=[Piece(kind=waited or PieceKind.WORK, start_us=begun_us, end_us=at_us, tone=tone)],
        )
        rows.append(row)
        begun_us, waited = at_us, _WAIT_AFTER.get(line.outcome)
    if not view.status.is_terminal and view.started_at is not None:
        kind = _kind_now(view.status)
        stranded = view.status is Status.STRANDED
        tone = Tone.BAD if stranded else Tone.OPEN
        rows.append(
            Row(
                number="",
                kind="step",
                name=view.step,
                start_us=begun_us,
                tone=tone,
                attempts=view.attempt + 1,
                failure=failure_of(view.error),
                note=view.status.value.replace("_", " "),
                pieces=[
                    Piece(
                        kind=kind,
                        start_us=begun_us,
                        tone=tone,
                        until_us=None if view.wake_at is None else to_us(view.wake_at),
                    )
                ],
            )
        )
    elif not history and view.started_at is not None:
        rows.append(_whole(view, view.step))
    return _timeline(view, rows, now_us)


def task_timeline(view: ExecutionView, now_us: int) -> Timeline:
    """Of a task with an execution of its own: an attempt is known by when the next one was due."""
    try:
        state = _task_state(view.state)
    except (msgspec.DecodeError, RecursionError):
        state = TaskState(msgspec.Raw(b"null"))
    if view.started_at is None:
        return _timeline(view, [], now_us)
    row = _whole(view, view.name)
    started_us = to_us(view.started_at)
    pieces: list[Piece] = []
    for number, attempt in enumerate(state.attempts, 1):
        due_us = max(started_us, attempt.retry_at_us)
        pieces.append(
            Piece(kind=PieceKind.RETRY, start_us=started_us, end_us=min(due_us, now_us), tone=Tone.BAD, attempt=number)
        )
        failure = failure_of(bytes(attempt.error).decode())
        if failure is not None:
            row.failed.append(Attempt(number=number, at_us=started_us, failure=failure))
        row.marks.append(Mark(started_us, f"attempt {number} failed"))
        started_us = min(due_us, now_us)
    kind = PieceKind.QUEUED if view.status is Status.RUNNABLE else PieceKind.WORK
    pieces.append(Piece(kind=kind, start_us=started_us, end_us=row.end_us, tone=row.tone))
    row.pieces, row.attempts = pieces, len(state.attempts) + 1
    row.progress = next(iter(told_by(view).values()), None)
    return _timeline(view, [row], now_us)


def row_timeline(view: ExecutionView, now_us: int) -> Timeline:
    """Of anything, by its row alone."""
    rows = [] if view.started_at is None else [_whole(view, step_of(view) or view.name)]
    return _timeline(view, rows, now_us)


def failure_of(text: str | None) -> Failure | None:
    """A recorded error as a journal would have it."""
    if text is None or text == "null":
        return None
    try:
        record = decode_error(text)
    except DecodeError:
        return Failure("internal", "error", text)
    frames = "\n".join([*(f"caused by {cause}" for cause in record.causes), *record.traceback])
    return Failure("user", record.type, record.message, traceback=frames or None)


def _whole(view: ExecutionView, name: str) -> Row:
    pieces = execution_pieces(view)[1:]
    if view.kind != "task":  # what it did when is not recorded
        pieces[0].kind = PieceKind.IDLE
    return Row(
        number="",
        kind="call" if view.kind == "task" else "step",
        name=name,
        start_us=pieces[0].start_us,
        end_us=pieces[0].end_us,
        tone=pieces[0].tone,
        pieces=pieces,
        marks=[],
        failed=[],
        attempts=view.attempt + 1,
        failure=failure_of(view.error),
        result=view.result,
    )


def _timeline(view: ExecutionView, rows: list[Row], now_us: int) -> Timeline:
    inserted_us = to_us(view.inserted_at)
    end_us = now_us if view.ended_at is None else to_us(view.ended_at)
    last_us = max((row.end_us or row.start_us for row in rows), default=inserted_us)
    queued = execution_pieces(view)[:1]
    return Timeline(
        start_us=inserted_us,
        end_us=max(end_us, inserted_us, last_us),
        is_open=view.ended_at is None,
        rows=rows,
        marks=[],
        queued=[piece for piece in queued if piece.end_us is None or piece.end_us > piece.start_us],
    )


def _kind_now(status: Status) -> PieceKind:
    return {
        Status.RUNNABLE: PieceKind.QUEUED,
        Status.EXECUTING: PieceKind.WORK,
        Status.AWAITING_SIGNAL: PieceKind.SIGNAL,
        Status.AWAITING_CHILDREN: PieceKind.CHILD,
        Status.AWAITING_PROMISE: PieceKind.CHILD,
        Status.DELEGATED: PieceKind.CHILD,
    }.get(status, PieceKind.IDLE)
