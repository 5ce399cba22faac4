"""The answers for a body: whether it may go on at once, and with what; and where a cancel reaches it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from holdfast.core.journal.events import AwaitKind, ExecutionAwaiting, ExecutionResumed, SignalWait
from holdfast.models.workflow.control_flow import Cancelled
from holdfast.models.workflow.members import Members
from holdfast.models.workflow.past import BLOCKED, Past


class Answers(Past):
    """What the journal answers to the body."""

    __slots__ = ()

    def is_ready(
        self,
        kind: AwaitKind,
        ids: tuple[str, ...],
        signals: tuple[SignalWait, ...] = (),
        join_set_id: str | None = None,
    ) -> bool:
        """Whether the body may go on at once. Raises `Cancelled` where a cancel reaches the body here."""
        if self.awaits_cancel() and not self._settled_before(kind, ids, self.cancel_sequence, join_set_id):
            self._reach_cancel()
        if not self._settled_before(kind, ids, None, join_set_id):
            return False
        if self.is_blocked_on(kind, ids, join_set_id):
            # Replay has come to where the journal stands, and the answer is there: only now is the past over.
            self.append(ExecutionResumed(**self._event()))
            return True
        if signals and not self.cancel_raised and any(self.journal.find(wait.promise_id) < 0 for wait in signals):
            # The numbers of its signals must be in the journal, though there is nothing to wait for.
            self.append(ExecutionAwaiting(waiting_on=ids, kind=kind, signals=signals, **self._event()))
            self.append(ExecutionResumed(**self._event()))
        return True

    def is_ready_alone(self, promise_id: str) -> bool:
        """`is_ready` of one promise."""
        if self.cancel_sequence is None:
            if promise_id not in self.settled:
                return False
            journal = self.journal
            if journal.status is not BLOCKED or journal.waiting is None or journal.waiting.waiting_on != (promise_id,):
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

    def is_blocked_on(self, kind: AwaitKind, ids: tuple[str, ...], join_set_id: str | None) -> bool:
        """Whether the journal stands at this very wait: in these words, or in others that say the same.

        Of a join set the one may name each member that is left, and the other the set.
        """
        waiting = self.journal.waiting if self.journal.status is BLOCKED else None
        if waiting is None or waiting.kind != kind:
            return False
        recorded = waiting.join_set_id
        if recorded is None and join_set_id is None:
            return waiting.waiting_on == ids
        if recorded in self.taken or join_set_id in self.taken:
            return False  # an earlier wait for the set, at which more was left
        if recorded == join_set_id:
            return waiting.waiting_on == ids
        count = len(waiting.waiting_on) + self._left(recorded)
        is_as_wide = count == len(ids) + self._left(join_set_id)
        return is_as_wide and self._named(waiting.waiting_on, recorded) == self._named(ids, join_set_id)

    def _left(self, join_set_id: str | None) -> int:
        members = None if join_set_id is None else self.join_sets.get(join_set_id)
        return 0 if members is None else len(members.left)

    def _named(self, ids: tuple[str, ...], join_set_id: str | None) -> tuple[str, ...]:
        """A wait for a join set as it is if every member is named."""
        members = None if join_set_id is None else self.join_sets.get(join_set_id)
        return ids if members is None else (*members.left, *ids)

    def _settled_before(
        self, kind: AwaitKind, ids: tuple[str, ...], limit: int | None, join_set_id: str | None = None
    ) -> bool:
        settled = self.settled
        if join_set_id is not None:
            first = self.join_sets[join_set_id].first
            if first is not None and (limit is None or first[0] < limit):
                return True
        elif limit is None and len(ids) == 1:
            return ids[0] in settled
        check = any if kind == "Any" else all
        return check(
            promise_id in settled and (limit is None or settled[promise_id].sequence < limit) for promise_id in ids
        )

    def first_of(self, ids: Sequence[str]) -> str:
        """The one that the journal has first: the same in every replay."""
        settled = self.settled
        return min((i for i in ids if i in settled), key=lambda promise_id: settled[promise_id].sequence)

    def is_before(self, promise_id: str, members: Members) -> bool:
        """Whether the journal has this before the end of any member that is left."""
        found, first = self.settled.get(promise_id), members.first
        return found is not None and (first is None or found.sequence < first[0])

    def take(self, promise_id: str) -> Any:
        """The answer; the promise keeps it from here on."""
        return self.settled[promise_id].value


def number_of(promise_id: str) -> str:
    return promise_id.rpartition(".")[2]
