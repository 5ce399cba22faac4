"""State by fold, waits, and what a journal tells its holder."""

from __future__ import annotations

import pytest

from holdfast.core.errors import JournalRefusedError
from holdfast.core.journal import (
    Journal,
    JournalState,
    JournalStatus,
    Operation,
    Segment,
    encode_segment,
    fold,
    operations_of,
    validate,
)
from holdfast.core.journal import events as e
from holdfast.core.journal.events import AwaitKind, Event
from holdfast.core.journal.fold import STATUS_AFTER
from holdfast.core.journal.local_ids import local_number, whole, whole_id
from tests.core.journal.examples import EXAMPLES
from tests.core.journal.script import ROOT, Script, ok

Example = list[tuple[Event, JournalStatus]]
examples = pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)


@examples
def test_the_seeds_example_validates_and_each_event_leaves_the_stated_state(example: Example) -> None:
    journal = Journal(ROOT)
    events = [event for event, _ in example]
    for event, status in example:
        journal.append(event)
        assert journal.status is status
    assert validate(ROOT, events) == []


@examples
def test_the_fold_of_every_prefix_is_the_journals_own_state(example: Example) -> None:
    journal = Journal(ROOT)
    events = [event for event, _ in example]
    for length, (event, _) in enumerate(example, 1):
        journal.append(event)
        assert journal.state == fold(events[:length])


def test_the_full_example_has_the_seeds_25_events_and_waits() -> None:
    events = [event for event, _ in EXAMPLES["full"]]
    assert len(events) == 25
    assert fold(events[:13]) == JournalState(JournalStatus.BLOCKED, (".3", ".4"), "Any")
    assert fold(events) == JournalState(JournalStatus.COMPLETED)


def test_nothing_recorded_is_no_state() -> None:
    """S-2: a state needs an ExecutionStarted."""
    assert fold([]) is None
    assert Journal(ROOT).state is None


def test_exactly_seven_events_change_the_status() -> None:
    assert {kind.__name__: status.value for kind, status in STATUS_AFTER.items()} == {
        "ExecutionStarted": "Running",
        "CancelRequested": "Cancelling",
        "ExecutionAwaiting": "Blocked",
        "ExecutionResumed": "Running",
        "ExecutionCompleted": "Completed",
        "ExecutionFailed": "Failed",
        "ExecutionCancelled": "Cancelled",
    }


@pytest.mark.parametrize(
    ("kind", "settled", "satisfied"),
    [
        ("All", [], False),
        ("All", [0, 1], False),
        ("All", [0, 1, 2], True),
        ("Any", [], False),
        ("Any", [2], True),
        ("Any", [0, 1, 2], True),
    ],
)
def test_a_wait_on_several_is_satisfied_by_its_kind(kind: AwaitKind, settled: list[int], satisfied: bool) -> None:
    script = Script().start().timer(0).schedule(1).begin(1)
    script.wait(0, 1, 2, kind=kind, signals={2: "go"}).deliver("go", 1)
    settle = {0: lambda: script.fire(0), 1: lambda: script.complete(1), 2: lambda: script.receive(2, "go", 1)}
    for number in settled:
        settle[number]()
    journal = journal_of(script)
    assert journal.is_wait_satisfied is satisfied
    assert [journal.is_settled(f".{n}") for n in range(3)] == [n in settled for n in range(3)]


def test_what_was_settled_before_the_wait_counts() -> None:
    script = Script().start().call(0).timer(1)
    assert journal_of(script).is_wait_satisfied is False
    assert journal_of(Script().start().call(0).wait(0)).is_wait_satisfied is True
    assert journal_of(Script().start().call(0).timer(1).wait(0, 1, kind="Any")).is_wait_satisfied is True
    assert journal_of(Script().start().call(0).timer(1).wait(0, 1, kind="All")).is_wait_satisfied is False


def test_a_wait_for_a_join_set_is_satisfied_by_any_result_that_is_left_to_take() -> None:
    """However many members it has, and whether it ended before it was submitted, before the wait or while it lasts."""
    script = Script().start().join_set(0).call(1).schedule(2).schedule(3).submit(0, 1).submit(0, 2).submit(0, 3)
    assert fold(script.wait_set(0).events) == JournalState(JournalStatus.BLOCKED, (), "Any", ".0")
    assert journal_of(script).is_wait_satisfied is True
    script.resume().take(0, 1).wait_set(0)
    assert journal_of(script).is_wait_satisfied is False
    script.begin(2)
    assert journal_of(script).is_wait_satisfied is False
    script.complete(2)
    assert journal_of(script).is_wait_satisfied is True
    script.begin(3).complete(3).resume().take(0, 3)
    assert journal_of(script.wait_set(0)).is_wait_satisfied is True
    journal = journal_of(script.resume().take(0, 2))
    assert (journal.join_sets, journal.members, journal.outstanding) == ({}, {}, set())


def test_a_wait_for_a_join_set_may_be_over_by_what_is_named_beside_it() -> None:
    """B8: the timer of a deadline."""
    script = Script().start().join_set(0).schedule(1).submit(0, 1).timer(2).wait_set(0, 2)
    assert journal_of(script).is_wait_satisfied is False
    assert journal_of(script.fire(2)).is_wait_satisfied is True


def test_a_wait_that_names_no_join_set_is_written_without_the_field() -> None:
    """B14: as in every journal that was stored before there was one."""
    script = Script().start().join_set(0).schedule(1).submit(0, 1).wait(1, kind="Any").begin(1).complete(1).resume()
    text = encode_segment(Segment(events=script.events[4:5])).decode()
    assert "join_set_id" not in text
    named = encode_segment(Segment(events=script.wait_set(0).events[-1:])).decode()
    assert '"waiting_on":[],"kind":"Any","join_set_id":".0"' in named


def test_a_signal_wait_needs_the_signal_received_and_not_only_delivered() -> None:
    script = Script().start().wait_signal(0, "go").deliver("go", 1)
    assert journal_of(script).is_wait_satisfied is False
    assert journal_of(script.receive(0, "go", 1)).is_wait_satisfied is True


def test_a_late_outcome_while_cancelling_is_kept_and_does_not_resume() -> None:
    """B2: outcomes are recorded in any state that is not terminal; clean-up may run operations."""
    script = Script().start().schedule(0).begin(0).wait(0).cancel().complete(0).deliver("go", 1)
    journal = journal_of(script.receive(1, "go", 1).call(2).join_set(3).submit(3, 2).take(3, 2))
    assert journal.state == JournalState(JournalStatus.CANCELLING)
    assert journal.is_settled(".0")
    assert journal_of(script.cancelled()).state == JournalState(JournalStatus.CANCELLED)


def test_a_signal_awaited_again_after_its_deadline_gets_the_late_delivery() -> None:
    """B7, B10: the new wait has a promise of its own and no phantom value."""
    script = Script().start().timer(0).wait(1, 0, kind="Any", signals={1: "go"}).fire(0).resume()
    journal = journal_of(script.wait_signal(2, "go").deliver("go", 1).receive(2, "go", 1).resume())
    assert journal.status is JournalStatus.RUNNING
    assert (journal.is_settled(".1"), journal.is_settled(".2")) == (False, True)


def test_an_open_signal_promise_can_be_awaited_again() -> None:
    script = Script().start().timer(0).wait(1, 0, kind="Any", signals={1: "go"}).fire(0).resume()
    journal = journal_of(script.wait_signal(1, "go").deliver("go", 1).receive(1, "go", 1).resume())
    assert journal.is_settled(".1")
    assert journal.next_promise_id == ".2"


def test_a_call_may_join_a_set_after_it_completed() -> None:
    """JS-4 asks only that completion comes before the result is taken."""
    journal_of(Script().start().call(0, ok('"a"')).join_set(1).submit(1, 0).take(1, 0, ok('"a"')))


def test_a_journal_knows_the_oldest_buffered_delivery() -> None:
    """B3, B7: the lease holder assigns delivery ids and consumes them in order."""
    script = Script().start().deliver("go", 1).deliver("go", 2).deliver("on", 1).receive(0, "go", 1)
    journal = journal_of(script)
    assert (journal.last_delivery_id("go"), journal.oldest_delivery_id("go")) == (2, 2)
    assert (journal.last_delivery_id("never"), journal.oldest_delivery_id("never")) == (0, None)
    assert journal_of(script.receive(1, "go", 2)).oldest_delivery_id("go") is None


def test_a_nested_journal_numbers_its_own_children() -> None:
    """B1: an invoked function's journal has its promise id, and its children follow that."""
    events = Script().start().random(0).time(1).finish().events
    assert validate("root.3", events) == []
    shown = [whole("root.3", event) for event in events]
    assert [getattr(event, "promise_id", None) for event in shown] == [None, "root.3.0", "root.3.1", None]
    assert {violation.rule.name for violation in validate("root.3", shown)} == {"child_number"}


def test_every_id_of_an_event_is_whole_outside_its_journal() -> None:
    script = Script().start().timer(0).wait(1, 0, kind="Any", signals={1: "go"}).fire(0).resume()
    script.join_set(2).call(3).submit(2, 3).wait_set(2, 3).resume().take(2, 3).finish()
    shown = [whole(ROOT, event) for event in script.events]
    text = encode_segment(Segment(events=shown)).decode()
    assert '".' not in text
    assert text.replace('"root.', '".') == encode_segment(Segment(events=script.events)).decode()


@pytest.mark.parametrize(
    ("local", "number"),
    [(".0", 0), (".10", 10), (".4294967295", 4294967295)]
    + [
        (wrong, -1)
        for wrong in ("", ".", "0", ".00", ".07", ".-1", ".+1", ". 1", ".1.2", ".٠", "root.0", ".12345678901")
    ],
)
def test_a_local_id_is_a_dot_and_a_number(local: str, number: int) -> None:
    assert local_number(local) == number
    assert whole_id(ROOT, local) == (local if number < 0 else f"{ROOT}{local}")


def test_finished_operations_leave_nothing_open_behind() -> None:
    """Memory follows what is open: a byte and a word are all that a finished child keeps."""
    script = Script().start()
    for number in range(0, 400, 4):
        script.join_set(number).call(number + 1).submit(number, number + 1).take(number, number + 1)
        script.wait_signal(number + 2, "go").deliver("go", number + 1).receive(number + 2, "go", number + 1)
        script.resume().timer(number + 3).fire(number + 3)
    journal = journal_of(script)
    open_things = (journal.calls, journal.members, journal.join_sets, journal.signal_names, journal.outstanding)
    assert [len(things) for things in open_things] == [0, 0, 0, 0, 0]
    assert len(journal.inboxes["go"].unconsumed) == 0
    assert (len(journal.flags), len(journal.words)) == (400, 400)


def test_the_operations_of_an_event_say_what_was_asked_for() -> None:
    """B5: every event that takes a child number has kind, name and fingerprint."""
    script = Script().start().schedule(0).timer(1).random(2).time(3).join_set(4)
    script.wait(5, 1, kind="Any", signals={5: "go"}).fire(1).deliver("go", 1).receive(6, "go", 1)
    found = [operation for event in script.events for operation in operations_of(event)]
    assert found == [
        Operation(".0", "Function", "task", "f1"),
        Operation(".1", "Timer", "", "PT1H"),
        Operation(".2", "Random", "", "u64"),
        Operation(".3", "Time", "", ""),
        Operation(".4", "JoinSet", "", ""),
        Operation(".5", "Signal", "go", ""),
        Operation(".6", "Signal", "go", ""),
    ]


def test_only_lifecycle_ends_are_terminal() -> None:
    assert [status for status in JournalStatus if status.is_terminal] == [
        STATUS_AFTER[e.ExecutionCompleted],
        STATUS_AFTER[e.ExecutionFailed],
        STATUS_AFTER[e.ExecutionCancelled],
    ]


def journal_of(script: Script) -> Journal:
    journal = Journal(ROOT)
    for event in script.events:
        journal.append(event)
    return journal


@pytest.mark.parametrize("name", ["go", ".7", "0"])
def test_a_name_in_a_refusal_is_told_as_it_is(name: str) -> None:
    """A signal may be called like a child; only ids are made whole."""
    twice = Script().start().deliver(name, 1).deliver(name, 1).events
    assert [violation.ids for violation in validate(ROOT, twice)] == [(name,)]
    never = Script().start().deliver(name, 1).receive(0, name, 5).events
    assert [violation.ids for violation in validate(ROOT, never)] == [(f"{ROOT}.0", name)]
    journal = Journal(ROOT)
    for event in twice[:2]:
        journal.append(event)
    with pytest.raises(JournalRefusedError) as refused:
        journal.append(twice[2])
    assert refused.value.ids == (name,)
