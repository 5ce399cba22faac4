"""Inline calls that are to begin: heard of as the body makes them, and not searched for among all that are open.

A call is here from when the body has made it until it begins, and again when its next attempt is due. What has ended
meanwhile, or waits for another attempt, is found to be so when its turn comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from heapq import heappop, heappush

from holdfast.models.workflow.open_call import OpenCall
from holdfast.models.workflow.transaction import Transaction


class Agenda:
    """Of one session."""

    __slots__ = ("_calls", "_is_mixed", "_retries", "_seen", "_transactions", "unchecked")

    def __init__(self) -> None:
        self._seen = 0  # operations of the body with a lower number were looked at
        self._calls: dict[str, OpenCall] = {}
        self._is_mixed = False  # they are not in the order in which the body made them
        self._transactions: list[int] = []  # a heap of numbers: one begins at a time, and before all else
        self._retries: list[tuple[int, str]] = []  # a heap: when the next attempt of a call is due
        self.unchecked: deque[OpenCall] = deque()  # whether this worker has the resources that they need

    def startable(self, open_calls: Mapping[str, OpenCall], end: int, now_us: int) -> list[OpenCall]:
        """What is to begin now: a transaction, or else all that is there, in the order in which the body made it.

        `end` is the number of the body's next operation.
        """
        self._look(open_calls, end)
        while (due_us := self.next_retry_us(open_calls)) is not None and due_us <= now_us:
            self._enter(open_calls[heappop(self._retries)[1]])
            self._is_mixed = True
        while self._transactions:
            call = open_calls.get(f".{self._transactions[0]}")
            if call is not None and (call.retry_at_us is None or call.retry_at_us <= now_us):
                return [call]
            heappop(self._transactions)
        if not self._calls:
            return []
        self._calls = {
            promise_id: call
            for promise_id, call in self._calls.items()
            if open_calls.get(promise_id) is call and (call.retry_at_us is None or call.retry_at_us <= now_us)
        }
        if not self._is_mixed:
            return [*self._calls.values()]
        self._calls = {call.promise_id: call for call in sorted(self._calls.values(), key=_number)}
        self._is_mixed = False
        return [*self._calls.values()]

    def began(self, call: OpenCall) -> None:
        """It is at work beside the body."""
        self._calls.pop(call.promise_id, None)

    def note_retry(self, call: OpenCall) -> None:
        assert call.retry_at_us is not None
        heappush(self._retries, (call.retry_at_us, call.promise_id))

    def next_retry_us(self, open_calls: Mapping[str, OpenCall]) -> int | None:
        """When the next attempt of a call is due."""
        retries = self._retries
        while retries:
            at_us, promise_id = retries[0]
            call = open_calls.get(promise_id)
            if call is not None and call.retry_at_us == at_us:
                return at_us
            heappop(retries)
        return None

    def _look(self, open_calls: Mapping[str, OpenCall], end: int) -> None:
        """At what the body has made since, or at all that is open where that is less."""
        seen, self._seen = self._seen, end
        if end - seen <= 2 * len(open_calls):
            new = [call for number in range(seen, end) if (call := open_calls.get(f".{number}")) is not None]
        else:
            new = [call for call in open_calls.values() if seen <= _number(call) < end]
        for call in new:
            if call.is_remote:
                continue
            if call.retry_at_us is None:
                self._enter(call)
            else:
                self.note_retry(call)

    def _enter(self, call: OpenCall) -> None:
        callee = call.callee
        if isinstance(callee, Transaction):
            heappush(self._transactions, _number(call))
            return
        self._calls[call.promise_id] = call
        if callee.resources:  # type: ignore[union-attr]  # the body has asked for it, and it is a task
            self.unchecked.append(call)


def _number(call: OpenCall) -> int:
    return int(call.promise_id[1:])
