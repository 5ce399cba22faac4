"""Every rule: a history that keeps it, and one whose last event breaks it and nothing else before.

Both forms are tested on the same histories: the append refuses and changes nothing, the validation reports.
"""

from __future__ import annotations

import pickle
from array import array
from collections import deque
from collections.abc import Iterable
from datetime import datetime

import pytest
from msgspec import Raw

from holdfast.core.errors import InvalidArgumentError, JournalDamagedError, JournalRefusedError
from holdfast.core.journal import RULES, Journal, Rule, Segment, rules, validate, validate_segments
from holdfast.core.journal import events as e
from holdfast.core.journal.book import Call, Inbox, JoinSet
from holdfast.core.journal.checks import CHECKS
from holdfast.core.journal.events import CATEGORIES, Err, Event
from tests.core.journal.script import BOOM, NOW, ROOT, Script, ok


def started() -> Script:
    return Script().start()


def late(skip: int) -> Script:
    script = started()
    script.skip = skip
    return script


def joined() -> Script:
    """A join set with one completed member."""
    return started().join_set(0).call(1).submit(0, 1)


def members(count: int) -> Script:
    """A join set with calls that have no result yet."""
    script = started().join_set(0)
    for number in range(1, count + 1):
        script.schedule(number).submit(0, number)
    return script


NAIVE = datetime(2026, 1, 1)

KEEPS: dict[Rule, Script] = {
    rules.S_1: started().random(0).random(1),
    rules.S_2: started(),
    rules.S_3: started().finish(),
    rules.S_4: started().random(0).fail(),
    rules.S_5: started().cancel().cancelled(),
    rules.SE_1: started().schedule(0).begin(0),
    rules.SE_2: started().schedule(0).begin(0).complete(0),
    rules.SE_3: started().schedule(0).begin(0).retry(0),
    rules.SE_4: started().schedule(0).begin(0).retry(0).begin(0, 2).complete(0, 2),
    rules.CF_1: started().timer(0).fire(0),
    rules.CF_2: started().deliver("go", 1, '{"a":1}').receive(0, "go", 1, '{"a":1}'),
    rules.CF_3: started().deliver("go", 1).deliver("go", 2).receive(0, "go", 1).receive(1, "go", 2),
    rules.CF_4: started().wait_signal(0, "go").deliver("go", 1).receive(0, "go", 1).resume(),
    rules.JS_1: joined(),
    rules.JS_2: joined().schedule(2).submit(0, 2).take(0, 1),
    rules.JS_3: joined().take(0, 1),
    rules.JS_4: joined().take(0, 1),
    rules.JS_5: joined().call(2).submit(0, 2).take(0, 1).take(0, 2),
    rules.JS_6: joined().take(0, 1),
    rules.JS_7: joined().join_set(2).schedule(3).submit(2, 3),
    rules.START: started(),
    rules.COMPLETE: started().cancel().finish(),
    rules.FAIL: started().cancel().fail(),
    rules.CANCEL: started().timer(0).wait(0).cancel(),
    rules.CANCELLED: started().cancel().cancelled(),
    rules.ALLOCATE: started().cancel().call(0).random(1).time(2).timer(3).join_set(4),
    rules.JOIN_SET: joined().cancel().call(2).submit(0, 2).take(0, 1),
    rules.AWAIT: started().timer(0).wait(0),
    rules.RESUME: started().timer(0).wait(0).fire(0).resume(),
    rules.SATISFIED: members(2)
    .timer(3)
    .wait_set(0, 3)
    .begin(2)
    .complete(2)
    .resume()
    .take(0, 2)
    .wait_set(0, 3)
    .fire(3)
    .resume(),
    rules.SIGNAL_FIFO: started().deliver("go", 1).deliver("on", 1).receive(0, "on", 1).receive(1, "go", 1),
    rules.DELIVERY_ID: started().deliver("go", 1).deliver("on", 1).deliver("go", 5),
    rules.AWAITED_RESULT: joined().call(2, Err(BOOM)).submit(0, 2).take(0, 2, Err(BOOM)),
    rules.ATTEMPT_LAST: started().schedule(0).begin(0).begin(0, 2).retry(0, 2).complete(0, 2),
    rules.ATTEMPT_NEXT: started().schedule(0).begin(0, 1).begin(0, 2).retry(0, 2).begin(0, 3),
    rules.SCHEDULED_ONCE: started().schedule(0).schedule(1),
    rules.COMPLETED_ONCE: started().call(0).call(1),
    rules.FIRED_ONCE: started().timer(0).timer(1).fire(1).fire(0),
    rules.RECEIVED_ONCE: started().wait_signal(0, "go").deliver("go", 1).receive(0, "go", 1),
    rules.CHILD_NUMBER: started().random(0).time(1).timer(2).join_set(3).schedule(4).wait_signal(5, "go"),
    rules.WAIT_UNIQUE: started().timer(0).timer(1).wait(0, 1, kind="All"),
    rules.WAIT_KNOWN: started().call(0).timer(1).wait(0, 1, 2, kind="All", signals={2: "go"}),
    rules.WAIT_SHAPE: members(2).wait_set(0),
    rules.MEMBER: joined(),
    rules.SIGNAL_NAMED: started().timer(0).wait(1, 0, kind="Any", signals={1: "go"}).fire(0).resume(),
    rules.AWARE_TIME: started().time(0).timer(1),
}

BREAKS: dict[Rule, list[Script]] = {
    rules.S_1: [late(1).random(0), late(-1).random(0)],
    rules.S_2: [Script().random(0), Script().finish()],
    rules.S_3: [started().finish().finish(), started().finish().fail(), started().cancel().cancelled().finish()],
    rules.S_4: [started().finish().random(0), started().schedule(0).fail().begin(0), started().finish().cancel()],
    rules.S_5: [started().cancelled()],
    rules.SE_1: [started().begin(0), started().timer(0).begin(0), started().schedule(0).begin(".00")],
    rules.SE_2: [started().schedule(0).complete(0), started().complete(0)],
    rules.SE_3: [
        started().schedule(0).retry(0),
        started().retry(0),
        started().schedule(0).begin(0).retry(0, 2),
        started().schedule(0).begin(0).retry(0, 0),
    ],
    rules.SE_4: [started().call(0).begin(0, 2), started().call(0).retry(0)],
    rules.CF_1: [started().fire(0), started().schedule(0).fire(0), started().timer(0).fire("other.0")],
    rules.CF_2: [
        started().receive(0, "go", 1),
        started().deliver("go", 1).receive(0, "go", 2),
        started().deliver("go", 1, "1").receive(0, "go", 1, "2"),
        started().deliver("go", 1).receive(0, "on", 1),
        started().deliver("go", 3).receive(0, "go", 3).receive(1, "go", 2),
    ],
    rules.CF_3: [
        started().deliver("go", 1).receive(0, "go", 1).receive(1, "go", 1),
        started().deliver("go", 1).deliver("go", 2).receive(0, "go", 1).receive(1, "go", 1),
    ],
    rules.CF_4: [
        started().wait(0, kind="Signal", signals={1: "go"}),
        started().timer(0).wait(0, 1, kind="Signal", signals={1: "go"}),
        started().timer(0).wait(0, kind="Signal"),
        started().wait(0, 1, kind="Signal", signals={0: "go", 1: "on"}),
    ],
    rules.JS_1: [started().schedule(0).submit(1, 0), started().schedule(0).schedule(1).submit(0, 1)],
    rules.JS_2: [
        joined().call(2).submit(0, 2).schedule(3).take(0, 1).submit(0, 3),
        joined().take(0, 1).schedule(2).submit(0, 2),
    ],
    rules.JS_3: [
        joined().call(2).take(0, 2),
        joined().join_set(2).take(2, 1),
        joined().join_set(2).take(0, 1).take(2, 1),
    ],
    rules.JS_4: [started().join_set(0).schedule(1).submit(0, 1).begin(1).take(0, 1)],
    rules.JS_5: [joined().call(2).submit(0, 2).take(0, 1).take(0, 1), joined().take(0, 1).take(0, 1)],
    rules.JS_6: [joined().take(0, 1).take(0, 1), joined().call(2).take(0, 1).take(0, 2)],
    rules.JS_7: [
        joined().join_set(2).submit(2, 1),
        joined().submit(0, 1),
        joined().take(0, 1).join_set(2).submit(2, 1),
    ],
    rules.START: [started().start(), started().cancel().start()],
    rules.COMPLETE: [started().timer(0).wait(0).finish()],
    rules.FAIL: [started().timer(0).wait(0).fail()],
    rules.CANCEL: [started().cancel().cancel()],
    rules.ALLOCATE: [
        started().timer(0).wait(0).schedule(1),
        started().timer(0).wait(0).random(1),
        started().timer(0).wait(0).time(1),
        started().timer(0).wait(0).timer(1),
        started().timer(0).wait(0).join_set(1),
        started().deliver("go", 1).timer(0).wait(0).receive(1, "go", 1),
    ],
    rules.JOIN_SET: [
        joined().timer(2).wait(2).take(0, 1),
        started().join_set(0).schedule(1).wait(1).submit(0, 1),
    ],
    rules.AWAIT: [
        started().timer(0).cancel().wait(0),
        started().timer(0).wait(0).wait(0),
    ],
    rules.RESUME: [
        started().resume(),
        started().timer(0).wait(0).fire(0).cancel().resume(),
        started().timer(0).wait(0).fire(0).resume().resume(),
    ],
    rules.SATISFIED: [
        started().timer(0).wait(0).resume(),
        started().timer(0).timer(1).wait(0, 1, kind="All").fire(1).resume(),
        started().timer(0).timer(1).timer(2).wait(0, 1, kind="Any").fire(2).resume(),
        started().wait_signal(0, "go").deliver("go", 1).resume(),
        members(1).wait_set(0).resume(),
        members(2).schedule(3).begin(3).wait_set(0).complete(3).resume(),
        joined().schedule(2).submit(0, 2).take(0, 1).wait_set(0).resume(),
        members(1).timer(2).wait_set(0, 2).begin(1).retry(1).resume(),
    ],
    rules.SIGNAL_FIFO: [started().deliver("go", 1).deliver("go", 2).receive(0, "go", 2)],
    rules.DELIVERY_ID: [
        started().deliver("go", 1).deliver("go", 1),
        started().deliver("go", 2).deliver("go", 1),
        started().deliver("go", 0),
    ],
    rules.AWAITED_RESULT: [
        joined().take(0, 1, ok("2")),
        joined().take(0, 1, Err(BOOM)),
        started().call(0).join_set(1).submit(1, 0).take(1, 0, ok("2")),
    ],
    rules.ATTEMPT_LAST: [
        started().schedule(0).begin(0).begin(0, 2).complete(0, 1),
        started().schedule(0).begin(0).complete(0, 2),
        started().schedule(0).begin(0).begin(0, 2).retry(0, 1),
        started().schedule(0).begin(0).retry(0).retry(0),
    ],
    rules.ATTEMPT_NEXT: [
        started().schedule(0).begin(0, 2),
        started().schedule(0).begin(0, 0),
        started().schedule(0).begin(0).begin(0),
        started().schedule(0).begin(0).retry(0).begin(0, 3),
    ],
    rules.SCHEDULED_ONCE: [started().schedule(0).schedule(0), started().call(0).schedule(0)],
    rules.COMPLETED_ONCE: [started().call(0).complete(0)],
    rules.FIRED_ONCE: [started().timer(0).fire(0).fire(0)],
    rules.RECEIVED_ONCE: [
        started().deliver("go", 1).deliver("go", 2).receive(0, "go", 1).receive(0, "go", 2),
    ],
    rules.CHILD_NUMBER: [
        started().random(1),
        started().schedule(0).timer(0),
        started().schedule("other.0"),
        started().schedule("root.0"),  # whole, where a journal names its own children locally
        started().schedule(".00"),
        started().timer(".0.0"),
        started().join_set(".٠"),
        started().deliver("go", 1).timer(0).receive(0, "go", 1),
        started().wait_signal(1, "go"),
        started().timer(0).wait_signal(0, "go"),
        started().wait(0, 2, kind="All", signals={0: "go", 2: "on"}),
    ],
    rules.WAIT_UNIQUE: [
        started().timer(0).timer(1).wait(0, 1, 0, kind="All"),
        members(1).timer(2).wait_set(0, 2, 2),
    ],
    rules.WAIT_KNOWN: [
        started().wait(0),
        started().join_set(0).wait(0),
        started().random(0).wait(0),
        started().timer(0).wait(0, 1, kind="Any"),
        started().wait_set(0),
        started().timer(0).wait_set(0),
        members(1).wait_set("other.0"),
        members(1).wait_set(0, 2),
    ],
    rules.WAIT_SHAPE: [
        started().timer(0).timer(1).wait(0, 1, kind="Single"),
        started().wait(kind="Any"),
        started().wait(kind="All"),
        members(2).wait_set(0, kind="All"),
        members(1).wait_set(0, kind="Single"),
        members(1).wait_set(0, 2, signals={2: "go"}),
        started().join_set(0).wait_set(0),
        joined().take(0, 1).wait_set(0),
    ],
    rules.MEMBER: [
        started().join_set(0).timer(1).submit(0, 1),
        started().join_set(0).submit(0, 1),
        started().join_set(0).join_set(1).submit(0, 1),
    ],
    rules.SIGNAL_NAMED: [
        started().wait_signal(0, "go").deliver("on", 1).receive(0, "on", 1),
        started().timer(0).wait(0, kind="Any", signals={1: "go"}),
        started().timer(0).wait(1, 0, kind="Any", signals={1: "go"}).fire(0).resume().wait(1),
        started().timer(0).wait(1, 0, kind="Any", signals={1: "go"}).fire(0).resume().wait_signal(1, "on"),
    ],
    rules.AWARE_TIME: [
        started().add(e.RandomGenerated(1, NAIVE, ".0", Raw(b"1"), "")),
        started().add(e.TimeRecorded(1, NOW, ".0", NAIVE)),
        started().add(e.TimerScheduled(1, NOW, ".0", NOW - NOW, NAIVE, "")),
        started().schedule(0).begin(0).add(e.InvokeRetrying(3, NOW, ".0", 1, BOOM, NAIVE)),
    ],
}

# Other rules speak first at an append: more results than members means a stranger (JS-3) or a second taking
# (JS-5), and Cancelling ends only in a terminal event.
NEVER_FIRST = {rules.JS_6, rules.CANCELLED}
IN_SEGMENTS = {rules.PATCH_STICKY}
REJECTS = [(rule, script) for rule, scripts in BREAKS.items() for script in scripts]


def rule_name(value: object) -> str:
    return str(value) if isinstance(value, Rule) else ""


def contents(value: object) -> object:
    """Everything a journal remembers, by value."""
    if isinstance(value, Journal):
        slots = [slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ())]
        return {slot: contents(getattr(value, slot)) for slot in slots}
    if isinstance(value, Call | JoinSet | Inbox):
        fields: Iterable[str] = getattr(value, "__struct_fields__", getattr(type(value), "__slots__", ()))
        assert fields
        return [contents(getattr(value, field)) for field in fields]
    if isinstance(value, dict):
        return {key: contents(item) for key, item in value.items()}
    if isinstance(value, set):
        return set(value)
    if isinstance(value, list | deque | bytearray | array):
        return [contents(item) for item in value]
    return value


def appended(events: list[Event]) -> Journal:
    journal = Journal(ROOT)
    for event in events:
        journal.append(event)
    return journal


def test_every_rule_has_an_accepting_and_a_rejecting_history() -> None:
    assert set(KEEPS) == set(RULES) - IN_SEGMENTS
    assert set(BREAKS) == set(RULES) - IN_SEGMENTS - {rules.CANCELLED}


def test_the_twenty_invariants_of_the_seed_are_all_there() -> None:
    seed = [rule.id for rule in RULES if rule.id[0] != "B"]
    expected = [("S", 5), ("SE", 4), ("CF", 4), ("JS", 7)]
    assert seed == [f"{family}-{n}" for family, count in expected for n in range(1, count + 1)]
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_the_twenty_events_are_in_five_categories_and_all_are_checked() -> None:
    assert {name: len(kinds) for name, kinds in CATEGORIES.items()} == {
        "lifecycle": 5,
        "side effects": 4,
        "nondeterminism": 2,
        "control flow": 6,
        "concurrency": 3,
    }
    assert set(CHECKS) == {kind for kinds in CATEGORIES.values() for kind in kinds}


@pytest.mark.parametrize(("rule", "script"), KEEPS.items(), ids=rule_name)
def test_a_history_that_keeps_the_rule_is_accepted(rule: Rule, script: Script) -> None:
    journal = appended(script.events)
    assert journal.length == len(script.events)
    assert journal.pending == script.events
    assert validate(ROOT, script.events) == []


@pytest.mark.parametrize(("rule", "script"), REJECTS, ids=rule_name)
def test_an_append_that_breaks_the_rule_is_refused_and_changes_nothing(rule: Rule, script: Script) -> None:
    *before, last = script.events
    journal = appended(before)
    remembered = contents(journal)
    with pytest.raises(JournalRefusedError) as refusal:
        journal.append(last)
    assert contents(journal) == remembered
    error = refusal.value
    assert error.sequence == last.sequence
    if rule not in NEVER_FIRST:
        assert (error.rule, error.rule_name) == (rule.id, rule.name)
    assert error.rule in str(error)
    assert ROOT in str(error)


@pytest.mark.parametrize(("rule", "script"), REJECTS, ids=rule_name)
def test_validation_reports_the_rule_where_it_broke(rule: Rule, script: Script) -> None:
    *before, last = script.events
    assert validate(ROOT, before) == []
    found = validate(ROOT, script.events)
    assert rule in [violation.rule for violation in found]
    assert {violation.sequence for violation in found} == {last.sequence}
    with pytest.raises(JournalRefusedError) as refusal:
        appended(script.events)
    first = found[0]
    assert (first.rule.id, first.rule.name, first.ids) == (
        refusal.value.rule,
        refusal.value.rule_name,
        refusal.value.ids,
    )


@pytest.mark.parametrize(
    ("script", "ids"),
    [
        (started().begin(0), ("root.0",)),
        (joined().join_set(2).submit(2, 1), ("root.2", "root.1")),
        (started().deliver("go", 1).receive(0, "go", 2), ("root.0", "go")),
        (started().timer(0).timer(1).wait(0, 1, kind="All").fire(1).resume(), ("root.0",)),
        (members(2).timer(3).wait_set(0, 3).resume(), ("root.0", "root.3")),
    ],
)
def test_a_violation_names_the_ids_it_is_about(script: Script, ids: tuple[str, ...]) -> None:
    (violation,) = validate(ROOT, script.events)
    assert violation.ids == ids
    assert all(name in str(violation) for name in ids)


def test_a_cancel_is_finalised_only_from_cancelling() -> None:
    """B2: only a journal that was tampered with can leave Cancelling by another way."""
    found = validate(ROOT, started().timer(0).cancel().wait(0).cancelled().events)
    assert [(violation.rule, violation.sequence) for violation in found] == [
        (rules.AWAIT, 3),
        (rules.CANCELLED, 4),
    ]


def test_validation_goes_on_after_a_violation_and_finds_the_rest() -> None:
    script = started().begin(0).complete(0).fire(1).deliver("go", 1).receive(0, "go", 1, "false").finish()
    script.finish()
    found = [(violation.rule.id, violation.sequence) for violation in validate(ROOT, script.events)]
    assert ("SE-1", 1) in found
    assert ("CF-1", 3) in found
    assert ("CF-2", 5) in found
    assert ("S-3", 7) in found
    assert ("S-4", 7) in found


def test_every_start_of_an_unscheduled_call_is_reported() -> None:
    """SE-1: taking note of a call does not make up for its missing InvokeScheduled."""
    found = validate(ROOT, started().begin(0).retry(0).begin(0, 2).complete(0, 2).events)
    assert [(violation.rule, violation.sequence) for violation in found] == [(rules.SE_1, 1), (rules.SE_1, 3)]


@pytest.mark.parametrize("order", [("go", 1), ("go", 2)], ids=["next", "late"])
def test_a_delivery_received_before_it_came_is_consumed_then(order: tuple[str, int]) -> None:
    """Whether it came in its order or late, the receipt after it is the second one."""
    script = started().receive(0, "go", 1).deliver(*order).deliver("go", 1).receive(1, "go", 1)
    found = [(violation.rule, violation.sequence) for violation in validate(ROOT, script.events)]
    assert (rules.CF_2, 1) in found
    assert (rules.CF_3, 4) in found


def test_one_lost_event_is_reported_where_it_is_missed() -> None:
    """A gap costs one report of S-1 and one per rule it breaks, not one for every later event."""
    events = started().schedule(0).begin(0).complete(0).call(1).call(2).finish().events
    found = validate(ROOT, events[:1] + events[2:])
    assert [(violation.rule, violation.sequence) for violation in found] == [
        (rules.S_1, 2),
        (rules.SE_1, 2),
        (rules.CHILD_NUMBER, 4),
    ]


def test_events_that_no_one_knows_are_an_error_and_not_a_rule() -> None:
    with pytest.raises(InvalidArgumentError, match="no event of a journal"):
        Journal(ROOT).append("InvokeStarted")  # type: ignore[arg-type]


def test_a_refusal_survives_pickling() -> None:
    with pytest.raises(JournalRefusedError) as refusal:
        appended(started().begin(0).events)
    copy = pickle.loads(pickle.dumps(refusal.value))
    assert str(copy) == str(refusal.value)
    assert (copy.rule, copy.sequence, copy.ids) == ("SE-1", 1, ("root.0",))


def test_a_patch_keeps_its_first_answer() -> None:
    """B18: sticky in both directions, without a child number, written with the segment."""
    journal = appended(started().events)
    for patch_id, answer in (("new-tax", True), ("old-tax", False)):
        journal.record_patch(patch_id, answer)
        journal.record_patch(patch_id, answer)
        with pytest.raises(JournalRefusedError) as refusal:
            journal.record_patch(patch_id, not answer)
        assert (refusal.value.rule, refusal.value.ids) == ("B18", (patch_id,))
    assert journal.patches == {"new-tax": True, "old-tax": False}
    assert journal.next_child == 0


def test_contradicting_patches_are_found_in_a_stored_journal() -> None:
    """B18."""
    first = Segment(patches={"new-tax": True}, events=started().events)
    again = Segment(patches={"new-tax": True}, events=[])
    other = Segment(patches={"new-tax": False}, events=[])
    assert validate_segments(ROOT, [first, again]) == []
    (violation,) = validate_segments(ROOT, [first, again, other])
    assert (violation.rule, violation.sequence, violation.ids) == (rules.PATCH_STICKY, 1, ("new-tax",))
    with pytest.raises(JournalDamagedError, match="B18"):
        Journal.load(ROOT, [first, other])


def test_a_damaged_stored_journal_does_not_load() -> None:
    with pytest.raises(JournalDamagedError, match=r"SE-1 .* at 1.*backup"):
        Journal.load(ROOT, [Segment(events=started().begin(0).events)])


def test_a_journal_not_yet_begun_is_sound() -> None:
    assert validate(ROOT, []) == []
