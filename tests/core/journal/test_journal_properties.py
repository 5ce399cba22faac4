"""Random legal histories never violate; tampered ones are found, and both forms of the rules agree."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core.errors import JournalRefusedError
from holdfast.core.journal import Journal, Segment, decode_segment, encode_segment, fold, validate
from holdfast.core.journal import events as e
from holdfast.core.journal.events import CATEGORIES, Event, Ok
from tests.core.journal.histories import FOREIGN, OTHER_JSON, broken_invariants, histories
from tests.core.journal.script import ROOT

Tampering = Callable[[Event], Event]


def renumbered(events: list[Event]) -> list[Event]:
    """As if the numbers had never shown a gap: S-1 must not be the only thing that notices."""
    return [replace(event, sequence=place) for place, event in enumerate(events)]


def refusal(events: list[Event]) -> tuple[int, str] | None:
    journal = Journal(ROOT)
    for event in events:
        try:
            journal.append(event)
        except JournalRefusedError as error:
            return (error.sequence, error.rule_name)
    return None


@given(histories())
def test_a_legal_history_is_appended_and_validates(events: list[Event]) -> None:
    assert refusal(events) is None
    assert validate(ROOT, events) == []
    assert broken_invariants(events) == []


@given(histories())
def test_the_journals_state_is_the_fold_of_its_events(events: list[Event]) -> None:
    journal = Journal(ROOT)
    for length, event in enumerate(events, 1):
        journal.append(event)
        assert journal.state == fold(events[:length])


@given(histories(), st.integers(1, 10))
def test_a_history_survives_being_written_and_read_in_segments(events: list[Event], size: int) -> None:
    pieces = [events[start : start + size] for start in range(0, len(events), size)]
    segments = [decode_segment(encode_segment(Segment(events=piece))) for piece in pieces]
    assert [event for segment in segments for event in segment.events] == events
    loaded = Journal.load(ROOT, segments)
    assert (loaded.length, loaded.state) == (len(events), fold(events))


@given(histories(), st.data())
def test_a_lost_event_is_found(events: list[Event], data: st.DataObject) -> None:
    """S-1: any but the last, whose loss leaves a shorter legal history."""
    assume(len(events) > 1)
    place = data.draw(st.integers(0, len(events) - 2))
    assert validate(ROOT, events[:place] + events[place + 1 :]) != []


@given(histories(), st.data())
def test_a_repeated_event_is_found_even_when_the_numbers_are_forged(events: list[Event], data: st.DataObject) -> None:
    """There is no event that may follow itself unchanged."""
    place = data.draw(st.integers(0, len(events) - 1))
    forged = renumbered([*events[: place + 1], *events[place:]])
    assert place + 1 in {violation.sequence for violation in validate(ROOT, forged)}


TAMPERINGS: dict[str, tuple[tuple[type[Event], ...], Tampering]] = {
    "another call's promise": (
        (e.InvokeScheduled, e.InvokeStarted, e.InvokeCompleted, e.InvokeRetrying, e.JoinSetSubmitted),
        lambda event: replace(event, promise_id=FOREIGN),
    ),
    "another value's promise": (
        (e.RandomGenerated, e.TimeRecorded, e.TimerScheduled, e.TimerFired, e.SignalReceived),
        lambda event: replace(event, promise_id=FOREIGN),
    ),
    "another join set": (
        (e.JoinSetCreated, e.JoinSetSubmitted, e.JoinSetAwaited),
        lambda event: replace(event, join_set_id=FOREIGN),
    ),
    "another attempt": (
        (e.InvokeStarted, e.InvokeCompleted),
        lambda event: replace(event, attempt=event.attempt + 1),  # type: ignore[union-attr]
    ),
    "another failed attempt": (
        (e.InvokeRetrying,),
        lambda event: replace(event, failed_attempt=event.failed_attempt + 1),  # type: ignore[union-attr]
    ),
    "another result taken": ((e.JoinSetAwaited,), lambda event: replace(event, result=Ok(OTHER_JSON))),
    "another payload": ((e.SignalReceived,), lambda event: replace(event, payload=OTHER_JSON)),
    "another delivery": (
        (e.SignalReceived,),
        lambda event: replace(event, delivery_id=event.delivery_id + 1),  # type: ignore[union-attr]
    ),
    "another signal": ((e.SignalReceived,), lambda event: replace(event, signal_name="never")),
    "a promise waited for twice": (
        (e.ExecutionAwaiting,),
        lambda event: replace(event, waiting_on=event.waiting_on * 2 or (FOREIGN,) * 2),  # type: ignore[union-attr]
    ),
    "a wait for a stranger": (
        (e.ExecutionAwaiting,),
        lambda event: replace(event, waiting_on=(FOREIGN, *event.waiting_on[1:])),  # type: ignore[union-attr]
    ),
    "a wait for a strange join set": (
        (e.ExecutionAwaiting,),
        lambda event: replace(event, join_set_id=FOREIGN),
    ),
    "a second start": (
        tuple(kind for kinds in CATEGORIES.values() for kind in kinds if kind is not e.ExecutionStarted),  # type: ignore[misc]
        lambda event: e.ExecutionStarted(event.sequence, event.timestamp, "sha256:c0de", OTHER_JSON),
    ),
    "an early end": (
        tuple(kind for kinds in CATEGORIES.values() for kind in kinds if kind is not e.ExecutionStarted),  # type: ignore[misc]
        lambda event: e.ExecutionCancelled(event.sequence, event.timestamp, "forged"),
    ),
}


@pytest.mark.parametrize("name", TAMPERINGS)
@settings(max_examples=40)
@given(events=histories(moves=60), data=st.data())
def test_a_tampered_event_is_found_at_its_place(name: str, events: list[Event], data: st.DataObject) -> None:
    kinds, tamper = TAMPERINGS[name]
    places = [place for place, event in enumerate(events) if isinstance(event, kinds)]
    if name == "an early end":
        # Where a cancel was requested it would be a legal end, found only by what follows it.
        places = [place for place in places if fold(events[:place]) == fold(events[:1])]
        places = [place for place in places if not any(isinstance(x, e.CancelRequested) for x in events[:place])]
    assume(places)
    place = data.draw(st.sampled_from(places))
    forged = [*events[:place], tamper(events[place]), *events[place + 1 :]]
    assert validate(ROOT, forged)[0].sequence == place


MISHAPS = ("delete", "repeat", "move")


@st.composite
def shuffled(draw: st.DrawFn, mishaps: tuple[str, ...] = (*MISHAPS, "swap ids")) -> list[Event]:
    """A legal history after a few mishaps, renumbered or not."""
    events = draw(histories(moves=25))
    for _ in range(draw(st.integers(1, 4))):
        if len(events) < 2:
            break
        source, target = draw(st.tuples(*[st.integers(0, len(events) - 1)] * 2))
        what = draw(st.sampled_from(mishaps))
        if what == "delete":
            del events[source]
        elif what == "repeat":
            events.insert(target, events[source])
        elif what == "move":
            events.insert(target, events.pop(source))
        else:
            events[source] = with_id_of(events[source], events[target])
    return renumbered(events) if draw(st.booleans()) else events


def with_id_of(event: Event, other: Event) -> Event:
    promise_id = getattr(other, "promise_id", None)
    return event if promise_id is None or not hasattr(event, "promise_id") else replace(event, promise_id=promise_id)


@given(shuffled())
def test_append_and_validation_agree_on_the_first_violation(events: list[Event]) -> None:
    """Two forms, one source."""
    found = validate(ROOT, events)
    first = (found[0].sequence, found[0].rule.name) if found else None
    assert refusal(events) == first


@given(shuffled())
def test_the_first_violation_is_what_the_seeds_tables_say(events: list[Event]) -> None:
    """At the first event that is wrong, the invariants reported are those of a literal reading, no more, no less."""
    found = [(violation.sequence, violation.rule.id) for violation in validate(ROOT, renumbered(events))]
    literal = broken_invariants(renumbered(events))
    first = min((place for place, _ in [*found, *literal]), default=None)
    said = {rule for place, rule in found if place == first and rule[0] != "B"}
    assert said == {rule for place, rule in literal if place == first}


@given(shuffled())
def test_no_event_that_breaks_an_invariant_goes_unreported(events: list[Event]) -> None:
    """Later events too: one violation does not hide the next."""
    forged = renumbered(events)
    assert {place for place, _ in broken_invariants(forged)} <= {found.sequence for found in validate(ROOT, forged)}


@given(shuffled(MISHAPS))
def test_no_invariant_is_reported_that_holds_by_the_letter(events: list[Event]) -> None:
    """What is reported of lost, repeated and moved events is true, and no echo of an earlier report."""
    forged = renumbered(events)
    said = {(found.sequence, found.rule.id) for found in validate(ROOT, forged) if found.rule.id[0] != "B"}
    assert said - set(broken_invariants(forged)) == set()


@given(histories())
def test_a_violation_can_be_written_as_json(events: list[Event]) -> None:
    """`verify` and the dashboard show violations to programs as well."""
    for violation in validate(ROOT, [*events, *events]):
        assert msgspec.json.decode(msgspec.json.encode(violation))["rule"]["id"] == violation.rule.id
