"""Every rule that a journal keeps, as data, and what breaking one looks like.

- The 20 invariants of the seed: S-1..S-5, SE-1..SE-4, CF-1..CF-4, JS-1..JS-7.
- The guards and further checks of the rulings: B2, B3, B8, B10, B14, B18. One ruling has several rules; their
  names tell them apart.
- `Violation`: a rule, the sequence at which it broke, and the ids it is about.

The checks themselves are in `lifecycle`, `calls`, `control` and `join_sets`.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class Rule(Struct, frozen=True):
    """`id` is the seed's or the ruling's, `name` is unique, `text` says what must hold."""

    id: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.id} {self.name}"


class Violation(Struct, frozen=True):
    """One rule broken by one event; `sequence` is the event's place, `ids` what it is about."""

    rule: Rule
    sequence: int
    ids: tuple[str, ...]
    detail: str

    def __str__(self) -> str:
        about = f" ({', '.join(self.ids)})" if self.ids else ""
        return f"{self.rule} at {self.sequence}{about}: {self.detail}"


S_1: Final = Rule("S-1", "monotonic_sequence", "sequence numbers count up from 0 without a gap")
S_2: Final = Rule("S-2", "starts_with_started", "the first event is ExecutionStarted")
S_3: Final = Rule("S-3", "single_terminal", "there is at most one terminal event")
S_4: Final = Rule("S-4", "terminal_is_last", "nothing follows the terminal event")
S_5: Final = Rule("S-5", "cancelled_requires_requested", "ExecutionCancelled follows a CancelRequested")

SE_1: Final = Rule("SE-1", "started_requires_scheduled", "a call is scheduled before it starts")
SE_2: Final = Rule("SE-2", "completed_requires_started", "a call starts before it completes")
SE_3: Final = Rule("SE-3", "retrying_requires_started", "only an attempt that started can be retried")
SE_4: Final = Rule("SE-4", "no_events_after_completed", "a completed call neither starts nor retries")

CF_1: Final = Rule("CF-1", "timer_fired_requires_scheduled", "a timer is scheduled before it fires")
CF_2: Final = Rule(
    "CF-2", "signal_received_requires_delivered", "a received signal was delivered with this id and payload"
)
CF_3: Final = Rule("CF-3", "signal_consumed_once", "a delivery is consumed at most once")
CF_4: Final = Rule("CF-4", "await_signal_consistent", "a wait for a signal waits on that signal's promise alone")

JS_1: Final = Rule("JS-1", "submit_requires_created", "a join set is created before it takes members")
JS_2: Final = Rule("JS-2", "no_submit_after_await", "a join set takes no members after its first result")
JS_3: Final = Rule("JS-3", "awaited_requires_member", "a result is taken only of a member of the join set")
JS_4: Final = Rule("JS-4", "awaited_requires_completed", "a result is taken only of a completed call")
JS_5: Final = Rule("JS-5", "no_double_consume", "a member's result is taken at most once")
JS_6: Final = Rule("JS-6", "consume_bounded", "a join set gives at most as many results as it has members")
JS_7: Final = Rule("JS-7", "promise_single_owner", "a promise is submitted at most once, to one join set")

START: Final = Rule("B2", "start_once", "ExecutionStarted only opens a journal")
COMPLETE: Final = Rule("B2", "complete_guard", "an execution completes from Running or Cancelling")
FAIL: Final = Rule("B2", "fail_guard", "an execution fails from Running or Cancelling")
CANCEL: Final = Rule("B2", "cancel_guard", "a cancel is requested from Running or Blocked")
CANCELLED: Final = Rule("B2", "cancelled_guard", "a cancel is finalised from Cancelling")
ALLOCATE: Final = Rule("B2", "allocate_guard", "an operation begins in Running, or in Cancelling for clean-up")
JOIN_SET: Final = Rule("B2", "join_set_guard", "a join set is used in Running, or in Cancelling for clean-up")
AWAIT: Final = Rule("B2", "await_guard", "an execution blocks from Running; clean-up records no wait")
RESUME: Final = Rule("B2", "resume_guard", "only a Blocked execution resumes; a late resume un-cancels nothing")
SATISFIED: Final = Rule("B2", "resume_satisfied", "an execution resumes once its wait is satisfied")

SIGNAL_FIFO: Final = Rule("B3", "signal_fifo", "signals of a name are consumed in delivery order")
DELIVERY_ID: Final = Rule("B3", "delivery_increasing", "delivery ids of a name are unique and increase")
AWAITED_RESULT: Final = Rule("B3", "awaited_result", "the result taken equals that of InvokeCompleted")
ATTEMPT_LAST: Final = Rule("B3", "attempt_last_started", "the attempt that ended is the last one that started")
ATTEMPT_NEXT: Final = Rule("B3", "attempt_next", "attempts count up by one from 1")
SCHEDULED_ONCE: Final = Rule("B3", "scheduled_once", "a promise has at most one InvokeScheduled")
COMPLETED_ONCE: Final = Rule("B3", "completed_once", "a promise has at most one InvokeCompleted")
FIRED_ONCE: Final = Rule("B3", "fired_once", "a promise has at most one TimerFired")
RECEIVED_ONCE: Final = Rule("B3", "received_once", "a promise has at most one SignalReceived")
CHILD_NUMBER: Final = Rule("B3", "child_number", "a child's id is its parent's and the next number")
WAIT_UNIQUE: Final = Rule("B3", "waiting_unique", "waiting_on names no promise twice")
WAIT_KNOWN: Final = Rule("B3", "waiting_known", "a wait names calls, timers, signals and a join set of this journal")
WAIT_SHAPE: Final = Rule(
    "B3",
    "waiting_shape",
    "Single waits on one promise, Any and All on one or more; only Any on a join set, which has results left",
)

MEMBER: Final = Rule("B8", "member_is_call", "only a scheduled call is a member of a join set")
SIGNAL_NAMED: Final = Rule("B10", "signal_named", "a wait names its signals, and receives them by that name")
AWARE_TIME: Final = Rule("B14", "aware_time", "every time in an event has a zone")
PATCH_STICKY: Final = Rule("B18", "patch_sticky", "a patch keeps the answer it gave first")

RULES: Final[tuple[Rule, ...]] = (
    *(S_1, S_2, S_3, S_4, S_5),
    *(SE_1, SE_2, SE_3, SE_4),
    *(CF_1, CF_2, CF_3, CF_4),
    *(JS_1, JS_2, JS_3, JS_4, JS_5, JS_6, JS_7),
    *(START, COMPLETE, FAIL, CANCEL, CANCELLED, ALLOCATE, JOIN_SET, AWAIT, RESUME, SATISFIED),
    *(SIGNAL_FIFO, DELIVERY_ID, AWAITED_RESULT, ATTEMPT_LAST, ATTEMPT_NEXT),
    *(SCHEDULED_ONCE, COMPLETED_ONCE, FIRED_ONCE, RECEIVED_ONCE, CHILD_NUMBER),
    *(WAIT_UNIQUE, WAIT_KNOWN, WAIT_SHAPE),
    *(MEMBER, SIGNAL_NAMED, AWARE_TIME, PATCH_STICKY),
)
