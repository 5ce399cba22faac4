"""`quick` writes the commonest events as text, `reading` takes them in: held against appending them, legal or not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from holdfast.core.clock import to_datetime
from holdfast.core.errors import JournalRefusedError
from holdfast.core.journal import Journal, Segment, decode_segment, encode_segment, quick
from holdfast.core.journal.book import Waiting
from holdfast.core.journal.checks import admit
from holdfast.core.journal.events import (
    NULL,
    AwaitKind,
    CancelRequested,
    Err,
    Event,
    ExecutionAwaiting,
    ExecutionCompleted,
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
    Ok,
    SignalWait,
    TimerFired,
    TimerScheduled,
)
from holdfast.core.journal.reading import read_events, read_step
from holdfast.core.journal.stamp import Stamp, stamp_at

ROOT = "ab" * 32
NAME = 'wörk "of" \\ art\n'
SETTINGS = Raw(b'{"max_attempts":3,"queue":null,"effects":"at_least_once"}')
CALLEE = quick.CallText("Function", NAME, SETTINGS)
MARK = "0123456789abcdef"

Way = Callable[[], object]

texts = st.sampled_from(['{"order":1}', '{"name":"wörk"}', "{}", '{"text":"a\\"b"}'])
values = st.sampled_from([b"1", b"null", '"ö"'.encode(), b'{"a":[1,2]}'])
children = st.sampled_from([f".{number}" for number in range(4)] + [".01", f"{ROOT}.0"])
kinds: st.SearchStrategy[AwaitKind] = st.sampled_from(["Single", "Single", "Any", "All", "Signal"])
durations = st.sampled_from([0.0, 0.000001, 1.0, 90.25, 86_400.0 * 365 * 200])
operations = st.one_of(
    st.tuples(st.just("begin")),
    st.tuples(st.just("schedule"), texts),
    st.tuples(st.just("schedule"), texts),
    st.tuples(st.just("start"), children, st.integers(0, 3)),
    st.tuples(st.just("complete"), children, st.integers(0, 3), values),
    st.tuples(st.just("fail"), children, st.integers(0, 3)),
    st.tuples(st.just("wait"), st.lists(children, max_size=2).map(tuple), kinds),
    st.tuples(st.just("wait for set"), children, st.lists(children, max_size=2).map(tuple), kinds),
    st.tuples(st.just("join set")),
    st.tuples(st.just("submit"), children, children),
    st.tuples(st.just("take"), children, children, values),
    st.tuples(st.just("ran"), children, values),
    st.tuples(st.just("sleep"), children, durations),
    st.tuples(st.just("fire"), children),
    st.tuples(st.just("resume")),
    st.tuples(st.just("cancel")),
    st.tuples(st.just("finish")),
)
call = st.builds(
    lambda number, text, value: [
        ("schedule", text),
        ("wait", (f".{number}",), "Single"),
        ("start", f".{number}", 1),
        ("complete", f".{number}", 1, value),
        ("resume",),
    ],
    st.integers(0, 1),
    texts,
    values,
)
sleep = st.builds(
    lambda number, seconds, length: [
        ("sleep", f".{number}", seconds),
        ("wait", (f".{number}",), "Single"),
        ("fire", f".{number}"),
        ("resume",),
    ][:length],
    st.integers(0, 2),
    durations,
    st.integers(1, 4),
)
# A member is waited for as a member or by itself, and may be a call that went on from another one.
member = st.builds(
    lambda number, alone, at_once, value, length: [
        ("join set",),
        ("schedule", "{}"),
        ("submit", f".{number}", f".{number + 1}"),
        ("wait", (f".{number + 1}",), "Single") if alone else ("wait for set", f".{number}", (), "Any"),
        *(
            [("ran", f".{number + 1}", value)]
            if at_once
            else [("start", f".{number + 1}", 1), ("complete", f".{number + 1}", 1, value), ("resume",)]
        ),
        ("wait for set", f".{number}", (), "Any"),
        ("resume",),
        ("take", f".{number}", f".{number + 1}", value),
    ][:length],
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
    values,
    st.integers(3, 10),
)
call_at_once = st.builds(lambda begun, value: [*begun[:2], ("ran", begun[1][1][0], value)], call, values)
call_cut_short = st.builds(lambda begun, length: begun[:length], call, st.integers(1, 4))
# What comes next to a call that is under way.
near = st.one_of(
    st.just([("schedule", "{}")]),
    st.just([("resume",)]),
    st.builds(lambda number, attempt: [("start", f".{number}", attempt)], st.integers(0, 1), st.integers(0, 2)),
    st.builds(lambda number, kind: [("wait", (f".{number}",), kind)], st.integers(0, 1), kinds),
)
histories = st.lists(
    st.one_of(call, call_cut_short, near, call_at_once, sleep, member, operations.map(lambda operation: [operation])),
    max_size=12,
)


def both_ways(operation: tuple[object, ...], quickly: Journal, slowly: Journal, stamp: Stamp) -> tuple[Way, Way]:
    """How the operation is done by `quick`, and by appending its event."""
    when = {"sequence": slowly.length, "timestamp": stamp.moment}
    match operation:
        case ("schedule", str(text)):
            event: Event = InvokeScheduled(
                promise_id=slowly.next_promise_id,
                kind="Function",
                function_name=NAME,
                input=Raw(text.encode()),
                fingerprint=MARK,
                retry_policy=SETTINGS,
                **when,  # type: ignore[arg-type]
            )
            return lambda: quick.schedule(quickly, stamp, CALLEE, text, MARK), lambda: slowly.append(event)
        case ("start", str(promise_id), int(attempt)):
            event = InvokeStarted(promise_id=promise_id, attempt=attempt, **when)  # type: ignore[arg-type]
            return lambda: quick.start(quickly, stamp, promise_id, attempt), lambda: slowly.append(event)
        case ("complete", str(promise_id), int(attempt), bytes(value)):
            result = Ok(Raw(value))
            event = InvokeCompleted(promise_id=promise_id, result=result, attempt=attempt, **when)  # type: ignore[arg-type]
            return lambda: quick.complete(quickly, stamp, promise_id, attempt, value), lambda: slowly.append(event)
        case ("wait", tuple(ids), kind):
            event = ExecutionAwaiting(waiting_on=ids, kind=kind, **when)  # type: ignore[arg-type]
            return lambda: quick.wait(quickly, stamp, Waiting(kind, ids)), lambda: slowly.append(event)  # type: ignore[arg-type]
        case ("wait for set", str(join_set_id), tuple(ids), kind):
            event = ExecutionAwaiting(waiting_on=ids, kind=kind, join_set_id=join_set_id, **when)  # type: ignore[arg-type]
            waiting = Waiting(kind, ids, (), join_set_id)  # type: ignore[arg-type]
            return lambda: quick.wait(quickly, stamp, waiting), lambda: slowly.append(event)
        case ("join set",):
            event = JoinSetCreated(join_set_id=slowly.next_promise_id, **when)  # type: ignore[arg-type]
        case ("submit", str(join_set_id), str(promise_id)):
            event = JoinSetSubmitted(join_set_id=join_set_id, promise_id=promise_id, **when)  # type: ignore[arg-type]
        case ("take", str(join_set_id), str(promise_id), bytes(value)):
            result = Ok(Raw(value))
            event = JoinSetAwaited(join_set_id=join_set_id, promise_id=promise_id, result=result, **when)  # type: ignore[arg-type]
        case ("ran", str(promise_id), bytes(value)):
            begun, result = stamp_at(stamp.us + 1), Ok(Raw(value))

            def ran() -> None:
                slowly.append(InvokeStarted(slowly.length, begun.moment, promise_id, 1))
                slowly.append(InvokeCompleted(slowly.length, stamp.moment, promise_id, result, 1))
                slowly.append(ExecutionResumed(slowly.length, stamp.moment))

            return lambda: quick.ran(quickly, begun, stamp, promise_id, value), ran
        case ("sleep", str(promise_id), float(seconds)):
            duration, fire_at = timedelta(seconds=seconds), stamp_at(stamp.us + round(seconds * 1_000_000))
            event = TimerScheduled(
                promise_id=promise_id,
                duration=duration,
                fire_at=fire_at.moment,
                fingerprint=MARK,
                **when,  # type: ignore[arg-type]
            )
            return (
                lambda: quick.sleep(quickly, stamp, promise_id, duration, fire_at, MARK),
                lambda: slowly.append(event),
            )
        case ("fire", str(promise_id)):
            event = TimerFired(promise_id=promise_id, **when)  # type: ignore[arg-type]
            return lambda: quick.fire(quickly, stamp, promise_id), lambda: slowly.append(event)
        case ("resume",):
            event = ExecutionResumed(**when)  # type: ignore[arg-type]
            return lambda: quick.resume(quickly, stamp), lambda: slowly.append(event)
        case ("fail", str(promise_id), int(attempt)):
            failed = Err(Failure("user", "Bad", "no"))
            event = InvokeCompleted(promise_id=promise_id, result=failed, attempt=attempt, **when)  # type: ignore[arg-type]
        case ("cancel",):
            event = CancelRequested(reason="enough", **when)  # type: ignore[arg-type]
        case ("finish",):
            event = ExecutionCompleted(result=Raw(b"1"), **when)  # type: ignore[arg-type]
            return lambda: quick.finish(quickly, stamp, "1"), lambda: slowly.append(event)
        case _:
            event = ExecutionStarted(component_digest="d", input=Raw(b"1"), idempotency_key=NAME, **when)  # type: ignore[arg-type]
            return lambda: quick.begin(quickly, stamp, "d", "1", None, NAME, 1), lambda: slowly.append(event)
    return lambda: quickly.append(event), lambda: slowly.append(event)


def answer(way: Way) -> tuple[str, str, tuple[str, ...]] | None:
    """The refusal, if it was one."""
    try:
        way()
    except JournalRefusedError as error:
        return error.rule, str(error), error.ids
    return None


def memory(journal: Journal) -> tuple[object, ...]:
    """All that the next check may look at."""
    calls = {key: (call.number, call.attempt, call.running, call.scheduled) for key, call in journal.calls.items()}
    wait = journal.waiting
    waiting = None if wait is None else (wait.kind, wait.waiting_on, wait.signals, wait.join_set_id)
    join_sets = {key: (one.submitted, one.awaited, one.ready) for key, one in journal.join_sets.items()}
    plain = (journal.length, journal.status, journal.is_open, journal.cancel_requested, journal.next_child)
    flags, words = bytes(journal.flags), journal.words.tolist()
    return (*plain, calls, waiting, journal.outstanding, flags, words, join_sets, dict(journal.members))


@settings(max_examples=300)
@given(histories, st.booleans(), st.integers(0, 4_000_000_000_000_000))
def test_writing_events_as_text_is_appending_them(
    history: list[list[tuple[object, ...]]], begun: bool, start_us: int
) -> None:
    quickly, slowly = Journal(ROOT), Journal(ROOT)
    appended: list[Event] = []
    done = [operation for part in history for operation in part]
    for place, operation in enumerate([("begin",), *done] if begun else done):
        stamp = stamp_at(start_us + place * 250_000)
        quick_way, slow_way = both_ways(operation, quickly, slowly, stamp)
        assert answer(quick_way) == answer(slow_way)
        assert memory(quickly) == memory(slowly)
    appended = [event for event in slowly.pending if not isinstance(event, str)]
    text = quickly.take_segment()
    assert text == encode_segment(Segment(events=appended)).decode() == slowly.take_segment()
    assert decode_segment(text).events == appended
    assert memory(Journal.load(ROOT, [decode_segment(text)])) == memory(quickly)
    assert quickly.pending_first == quickly.length


@given(
    st.sampled_from([None, f"{ROOT}.3"]),
    st.sampled_from([None, "", NAME]),
    st.integers(1, 300),
    st.booleans(),
    st.sampled_from([None, '{"city":"Bern"}']),
)
def test_what_says_nothing_is_left_out_as_text_too(
    parent: str | None, key: str | None, version: int, has_policy: bool, attributes: str | None
) -> None:
    quickly, slowly, stamp = Journal(ROOT), Journal(ROOT), stamp_at(1_800_000_000_000_001)
    policy = SETTINGS if has_policy else NULL
    given = NULL if attributes is None else Raw(attributes.encode())
    quick.begin(quickly, stamp, "d", "1", parent, key, version, attributes)
    quick.schedule(quickly, stamp, quick.CallText("Http", NAME, policy), "{}", MARK)
    slowly.append(ExecutionStarted(0, stamp.moment, "d", Raw(b"1"), parent, key, version, (), given))
    slowly.append(InvokeScheduled(1, stamp.moment, ".0", "Http", NAME, Raw(b"{}"), MARK, policy))
    assert quickly.take_segment() == slowly.take_segment()


@settings(max_examples=300)
@given(
    st.one_of(st.just([]), histories, call.map(lambda begun: [begun[:2]])),
    st.integers(0, 10_000),
    st.booleans(),
    children,
    values,
    texts,
    st.lists(children, min_size=1, max_size=1).map(tuple),
    kinds,
)
def test_a_step_is_its_five_events_in_a_segment_of_their_own_or_nothing(
    history: list[list[tuple[object, ...]]],
    events_before: int,
    is_taken: bool,
    promise_id: str,
    value: bytes,
    text: str,
    waited: tuple[str, ...],
    kind: AwaitKind,
) -> None:
    journal, slowly = blocked_journal(events_before), blocked_journal(events_before)
    for operation in [operation for part in history for operation in part]:
        for one in (journal, slowly):
            answer(both_ways(operation, Journal(ROOT), one, stamp_at(1_800_000_000_000_000))[1])
    if is_taken:
        assert journal.take_segment() == slowly.take_segment()
    before = memory(journal)
    begun, stamp, waiting = stamp_at(1_800_000_000_000_000), stamp_at(1_800_000_000_250_000), Waiting(kind, waited)
    segment = quick.step(journal, begun, stamp, promise_id, value, CALLEE, text, MARK, waiting)
    if segment is None:
        assert memory(journal) == before
        return
    if not slowly.calls[promise_id].attempt:
        quick.start(slowly, begun, promise_id, 1)
    quick.complete(slowly, stamp, promise_id, 1, value)
    quick.resume(slowly, stamp)
    quick.schedule(slowly, stamp, CALLEE, text, MARK)
    quick.wait(slowly, stamp, waiting)
    assert segment == slowly.take_segment()
    assert journal.pending_first == journal.length
    assert memory(journal) == memory(slowly)
    assert journal.pending == []


@pytest.mark.parametrize("calls", [1, 2, 818, 819, 820, 900])
def test_a_call_behind_a_call_is_one_step_however_long_the_journal_is(calls: int) -> None:
    journal, slowly, stamp = blocked_journal(), blocked_journal(), stamp_at(1_800_000_000_000_001)
    for number in range(calls):
        waiting = Waiting("Single", (f".{number + 1}",))
        segment = quick.step(journal, stamp, stamp, f".{number}", b"7", CALLEE, "{}", MARK, waiting)
        quick.ran(slowly, stamp, stamp, f".{number}", b"7")
        quick.schedule(slowly, stamp, CALLEE, "{}", MARK)
        quick.wait(slowly, stamp, waiting)
        assert segment == slowly.take_segment()
    assert memory(journal) == memory(slowly)


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("is_patched", [True, False])
def test_a_step_takes_along_what_is_pending(is_committed: bool, is_patched: bool) -> None:
    """Such as the begin of an attempt that had to wait for something, which a heartbeat may have committed."""
    journal, slowly, stamp = blocked_journal(), blocked_journal(), stamp_at(1_800_000_000_000_001)
    for one in (journal, slowly):
        quick.start(one, stamp, ".0", 1)
        if is_committed:
            one.take_segment()
        if is_patched:
            one.record_patch("new", True)
    waiting = Waiting("Single", (".1",))
    segment = quick.step(journal, stamp, stamp, ".0", b"1", CALLEE, "{}", MARK, waiting)
    quick.complete(slowly, stamp, ".0", 1, b"1")
    quick.resume(slowly, stamp)
    quick.schedule(slowly, stamp, CALLEE, "{}", MARK)
    quick.wait(slowly, stamp, waiting)
    assert segment == slowly.take_segment()
    assert memory(journal) == memory(slowly)
    assert journal.pending_patches == {}
    assert journal.pending_first == journal.length


@pytest.mark.parametrize(
    "missing", ["status", "attempt", "cancel", "other call", "number", "kind", "signals", "join set", "member"]
)
def test_a_step_is_refused_where_a_check_would_have_to_look(missing: str) -> None:
    journal, stamp = Journal(ROOT), stamp_at(1_800_000_000_000_001)
    quick.begin(journal, stamp, "d", "1", None, None, 1)
    quick.schedule(journal, stamp, CALLEE, "{}", MARK)
    if missing == "other call":
        quick.schedule(journal, stamp, CALLEE, "{}", MARK)
        quick.wait(journal, stamp, Waiting("All", (".0", ".1")))
    elif missing == "member":
        for event in (
            JoinSetCreated(journal.length, stamp.moment, ".1"),
            JoinSetSubmitted(journal.length + 1, stamp.moment, ".1", ".0"),
        ):
            journal.append(event)
        quick.wait(journal, stamp, Waiting("Single", (".0",)))
    elif missing != "status":
        quick.wait(journal, stamp, Waiting("Single", (".0",)))
    journal.take_segment()
    if missing == "attempt":
        quick.start(journal, stamp, ".0", 1)
        retry = {"failed_attempt": 1, "error": Failure("user", "Bad", "no"), "retry_at": stamp.moment}
        journal.append(InvokeRetrying(sequence=journal.length, timestamp=stamp.moment, promise_id=".0", **retry))  # type: ignore[arg-type]
        quick.start(journal, stamp, ".0", 2)
    elif missing == "cancel":
        journal.append(CancelRequested(sequence=journal.length, timestamp=stamp.moment, reason="enough"))
    waiting = {
        "number": Waiting("Single", (".7",)),
        "kind": Waiting("All", (".1",)),
        "signals": Waiting("Single", (".1",), (SignalWait(".1", "go"),)),
        "join set": Waiting("Single", (".1",), (), ".0"),
    }.get(missing, Waiting("Single", (f".{journal.next_child}",)))
    before = memory(journal)
    assert quick.step(journal, stamp, stamp, ".0", b"1", CALLEE, "{}", MARK, waiting) is None
    assert memory(journal) == before


def blocked_journal(events: int = 0) -> Journal:
    """A journal that waits for its first call, as if it had so many events more; nothing of it is pending."""
    journal, stamp = Journal(ROOT), stamp_at(1_800_000_000_000_000)
    quick.begin(journal, stamp, "d", "1", None, None, 1)
    quick.schedule(journal, stamp, CALLEE, "{}", MARK)
    quick.wait(journal, stamp, Waiting("Single", (".0",)))
    journal.take_segment()
    journal.length += events
    journal.pending_first = journal.length
    return journal


class Heard(Journal):
    """Remembers what was to be appended, refused or not."""

    __slots__ = ("tried",)

    def __init__(self, execution_id: str) -> None:
        super().__init__(execution_id)
        self.tried: list[Event] = []

    def append(self, event: Event) -> None:
        self.tried.append(event)
        super().append(event)


@settings(max_examples=300)
@given(histories, st.booleans())
def test_reading_events_is_appending_them(history: list[list[tuple[object, ...]]], begun: bool) -> None:
    read, appended = Journal(ROOT), Heard(ROOT)
    done = [operation for part in history for operation in part]
    for place, operation in enumerate([("begin",), *done] if begun else done):
        _, slow_way = both_ways(operation, Journal(ROOT), appended, stamp_at(1_800_000_000_000_000 + place))
        refused, tried = answer(slow_way), appended.tried
        appended.tried = []
        assert [answer(partial(read_events, read, [event])) for event in tried][-1] == refused
        assert memory(read) == memory(appended)
    for event in read_back(appended):
        naive = msgspec.structs.replace(event, sequence=read.length, timestamp=datetime(2026, 1, 1))
        for wrong in (event, naive):  # out of its place, and of a time without a zone
            assert answer(partial(read_events, read, [wrong])) == answer(partial(admit, appended, wrong))
            assert memory(read) == memory(appended)


calls_in_a_row = st.lists(st.tuples(texts, values), min_size=2, max_size=5).map(
    lambda made: [
        [
            ("schedule", text),
            ("wait", (f".{number}",), "Single"),
            ("start", f".{number}", 1),
            ("complete", f".{number}", 1, value),
            ("resume",),
        ]
        for number, (text, value) in enumerate(made)
    ]
)
changes = st.sampled_from(
    [
        {},
        {"sequence": 3},
        {"timestamp": datetime(2026, 1, 1)},
        {"promise_id": ".1"},
        {"promise_id": f"{ROOT}.0"},
        {"attempt": 2},
        {"result": Err(Failure("user", "Bad", "no"))},
        {"waiting_on": (".0", ".1")},
        {"kind": "Any"},
        {"signals": (SignalWait(".9", "go"),)},
        {"join_set_id": ".0"},
    ]
)


@settings(max_examples=300)
@given(st.one_of(calls_in_a_row, histories), st.integers(0, 4), changes)
def test_reading_a_step_is_reading_its_events_or_nothing(
    history: list[list[tuple[object, ...]]], place: int, change: dict[str, object]
) -> None:
    journal, stamp = Journal(ROOT), stamp_at(1_800_000_000_000_000)
    for operation in [("begin",), *(operation for part in history for operation in part)]:
        answer(both_ways(operation, Journal(ROOT), journal, stamp)[1])
    events = read_back(journal)
    for first in range(len(events)):
        window = events[first : first + 5]
        if place < len(window):
            wanted = {name: value for name, value in change.items() if name in window[place].__struct_fields__}
            window[place] = msgspec.structs.replace(window[place], **wanted)
        whole, one_by_one = Journal(ROOT), Journal(ROOT)
        read_events(whole, events[:first])
        read_events(one_by_one, events[:first])
        if read_step(whole, window):
            assert answer(partial(read_events, one_by_one, window)) is None
        assert memory(whole) == memory(one_by_one)


def test_a_call_behind_a_call_is_read_as_one_step() -> None:
    journal, stamp = Journal(ROOT), stamp_at(1_800_000_000_000_001)
    quick.begin(journal, stamp, "d", "1", None, None, 1)
    segments = []
    for number in range(3):
        promise_id = quick.schedule(journal, stamp, CALLEE, "{}", MARK)
        quick.wait(journal, stamp, Waiting("Single", (promise_id,)))
        segments.append(decode_segment(journal.take_segment()))
        quick.ran(journal, stamp, stamp, promise_id, f"{number}".encode())
    read = Journal.load(ROOT, segments[:1])
    assert read.read_step(segments[1])
    assert read.read_step(segments[2])
    assert read.pending_first == read.length
    assert not Journal(ROOT).read_step(segments[1])
    assert memory(read) == memory(Journal.load(ROOT, segments))
    patched = msgspec.structs.replace(segments[1], patches={"new": True})
    assert not Journal.load(ROOT, segments[:1]).read_step(patched)


def read_back(journal: Journal) -> list[Event]:
    return decode_segment(journal.take_segment()).events


def test_a_call_in_place_is_written_without_making_one_event() -> None:
    journal, stamp = Journal(ROOT), stamp_at(1_800_000_000_000_001)
    journal.append(
        ExecutionStarted(sequence=0, timestamp=stamp.moment, component_digest="d", input=Raw(b"1"), parent_id=None)
    )
    promise_id = quick.schedule(journal, stamp, CALLEE, "{}", MARK)
    quick.wait(journal, stamp, Waiting("Single", (promise_id,)))
    quick.start(journal, stamp, promise_id, 1)
    quick.complete(journal, stamp, promise_id, 1, b"2")
    quick.resume(journal, stamp)
    promise_id = quick.schedule(journal, stamp, CALLEE, "{}", MARK)
    quick.wait(journal, stamp, Waiting("Single", (promise_id,)))
    quick.ran(journal, stamp, stamp, promise_id, b"2")
    assert [type(event) for event in journal.pending] == [ExecutionStarted, *[str] * 8]


@given(st.datetimes(datetime(1970, 1, 2), datetime(9999, 1, 1), timezones=st.just(UTC)))
def test_a_stamp_writes_the_time_as_events_do(moment: datetime) -> None:
    us = round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 1_000_000 + moment.microsecond
    stamp = stamp_at(us)
    assert stamp.moment == to_datetime(us)
    assert f'"{stamp.text}"'.encode() == msgspec.json.encode(stamp.moment)
