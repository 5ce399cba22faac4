"""The two 15-digit ledgers: seed sections 1-9 and 18, rulings A1, A2, A3 and A6."""

from __future__ import annotations

import pickle
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.core.collation import (
    CHILDREN_SPAWNED,
    COMPLETION_DONE,
    GUID_ATTEMPTS,
    JOB_CLOSED,
    LEDGER_LIMIT,
    LEG1_ATTEMPTS,
    LEG1_DONE,
    LEG2_ENTRIES,
    WORK_DONE,
    Acknowledge,
    ActivityLedger,
    Field,
    GuidLedger,
    GuidRecord,
    Proceed,
    RunLeg1,
    Step,
    audit_activity,
    audit_guid,
    commit_step,
    receive_leg1,
    receive_leg2,
    semaphore_delta,
    set_status_and_collate,
)
from holdfast.core.errors import InvalidArgumentError, LedgerCeilingError, LedgerError

AFTER_LEG1 = ActivityLedger.parse("001100000000000")


def test_section_18_1_leg1_entry_completion_and_stale_replay() -> None:
    ledger = ActivityLedger()
    assert str(ledger) == "000000000000000"
    first = receive_leg1("charge", ledger)
    assert isinstance(first, RunLeg1)
    assert str(first.activity) == "001000000000000"
    done = first.activity.complete_leg1()
    assert str(done) == "001100000000000"
    replayed = receive_leg1("charge", done)
    assert isinstance(replayed, Acknowledge)
    assert str(replayed.activity) == "002100000000000"


def test_section_18_2_leg2_entry_and_step_resume() -> None:
    first = receive_leg2("charge", AFTER_LEG1, None)
    assert isinstance(first, Proceed)
    assert first.step is Step.WORK
    assert (str(first.activity), str(first.record.ledger)) == ("001100000000001", "000000000000001")

    activity, record = commit_step(first.activity, first.record, Step.WORK)
    assert (str(activity), str(record.ledger)) == ("001110000000001", "000010000000001")

    again = receive_leg2("charge", activity, record)  # the crash came before the children were spawned
    assert isinstance(again, Proceed)
    assert again.step is Step.CHILDREN
    assert (str(again.activity), str(again.record.ledger)) == ("001110000000002", "000010000000002")

    activity, record = commit_step(again.activity, again.record, Step.CHILDREN)
    assert (str(activity), str(record.ledger)) == ("001111000000002", "000011000000002")
    assert record.ledger.next_step is None  # not eligible for Step 3


def test_section_18_3_two_children_open_one_more_obligation() -> None:
    guid = GuidLedger.parse("000010000000001")
    after, collated, hit = set_status_and_collate(5, semaphore_delta(2), 0, guid, JOB_CLOSED)
    assert (after, hit) == (6, False)
    assert str(collated.commit_children(job_closed=False)) == "000011000000001"


def test_section_18_4_closing_the_job_survives_a_crash_before_step_3() -> None:
    activity, record = ActivityLedger.parse("001110000000001"), GuidRecord(GuidLedger(10**10 + 1), 1)
    after, collated, hit = set_status_and_collate(1, semaphore_delta(0), 0, record.ledger, JOB_CLOSED)
    assert (after, hit, str(collated)) == (0, True, "000110000000001")
    activity, record = commit_step(activity, record, Step.CHILDREN, job_closed=hit)
    assert (str(activity), str(record.ledger)) == ("001111000000001", "000111000000001")

    replay = receive_leg2("charge", activity, record)
    assert isinstance(replay, Proceed)
    assert replay.step is Step.COMPLETION
    activity, record = commit_step(replay.activity, replay.record, Step.COMPLETION)
    assert (str(activity), str(record.ledger)) == ("001111100000002", "000111100000002")
    assert record.ledger.next_step is None


@pytest.mark.parametrize(
    ("field", "weight"),
    [
        (LEG1_ATTEMPTS, 1_000_000_000_000),
        (LEG1_DONE, 100_000_000_000),
        (JOB_CLOSED, 100_000_000_000),
        (WORK_DONE, 10_000_000_000),
        (CHILDREN_SPAWNED, 1_000_000_000),
        (COMPLETION_DONE, 100_000_000),
        (LEG2_ENTRIES, 1),
        (GUID_ATTEMPTS, 1),
    ],
)
def test_weights_are_those_of_the_digit_map(field: Field, weight: int) -> None:
    assert field.weight == weight


def test_leg1_attempts_occupy_three_digits() -> None:
    """Ruling A1: the character at position 3 alone would read 0 here and 9 at the ceiling."""
    ledger = ActivityLedger(10 * LEG1_ATTEMPTS.weight)
    assert (str(ledger), ledger.leg1_attempts) == ("010000000000000", 10)
    assert ActivityLedger.parse("999100000000000").leg1_attempts == 999


@given(
    attempts=st.integers(0, 999),
    markers=st.tuples(*[st.integers(0, 1)] * 4),
    entries=st.integers(0, 99_999_999),
)
def test_every_field_reads_back_from_number_and_text(
    attempts: int, markers: tuple[int, int, int, int], entries: int
) -> None:
    text = f"{attempts:03d}{''.join(map(str, markers))}{entries:08d}"
    ledger = ActivityLedger.parse(text)
    assert str(ledger) == text
    assert ledger.value == int(text)
    assert ledger.leg1_attempts == attempts
    assert ledger.leg1_done == bool(markers[0])
    assert [ledger.is_marked(step) for step in Step] == [bool(digit) for digit in markers[1:]]
    assert ledger.leg2_entries == entries

    guid = GuidLedger.parse("000" + text[3:])
    assert guid.job_closed == bool(markers[0])
    assert [guid.is_marked(step) for step in Step] == [bool(digit) for digit in markers[1:]]
    assert guid.attempts == entries


@pytest.mark.parametrize("text", ["", "1", "00110000000000", "0011000000000000", "-01100000000000", "٠" * 15])
def test_text_that_is_no_ledger_is_refused(text: str) -> None:
    with pytest.raises(LedgerError, match="15 digits"):
        ActivityLedger.parse(text)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (-1, "15-digit"),
        (LEDGER_LIMIT, "15-digit"),
        (2 * LEG1_DONE.weight, "Leg1 done holds 2"),
        (5 * WORK_DONE.weight, "work done holds 5"),
        (9 * COMPLETION_DONE.weight, "completion tasks done holds 9"),
    ],
)
def test_corrupt_activity_ledger_is_refused_when_read(value: int, complaint: str) -> None:
    with pytest.raises(LedgerError, match=complaint):
        ActivityLedger(value)


def test_guid_ledger_with_reserved_digits_is_refused() -> None:
    with pytest.raises(LedgerError, match="reserved"):
        GuidLedger(LEG1_ATTEMPTS.weight)


@pytest.mark.parametrize("ceiling", ["999000000000000", "999100000000007"])
def test_leg1_ceiling_is_checked_before_the_increment(ceiling: str) -> None:
    """Rule F, ruling A6."""
    ledger = ActivityLedger.parse(ceiling)
    with pytest.raises(LedgerCeilingError, match="Drop the message") as caught:
        ledger.enter_leg1("charge")
    assert (caught.value.activity, caught.value.ledger, caught.value.ceiling) == ("charge", ceiling, 999)


def test_leg2_ceiling_never_carries_into_the_completion_marker() -> None:
    """Section 3, carry isolation."""
    ledger = ActivityLedger.parse("001100099999998").enter_leg2("charge")
    assert str(ledger) == "001100099999999"
    with pytest.raises(LedgerCeilingError, match="Leg2 entries"):
        ledger.enter_leg2("charge")
    with pytest.raises(LedgerCeilingError, match="GUID attempts"):
        GuidLedger(99_999_999).enter("charge")


def test_ceiling_error_survives_pickling() -> None:
    error = LedgerCeilingError("charge", "999000000000000", "Leg1 attempts", 999)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.activity, copy.ceiling) == (str(error), "charge", 999)


def test_markers_are_set_in_order_and_once() -> None:
    with pytest.raises(LedgerError, match="before Leg1 attempts"):
        ActivityLedger().complete_leg1()
    with pytest.raises(LedgerError, match="already marked"):
        AFTER_LEG1.complete_leg1()
    with pytest.raises(LedgerError, match="before Leg1 done"):
        ActivityLedger().enter_leg2("charge")
    with pytest.raises(LedgerError, match="before Leg2 entries"):
        AFTER_LEG1.mark(Step.WORK)
    guid = GuidLedger().enter("charge")
    with pytest.raises(LedgerError, match="before GUID attempts"):
        GuidLedger().commit_work()
    with pytest.raises(LedgerError, match="before work done"):
        guid.commit_children(job_closed=False)
    with pytest.raises(LedgerError, match="before children spawned"):
        guid.commit_work().commit_completion()
    with pytest.raises(LedgerError, match="before job closed snapshot"):
        guid.commit_work().commit_children(job_closed=False).commit_completion()
    with pytest.raises(LedgerError, match="already marked"):
        guid.commit_work().commit_work()


def test_the_snapshot_is_taken_by_step_2_alone() -> None:
    with pytest.raises(LedgerError, match="Step 2"):
        commit_step(AFTER_LEG1, GuidRecord(GuidLedger(1), 1), Step.WORK, job_closed=True)


@given(status=st.integers(1, 50), children=st.integers(0, 50), threshold=st.integers(0, 60))
def test_threshold_hit_is_status_after_equals_threshold(status: int, children: int, threshold: int) -> None:
    """Sections 9.2, 12.2 and 12.3, for any threshold."""
    guid = GuidLedger.parse("000010000000001")
    after, collated, hit = set_status_and_collate(status, semaphore_delta(children), threshold, guid)
    assert after == status + children - 1
    assert hit == (after == threshold)
    assert collated.value - guid.value == (JOB_CLOSED.weight if hit else 0)


def test_a_join_counts_with_the_same_primitive_and_leaves_the_ledger_alone() -> None:
    guid = GuidLedger.parse("000010000000001")
    assert set_status_and_collate(1, +1, 3, guid, None) == (2, guid, False)
    assert set_status_and_collate(2, +1, 3, guid, None) == (3, guid, True)


def test_semaphore_never_goes_below_zero() -> None:
    with pytest.raises(LedgerError, match="closed twice"):
        set_status_and_collate(0, -1, 0, GuidLedger(1))
    with pytest.raises(InvalidArgumentError):
        semaphore_delta(-1)


def test_a_thousand_guids_on_one_activity_leave_every_digit_sound() -> None:
    """Ruling A2: the tenth marker of the seed's arithmetic would carry into the Leg1 marker."""
    activity, records = AFTER_LEG1, []
    for _ in range(1_000):
        entry = receive_leg2("loop", activity, None)
        assert isinstance(entry, Proceed)
        activity, record = entry.activity, entry.record
        for step in (Step.WORK, Step.CHILDREN):
            activity, record = commit_step(activity, record, step)
        records.append(record)
    assert str(activity) == "001111000001000"
    assert [record.dimensional_index for record in records] == list(range(1_000))
    assert audit_activity(activity, records) == []


@given(seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_a_thousand_guids_with_crashes_and_redeliveries_stay_in_range(seed: int) -> None:
    """Rules A and F, ruling A2: fifteen digits, none out of its range, never a smaller number."""
    random, activity, waiting = Random(seed), AFTER_LEG1, list(range(1_000))
    found: dict[int, GuidRecord] = {}
    while waiting:
        guid = waiting.pop(random.randrange(len(waiting)))
        entry = receive_leg2("loop", activity, found.get(guid))
        assert isinstance(entry, Proceed)
        before, activity, record = activity, entry.activity, entry.record
        for _ in range(random.randint(0, 3)):
            if (step := record.ledger.next_step) is not None:
                closes = step is Step.CHILDREN and random.random() < 0.1
                activity, record = commit_step(activity, record, step, job_closed=closes)
        assert before < activity
        assert (activity.leg1_attempts, activity.leg1_done) == (1, True)  # no carry reached Leg1
        found[guid] = record
        if record.ledger.next_step is not None:
            waiting.append(guid)
    assert len(str(activity)) == 15
    assert audit_activity(activity, list(found.values())) == []
    assert all(audit_guid(record) == [] for record in found.values())


class AnyHistory(RuleBasedStateMachine):
    """Deliveries, crashes and redeliveries of many GUIDs on one activity, in any order."""

    @initialize()
    def start(self) -> None:
        self.activity = ActivityLedger()
        self.records: dict[int, GuidRecord] = {}
        self.ordinals: dict[int, int] = {}

    def _step(self, activity: ActivityLedger) -> None:
        assert activity.value >= self.activity.value, "Rule A: increments only"
        self.activity = activity

    @rule()
    def deliver_leg1(self) -> None:
        decision = receive_leg1("loop", self.activity)
        assert isinstance(decision, RunLeg1 | Acknowledge)
        self._step(decision.activity)

    @precondition(lambda self: self.activity.leg1_attempts > 0 and not self.activity.leg1_done)
    @rule()
    def complete_leg1(self) -> None:
        self._step(self.activity.complete_leg1())

    @precondition(lambda self: self.activity.leg1_done)
    @rule(guid=st.integers(0, 40), commits=st.integers(0, 3), closed=st.booleans())
    def deliver_leg2(self, guid: int, commits: int, closed: bool) -> None:
        """The process dies after `commits` steps."""
        before = self.records.get(guid)
        decision = receive_leg2("loop", self.activity, before)
        assert isinstance(decision, Proceed | Acknowledge)
        assert decision.record is not None
        self._step(decision.activity)
        record = decision.record
        for _ in range(commits):
            step = record.ledger.next_step
            if step is None:
                break
            activity, record = commit_step(self.activity, record, step, job_closed=closed and step is Step.CHILDREN)
            self._step(activity)
        if before is not None:
            assert record.ledger.value > before.ledger.value, "Rule A: increments only"
        assert self.ordinals.setdefault(guid, record.ordinal) == record.ordinal, "ruling A3"
        self.records[guid] = record

    @invariant()
    def ledgers_stay_sound(self) -> None:
        # Making the value checked its digits; the text shows that they are fifteen.
        assert len(str(self.activity)) == 15
        assert audit_activity(self.activity, list(self.records.values())) == []
        for record in self.records.values():
            assert len(str(record.ledger)) == 15
            assert audit_guid(record) == []


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)
