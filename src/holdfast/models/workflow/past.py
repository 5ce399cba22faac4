"""What a session knows: its journal, what the journal answers, and what is open. And how it learns more.

`load` takes in a stored journal; the rest appends what happened outside the body: signals, timers, calls, a cancel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine, Sequence
from heapq import heapify, heappop
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import UNSET, Raw

from holdfast.core.clock import to_datetime
from holdfast.core.errors import ConfigurationError, DecodeError, NonDeterminismError
from holdfast.core.journal import Journal, JournalStatus, Operation, quick
from holdfast.core.journal.book import NONE
from holdfast.core.journal.events import (
    CancelRequested,
    Event,
    Failure,
    InvokeCompleted,
    InvokeRetrying,
    InvokeScheduled,
    Ok,
    Result,
    SignalDelivered,
    SignalReceived,
)
from holdfast.core.journal.stamp import Stamp, stamp_at
from holdfast.models.workflow.agenda import Agenda
from holdfast.models.workflow.hidden_loop import Outside
from holdfast.models.workflow.learning import FIRED, take_in
from holdfast.models.workflow.members import Members
from holdfast.models.workflow.open_call import OpenCall, Settled
from holdfast.models.workflow.promise import UNNUMBERED, Wait

if TYPE_CHECKING:
    from holdfast.models.workflow.task import Task

# A call that a body has made: its input, that as it is read back, and its fingerprint.
Asked: TypeAlias = "tuple[Task[..., Any], str, tuple[Any, ...], str]"

BLOCKED: Final = JournalStatus.BLOCKED
_NEVER: Final = stamp_at(0)


class Past:
    """`promise_text` is the text of the execution's own id. All ids in here are the journal's: local to it.

    What few runs have is the class's, and `NONE`, until there is some of it: making and dropping all of it was much of
    what a run cost.
    """

    __slots__ = (
        *("__dict__", "answered", "asked", "body", "cancel_sequence", "caught_up", "decided", "divergence", "failure"),
        *("fresh", "is_evicting", "is_finished", "journal", "journal_bytes", "next", "now_us", "open_calls", "outside"),
        *("replay_until", "result", "settled", "spawned", "stamp", "timers", "to_cancel", "wait"),
    )

    # By name: delivered and not received, oldest first, with the sequence of the delivery.
    buffered: dict[str, deque[tuple[int, Raw]]] = NONE
    submitted: dict[str, Members] = NONE  # by promise: the join set that this run of the body put it into
    join_sets: dict[str, Members] = NONE  # by their ids: those with results that this run of the body has not taken
    agenda: Agenda | None = None  # what is to begin of the body's inline calls; the lane knows of its own
    alarms: list[tuple[int, str]] = NONE  # a heap: when open timers fire
    watched: set[str] = NONE  # calls that a combination or a join set waited for, perhaps among others
    published: dict[str, Raw] = NONE
    has_new_published = False
    attributes: dict[str, Any] = NONE
    has_new_attributes = False
    cancel_reason = ""
    cancel_raised = False
    children_at_cancel = 0
    loaded = 0  # how many events the journal had when it was read
    late_us = 0  # fire the timers that were due then, once it is known what clean-up waits for
    unnumbered = 0  # signals that clean-up has waited for
    received: dict[str, str] = NONE  # of those that came: the ids that they have in the journal
    recorded: list[InvokeScheduled | Operation] = NONE  # what the journal holds, by its number
    taken: dict[str, deque[str]] = NONE  # by join set: what replay has still to give, in order
    owners: dict[str, str] = NONE  # by promise: the join set that replay has still to see it submitted to
    is_fork = False  # its past is a copy, and what is open in it has not been spawned
    copied_from: tuple[str, ...] = ()  # the runs whose past it is

    def __init__(self, promise_text: str, body: Coroutine[Any, Any, Any] | None = None) -> None:
        self.journal = Journal(promise_text)
        self.body = body
        self.outside: Outside | None = None  # of the thread and loop that it runs on; looked for if not given
        self.now_us = 0  # the store's time of the last commit, which is what ctx.now() gives
        self.stamp = _NEVER
        self.next = 0
        self.replay_until = 0
        # The body is past everything that its journal holds, and may be asked on. Looked up often, so kept: nothing
        # comes back to `replay_until`, `taken` and `owners` once they are used up.
        self.caught_up = False
        self.decided = False  # something is pending that a crash would decide otherwise (ruling B15)
        self.settled: dict[str, Settled] = {}
        self.fresh: dict[str, Any] = {}  # results as they were read back when they were written, not taken yet
        self.open_calls: dict[str, OpenCall] = {}
        # While the body runs on in the lane: the call whose result it is given, which is not recorded yet, when that
        # began, the result, and that as it is read back; and the plain call that it has made since, if it has done
        # nothing else. Not sent into the body: not every awaitable between here and a promise passes that on.
        self.answered: tuple[OpenCall, Stamp, bytes, Any] | None = None
        self.asked: Asked | None = None
        self.timers: dict[str, int] = NONE  # open ones: when they fire
        self.spawned: list[OpenCall] = NONE  # remote calls to be inserted with the next commit
        self.to_cancel: tuple[str, ...] = ()  # calls whose join set was left, or which a cancel found open
        self.wait: Wait | None = None  # where the body stands
        self.result: Any = None
        self.failure: BaseException | None = None
        self.is_finished = False
        self.is_evicting = False
        self.divergence: NonDeterminismError | DecodeError | ConfigurationError | None = None
        self.cancel_sequence: int | None = None
        self.journal_bytes = 0

    # ------------------------------------------------------------------ journal in

    def start(
        self,
        digest: str,
        text: str,
        parent: str | None,
        key: str | None,
        version: int,
        attributes: str | None = None,
    ) -> None:
        quick.begin(self.journal, self.stamp, digest, text, parent, key, version, attributes)
        self.caught_up = True  # there is nothing to replay

    def load(self, segments: Sequence[str]) -> None:
        """Take in a stored journal; the body has not begun."""
        self.recorded = []
        self.timers, self.buffered, self.owners, self.taken = {}, {}, {}, {}
        take_in(self, segments)
        self.alarms = [(fire_at, promise_id) for promise_id, fire_at in self.timers.items()]
        heapify(self.alarms)
        self.journal_bytes = sum(map(len, segments))
        self.replay_until = self.journal.next_child
        self.loaded = self.journal.length

    def append(self, event: Event) -> None:
        self.journal.append(event)

    def _event(self) -> dict[str, Any]:
        return {"sequence": self.journal.length, "timestamp": self.stamp.moment}

    # ------------------------------------------------------------------ what happened outside

    def deliver(self, name: str, payload: str) -> None:
        """A signal from the inbox; `receive_wanted` hands it on."""
        sequence = self.journal.length
        self.append(
            SignalDelivered(
                signal_name=name,
                payload=Raw(payload.encode()),
                delivery_id=self.journal.last_delivery_id(name) + 1,
                **self._event(),
            )
        )
        self.buffered = self.buffered or {}
        self.buffered.setdefault(name, deque()).append((sequence, Raw(payload.encode())))
        self.decided = True

    def _receive(self, name: str, promise_id: str) -> None:
        if promise_id.startswith(UNNUMBERED):
            waited, promise_id = promise_id, f".{self.next}"
            self.next += 1
            self.received = self.received or {}
            self.received[waited] = promise_id
        else:
            waited = promise_id
        _, payload = self.buffered[name].popleft()
        delivery_id = self.journal.oldest_delivery_id(name)
        assert delivery_id is not None
        sequence = self.journal.length
        self.append(
            SignalReceived(
                promise_id=promise_id, signal_name=name, payload=payload, delivery_id=delivery_id, **self._event()
            )
        )
        self.settled[waited] = self.settled[promise_id] = Settled(sequence, payload)
        self.decided = True

    def receive_wanted(self) -> None:
        """Hand buffered signals to the promises that the body is blocked on.

        If any of several is enough, only the one that came first is received, and none where the wait is over: the
        body may drop the promises that lost, and a signal that nobody takes is there for the next who asks for it.
        """
        wait = self.journal.waiting if self.journal.status is BLOCKED else self.wait
        if wait is None or not wait.signals:
            return
        if self.cancel_sequence is not None and not self.cancel_raised:
            return  # the wait ends by the cancel: a session that is not warm does not even know of it
        if wait.kind == "Any":
            if not any(promise_id in self.settled for promise_id in wait.waiting_on):
                came = [signal for signal in wait.signals if self.buffered.get(signal.signal_name)]
                for signal in sorted(came, key=lambda signal: self.buffered[signal.signal_name][0][0])[:1]:
                    self._receive(signal.signal_name, signal.promise_id)
            return
        for signal in wait.signals:
            if signal.promise_id not in self.settled and self.buffered.get(signal.signal_name):
                self._receive(signal.signal_name, signal.promise_id)

    def fire_timers_behind(self, names: Sequence[str], now_us: int) -> None:
        """Of a session that was just read: behind the signals, of these names, that its body waits for.

        Of clean-up the journal does not tell which promises wait for them (B2): then where the body comes to that.
        """
        in_clean_up = self.cancel_sequence is not None and self.wait is None
        if in_clean_up and any(self.buffered.get(name) for name in names):
            self.late_us = now_us
        else:
            self.fire_timers(now_us)

    def fire_late_timers(self) -> None:
        late_us, self.late_us = self.late_us, 0
        if late_us:
            self.fire_timers(late_us)

    def fire_timers(self, now_us: int) -> None:
        alarms = self.alarms
        while alarms and alarms[0][0] <= now_us:
            _, promise_id = heappop(alarms)
            del self.timers[promise_id]
            self.settled[promise_id] = Settled(self.journal.length, FIRED)
            quick.fire(self.journal, self.stamp, promise_id)
            self.decided = True

    def started(self, call: OpenCall) -> None:
        call.attempt += 1
        call.started, call.retry_at_us = True, None
        call.first_started_us = call.first_started_us or self.stamp.us
        quick.start(self.journal, self.stamp, call.promise_id, call.attempt)

    def retrying(self, call: OpenCall, failure: Failure, retry_at_us: int) -> None:
        call.started, call.retry_at_us = False, retry_at_us
        if self.agenda is not None and not call.is_remote:
            self.agenda.note_retry(call)
        self.append(
            InvokeRetrying(
                promise_id=call.promise_id,
                failed_attempt=call.attempt,
                error=failure,
                retry_at=to_datetime(retry_at_us),
                **self._event(),
            )
        )
        self.decided = True

    def completed(self, call: OpenCall, result: Result) -> None:
        promise_id = call.promise_id
        self.open_calls.pop(promise_id, None)
        self.settled[promise_id] = Settled(self.journal.length, result)
        if self.submitted:
            self.note_end(call)
        if call.value is not UNSET:
            self.fresh[promise_id] = call.value
        if type(result) is Ok:
            quick.complete(self.journal, self.stamp, promise_id, call.attempt, bytes(result.value))
        else:
            self.append(InvokeCompleted(promise_id=promise_id, result=result, attempt=call.attempt, **self._event()))
        self.decided = True

    def note_end(self, call: OpenCall) -> None:
        """It is settled: its join set, if it is a member of one, has another result to give."""
        members = self.submitted.get(call.promise_id)
        if members is not None:
            members.note_end(call.promise_id, self.settled[call.promise_id].sequence)
            members.remote -= call.is_remote

    def request_cancel(self, reason: str) -> None:
        if self.cancel_sequence is None:
            self.cancel_sequence, self.cancel_reason = self.journal.length, reason
            self.children_at_cancel = self.journal.next_child
            self.append(CancelRequested(reason=reason, **self._event()))
            self.decided = True
