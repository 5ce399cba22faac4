"""Re-entry decisions, dimensions, GUIDs and the audit: seed sections 4, 7, 10-15, rulings A3-A6, A9, A11."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.collation import (
    Acknowledge,
    ActivityLedger,
    Close,
    DeadLetter,
    Dimension,
    GuidLedger,
    GuidRecord,
    JobPhase,
    Proceed,
    PutBack,
    RunLeg1,
    Step,
    audit_activity,
    audit_guid,
    audit_job,
    commit_step,
    leg1_guid,
    receive_leg1,
    receive_leg2,
    response_guid,
)
from holdfast.core.errors import InvalidArgumentError, LedgerError

AFTER_LEG1 = ActivityLedger.parse("001100000000000")


def record(text: str, ordinal: int = 1) -> GuidRecord:
    return GuidRecord(GuidLedger.parse(text), ordinal)


@pytest.mark.parametrize(
    ("guid", "owed"),
    [
        ("000000000000001", Step.WORK),
        ("000010000000001", Step.CHILDREN),
        ("000011000000001", None),
        ("000111000000001", Step.COMPLETION),
        ("000111100000001", None),
    ],
)
@pytest.mark.parametrize("job", [JobPhase.OPEN, JobPhase.CLOSED])
def test_the_guid_ledger_alone_decides_where_to_resume(guid: str, owed: Step | None, job: JobPhase) -> None:
    """Rule C and ruling A4: a job already at 0 does not turn away the message that owes Step 3."""
    decision = receive_leg2("ship", ActivityLedger.parse("001110000000001"), record(guid), job=job)
    if owed is None:
        assert isinstance(decision, Acknowledge)
    else:
        assert isinstance(decision, Proceed)
        assert (decision.step, decision.abandon) == (owed, False)
    assert str(decision.activity) == "001110000000002"
    assert decision.record == record(guid[:-1] + "2")


def test_response_before_leg1_is_put_back_uncounted() -> None:
    """Ruling A5."""
    assert isinstance(receive_leg2("ship", ActivityLedger.parse("001000000000000"), None), PutBack)


def test_response_to_a_failed_leg1_or_an_ended_job_is_closed() -> None:
    """Ruling A5."""
    entered = ActivityLedger.parse("001000000000000")
    assert receive_leg2("ship", entered, None, leg1_failed=True) == Close("Leg1 failed")
    assert receive_leg2("ship", entered, None, job=JobPhase.CLOSED) == Close("the job has ended")
    assert receive_leg2("ship", AFTER_LEG1, None, job=JobPhase.CLOSED) == Close("the job has ended")
    assert receive_leg1("ship", ActivityLedger(), job=JobPhase.CLOSED) == Close("the job has ended")


def test_leg1_runs_again_until_it_completed() -> None:
    decision = receive_leg1("ship", ActivityLedger.parse("004000000000000"))
    assert decision == RunLeg1(ActivityLedger.parse("005000000000000"))


def test_a_full_counter_makes_a_dead_letter_and_increments_nothing() -> None:
    """Ruling A6: the error names activity, ledger and ceiling."""
    leg1 = receive_leg1("ship", ActivityLedger.parse("999000000000000"))
    assert isinstance(leg1, DeadLetter)
    assert "'ship'" in str(leg1.error)
    assert "999000000000000" in str(leg1.error)
    full = ActivityLedger.parse("001100099999999")
    leg2 = receive_leg2("ship", full, None)
    assert isinstance(leg2, DeadLetter)
    assert leg2.error.ceiling == 99_999_999
    owing = receive_leg2("ship", AFTER_LEG1, record("000010099999999"))
    assert isinstance(owing, DeadLetter)
    assert owing.error.counter == "GUID attempts"


def test_a_stale_message_at_a_ceiling_owes_nothing_and_strands_nothing() -> None:
    leg1_full = ActivityLedger.parse("999100000000000")
    assert receive_leg1("ship", leg1_full) == Acknowledge(leg1_full, None, "Leg1 has already completed (4.2)")
    leg2_full, finished = ActivityLedger.parse("001111099999999"), record("000011000000001")
    decision = receive_leg2("ship", leg2_full, finished)
    assert isinstance(decision, Acknowledge)
    assert (decision.activity, decision.record) == (leg2_full, finished)


def test_cancel_closes_a_queued_response_without_user_code() -> None:
    """Ruling A11."""
    decision = receive_leg2("ship", AFTER_LEG1, None, job=JobPhase.CLOSING)
    assert isinstance(decision, Proceed)
    assert (decision.step, decision.abandon, decision.record.ordinal) == (Step.WORK, True, 1)


def test_cancel_closes_a_queued_leg1_and_its_guid_still_owes_step_3() -> None:
    """Rulings A4 and A11: closing the last obligation obliges this GUID to end the job."""
    untouched = ActivityLedger()
    first = receive_leg1("ship", untouched, job=JobPhase.CLOSING)
    assert isinstance(first, Proceed)
    assert (first.abandon, first.activity) == (True, untouched)
    activity, closing = commit_step(first.activity, first.record, Step.WORK)
    activity, closing = commit_step(activity, closing, Step.CHILDREN, job_closed=True)
    assert activity == untouched
    again = receive_leg1("ship", activity, record=closing, job=JobPhase.CLOSED)
    assert isinstance(again, Proceed)
    assert again.step is Step.COMPLETION
    _, closed = commit_step(activity, again.record, Step.COMPLETION)
    assert str(closed.ledger) == "000111100000002"
    assert isinstance(receive_leg1("ship", activity, record=closed, job=JobPhase.CLOSED), Acknowledge)
    full = record("000000099999999", 0)
    assert isinstance(receive_leg1("ship", untouched, record=full, job=JobPhase.CLOSING), DeadLetter)
    with pytest.raises(LedgerError, match="no dimension"):
        _ = closing.dimensional_index


def test_redelivery_never_moves_the_dimensional_index() -> None:
    """Section 15, ruling A3."""
    first = receive_leg2("loop", AFTER_LEG1, None)
    assert isinstance(first, Proceed)
    again = receive_leg2("loop", first.activity, first.record)
    assert isinstance(again, Proceed)
    second = receive_leg2("loop", again.activity, None)
    assert isinstance(second, Proceed)
    assert (again.record.dimensional_index, second.record.dimensional_index) == (0, 2)


@pytest.mark.parametrize("ordinal", [-1, 100_000_000])
def test_ordinal_out_of_range_is_refused(ordinal: int) -> None:
    with pytest.raises(LedgerError, match="ordinal"):
        GuidRecord(GuidLedger(1), ordinal)


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.:-]{0,8}", fullmatch=True)
dimensions = st.lists(st.tuples(names, st.integers(0, 10**8)), max_size=4, unique_by=lambda e: e[0]).map(
    lambda entries: Dimension(tuple(entries))
)


@given(dimensions)
def test_dimension_text_reads_back(dimension: Dimension) -> None:
    assert Dimension.parse(str(dimension)) == dimension


@given(dimensions, names, st.integers(0, 9), st.integers(0, 9))
def test_iterations_are_isolated_and_a_back_edge_leads_out(
    dimension: Dimension, activity: str, index: int, other: int
) -> None:
    outer = dimension.outside(activity)
    assert outer.index_of(activity) is None
    one, two = outer.descend(activity, index), outer.descend(activity, other)
    assert one.outside(activity) == outer
    assert one.index_of(activity) == index
    assert outer.contains(one)
    assert one.contains(two) == (index == other)
    with pytest.raises(LedgerError, match="back edge"):
        one.descend(activity, other)


@pytest.mark.parametrize("text", ["a", "a=", "=1", "a=01", "a=1,", ",a=1", "a=-1", "1=a", "a=1,a=2"])
def test_text_that_is_no_dimension_is_refused(text: str) -> None:
    with pytest.raises(LedgerError):
        Dimension.parse(text)


def test_a_dimension_entry_must_be_a_name_and_an_index() -> None:
    with pytest.raises(InvalidArgumentError):
        Dimension().descend("a,b", 0)
    with pytest.raises(InvalidArgumentError):
        Dimension().descend("a", -1)


def test_guids_are_stable_across_releases() -> None:
    """A changed derivation would make every answer in flight a stranger."""
    inside = Dimension((("loop", 3),))
    assert leg1_guid(b"job", "ship", Dimension()).hex() == "9f07541d1df41f4dc5687d64e6d9a6cf"
    assert response_guid(b"job", "ship", inside, 2).hex() == "272ae39cf634cd9c774926e96a3a1a42"


@given(st.lists(st.tuples(st.binary(max_size=4), names, dimensions, st.integers(0, 3)), min_size=2, unique=True))
def test_a_guid_is_a_function_of_what_it_answers(
    questions: list[tuple[bytes, str, Dimension, int]],
) -> None:
    """Ruling A9: equal questions share a GUID, different ones never do, a Leg1 message is neither."""
    guids = [response_guid(*question) for question in questions]
    assert guids == [response_guid(*question) for question in questions]
    assert len(set(guids)) == len(questions)
    assert not set(guids) & {leg1_guid(job, activity, where) for job, activity, where, _ in questions}


def test_a_negative_iteration_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="negative"):
        response_guid(b"job", "ship", Dimension(), -1)


@pytest.mark.parametrize(
    ("guid", "rule"),
    [
        ("000000000000000", "7.2"),
        ("000001000000001", "section 10"),
        ("000110000000001", "9.3"),
        ("000011100000001", "13.1"),
    ],
)
def test_audit_names_what_is_wrong_with_a_guid(guid: str, rule: str) -> None:
    violations = audit_guid(record(guid))
    assert len(violations) == 1
    assert rule in violations[0]
    assert guid in violations[0]


@pytest.mark.parametrize(
    ("activity", "records", "rule"),
    [
        ("000100000000000", [], "4.1"),
        ("001010000000001", [record("000010000000001")], "A5"),
        ("001100000000002", [record("000000000000001")], "7.1"),
        ("001100000000002", [record("000000000000001"), record("000000000000001")], "share an ordinal"),
        ("001100000000001", [record("000000000000001", 2)], "above the entry count"),
        ("001110000000001", [record("000000000000001")], "section 8"),
        ("001100000000001", [record("000010000000001")], "section 8"),
    ],
)
def test_audit_names_what_is_wrong_with_an_activity(activity: str, records: list[GuidRecord], rule: str) -> None:
    violations = audit_activity(ActivityLedger.parse(activity), records)
    assert len(violations) == 1
    assert rule in violations[0]


def test_audit_of_a_job_finds_a_lost_and_a_double_closure() -> None:
    closer, other = record("000111100000001"), record("000011000000001")
    assert audit_job(0, [closer, other]) == []
    assert audit_job(2, [other]) == []
    assert len(audit_job(0, [other])) == 1
    assert len(audit_job(1, [closer])) == 1
    assert len(audit_job(0, [closer, closer])) == 1
    assert "-1" in audit_job(-1, [])[0]
