"""The answers for a body: whether it may go on at once, and with what; and where a cancel reaches it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from holdfast.core.journal.events import AwaitKind, ExecutionAwaiting, ExecutionResumed, SignalWait
from holdfast.models.workflow.control_flow import Cancelled
from holdfast.models.workflow.past import BLOCKED, Past


class Answers(Past):
    """What the journal answers to the body."""

    __slots__ = ()

    def is_ready(self, kind: AwaitKind, ids: Sequence[str], signals: tuple[SignalWait, ...] = ()) -> bool:
        """Whether the body may go on at once. Raises `Cancelled` where a cancel reaches the body here."""
        if self.awaits_cancel() and not self._settled_before(kind, ids, self.cancel_sequence):
            self._reach_cancel()
        if not self._settled_before(kind, ids, None):
            return False
        waiting = self.journal.waiting if self.journal.status is BLOCKED else None
        if waiting is not None and (waiting.kind, waiting.waiting_on) == (kind, tuple(ids)):
            # Replay has come to where the journal stands, and the answer is there: only now is the past over.
            self.append(ExecutionResumed(**self._event()))
            return True
        if any(self.journal.find(wait.promise_id) < 0 for wait in signals):
            # The numbers of its signals must be in the journal, though there is nothing to wait for.
            self.append(ExecutionAwaiting(waiting_on=tuple(ids), kind=kind, signals=signals, **self._event()))
            self.append(ExecutionResumed(**self._event()))
        return True

    def is_ready_alone(self, promise_id: str) -> bool:
        """`is_ready` of one promise."""
        if self.cancel_sequence is None:
            if promise_id not in self.settled:
                return False
            journal = self.journal
            if journal.status is not BLOCKED or journal.waiting is None or promise_id not in journal.waiting.waiting_on:
                return True
        return self.is_ready("Single", (promise_id,))

    def awaits_cancel(self) -> bool:
        """Whether a cancel was requested that the body has not heard of."""
        return self.cancel_sequence is not None and not self.cancel_raised

    def _reach_cancel(self) -> NoReturn:
        """The cancel reaches the body; what it had begun and not got is to be cancelled with it."""
        self.note_cancel_raised()
        raise Cancelled(self.cancel_reason)

    def note_cancel_raised(self) -> None:
        self.cancel_raised = True
        self.to_cancel += tuple(pid for pid in self.open_calls if int(number_of(pid)) < self.next)

    def _settled_before(self, kind: AwaitKind, ids: Sequence[str], limit: int | None) -> bool:
        settled = self.settled
        if limit is None and len(ids) == 1:
            return ids[0] in settled
        check = any if kind == "Any" else all
        return check(
            promise_id in settled and (limit is None or settled[promise_id].sequence < limit) for promise_id in ids
        )

    def first_of(self, ids: Sequence[str]) -> str:
        """The one that the journal has first: the same in every replay."""
        settled = self.settled
        return min((i for i in ids if i in settled), key=lambda promise_id: settled[promise_id].sequence)

    def take(self, promise_id: str) -> Any:
        """The answer; the promise keeps it from here on."""
        return self.settled[promise_id].value


def number_of(promise_id: str) -> str:
    return promise_id.rpartition(".")[2]
