"""One workflow in this worker's memory: its journal, its body, and the answers the body has still to hear.

The session is pure in the sense that counts: it appends events and drives the body, but starts nothing and waits
for nothing. The runner does that, between two calls of `drive`.

Replay: `load` reads a stored journal. The body then runs from its beginning; each operation it asks for takes the
next number and is compared with what the journal holds under it (ruling B5); what has an answer gets it at once. A
body that asks for something else is stopped before anything is recorded.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, NoReturn

import msgspec
from msgspec import Raw

from holdfast.core.clock import to_datetime, to_us
from holdfast.core.codec import fingerprint
from holdfast.core.errors import CallNotAllowedError, ForeignAwaitError, NonDeterminismError
from holdfast.core.journal import Journal, JournalStatus, Operation, decode_segment, operations_of
from holdfast.core.journal.events import (
    AwaitKind,
    CancelRequested,
    Err,
    Event,
    ExecutionAwaiting,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionResumed,
    ExecutionStarted,
    Failure,
    InvokeCompleted,
    InvokeRetrying,
    InvokeScheduled,
    InvokeStarted,
    JoinSetAwaited,
    JoinSetCreated,
    JoinSetSubmitted,
    Ok,
    RandomGenerated,
    Result,
    SignalDelivered,
    SignalReceived,
    SignalWait,
    TimeRecorded,
    TimerFired,
    TimerScheduled,
)
from holdfast.models.workflow.callee import Callee, forgive
from holdfast.models.workflow.divergence import describe, explain_asyncio, foreign_await
from holdfast.models.workflow.hidden_loop import Hidden
from holdfast.models.workflow.promise import SignalPromise, Wait, forbid_elsewhere

RUNNING: Final = JournalStatus.RUNNING
BLOCKED: Final = JournalStatus.BLOCKED
CANCELLING: Final = JournalStatus.CANCELLING

FIRED: Final = Raw(b"null")
DEPTH_MOST: Final = 64
CLOSE_TRIES: Final = 10

log = logging.getLogger("holdfast.workflow")


class Cancelled(BaseException):
    """Raised at the await where a cancel reaches the body. Clean-up in `finally` may still use durable calls."""


class Evicted(BaseException):
    """Raised by every durable call while an idle body is dropped from memory (ruling B16)."""


class ContinueAsNew(BaseException):
    """Raised by `ctx.continue_as_new`: the run ends here and goes on as a new one with this input."""

    def __init__(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        super().__init__("continue as new")
        self.arguments = arguments
        self.keywords = keywords


class Diverged(BaseException):
    """The body asked for something else than the journal holds; carries the `NonDeterminismError`."""


class _Current(threading.local):
    """Which body runs on this thread just now; not a context variable, which would leak into tasks."""

    session: Session | None = None


CURRENT: Final = _Current()


class Settled(NamedTuple):
    sequence: int
    value: Any  # Result of a call, Raw payload of a signal, FIRED


class OpenCall:
    """A call without a result."""

    __slots__ = (
        "attempt",
        "callee",
        "first_started_us",
        "function_name",
        "input",
        "is_remote",
        "promise_id",
        "retry_at_us",
        "settings",
        "started",
    )

    def __init__(self, promise_id: str, function_name: str, text: str, settings: Raw) -> None:
        self.promise_id = promise_id
        self.function_name = function_name
        self.input = text
        self.settings = settings  # the retry policy and the queue, as recorded
        # As it was scheduled: a task that has got, or lost, its queue since must neither hang nor run twice.
        self.is_remote = is_remote_by(settings)
        self.attempt = 0
        self.first_started_us = 0
        self.retry_at_us: int | None = None
        self.started = False  # an attempt is recorded as in flight
        self.callee: Callee | None = None  # once the body has asked for it


class _Place(msgspec.Struct):
    queue: str | None = None
    effects: str | None = None  # only tasks have it


_place = msgspec.json.Decoder(_Place).decode


def is_remote_by(settings: Raw) -> bool:
    """Whether a call with these recorded settings has an execution of its own: all but tasks without a queue."""
    place = _place(settings)
    return place.effects is None or place.queue is not None


class Session:
    """`promise_text` is the text of the execution's own id; the journal's ids begin with it."""

    def __init__(self, promise_text: str, body: Coroutine[Any, Any, Any] | None = None) -> None:
        self.journal = Journal(promise_text)
        self.body = body
        self.now_us = 0  # the store's time of the last commit, which is what ctx.now() gives
        self.stamp = to_datetime(0)  # of events: for people
        self.next = 0
        self.replay_until = 0
        self.decided = False  # something is pending that a crash would decide otherwise (ruling B15)
        self.settled: dict[str, Settled] = {}
        self.open_calls: dict[str, OpenCall] = {}
        self.timers: dict[str, int] = {}  # open ones: when they fire
        self.spawned: list[OpenCall] = []  # remote calls to be inserted with the next commit
        self.to_cancel: list[str] = []  # calls whose join set was left, or which a cancel found open
        self.taken: dict[str, list[str]] = {}  # by join set: what replay has still to give, in order
        self.owners: dict[str, str] = {}  # by promise: the join set that replay has still to see it submitted to
        self.wait: Wait | None = None  # where the body stands
        self.result: Any = None
        self.failure: BaseException | None = None
        self.is_finished = False
        self.is_evicting = False
        self.divergence: NonDeterminismError | None = None
        self.cancel_sequence: int | None = None
        self.cancel_reason = ""
        self.cancel_raised = False
        self.children_at_cancel = 0
        self.buffered: dict[str, list[Raw]] = {}  # by name: delivered and not received, oldest first
        self.submitted: dict[str, str] = {}  # by promise: the join set that this run of the body put it into
        self.journal_bytes = 0
        self.is_fork = False  # its past is a copy, and what is open in it has not been spawned
        self.published: dict[str, Raw] = {}
        self.has_new_published = False
        self.attributes: dict[str, Any] = {}
        self.has_new_attributes = False
        self._recorded: dict[int, Operation] = {}
        self._inputs: dict[int, Raw] = {}

    # ------------------------------------------------------------------ journal in

    def start(self, digest: str, text: str, parent: str | None, key: str | None, version: int) -> None:
        self.append(
            ExecutionStarted(
                sequence=0,
                timestamp=self.stamp,
                component_digest=digest,
                input=Raw(text.encode()),
                parent_id=parent,
                idempotency_key=key,
                version=version,
            )
        )

    def load(self, segments: Sequence[str]) -> None:
        """Take in a stored journal; the body has not begun."""
        decoded = [decode_segment(text) for text in segments]
        self.journal = Journal.load(self.journal.execution_id, decoded)
        self.journal_bytes = sum(map(len, segments))
        for segment in decoded:
            for event in segment.events:
                self._learn(event)
        self.replay_until = self.journal.next_child

    def _learn(self, event: Event) -> None:
        for operation in operations_of(event):
            number = int(operation.promise_id[len(self.journal.prefix) :])
            self._recorded.setdefault(number, operation)
        match event:
            case InvokeScheduled():
                text = bytes(event.input).decode()
                self.open_calls[event.promise_id] = OpenCall(
                    event.promise_id, event.function_name, text, event.retry_policy
                )
                self._inputs[int(event.promise_id[len(self.journal.prefix) :])] = event.input
            case InvokeStarted():
                call = self.open_calls[event.promise_id]
                call.attempt, call.started, call.retry_at_us = event.attempt, True, None
                call.first_started_us = call.first_started_us or to_us(event.timestamp)
            case InvokeRetrying():
                call = self.open_calls[event.promise_id]
                call.started, call.retry_at_us = False, to_us(event.retry_at)
            case InvokeCompleted():
                self.open_calls.pop(event.promise_id)
                self.settled[event.promise_id] = Settled(event.sequence, event.result)
            case RandomGenerated():
                self.settled[event.promise_id] = Settled(event.sequence, event.value)
            case TimeRecorded():
                self.settled[event.promise_id] = Settled(event.sequence, event.time)
            case TimerScheduled():
                self.timers[event.promise_id] = to_us(event.fire_at)
            case TimerFired():
                self.timers.pop(event.promise_id, None)
                self.settled[event.promise_id] = Settled(event.sequence, FIRED)
            case SignalDelivered():
                self.buffered.setdefault(event.signal_name, []).append(event.payload)
            case SignalReceived():
                self.buffered[event.signal_name].pop(0)
                self.settled[event.promise_id] = Settled(event.sequence, event.payload)
            case JoinSetSubmitted():
                self.owners[event.promise_id] = event.join_set_id
            case JoinSetAwaited():
                self.taken.setdefault(event.join_set_id, []).append(event.promise_id)
            case CancelRequested():
                self.cancel_sequence, self.cancel_reason = event.sequence, event.reason
                self.children_at_cancel = len(self._recorded)
            case _:
                pass

    def append(self, event: Event) -> None:
        self.journal.append(event)

    def _event(self) -> dict[str, Any]:
        return {"sequence": self.journal.length, "timestamp": self.stamp}

    # ------------------------------------------------------------------ operations of the body

    def must_be_current(self) -> None:
        if CURRENT.session is not self:
            raise forbid_elsewhere("this promise")
        if self.is_evicting:
            raise Evicted

    def allocate(self, kind: str, name: str, mark: str) -> tuple[str, bool]:
        """The id of the next operation, and whether the journal has it already."""
        if CURRENT.session is not self:
            raise forbid_elsewhere("this context")
        if self.is_evicting:
            raise Evicted
        if self.divergence is not None:
            raise Diverged
        number = self.next
        promise_id = f"{self.journal.prefix}{number}"
        if number < self.replay_until:
            recorded = self._recorded[number]
            if (recorded.kind, recorded.name, recorded.fingerprint) != (kind, name, mark):
                self._diverge(Operation(promise_id, kind, name, mark), recorded)
            self.next = number + 1
            return promise_id, True
        if self.journal.status is BLOCKED or self.taken or self.owners:
            self._diverge(Operation(promise_id, kind, name, mark), self._skipped())
        self.next = number + 1
        return promise_id, False

    def _diverge(self, asked: Operation | None, recorded: Operation | None) -> NoReturn:
        self.divergence = NonDeterminismError(
            describe(self.journal.execution_id, asked, recorded, self.body, self._inputs)
        )
        raise Diverged

    def _skipped(self) -> Operation | None:
        """What the journal holds next and the body passed over; None if it has caught up with its journal."""
        if self.next < self.replay_until:
            return self._recorded[self.next]
        if self.taken:
            return Operation(next(iter(self.taken)), "take a result of the join set", "", "")
        if self.owners:
            return Operation(next(iter(self.owners)), "submit to a join set", "", "")
        waiting = self.journal.waiting if self.journal.status is BLOCKED else None
        return None if waiting is None else _awaiting(waiting.kind, waiting.waiting_on)

    def invoke(self, callee: Callee, text: str) -> str:
        """Schedule a call, or find it in the journal. `callee` is a task, workflow or machine definition."""
        if callee.is_remote and self.journal.execution_id.count(".") >= DEPTH_MOST:
            raise CallNotAllowedError(
                f"{callee.name} would be the child of {DEPTH_MOST} ancestors; a call tree this deep is a loop: "
                "use ctx.continue_as_new, or a list of work"
            )
        mark = fingerprint(text)
        if self.next < self.replay_until:
            mark = forgive(callee, self._recorded[self.next], self._inputs.get(self.next), text, mark)
        promise_id, is_recorded = self.allocate(callee.invoke_kind, callee.name, mark)
        if is_recorded:
            call = self.open_calls.get(promise_id)
            if call is not None:
                call.callee = callee
                if self.is_fork and call.is_remote:
                    self.spawned.append(call)  # in the past that it was copied from it has another id
            return promise_id
        self.append(
            InvokeScheduled(
                promise_id=promise_id,
                kind=callee.invoke_kind,
                function_name=callee.name,
                input=Raw(text.encode()),
                fingerprint=mark,
                retry_policy=callee.settings,
                **self._event(),
            )
        )
        call = OpenCall(promise_id, callee.name, text, callee.settings)
        call.callee = callee
        self.open_calls[promise_id] = call
        if callee.is_remote:
            self.spawned.append(call)
        return promise_id

    def random_value(self, what: str, derive: Any) -> Any:
        """A value derived from its own id, so that losing it in a crash gives the same one again (ruling B15)."""
        promise_id, is_recorded = self.allocate("Random", "", what)
        if is_recorded:
            return msgspec.json.decode(self.settled.pop(promise_id).value)
        value = derive(hashlib.sha256(f"{promise_id}:{what}".encode()).digest())
        raw = Raw(msgspec.json.encode(value))
        self.append(RandomGenerated(promise_id=promise_id, value=raw, fingerprint=what, **self._event()))
        return value

    def current_time(self) -> datetime:
        promise_id, is_recorded = self.allocate("Time", "", "")
        if is_recorded:
            return self.settled.pop(promise_id).value  # type: ignore[no-any-return]
        moment = to_datetime(self.now_us)
        self.append(TimeRecorded(promise_id=promise_id, time=moment, **self._event()))
        self.decided = True
        return moment

    def begin_timer(self, seconds: float) -> str:
        mark = fingerprint(repr(seconds))
        promise_id, is_recorded = self.allocate("Timer", "", mark)
        if is_recorded:
            return promise_id
        fire_at_us = self.now_us + round(seconds * 1_000_000)
        self.append(
            TimerScheduled(
                promise_id=promise_id,
                duration=timedelta(seconds=seconds),
                fire_at=to_datetime(fire_at_us),
                fingerprint=mark,
                **self._event(),
            )
        )
        self.timers[promise_id] = fire_at_us
        self.decided = True
        return promise_id

    def begin_signals(self, promises: Sequence[SignalPromise[Any]]) -> tuple[SignalWait, ...]:
        """Give each its number, once; the waits for those that are not received yet.

        Numbers are in the journal in their order. So what is buffered is received at once only if nothing has to be
        waited for; else the wait comes first and gives all of them their numbers.
        """
        fresh = [promise for promise in promises if promise.id is None]
        if fresh:
            self._cancel_before_signal()
            is_buffered = self._is_buffered(fresh)
            if self.cancel_raised and not is_buffered and self.next >= self.replay_until:
                # No Awaiting may be recorded while Cancelling (B2), so the wait would have no place in the journal.
                raise CallNotAllowedError(f"clean-up after a cancel cannot wait for the signal {fresh[0].name!r}")
            for promise in fresh:
                promise.id, is_recorded = self.allocate("Signal", promise.name, "")
                if is_buffered and not is_recorded:
                    self._receive(promise.name, promise.id)
        return tuple(SignalWait(p.id, p.name) for p in promises if p.id is not None and p.id not in self.settled)

    def begin_signal_timer(self, promise: SignalPromise[Any], seconds: float) -> str | None:
        """For a signal with a deadline: the timer beside it, or None if the signal was buffered."""
        self._cancel_before_signal()
        if self.next < self.replay_until:
            at_once = self._recorded[self.next].kind == "Signal"
        else:
            at_once = self._is_buffered([promise]) or self.cancel_raised
        timer = None if at_once else self.begin_timer(seconds)
        self.begin_signals((promise,))
        return timer

    def _is_buffered(self, promises: Sequence[SignalPromise[Any]]) -> bool:
        wanted = Counter(promise.name for promise in promises)
        return all(len(self.buffered.get(name, ())) >= count for name, count in wanted.items())

    def _cancel_before_signal(self) -> None:
        """A pending cancel reaches the body before a signal takes a number, which only its wait would record."""
        if self.awaits_cancel() and self.next >= self.children_at_cancel and CURRENT.session is self:
            self._reach_cancel()

    def begin_join_set(self) -> str:
        join_set_id, is_recorded = self.allocate("JoinSet", "", "")
        if not is_recorded:
            self.append(JoinSetCreated(join_set_id=join_set_id, **self._event()))
        return join_set_id

    def submit(self, join_set_id: str, promise_id: str) -> None:
        self.submitted[promise_id] = join_set_id
        recorded = self.owners.pop(promise_id, None)
        if recorded == join_set_id:
            return
        if recorded is not None or self.is_replaying:
            asked = Operation(join_set_id, f"submit #{_number(promise_id)} to the join set", "", "")
            self._diverge(asked, None if recorded is None else Operation(recorded, "submit it to the join set", "", ""))
        self.append(JoinSetSubmitted(join_set_id=join_set_id, promise_id=promise_id, **self._event()))

    def take_member(self, join_set_id: str, members: Sequence[str]) -> str | None:
        """The member whose result is taken now: as recorded, else the earliest settled one, else None."""
        recorded = self.taken.get(join_set_id)
        if recorded:
            taken = recorded.pop(0)
            if not recorded:
                del self.taken[join_set_id]
            if taken not in members:
                self._diverge(
                    Operation(join_set_id, f"take a result of {', '.join(map(_number, members))}", "", ""),
                    Operation(join_set_id, f"take the result of #{_number(taken)}", "", ""),
                )
            return taken
        settled = [promise_id for promise_id in members if promise_id in self.settled]
        if not settled:
            return None
        winner = self.first_of(settled)
        result = self.settled[winner].value
        self.append(JoinSetAwaited(join_set_id=join_set_id, promise_id=winner, result=result, **self._event()))
        return winner

    def patched(self, patch_id: str) -> bool:
        """B18: sticky in both directions; True only where the body is at the end of its history."""
        known = self.journal.patches.get(patch_id)
        if known is not None:
            return known
        is_new = not self.is_replaying
        self.journal.record_patch(patch_id, is_new)
        self.decided = True
        return is_new

    def publish(self, name: str, text: str) -> None:
        if not self.is_replaying:
            self.published[name] = Raw(text.encode())
            self.has_new_published = True

    @property
    def is_replaying(self) -> bool:
        """Whether the body is still in its past."""
        return self.next < self.replay_until or self.journal.status is BLOCKED

    # ------------------------------------------------------------------ answers for the body

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

    def awaits_cancel(self) -> bool:
        """Whether a cancel was requested that the body has not heard of."""
        return self.cancel_sequence is not None and not self.cancel_raised

    def _reach_cancel(self) -> NoReturn:
        """The cancel reaches the body; what it had begun and not got is to be cancelled with it."""
        self.note_cancel_raised()
        raise Cancelled(self.cancel_reason)

    def note_cancel_raised(self) -> None:
        self.cancel_raised = True
        self.to_cancel.extend(pid for pid in self.open_calls if int(_number(pid)) < self.next)

    def _settled_before(self, kind: AwaitKind, ids: Sequence[str], limit: int | None) -> bool:
        settled = self.settled
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

    # ------------------------------------------------------------------ what happened outside

    def deliver(self, name: str, payload: str) -> None:
        """A signal from the inbox; it is received at once if the body waits for it."""
        self.append(
            SignalDelivered(
                signal_name=name,
                payload=Raw(payload.encode()),
                delivery_id=self.journal.last_delivery_id(name) + 1,
                **self._event(),
            )
        )
        self.buffered.setdefault(name, []).append(Raw(payload.encode()))
        self.decided = True

    def _receive(self, name: str, promise_id: str) -> None:
        payload = self.buffered[name].pop(0)
        delivery_id = self.journal.oldest_delivery_id(name)
        assert delivery_id is not None
        sequence = self.journal.length
        self.append(
            SignalReceived(
                promise_id=promise_id, signal_name=name, payload=payload, delivery_id=delivery_id, **self._event()
            )
        )
        self.settled[promise_id] = Settled(sequence, payload)
        self.decided = True

    def receive_wanted(self) -> None:
        """Hand buffered signals to the promises that the body is blocked on."""
        wait = self.journal.waiting if self.journal.status is BLOCKED else self.wait
        if wait is None:
            return
        for signal in wait.signals:
            if signal.promise_id not in self.settled and self.buffered.get(signal.signal_name):
                self._receive(signal.signal_name, signal.promise_id)

    def fire_timers(self, now_us: int) -> None:
        due = sorted((fire_at, promise_id) for promise_id, fire_at in self.timers.items() if fire_at <= now_us)
        for _, promise_id in due:
            del self.timers[promise_id]
            self.settled[promise_id] = Settled(self.journal.length, FIRED)
            self.append(TimerFired(promise_id=promise_id, **self._event()))
            self.decided = True

    def started(self, call: OpenCall) -> None:
        call.attempt += 1
        call.started, call.retry_at_us = True, None
        call.first_started_us = call.first_started_us or to_us(self.stamp)
        self.append(InvokeStarted(promise_id=call.promise_id, attempt=call.attempt, **self._event()))

    def retrying(self, call: OpenCall, failure: Failure, retry_at_us: int) -> None:
        call.started, call.retry_at_us = False, retry_at_us
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
        self.open_calls.pop(call.promise_id, None)
        self.settled[call.promise_id] = Settled(self.journal.length, result)
        self.append(InvokeCompleted(promise_id=call.promise_id, result=result, attempt=call.attempt, **self._event()))
        self.decided = True

    def request_cancel(self, reason: str) -> None:
        if self.cancel_sequence is None:
            self.cancel_sequence, self.cancel_reason = self.journal.length, reason
            self.children_at_cancel = self.journal.next_child
            self.append(CancelRequested(reason=reason, **self._event()))
            self.decided = True

    @property
    def can_resume(self) -> bool:
        """Whether `drive` would get anywhere."""
        if self.wait is None:
            return True
        if self.awaits_cancel():
            return True
        return self._settled_before(self.wait.kind, self.wait.waiting_on, None)

    # ------------------------------------------------------------------ driving the body

    def drive(self) -> None:
        """Run the body until it is blocked or has finished. Raises `NonDeterminismError` if it diverged."""
        self.resume()
        while not self.is_finished:
            wait = self._send()
            if wait is None or self.divergence is not None:
                break
            self.wait = wait
            self._block(wait)
            if not self.can_resume:
                break
            self.resume()
        if self.divergence is not None:
            raise self.divergence

    def resume(self) -> None:
        """Record that the wait is over, if the body stands at it and it is."""
        if self.wait is not None and self.journal.status is BLOCKED and self.journal.is_wait_satisfied:
            self.append(ExecutionResumed(**self._event()))

    def _send(self) -> Wait | None:
        """One `send`, with the loop hidden: asyncio's own tools would act on the engine's task."""
        body = self.body
        assert body is not None
        CURRENT.session = self
        try:
            with Hidden():
                if self._must_throw_cancel():
                    self.note_cancel_raised()
                    wait = body.throw(Cancelled(self.cancel_reason))
                else:
                    self.wait = None
                    wait = body.send(None)
        except StopIteration as stop:
            self._finish(stop.value, None)
            return None
        except Diverged:
            return None
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # an asyncio.CancelledError of the body's own is a failure like any other
            self._finish(None, explain_asyncio(error))
            return None
        finally:
            CURRENT.session = None
        if type(wait) is not Wait:
            foreign = foreign_await(body, wait)
            self.evict()
            self._finish(None, foreign)
            return None
        return wait

    def _must_throw_cancel(self) -> bool:
        waiting = self.wait
        if waiting is None or not self.awaits_cancel():
            return False
        return not self._settled_before(waiting.kind, waiting.waiting_on, self.cancel_sequence)

    def _block(self, wait: Wait) -> None:
        journal = self.journal
        if self.next < self.replay_until or self.taken or self.owners:
            self._stop_short(wait)
        if journal.status is RUNNING:
            self.append(
                ExecutionAwaiting(waiting_on=wait.waiting_on, kind=wait.kind, signals=wait.signals, **self._event())
            )
            self.receive_wanted()
        elif journal.status is BLOCKED:
            open_wait = journal.waiting
            assert open_wait is not None
            if (open_wait.kind, open_wait.waiting_on) != (wait.kind, wait.waiting_on):
                self._stop_short(wait)
        else:  # B2: while Cancelling, clean-up may suspend, but no Awaiting and no Resumed is recorded
            self.receive_wanted()

    def _stop_short(self, wait: Wait) -> None:
        try:
            self._diverge(_awaiting(wait.kind, wait.waiting_on), self._skipped())
        except Diverged:
            assert self.divergence is not None
            raise self.divergence from None

    def _finish(self, value: Any, error: BaseException | None) -> None:
        if self.divergence is not None:
            return
        skipped = self._skipped()
        if skipped is not None and not isinstance(error, ForeignAwaitError):
            raised = None if error is None else Operation("", f"raise {type(error).__name__}: {error}", "", "")
            with contextlib.suppress(Diverged):
                self._diverge(raised, skipped)
            return
        self.is_finished = True
        self.wait = None
        self.result, self.failure = value, error

    # ------------------------------------------------------------------ the end

    def conclude(self, result: Raw | None, failure: Failure | None) -> None:
        """The terminal event: completed, cancelled (the cancel went through the body), or failed."""
        if result is not None:
            self.append(ExecutionCompleted(result=result, **self._event()))
        elif isinstance(self.failure, Cancelled):
            self.append(ExecutionCancelled(reason=self.cancel_reason, **self._event()))
        else:
            assert failure is not None
            self.append(ExecutionFailed(error=failure, **self._event()))

    def evict(self) -> None:
        """Drop the body. Its `finally` blocks run; every durable call in them raises `Evicted` (ruling B16)."""
        body, self.body = self.body, None
        if body is None or self.is_finished:
            return
        self.is_evicting = True
        earlier, CURRENT.session = CURRENT.session, self
        try:
            for _ in range(CLOSE_TRIES):  # a body that swallows its end and awaits again is told once more
                try:
                    with Hidden():
                        body.close()
                    break
                except RuntimeError:
                    continue
                except Evicted:
                    break
                except Exception:
                    log.warning(
                        "clean-up code of %s raised while it was dropped from memory; nothing is lost",
                        self.journal.execution_id[:8],
                        exc_info=True,
                    )
                    break
        finally:
            CURRENT.session = earlier


def _number(promise_id: str) -> str:
    return promise_id.rpartition(".")[2]


def _awaiting(kind: AwaitKind, waiting_on: Sequence[str]) -> Operation:
    return Operation("", f"await {kind} of {', '.join('#' + _number(pid) for pid in waiting_on)}", "", "")


__all__ = ["CURRENT", "Cancelled", "Diverged", "Err", "Evicted", "Ok", "OpenCall", "Session", "Settled"]
