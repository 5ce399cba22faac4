"""The three example sequences of the seed, event for event, with the state that each event leaves."""

from __future__ import annotations

from msgspec import Raw

from holdfast.core.journal import JournalStatus
from holdfast.core.journal import events as e
from holdfast.core.journal.events import Event, Failure, Ok, SignalWait
from tests.core.journal.script import LATER, NOW

R, B, C = JournalStatus.RUNNING, JournalStatus.BLOCKED, JournalStatus.COMPLETED

USER = Ok(Raw(b'{"id":42,"name":"Ada"}'))
SENT = Ok(Raw(b'"sent"'))
ORDER = Ok(Raw(b'{"order":17}'))
APPROVED = Raw(b'{"approved":true}')
REFUSED = Failure("user", "SmtpError", "try again", Raw(b'{"code":421}'))
POLICY = Raw(b'{"max_attempts":3}')


def _invoke(sequence: int, promise_id: str, name: str, arguments: bytes) -> e.InvokeScheduled:
    return e.InvokeScheduled(sequence, NOW, promise_id, "Function", name, Raw(arguments), "9f86d081884c7d65", POLICY)


def _started() -> e.ExecutionStarted:
    return e.ExecutionStarted(0, NOW, "sha256:c0de", Raw(b'{"user":42}'), None, "order-17")


# Journal Sequence: Full Example
FULL: list[tuple[Event, JournalStatus]] = [
    (_started(), R),
    (e.RandomGenerated(1, NOW, ".0", Raw(b"6699"), "u64"), R),
    (_invoke(2, ".1", "fetch_user", b'{"id":42}'), R),
    (e.ExecutionAwaiting(3, NOW, (".1",), "Single"), B),
    (e.InvokeStarted(4, NOW, ".1", 1), B),
    (e.InvokeCompleted(5, NOW, ".1", USER, 1), B),
    (e.ExecutionResumed(6, NOW), R),
    (e.JoinSetCreated(7, NOW, ".2"), R),
    (_invoke(8, ".3", "send_email", b'{"to":"ada"}'), R),
    (e.JoinSetSubmitted(9, NOW, ".2", ".3"), R),
    (_invoke(10, ".4", "send_sms", b'{"to":"ada"}'), R),
    (e.JoinSetSubmitted(11, NOW, ".2", ".4"), R),
    (e.ExecutionAwaiting(12, NOW, (".3", ".4"), "Any"), B),
    (e.InvokeStarted(13, NOW, ".4", 1), B),
    (e.InvokeCompleted(14, NOW, ".4", SENT, 1), B),
    (e.ExecutionResumed(15, NOW), R),
    (e.JoinSetAwaited(16, NOW, ".2", ".4", SENT), R),
    (e.ExecutionAwaiting(17, NOW, (".3",), "Any"), B),
    (e.InvokeStarted(18, NOW, ".3", 1), B),
    (e.InvokeRetrying(19, NOW, ".3", 1, REFUSED, LATER), B),
    (e.InvokeStarted(20, NOW, ".3", 2), B),
    (e.InvokeCompleted(21, NOW, ".3", SENT, 2), B),
    (e.ExecutionResumed(22, NOW), R),
    (e.JoinSetAwaited(23, NOW, ".2", ".3", SENT), R),
    (e.ExecutionCompleted(24, NOW, Raw(b'"final"')), C),
]

_ORDERED: list[tuple[Event, JournalStatus]] = [
    (_started(), R),
    (_invoke(1, ".0", "create_order", b'{"id":17}'), R),
    (e.ExecutionAwaiting(2, NOW, (".0",), "Single"), B),
    (e.InvokeStarted(3, NOW, ".0", 1), B),
    (e.InvokeCompleted(4, NOW, ".0", ORDER, 1), B),
    (e.ExecutionResumed(5, NOW), R),
]

# Buffered signal (arrives before `await_signal()`)
BUFFERED: list[tuple[Event, JournalStatus]] = [
    *_ORDERED,
    (e.SignalDelivered(6, NOW, "user_approval", APPROVED, 1), R),
    (e.SignalReceived(7, NOW, ".1", "user_approval", APPROVED, 1), R),
    (e.ExecutionCompleted(8, NOW, Raw(b'"result"')), C),
]

# Blocking signal (arrives after `await_signal()`)
BLOCKING: list[tuple[Event, JournalStatus]] = [
    *_ORDERED,
    (e.ExecutionAwaiting(6, NOW, (".1",), "Signal", (SignalWait(".1", "user_approval"),)), B),
    (e.SignalDelivered(7, NOW, "user_approval", APPROVED, 1), B),
    (e.SignalReceived(8, NOW, ".1", "user_approval", APPROVED, 1), B),
    (e.ExecutionResumed(9, NOW), R),
    (e.ExecutionCompleted(10, NOW, Raw(b'"result"')), C),
]

EXAMPLES: dict[str, list[tuple[Event, JournalStatus]]] = {
    "full": FULL,
    "buffered_signal": BUFFERED,
    "blocking_signal": BLOCKING,
}
