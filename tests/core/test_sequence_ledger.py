"""The sequence ledger item by item and in bulk: the seed's policies and rulings D2-D10."""

from __future__ import annotations

import tracemalloc

import pytest

from holdfast.core.errors import IllegalTransitionError, InvalidArgumentError, LeaseLostError, LedgerError
from holdfast.core.sequence import FailClass, Reclaim, RetryGuard, Segment, SequenceLedger, State

OWNER, OTHER, COMMITTER = 7, 8, 99
LEASE_MS = 1_000
THREE = RetryGuard(max_attempts=3)


def new_ledger(length: int = 10, retry: RetryGuard = THREE) -> SequenceLedger:
    ledger = SequenceLedger(lease_ms=LEASE_MS, now_ms=0, length=length, retry=retry)
    ledger.lane.take(COMMITTER)
    return ledger


def in_flight(length: int = 10, retry: RetryGuard = THREE) -> SequenceLedger:
    ledger = new_ledger(length, retry)
    ledger.dispatch_range(0, length, OWNER, 0)
    ledger.begin_range(0, length, OWNER, 0)
    return ledger


def attempt(ledger: SequenceLedger, seq: int, to: State, owner: int = OWNER, now_ms: int = 5) -> None:
    """Ask for `to` by the operation that leads there."""
    if to is State.DISPATCHED:
        ledger.dispatch(seq, owner, now_ms)
    elif to is State.IN_FLIGHT:
        ledger.begin(seq, owner, now_ms)
    elif to is State.TERMINAL_FAIL:
        ledger.fail(seq, owner, now_ms, FailClass.PERMANENT)
    elif to is State.COMMITTED:
        ledger.lane.commit(seq, seq + 1, COMMITTER, now_ms)
    else:
        ledger.finish(seq, owner, now_ms, to)


def ledger_at(state: State) -> SequenceLedger:
    """One item in `state`, held by OWNER; a second one waits in flight."""
    ledger = new_ledger(1)
    path = {
        State.UNSEEN: [],
        State.DISPATCHED: [State.DISPATCHED],
        State.IN_FLIGHT: [State.DISPATCHED, State.IN_FLIGHT],
        State.COMMITTED: [State.DISPATCHED, State.IN_FLIGHT, State.TERMINAL_SUCCESS, State.COMMITTED],
    }.get(state, [State.DISPATCHED, State.IN_FLIGHT, state])
    for step in path:
        attempt(ledger, 0, step)
    assert ledger.state(0) is state
    return ledger


LEGAL_STEPS = {
    (State.UNSEEN, State.DISPATCHED),
    (State.DISPATCHED, State.IN_FLIGHT),
    *((State.IN_FLIGHT, terminal) for terminal in State if "TERMINAL" in terminal.name),
    *((terminal, State.COMMITTED) for terminal in State if "TERMINAL" in terminal.name),
    (State.DISPATCHED, State.TERMINAL_CANCEL),
    (State.COMMITTED, State.COMMITTED),  # a no-op, ruling D5
}


@pytest.mark.parametrize(("prior", "to"), [(prior, to) for prior in State for to in State if to])
def test_illegal_injection_is_fatal_with_the_full_report(prior: State, to: State) -> None:
    """Illegal transition policy, ruling D10. A settled failure is not dispatched again (ruling D2)."""
    ledger = ledger_at(prior)
    if (prior, to) in LEGAL_STEPS:
        attempt(ledger, 0, to)
        assert ledger.state(0) is to
        assert ledger.failure is None
        return
    before = ledger.counters()
    owner = COMMITTER if to is State.COMMITTED else OWNER
    with pytest.raises(IllegalTransitionError) as caught:
        attempt(ledger, 0, to, now_ms=77)
    error = caught.value
    assert (error.seq, error.prior, error.attempted, error.owner, error.at_ms) == (
        0,
        prior.name,
        to.name,
        owner,
        77,
    )
    assert ledger.failure is error
    assert (ledger.state(0), ledger.counters()) == (prior, before)
    ledger.check()


def test_after_a_hard_fail_dispatch_and_commit_stop_and_nothing_committed_is_undone() -> None:
    """Ruling D10."""
    ledger = in_flight(4)
    ledger.extend(1)
    ledger.finish(0, OWNER, 1)
    ledger.finish(1, OWNER, 1)
    ledger.lane.commit(0, 1, COMMITTER, 1)
    with pytest.raises(IllegalTransitionError):
        ledger.finish(1, OWNER, 2)
    for refused in (
        lambda: ledger.dispatch(4, OWNER, 3),
        lambda: ledger.dispatch_range(4, 5, OWNER, 3),
        lambda: ledger.take(OWNER, 3, limit=1),
        lambda: ledger.lane.commit(1, 2, COMMITTER, 3),
        lambda: ledger.cancel(OTHER, 3),
    ):
        with pytest.raises(LedgerError, match="seq 1: TERMINAL_SUCCESS -> TERMINAL_SUCCESS"):
            refused()
    assert ledger.state(0) is State.COMMITTED
    assert not ledger.fail(2, OWNER, 3, FailClass.RETRYABLE)  # nothing is dispatched again either


def test_begin_is_refused_after_a_hard_fail() -> None:
    ledger = new_ledger(3)
    ledger.dispatch_range(0, 3, OWNER, 0)
    with pytest.raises(IllegalTransitionError):
        ledger.dispatch(0, OTHER, 1)
    with pytest.raises(LedgerError, match="has failed"):
        ledger.begin(1, OWNER, 1)
    with pytest.raises(LedgerError, match="has failed"):
        ledger.begin_range(1, 3, OWNER, 1)


def test_a_stale_owner_is_refused_and_changes_nothing() -> None:
    """Rulings D8 and D10: ownership is checked first, and never fatal."""
    ledger = in_flight(3)
    ledger.finish(2, OWNER, 1)
    before = ledger.export(0, 3)
    for refused in (
        lambda: ledger.begin(0, OTHER, 1),
        lambda: ledger.heartbeat(0, OTHER, 1),
        lambda: ledger.finish(0, OTHER, 1),
        lambda: ledger.fail(0, OTHER, 1, FailClass.RETRYABLE),
        lambda: ledger.finish(2, OTHER, 1),
        lambda: ledger.begin_range(0, 3, OTHER, 1),
        lambda: ledger.heartbeat_range(0, 3, OTHER, 1),
        lambda: ledger.finish_range(0, 3, OTHER, 1),
        lambda: ledger.lane.commit(0, 1, OTHER, 1),
    ):
        with pytest.raises(LeaseLostError, match=f"owner {OTHER}"):
            refused()
    assert ledger.export(0, 3) == before
    assert ledger.failure is None


def test_a_replaced_committer_is_refused() -> None:
    """Ruling D8."""
    ledger = in_flight(1)
    ledger.finish(0, OWNER, 1)
    ledger.lane.take(OTHER)
    with pytest.raises(LeaseLostError, match="commit lane"):
        ledger.lane.commit(0, 1, COMMITTER, 1)
    assert ledger.lane.commit(0, 1, OTHER, 1) == 1
    with pytest.raises(InvalidArgumentError, match="token"):
        ledger.lane.take(0)


@pytest.mark.parametrize("again", ["finish", "fail"])
def test_a_second_terminal_event_in_one_attempt_is_fatal(again: str) -> None:
    """Atomicity 2, ruling D5."""
    ledger = in_flight(1)
    ledger.finish(0, OWNER, 1, State.TERMINAL_SKIP)
    with pytest.raises(IllegalTransitionError, match="TERMINAL_SKIP -> "):
        ledger.finish(0, OWNER, 2) if again == "finish" else ledger.fail(0, OWNER, 2, FailClass.RETRYABLE)
    assert ledger.outcome(0) == (State.TERMINAL_SKIP, 0)


def test_a_retried_failure_keeps_its_seq_and_counts_its_attempt() -> None:
    """Retry guard 1-4, rulings D2 and D5: only the last failure is a terminal event."""
    ledger = in_flight(2)
    for retries in (1, 2):
        assert ledger.fail(0, OWNER, 1, FailClass.RETRYABLE)
        assert (ledger.state(0), ledger.attempts(0), ledger.owner(0)) == (State.DISPATCHED, retries, 0)
        assert ledger.counters().failed == 0
        assert ledger.take(OWNER, 1, limit=1) == [range(1)]
        ledger.begin(0, OWNER, 1)
    assert not ledger.fail(0, OWNER, 1, FailClass.RETRYABLE)
    assert (ledger.state(0), ledger.attempts(0)) == (State.TERMINAL_FAIL, 2)
    assert ledger.outcome(0) == (State.TERMINAL_FAIL, FailClass.RETRYABLE)
    counters = ledger.counters()
    assert (counters.failed, counters.terminal, counters.retries) == (1, 1, 2)
    with pytest.raises(IllegalTransitionError, match="TERMINAL_FAIL -> DISPATCHED"):
        ledger.dispatch(0, OWNER, 2)


def test_a_failure_of_a_permanent_class_is_terminal_at_once() -> None:
    ledger = in_flight(1)
    assert not ledger.fail(0, OWNER, 1, FailClass.PERMANENT)
    assert ledger.lane.commit(0, 1, COMMITTER, 1) == 1
    assert ledger.outcome(0) == (State.TERMINAL_FAIL, FailClass.PERMANENT)  # known after the commit as well


def test_the_late_answer_of_an_earlier_attempt_is_stale() -> None:
    ledger = in_flight(1)
    ledger.fail(0, OWNER, 1, FailClass.TIMEOUT)
    with pytest.raises(LeaseLostError):
        ledger.finish(0, OWNER, 2)
    ledger.dispatch(0, OWNER, 3)  # the same token holds it again: only the attempt tells them apart
    ledger.begin(0, OWNER, 3)
    for refused in (
        lambda: ledger.heartbeat(0, OWNER, 4, attempt=0),
        lambda: ledger.finish(0, OWNER, 4, attempt=0),
        lambda: ledger.fail(0, OWNER, 4, FailClass.TIMEOUT, attempt=0),
    ):
        with pytest.raises(LeaseLostError):
            refused()
    ledger.heartbeat(0, OWNER, 4, attempt=1)
    ledger.finish(0, OWNER, 4, attempt=1)
    assert ledger.state(0) is State.TERMINAL_SUCCESS


def test_a_delayed_retry_waits_and_due_ones_come_in_seq_order() -> None:
    """Ruling D3."""
    ledger = in_flight(4)
    ledger.extend(2)
    ledger.fail(3, OWNER, 0, FailClass.RETRYABLE, delay_ms=50)
    ledger.fail(1, OWNER, 0, FailClass.RETRYABLE, delay_ms=90)
    ledger.fail(2, OWNER, 0, FailClass.RETRYABLE, delay_ms=100)
    assert ledger.next_ready_ms == 50
    assert ledger.take(OTHER, 49, limit=1) == [range(4, 5)]
    assert ledger.take(OTHER, 100, limit=9) == [range(1, 4), range(5, 6)]
    assert ledger.take(OTHER, 100, limit=9) == []


def test_without_a_delayed_retry_there_is_nothing_to_wake_for() -> None:
    ledger = in_flight(1)
    ledger.fail(0, OWNER, 0, FailClass.RETRYABLE)
    assert ledger.next_ready_ms is None
    assert new_ledger(1).next_expiry_ms is None


def test_an_expired_item_in_flight_fails_and_is_dispatched_again_while_budget_lasts() -> None:
    """Lease rule 3, ruling D3."""
    ledger = in_flight(1, RetryGuard(max_attempts=2))
    assert ledger.reclaim(LEASE_MS - 1) == []
    assert ledger.next_expiry_ms == LEASE_MS
    assert ledger.reclaim(LEASE_MS) == [Reclaim(0, State.IN_FLIGHT, State.DISPATCHED, 1)]
    assert ledger.reclaim(9 * LEASE_MS) == []
    ledger.dispatch(0, OTHER, LEASE_MS)
    ledger.begin(0, OTHER, LEASE_MS)
    with pytest.raises(LeaseLostError):
        ledger.finish(0, OWNER, LEASE_MS)
    assert ledger.reclaim(2 * LEASE_MS) == []  # time never runs back, so the lease counts from 9 * LEASE_MS
    assert ledger.reclaim(10 * LEASE_MS) == [Reclaim(0, State.IN_FLIGHT, State.TERMINAL_FAIL, 1)]
    assert ledger.outcome(0) == (State.TERMINAL_FAIL, FailClass.LEASE_EXPIRED)


def test_a_dispatched_item_whose_owner_is_gone_goes_to_another_unchanged() -> None:
    """Ruling D3: no attempt was made, so none is counted."""
    ledger = new_ledger(2)
    ledger.dispatch_range(0, 2, OWNER, 0)
    ledger.begin(0, OWNER, 0)
    assert ledger.release(OTHER) == []
    assert ledger.release(OWNER) == [
        Reclaim(0, State.IN_FLIGHT, State.DISPATCHED, 1),
        Reclaim(1, State.DISPATCHED, State.DISPATCHED, 0),
    ]
    assert ledger.take(OTHER, 1, limit=5) == [range(2)]
    with pytest.raises(LeaseLostError):
        ledger.begin(1, OWNER, 1)


def test_only_an_items_own_progress_renews_its_lease() -> None:
    """Ruling D9: of one owner's four items, those that ticked or began live on."""
    ledger = new_ledger(4)
    ledger.dispatch_range(0, 4, OWNER, 0)
    ledger.begin(0, OWNER, 0)
    ledger.heartbeat(0, OWNER, 600)
    ledger.begin(2, OWNER, 700)
    expired = ledger.reclaim(LEASE_MS)
    assert [decision.seq for decision in expired] == [1, 3]
    assert ledger.next_expiry_ms == 600 + LEASE_MS
    assert [decision.seq for decision in ledger.reclaim(1_650)] == [0]
    ledger.heartbeat_range(2, 3, OWNER, 1_660)
    assert ledger.reclaim(2_659) == []
    assert [decision.seq for decision in ledger.reclaim(2_660)] == [2]


def test_a_free_item_amid_renewed_ones_expires_nobody() -> None:
    ledger = in_flight(3)
    ledger.heartbeat_range(0, 3, OWNER, 500)
    ledger.fail(1, OWNER, 500, FailClass.RETRYABLE)
    assert ledger.reclaim(LEASE_MS) == []
    assert [decision.seq for decision in ledger.reclaim(1_500)] == [0, 2]


def test_a_tick_after_the_end_means_nothing() -> None:
    ledger = in_flight(1)
    ledger.finish(0, OWNER, 1)
    ledger.heartbeat(0, OWNER, 2)
    assert ledger.reclaim(5 * LEASE_MS) == []


def test_leases_outlive_the_32_bit_clock() -> None:
    """Beats are kept in 32 bits; a run that lasts for months must not see them wrap."""
    ledger = in_flight(3)
    month_ms = 30 * 86_400_000
    ledger.heartbeat(1, OWNER, month_ms)
    ledger.heartbeat(1, OWNER, 3 * month_ms)
    assert [decision.seq for decision in ledger.reclaim(3 * month_ms + 1)] == [0, 2]
    assert ledger.next_expiry_ms == 3 * month_ms + LEASE_MS
    assert [decision.seq for decision in ledger.reclaim(3 * month_ms + LEASE_MS)] == [1]


def test_beats_keep_their_distance_when_the_clock_is_rebased() -> None:
    ledger = in_flight(3)
    rebased_at_ms = 1 << 31
    ledger.heartbeat(1, OWNER, rebased_at_ms - 10)
    ledger.heartbeat(2, OWNER, rebased_at_ms + 10)
    assert [decision.seq for decision in ledger.reclaim(rebased_at_ms + 20)] == [0]
    assert ledger.reclaim(rebased_at_ms + LEASE_MS - 11) == []
    assert [decision.seq for decision in ledger.reclaim(rebased_at_ms + LEASE_MS - 10)] == [1]
    assert [decision.seq for decision in ledger.reclaim(rebased_at_ms + LEASE_MS + 10)] == [2]


def test_finished_leases_do_not_pile_up() -> None:
    """Ruling D6: the heap follows what is held, not what has passed through."""
    ledger = new_ledger(20_000)
    for seq in range(20_000):
        ledger.dispatch(seq, OWNER, seq)  # another moment each, so that none joins its neighbour
        ledger.begin(seq, OWNER, seq)
        ledger.finish(seq, OWNER, seq)
    assert len(ledger._leases) < 3_000


def test_commits_come_in_order_and_in_runs_and_name_the_missing_head() -> None:
    """Ruling D7."""
    ledger = in_flight(6)
    ledger.finish_range(1, 4, OWNER, 1)
    assert ledger.lane.ready() == range(0)
    awaited = ledger.lane.awaited()
    assert awaited is not None
    assert (awaited.seq, awaited.state, awaited.owner) == (0, State.IN_FLIGHT, OWNER)
    assert "owner 7 is working on it, attempt 1" in awaited.reason
    ledger.finish(0, OWNER, 2, State.TERMINAL_SKIP)
    assert ledger.lane.ready() == range(4)
    assert ledger.lane.ready(limit=2) == range(2)
    assert ledger.lane.commit(0, 2, COMMITTER, 3) == 2
    assert ledger.lane.commit(0, 4, COMMITTER, 3) == 2  # a replay that reaches further
    assert ledger.lane.commit(0, 4, COMMITTER, 3) == 0  # a replay: no-op (ruling D5)
    assert ledger.lane.ready() == range(4, 4)
    with pytest.raises(LedgerError, match="seq 4 is next"):
        ledger.lane.commit(5, 6, COMMITTER, 3)
    with pytest.raises(LedgerError, match="ends at 6"):
        ledger.lane.commit(4, 7, COMMITTER, 3)
    assert ledger.failure is None
    with pytest.raises(IllegalTransitionError, match="seq 4: IN_FLIGHT -> COMMITTED"):
        ledger.lane.commit(4, 6, COMMITTER, 3)


def test_the_head_says_what_it_waits_for() -> None:
    ledger = new_ledger(1)

    def reason() -> str:
        awaited = ledger.lane.awaited()
        assert awaited is not None
        return awaited.reason

    assert reason() == "not dispatched yet"
    ledger.dispatch(0, OWNER, 0)
    assert reason() == "owner 7 has not begun it"
    ledger.begin(0, OWNER, 0)
    ledger.fail(0, OWNER, 0, FailClass.RETRYABLE)
    assert reason() == "waiting for an owner, after 1 retries"
    ledger.dispatch(0, OWNER, 0)
    ledger.begin(0, OWNER, 0)
    ledger.finish(0, OWNER, 0)
    assert reason() == "ready to be committed"
    ledger.lane.commit(0, 1, COMMITTER, 0)
    assert ledger.lane.awaited() is None


def test_cancel_latches_dispatch_then_forces_and_every_item_ends_committed() -> None:
    """Rules 6 and 7, ruling D4."""
    ledger = new_ledger(8)
    ledger.dispatch_range(0, 5, OWNER, 0)
    ledger.begin_range(0, 3, OWNER, 0)
    ledger.finish(0, OWNER, 1)
    ledger.fail(2, OWNER, 1, FailClass.RETRYABLE)
    assert ledger.cancel(COMMITTER, 2) == 6
    with pytest.raises(LedgerError, match="being cancelled"):
        ledger.take(OTHER, 3, limit=1)
    with pytest.raises(LeaseLostError):
        ledger.begin(3, OWNER, 3)
    assert ledger.state(1) is State.IN_FLIGHT  # the grace period
    assert ledger.cancel(COMMITTER, 4, force=True) == 1
    with pytest.raises(LeaseLostError):
        ledger.finish(1, OWNER, 5)
    ledger.check()
    assert ledger.lane.commit(0, 8, COMMITTER, 5) == 8
    counters = ledger.counters()
    assert (counters.committed, counters.succeeded, counters.cancelled) == (8, 1, 7)


def test_a_failure_during_the_grace_period_is_not_retried() -> None:
    ledger = in_flight(2)
    ledger.cancel(COMMITTER, 1)
    assert not ledger.fail(0, OWNER, 2, FailClass.RETRYABLE)
    assert ledger.reclaim(LEASE_MS) == [Reclaim(1, State.IN_FLIGHT, State.TERMINAL_FAIL, 0)]


def test_a_bulk_operation_writes_all_or_nothing_and_names_the_first_odd_item() -> None:
    ledger = in_flight(6)
    ledger.finish(3, OWNER, 1)
    before = ledger.export(0, 6)
    with pytest.raises(IllegalTransitionError, match="seq 3: TERMINAL_SUCCESS -> TERMINAL_SKIP"):
        ledger.finish_each(2, bytes([3, 4, 3]), OWNER, 2)
    assert ledger.export(0, 6) == before
    ledger = new_ledger(6)
    ledger.dispatch(4, OTHER, 0)
    with pytest.raises(IllegalTransitionError, match="seq 4: DISPATCHED -> DISPATCHED"):
        ledger.dispatch_range(0, 6, OWNER, 0)
    assert ledger.counters().dispatched == 1
    ledger = new_ledger(2)
    with pytest.raises(IllegalTransitionError, match="seq 0: UNSEEN -> IN_FLIGHT"):
        ledger.begin_range(0, 2, OWNER, 0)


def test_outcomes_of_a_range_may_differ() -> None:
    ledger = in_flight(5)
    ledger.finish_each(0, bytes([3, 4, 6, 3, 3]), OWNER, 1)
    counters = ledger.counters()
    assert (counters.succeeded, counters.skipped, counters.cancelled, counters.in_flight) == (3, 1, 1, 0)
    ledger.check()
    ledger.dispatch_range(5, 5, OWNER, 1)
    ledger.finish_each(5, b"", OWNER, 1)
    assert ledger.counters() == counters


def test_a_failure_cannot_slip_past_the_retry_guard() -> None:
    ledger = in_flight(2)
    with pytest.raises(InvalidArgumentError, match=r"fail\(\)"):
        ledger.finish(0, OWNER, 1, State.TERMINAL_FAIL)
    with pytest.raises(InvalidArgumentError, match=r"fail\(\)"):
        ledger.finish_range(0, 2, OWNER, 1, State.TERMINAL_FAIL)
    assert ledger.counters().in_flight == 2


def test_take_hands_out_free_items_first_and_stays_below_the_window() -> None:
    ledger = new_ledger(10)
    ledger.dispatch(2, OTHER, 0)
    assert ledger.take(OWNER, 0, limit=4, stop=6) == [range(2), range(3, 5)]
    ledger.release(OTHER)
    assert ledger.take(OWNER, 0, limit=9, stop=6) == [range(2, 3), range(5, 6)]
    assert ledger.take(OWNER, 0, limit=9, stop=6) == []
    assert ledger.take(OWNER, 0, limit=2) == [range(6, 8)]
    ledger.extend(1)
    assert ledger.take(OWNER, 0, limit=9) == [range(8, 11)]


def test_trimming_forgets_committed_items_and_keeps_the_counts() -> None:
    ledger = in_flight(6)
    ledger.finish_each(0, bytes([3, 4]), OWNER, 1)
    ledger.fail(2, OWNER, 1, FailClass.PERMANENT)
    ledger.finish(3, OWNER, 1)
    ledger.lane.commit(0, 4, COMMITTER, 1)
    before = ledger.counters()
    ledger.trim(3)
    ledger.trim(3)
    assert (ledger.base, ledger.counters()) == (3, before)
    ledger.check()
    assert ledger.state(0) is State.COMMITTED
    with pytest.raises(LeaseLostError):
        ledger.finish(0, OWNER, 2)
    with pytest.raises(LedgerError, match="not all of them are committed"):
        ledger.trim(5)
    ledger.finish_range(4, 6, OWNER, 2)
    assert ledger.lane.ready() == range(4, 6)
    assert ledger.lane.commit(4, 6, COMMITTER, 2) == 2
    assert ledger.reclaim(9 * LEASE_MS) == []
    ledger.trim(6)
    ledger.check()
    assert ledger.extend(2) == range(6, 8)
    assert ledger.take(OTHER, 3, limit=5) == [range(6, 8)]


def test_a_stored_ledger_goes_on_where_it_stopped() -> None:
    ledger = new_ledger(8)
    ledger.dispatch_range(0, 7, OWNER, 0)
    ledger.begin_range(0, 6, OWNER, 0)
    ledger.finish_range(0, 3, OWNER, 0)
    ledger.fail(3, OWNER, 0, FailClass.RETRYABLE)
    ledger.fail(4, OWNER, 0, FailClass.PERMANENT)
    ledger.lane.commit(0, 2, COMMITTER, 0)
    copy = SequenceLedger(lease_ms=LEASE_MS, now_ms=50, retry=THREE)
    copy.load(ledger.export(0, 5))
    copy.load(ledger.export(5, 8))
    assert copy.counters() == ledger.counters()
    copy.check()
    assert copy.lane.head == 2
    assert copy.reclaim(50) == [Reclaim(5, State.IN_FLIGHT, State.DISPATCHED, 1)]
    assert copy.take(OTHER, 50, limit=9) == [range(3, 4), range(5, 7), range(7, 8)]
    assert (copy.attempts(3), copy.outcome(4)) == (1, (State.TERMINAL_FAIL, FailClass.PERMANENT))


@pytest.mark.parametrize(
    "segment",
    [
        Segment(1, b"\0", b"\0", b"\0\0"),
        Segment(0, b"\0", b"", b"\0\0"),
        Segment(0, b"\0", b"\0", b"\0\0\0\0"),
        Segment(0, b"\x08", b"\0", b"\0\0"),
        Segment(0, b"\x03", b"\0", b"\0\0"),
        Segment(0, b"\x03\x07", b"\3\3", b"\0\0\0\0"),
    ],
)
def test_a_corrupt_segment_is_refused(segment: Segment) -> None:
    with pytest.raises(LedgerError, match="segment"):
        SequenceLedger(lease_ms=1, now_ms=0).load(segment)


def test_committed_items_behind_open_ones_of_an_earlier_segment_are_refused() -> None:
    ledger = new_ledger(1)
    with pytest.raises(LedgerError, match="behind one that is not"):
        ledger.load(Segment(1, b"\x07", b"\x03", b"\0\0"))


@pytest.mark.parametrize("owner", [0, -1, 1 << 32])
def test_an_owner_is_a_positive_token(owner: int) -> None:
    ledger = new_ledger(1)
    for refused in (
        lambda: ledger.dispatch(0, owner, 0),
        lambda: ledger.dispatch_range(0, 1, owner, 0),
        lambda: ledger.take(owner, 0, limit=1),
        lambda: ledger.cancel(owner, 0),
    ):
        with pytest.raises(InvalidArgumentError, match="token"):
            refused()
    assert ledger.counters().unseen == 1


def test_what_was_never_taken_in_is_refused() -> None:
    ledger = new_ledger(2)
    for refused in (
        lambda: ledger.dispatch(2, OWNER, 0),
        lambda: ledger.dispatch(-1, OWNER, 0),
        lambda: ledger.begin(2, OWNER, 0),
        lambda: ledger.finish(2, OWNER, 0),
        lambda: ledger.dispatch_range(1, 3, OWNER, 0),
        lambda: ledger.begin_range(1, 0, OWNER, 0),
        lambda: ledger.state(2),
        lambda: ledger.extend(-1),
    ):
        with pytest.raises(InvalidArgumentError):
            refused()


def test_a_ledger_is_made_with_sound_settings() -> None:
    for lease_ms in (0, (1 << 30) + 1):
        with pytest.raises(InvalidArgumentError, match="lease_ms"):
            SequenceLedger(lease_ms=lease_ms, now_ms=0)
    with pytest.raises(InvalidArgumentError, match="seq -1"):
        SequenceLedger(lease_ms=1, now_ms=0, base=-1)


def test_drifted_counters_are_found() -> None:
    ledger = in_flight(2)
    ledger._counts[State.IN_FLIGHT] += 1
    with pytest.raises(LedgerError, match="drifted"):
        ledger.check()


def test_an_item_costs_at_most_16_bytes() -> None:
    tracemalloc.start()
    try:
        ledger = new_ledger(0)
        for _ in range(100):
            ledger.extend(1_000)
        ledger.dispatch_range(0, 100_000, OWNER, 0)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used <= 16 * 100_000
