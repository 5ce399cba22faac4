"""Histories in a few words: `Script().start().schedule(0).begin(0).complete(0)`.

Each method appends one event with the next sequence number; children are given by number. `wrong_*` methods do not
exist: a wrong history is a script that does the right thing at the wrong time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Self

from msgspec import Raw

from holdfast.core.journal import events as e
from holdfast.core.journal.events import AwaitKind, Event, Failure, Ok, Result, SignalWait

NOW = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
ROOT = "root"
BOOM = Failure("user", "ValueError", "boom", Raw(b'{"code":7}'))


def ok(text: str = "1") -> Ok:
    return Ok(Raw(text))


def child(number: int | str) -> str:
    """`.3` for 3, as a journal names its own; a string stands for itself."""
    return number if isinstance(number, str) else f".{number}"


class Script:
    """A history under construction."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.skip = 0

    @property
    def sequence(self) -> int:
        return len(self.events) + self.skip

    def add(self, event: Event) -> Self:
        self.events.append(event)
        return self

    def start(self) -> Self:
        return self.add(e.ExecutionStarted(self.sequence, NOW, "sha256:c0de", Raw(b'{"order":1}')))

    def finish(self) -> Self:
        return self.add(e.ExecutionCompleted(self.sequence, NOW, Raw(b'"done"')))

    def fail(self) -> Self:
        return self.add(e.ExecutionFailed(self.sequence, NOW, BOOM))

    def cancel(self) -> Self:
        return self.add(e.CancelRequested(self.sequence, NOW, "no longer wanted"))

    def cancelled(self) -> Self:
        return self.add(e.ExecutionCancelled(self.sequence, NOW, "no longer wanted"))

    def schedule(self, number: int | str) -> Self:
        return self.add(e.InvokeScheduled(self.sequence, NOW, child(number), "Function", "task", Raw(b"[1]"), "f1"))

    def begin(self, number: int | str, attempt: int = 1) -> Self:
        return self.add(e.InvokeStarted(self.sequence, NOW, child(number), attempt))

    def complete(self, number: int | str, attempt: int = 1, result: Result | None = None) -> Self:
        return self.add(e.InvokeCompleted(self.sequence, NOW, child(number), result or ok(), attempt))

    def retry(self, number: int | str, attempt: int = 1) -> Self:
        return self.add(e.InvokeRetrying(self.sequence, NOW, child(number), attempt, BOOM, LATER))

    def call(self, number: int | str, result: Result | None = None) -> Self:
        """Three phases at once."""
        return self.schedule(number).begin(number).complete(number, result=result)

    def random(self, number: int | str) -> Self:
        return self.add(e.RandomGenerated(self.sequence, NOW, child(number), Raw(b"6699"), "u64"))

    def time(self, number: int | str) -> Self:
        return self.add(e.TimeRecorded(self.sequence, NOW, child(number), NOW))

    def timer(self, number: int | str) -> Self:
        return self.add(e.TimerScheduled(self.sequence, NOW, child(number), timedelta(hours=1), LATER, "PT1H"))

    def fire(self, number: int | str) -> Self:
        return self.add(e.TimerFired(self.sequence, NOW, child(number)))

    def deliver(self, name: str, delivery_id: int, payload: str = "true") -> Self:
        return self.add(e.SignalDelivered(self.sequence, NOW, name, Raw(payload), delivery_id))

    def receive(self, number: int | str, name: str, delivery_id: int, payload: str = "true") -> Self:
        return self.add(e.SignalReceived(self.sequence, NOW, child(number), name, Raw(payload), delivery_id))

    def wait(
        self, *numbers: int | str, kind: AwaitKind = "Single", signals: dict[int | str, str] | None = None
    ) -> Self:
        waits = tuple(SignalWait(child(number), name) for number, name in (signals or {}).items())
        waiting_on = tuple(child(number) for number in numbers)
        return self.add(e.ExecutionAwaiting(self.sequence, NOW, waiting_on, kind, waits))

    def wait_set(
        self,
        join_set: int | str,
        *numbers: int | str,
        kind: AwaitKind = "Any",
        signals: dict[int | str, str] | None = None,
    ) -> Self:
        waits = tuple(SignalWait(child(number), name) for number, name in (signals or {}).items())
        waiting_on = tuple(child(number) for number in numbers)
        return self.add(e.ExecutionAwaiting(self.sequence, NOW, waiting_on, kind, waits, child(join_set)))

    def wait_signal(self, number: int | str, name: str) -> Self:
        return self.wait(number, kind="Signal", signals={number: name})

    def resume(self) -> Self:
        return self.add(e.ExecutionResumed(self.sequence, NOW))

    def join_set(self, number: int | str) -> Self:
        return self.add(e.JoinSetCreated(self.sequence, NOW, child(number)))

    def submit(self, join_set: int | str, number: int | str) -> Self:
        return self.add(e.JoinSetSubmitted(self.sequence, NOW, child(join_set), child(number)))

    def take(self, join_set: int | str, number: int | str, result: Result | None = None) -> Self:
        return self.add(e.JoinSetAwaited(self.sequence, NOW, child(join_set), child(number), result or ok()))
