"""A journal as a picture: attempts, waits, what is open, and where the time went."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from holdfast.core.clock import to_us
from holdfast.core.codec import encode_error
from holdfast.core.identity import PromiseId
from holdfast.core.journal.events import (
    CancelRequested,
    Err,
    Event,
    ExecutionAwaiting,
    ExecutionCompleted,
    ExecutionResumed,
    ExecutionStarted,
    Failure,
    FailureKind,
    InvokeCompleted,
    InvokeRetrying,
    InvokeScheduled,
    InvokeStarted,
    JoinSetAwaited,
    JoinSetCreated,
    JoinSetSubmitted,
    Ok,
    RandomGenerated,
    SignalDelivered,
    SignalReceived,
    SignalWait,
    TimeRecorded,
    TimerFired,
    TimerScheduled,
)
from holdfast.core.status import Status
from holdfast.store.values import ExecutionView, Transition
from holdfast.views.time_scale import Scale, shares, spent
from holdfast.views.timeline import Piece, PieceKind, Row, Timeline, Tone, journal_timeline
from holdfast.views.timeline_steps import row_timeline, steps_timeline, task_timeline

T0 = datetime(2026, 1, 1, tzinfo=UTC)
T0_US = to_us(T0)
ID = "ab" * 32


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def view(status: Status = Status.DONE, ended: float | None = 10.0, **changes: Any) -> ExecutionView:
    made = ExecutionView(
        promise=bytes.fromhex(ID), kind="workflow", name="checkout", version=1, step="", status=status, state="{}",
        result=None, error=None, queue="default", priority=0, partition_key=None, attempt=0, crashes=0, revision=1,
        lease_epoch=1, locked_by=None, awaits=None, children_pending=0, barrier_round=0, parent=None,
        cancel_requested=False, paused=False, unique_key=None, digest=None, attributes=None, eligible_at=T0,
        wake_at=None, inserted_at=T0, started_at=at(1), ended_at=None if ended is None else at(ended), updated_at=T0,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


class Script:
    """Events with their sequence numbers."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, event: Any, seconds: float, /, **fields: Any) -> None:
        self.events.append(event(sequence=len(self.events), timestamp=at(seconds), **fields))

    def started(self, seconds: float = 1) -> Script:
        self.add(ExecutionStarted, seconds, component_digest="d", input=Raw(b"{}"))
        return self

    def call(self, number: int, name: str, seconds: float) -> None:
        self.add(
            InvokeScheduled, seconds, promise_id=f"{ID}.{number}", kind="Function", function_name=name,
            input=Raw(b'{"x":1}'), fingerprint="f",
        )  # fmt: skip

    def completed(self, number: int, seconds: float, result: Any = None, attempt: int = 1) -> None:
        self.add(InvokeCompleted, seconds, promise_id=f"{ID}.{number}", result=result or Ok(Raw(b"5")), attempt=attempt)


def drawn(row: Row) -> list[tuple[str, float, float | None, str]]:
    def since(us: int | None) -> float | None:
        return None if us is None else (us - T0_US) / 1e6

    return [(p.kind.value, since(p.start_us) or 0.0, since(p.end_us), p.tone.value) for p in row.pieces]


def test_attempts_and_the_time_between_them_are_pieces_of_one_row() -> None:
    script = Script().started()
    error = Failure("user", "ValueError", "no")
    script.call(0, "charge", 1)
    script.add(InvokeStarted, 1, promise_id=f"{ID}.0", attempt=1)
    script.add(InvokeRetrying, 2, promise_id=f"{ID}.0", failed_attempt=1, error=error, retry_at=at(5))
    script.add(InvokeStarted, 5, promise_id=f"{ID}.0", attempt=2)
    script.completed(0, 7, attempt=2)
    script.add(ExecutionCompleted, 7, result=Raw(b"1"))
    (row,) = journal_timeline(view(ended=7), script.events, {}, T0_US).rows
    assert drawn(row) == [("work", 1, 2, "bad"), ("retry", 2, 5, "bad"), ("work", 5, 7, "good")]
    assert (row.name, row.attempts, row.tone, row.result) == ("charge", 2, Tone.GOOD, "5")
    assert [(a.number, a.failure) for a in row.failed] == [(1, error)]


def test_a_call_that_failed_for_good_ends_badly_and_a_cancelled_one_unused() -> None:
    script = Script().started()
    kinds: tuple[FailureKind, ...] = ("user", "cancelled")
    for number, kind in enumerate(kinds):
        script.call(number, "charge", 1)
        script.completed(number, 2, Err(Failure(kind, "E", "no")))
    rows = journal_timeline(view(ended=3), script.events, {}, T0_US).rows
    assert [row.tone for row in rows] == [Tone.BAD, Tone.UNUSED]
    assert drawn(rows[0]) == [("work", 1, 2, "bad")]


def test_what_is_still_going_on_has_no_end() -> None:
    script = Script().started()
    script.call(0, "charge", 1)
    script.add(InvokeStarted, 1, promise_id=f"{ID}.0", attempt=1)
    timeline = journal_timeline(view(Status.EXECUTING, None), script.events, {}, to_us(at(30)))
    assert timeline.is_open
    assert timeline.end_us == to_us(at(30))
    assert timeline.rows[0].is_open
    assert drawn(timeline.rows[0]) == [("work", 1, None, "open")]


def test_what_is_in_flight_says_how_far_it_is() -> None:
    """A call here, one that has ended, one with an execution of its own, and a child that speaks of its own calls."""
    script = Script().started()
    for number in range(4):
        script.call(number, "load", 1)
    script.completed(1, 2)
    own: dict[str, Any] = {"status": Status.EXECUTING, "ended": None}
    children = {
        f"{ID}.2": view(**own, promise=PromiseId.parse(f"{ID}.2").to_bytes(), kind="task", beats='"half"'),
        f"{ID}.3": view(**own, promise=PromiseId.parse(f"{ID}.3").to_bytes(), beats='{".0":1}'),
    }
    live = view(**own, beats='{".0":{"row":5},".1":9}')
    rows = journal_timeline(live, script.events, children, to_us(at(30))).rows
    assert [row.progress for row in rows] == ['{"row":5}', None, '"half"', None]
    ended = view(Status.CANCELLED, beats='{".0":{"row":5}}')
    assert {row.progress for row in journal_timeline(ended, script.events, {}, to_us(at(30))).rows} == {None}


@pytest.mark.parametrize(("status", "progress"), [(Status.EXECUTING, "0.5"), (Status.DONE, None)])
def test_a_task_says_how_far_it_is_while_it_lives(status: Status, progress: str | None) -> None:
    task = view(status, None if progress else 10.0, kind="task", state='{"input":null}', beats="0.5")
    assert [row.progress for row in task_timeline(task, to_us(at(30))).rows] == [progress]


def test_nothing_is_open_after_the_end() -> None:
    script = Script().started()
    script.call(0, "charge", 1)
    script.add(InvokeStarted, 1, promise_id=f"{ID}.0", attempt=1)
    script.add(CancelRequested, 2, reason="enough")
    timeline = journal_timeline(view(Status.CANCELLED, 4), script.events, {}, to_us(at(30)))
    assert drawn(timeline.rows[0]) == [("work", 1, 4, "unused")]
    assert [mark.text for mark in timeline.marks] == ["cancel requested: enough"]


def test_a_call_with_an_execution_of_its_own_is_drawn_by_that() -> None:
    script = Script().started()
    script.call(0, "resize", 1)
    script.call(1, "ship", 1)
    script.completed(0, 6)
    task = view(Status.DONE, 5.5, kind="task", inserted_at=at(1), started_at=at(3))
    child = view(Status.AWAITING_SIGNAL, None, kind="workflow", inserted_at=at(1), started_at=at(2))
    children = {f"{ID}.0": task, f"{ID}.1": child}
    first, second = journal_timeline(view(Status.AWAITING_PROMISE, None), script.events, children, to_us(at(9))).rows
    assert drawn(first) == [("queued", 1, 3, "good"), ("work", 3, 5.5, "good")]
    assert drawn(second) == [("queued", 1, 2, "good"), ("child", 2, None, "open")]
    assert (first.kind, second.kind) == ("call", "child")
    assert second.execution == f"{ID}.1"


def test_a_signal_that_came_ends_its_wait_and_its_timeout_is_not_needed() -> None:
    script = Script().started()
    script.add(TimerScheduled, 1, promise_id=f"{ID}.0", duration=timedelta(hours=1), fire_at=at(3601), fingerprint="f")
    wait = SignalWait(f"{ID}.1", "approval")
    script.add(ExecutionAwaiting, 1, waiting_on=(f"{ID}.1", f"{ID}.0"), kind="Any", signals=(wait,))
    script.add(SignalDelivered, 5, signal_name="approval", payload=Raw(b'"yes"'), delivery_id=1)
    script.add(SignalReceived, 5, promise_id=f"{ID}.1", signal_name="approval", payload=Raw(b'"yes"'), delivery_id=1)
    script.add(ExecutionResumed, 5)
    timeout, signal = journal_timeline(view(ended=6), script.events, {}, T0_US).rows
    assert (timeout.kind, timeout.name, timeout.tone) == ("timeout", "timeout 1h", Tone.UNUSED)
    assert drawn(signal) == [("signal", 1, 5, "good")]
    assert signal.result == '"yes"'
    assert [mark.text for mark in signal.marks] == ["approval arrived"]


def test_a_signal_that_did_not_come_in_time_says_so() -> None:
    script = Script().started()
    script.add(TimerScheduled, 1, promise_id=f"{ID}.0", duration=timedelta(seconds=2), fire_at=at(3), fingerprint="f")
    wait = SignalWait(f"{ID}.1", "approval")
    script.add(ExecutionAwaiting, 1, waiting_on=(f"{ID}.1", f"{ID}.0"), kind="Any", signals=(wait,))
    script.add(TimerFired, 3, promise_id=f"{ID}.0")
    script.add(ExecutionResumed, 3)
    timeout, signal = journal_timeline(view(ended=6), script.events, {}, T0_US).rows
    assert (timeout.tone, drawn(timeout)) == (Tone.GOOD, [("sleep", 1, 3, "good")])
    assert (signal.note, signal.tone) == ("did not come in time", Tone.UNUSED)


@pytest.mark.parametrize("is_late", [False, True], ids=["in time", "late"])
def test_the_deadline_of_a_wait_that_names_a_join_set_is_a_timeout(is_late: bool) -> None:
    script = Script().started()
    script.add(JoinSetCreated, 1, join_set_id=f"{ID}.0")
    script.call(1, "quote", 1)
    script.add(JoinSetSubmitted, 1, join_set_id=f"{ID}.0", promise_id=f"{ID}.1")
    script.add(TimerScheduled, 1, promise_id=f"{ID}.2", duration=timedelta(seconds=2), fire_at=at(3), fingerprint="f")
    script.add(ExecutionAwaiting, 1, waiting_on=(f"{ID}.2",), kind="Any", join_set_id=f"{ID}.0")
    if is_late:
        script.add(TimerFired, 3, promise_id=f"{ID}.2")
    else:
        script.completed(1, 2)
    script.add(ExecutionResumed, 3)
    timeout = journal_timeline(view(ended=6), script.events, {}, T0_US).rows[2]
    assert (timeout.kind, timeout.name) == ("timeout", "timeout 2s")
    assert (timeout.tone, timeout.is_open) == (Tone.GOOD if is_late else Tone.UNUSED, False)


def test_signals_that_were_never_read_are_shown() -> None:
    script = Script().started()
    script.add(SignalDelivered, 2, signal_name="poke", payload=Raw(b"1"), delivery_id=1)
    (live,) = journal_timeline(view(Status.EXECUTING, None), script.events, {}, to_us(at(9))).rows
    (ended,) = journal_timeline(view(ended=9), script.events, {}, T0_US).rows
    assert (live.note, ended.note) == ("arrived, not read yet", "never read")


def test_a_signal_read_from_the_inbox_keeps_the_moment_it_came() -> None:
    script = Script().started()
    script.add(SignalDelivered, 2, signal_name="poke", payload=Raw(b"1"), delivery_id=1)
    script.add(SignalReceived, 4, promise_id=f"{ID}.0", signal_name="poke", payload=Raw(b"1"), delivery_id=1)
    (row,) = journal_timeline(view(ended=9), script.events, {}, T0_US).rows
    assert (row.number, row.start_us, row.end_us, row.note) == ("0", to_us(at(2)), to_us(at(4)), "")


def test_members_of_a_join_set_are_inside_it() -> None:
    script = Script().started()
    script.add(JoinSetCreated, 1, join_set_id=f"{ID}.0")
    for number in (1, 2):
        script.call(number, "quote", 1)
        script.add(JoinSetSubmitted, 1, join_set_id=f"{ID}.0", promise_id=f"{ID}.{number}")
    script.completed(1, 3)
    script.add(JoinSetAwaited, 3, join_set_id=f"{ID}.0", promise_id=f"{ID}.1", result=Ok(Raw(b"5")))
    timeline = journal_timeline(view(Status.EXECUTING, None), script.events, {}, to_us(at(4)))
    assert [row.inside for row in timeline.rows] == [None, "0", "0"]
    assert (timeline.rows[0].note, timeline.rows[0].is_open) == ("1 of 2", True)
    script.completed(2, 4)
    script.add(JoinSetAwaited, 4, join_set_id=f"{ID}.0", promise_id=f"{ID}.2", result=Ok(Raw(b"5")))
    joined = journal_timeline(view(ended=4), script.events, {}, T0_US).rows[0]
    assert (joined.note, drawn(joined)) == ("2 of 2", [("join", 1, 4, "good")])


def test_values_are_moments_with_what_they_were() -> None:
    script = Script().started()
    script.add(RandomGenerated, 1, promise_id=f"{ID}.0", value=Raw(b"0.5"), fingerprint="float")
    script.add(TimeRecorded, 2, promise_id=f"{ID}.1", time=at(2))
    random, now = journal_timeline(view(ended=3), script.events, {}, T0_US).rows
    assert (random.name, random.result) == ("random float", "0.5")
    assert now.result == '"2026-01-01T00:00:02+00:00"'


def test_a_run_that_nobody_took_yet_is_queued_until_now() -> None:
    waiting = journal_timeline(view(Status.RUNNABLE, None, started_at=None), [], {}, to_us(at(8)))
    assert [(p.kind, p.end_us) for p in waiting.queued] == [(PieceKind.QUEUED, None)]
    assert [(s.kind, s.length_us) for s in spent(waiting)] == [(PieceKind.QUEUED, 8_000_000)]


def test_a_fork_begins_with_a_past_older_than_itself() -> None:
    script = Script().started(-100)
    timeline = journal_timeline(view(Status.EXECUTING, None), script.events, {}, to_us(at(8)))
    assert timeline.start_us == to_us(at(-100))
    assert timeline.queued == []


def test_steps_of_a_machine_follow_each_other() -> None:
    failed = encode_error(ValueError("no"))
    lines = [
        Transition(revision=1, at=at(2), step="pack", outcome="Next", next_step="send", attempt=0, error=None),
        Transition(revision=2, at=at(3), step="send", outcome="Replay", next_step=None, attempt=0, error=failed),
        Transition(revision=3, at=at(6), step="send", outcome="Await", next_step="sign", attempt=1, error=None),
    ]
    machine = view(Status.AWAITING_SIGNAL, None, kind="machine", step="sign")
    timeline = steps_timeline(machine, lines, to_us(at(20)))
    assert [(row.name, row.attempts, row.note) for row in timeline.rows] == [
        ("pack", 1, "Next → send"), ("send", 1, "Replay"), ("send", 2, "Await → sign"), ("sign", 1, "awaiting signal"),
    ]  # fmt: skip
    assert [drawn(row)[0] for row in timeline.rows] == [
        ("work", 1, 2, "good"), ("work", 2, 3, "bad"), ("retry", 3, 6, "good"), ("signal", 6, None, "open"),
    ]  # fmt: skip


def test_a_machine_without_history_shows_its_whole_life() -> None:
    (row,) = steps_timeline(view(kind="machine", step="pack"), [], T0_US).rows
    assert drawn(row) == [("idle", 1, 10, "good")]


def test_failed_attempts_of_a_task_are_told_by_when_the_next_was_due() -> None:
    error = encode_error(ValueError("no"))
    state = f'{{"input":{{}},"attempts":[{{"error":{error},"retry_at_us":{to_us(at(4))}}}],"began_us":0}}'
    (row,) = task_timeline(view(kind="task", state=state), to_us(at(50))).rows
    assert drawn(row) == [("retry", 1, 4, "bad"), ("work", 4, 10, "good")]
    assert (row.attempts, row.failed[0].failure.message) == (2, "no")


def test_anything_else_is_drawn_by_its_row() -> None:
    assert row_timeline(view(Status.RUNNABLE, None, kind="batch", started_at=None), to_us(at(3))).rows == []
    (row,) = row_timeline(view(Status.STRANDED, None, kind="batch"), to_us(at(3))).rows
    assert (row.tone, row.is_open) == (Tone.BAD, True)


# ---------------------------------------------------------------------- the scale


def pieces(*spans: tuple[PieceKind, float, float]) -> Timeline:
    row = Row(number="0", kind="call", name="x", start_us=0)
    row.pieces = [Piece(kind=kind, start_us=int(a * 1e6), end_us=int(b * 1e6)) for kind, a, b in spans]
    end = max(b for _, _, b in spans)
    return Timeline(start_us=0, end_us=int(end * 1e6), is_open=False, rows=[row])


def test_a_day_of_sleep_leaves_room_for_the_seconds_around_it() -> None:
    timeline = pieces(
        (PieceKind.WORK, 0, 1), (PieceKind.SLEEP, 1, 86_401), (PieceKind.WORK, 86_401, 86_403)
    )  # fmt: skip
    scale = Scale(timeline)
    assert scale.place(1_000_000) > 15
    assert [fold.length_us for fold in scale.folds] == [86_400_000_000]
    assert not Scale(timeline, fold=False).folds
    assert Scale(timeline, fold=False).place(1_000_000) < 0.01


def test_nothing_is_folded_where_the_waits_are_short() -> None:
    assert not Scale(pieces((PieceKind.WORK, 0, 4), (PieceKind.SLEEP, 4, 9), (PieceKind.WORK, 9, 10))).folds


def test_of_several_things_at_once_the_work_counts() -> None:
    found = shares(spent(pieces((PieceKind.SLEEP, 0, 10), (PieceKind.WORK, 2, 4), (PieceKind.SIGNAL, 3, 6))))
    assert [(share.kind, share.length_us, share.percent) for share in found] == [
        (PieceKind.WORK, 2_000_000, 20.0),
        (PieceKind.SIGNAL, 2_000_000, 20.0),
        (PieceKind.SLEEP, 6_000_000, 60.0),
    ]


SPANS = st.lists(
    st.tuples(st.sampled_from(list(PieceKind)), st.floats(0, 1e5), st.floats(0, 1e5)).map(
        lambda span: (span[0], min(span[1:]), max(span[1:]))
    ),
    min_size=1,
    max_size=12,
)


@given(SPANS, st.booleans())
def test_a_later_moment_is_never_drawn_before_an_earlier_one(
    spans: Sequence[tuple[PieceKind, float, float]], fold: bool
) -> None:
    timeline = pieces(*spans)
    scale = Scale(timeline, fold=fold)
    moments = sorted({int(moment * 1e6) for _, a, b in spans for moment in (a, b)})
    places = [scale.place(moment) for moment in moments]
    assert places == sorted(places)
    assert all(0 <= place <= 100 for place in places)
    ticks = [tick.at for tick in scale.ticks()]
    assert ticks == sorted(ticks)


@given(SPANS)
def test_what_time_was_spent_on_adds_up_to_the_whole(spans: Sequence[tuple[PieceKind, float, float]]) -> None:
    timeline = pieces(*spans)
    stretches = spent(timeline)
    assert sum(stretch.length_us for stretch in stretches) == timeline.end_us - timeline.start_us
    assert all(one.end_us == two.start_us and one.kind is not two.kind for one, two in pairwise(stretches))


@given(SPANS)
def test_a_longer_wait_is_never_drawn_shorter(spans: Sequence[tuple[PieceKind, float, float]]) -> None:
    timeline = pieces(*spans)
    scale = Scale(timeline)
    waits = [s for s in spent(timeline) if s.kind is not PieceKind.WORK]
    cuts = set(scale.moments)
    whole = [s for s in waits if not any(s.start_us < cut < s.end_us for cut in cuts)]
    drawn_lengths = sorted((s.length_us, scale.place(s.end_us) - scale.place(s.start_us)) for s in whole)
    for (_, shorter), (_, longer) in pairwise(drawn_lengths):
        assert longer >= shorter - 0.01
