"""What a body asks for: each operation takes the next number and is compared with what the journal holds (B5)."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from heapq import heappush
from itertools import islice
from typing import Any, Final, NoReturn

import msgspec
from msgspec import Raw

from holdfast.core.clock import to_datetime
from holdfast.core.codec import fingerprint
from holdfast.core.errors import CallNotAllowedError, ConfigurationError, DecodeError, NonDeterminismError
from holdfast.core.identity import SUCCESSOR_TEXT
from holdfast.core.journal import JournalStatus, Operation, operations_of, quick
from holdfast.core.journal.book import Waiting
from holdfast.core.journal.events import (
    ExecutionAwaiting,
    InvokeScheduled,
    JoinSetAwaited,
    JoinSetCreated,
    JoinSetSubmitted,
    RandomGenerated,
    SignalWait,
    TimeRecorded,
)
from holdfast.core.journal.stamp import stamp_at
from holdfast.models.workflow.answers import Answers, number_of
from holdfast.models.workflow.callee import Callee, forgive
from holdfast.models.workflow.control_flow import CURRENT, Diverged, Evicted
from holdfast.models.workflow.divergence import describe
from holdfast.models.workflow.members import NAMED_MOST, Members
from holdfast.models.workflow.open_call import OpenCall, Settled
from holdfast.models.workflow.past import BLOCKED
from holdfast.models.workflow.promise import UNNUMBERED, CallPromise, SignalPromise, forbid_elsewhere

RUNNING: Final = JournalStatus.RUNNING
CANCELLING: Final = JournalStatus.CANCELLING
DEPTH_MOST: Final = 64


class Operations(Answers):
    """The body's side of a session."""

    __slots__ = ()

    # ------------------------------------------------------------------ operations of the body

    def must_be_current(self) -> None:
        if CURRENT.session is not self:
            raise forbid_elsewhere("this promise")
        if self.is_evicting:
            raise Evicted
        if self.answered is not None:
            self.write_up()

    def write_up(self) -> None:
        """Record what the lane left to be told together with the body's next call: it has done something else."""
        assert self.answered is not None
        (call, begun, raw, _), asked = self.answered, self.asked
        self.answered = self.asked = None
        promise_id, journal = call.promise_id, self.journal
        del self.open_calls[promise_id]
        if call.started:
            self.settled[promise_id] = Settled(journal.length, raw)
            quick.complete(journal, self.stamp, promise_id, call.attempt, raw)
            quick.resume(journal, self.stamp)
        else:
            self.settled[promise_id] = Settled(journal.length + 1, raw)
            quick.ran(journal, begun, self.stamp, promise_id, raw)
        if self.submitted:
            self.note_end(call)
        self.decided = True
        if asked is not None:
            task, text, arguments, mark = asked
            promise_id = quick.schedule(journal, self.stamp, task.call_text, text, mark)
            self.open_calls[promise_id] = OpenCall(promise_id, task.name, text, False, task, arguments)

    def allocate(self, kind: str, name: str, mark: str, text: str = "") -> tuple[str, bool]:
        """The local id of the next operation, and whether the journal has it already. `text` is a call's input."""
        if CURRENT.session is not self:
            raise forbid_elsewhere("this context")
        if self.is_evicting:
            raise Evicted
        if self.answered is not None:
            self.write_up()
        if self.divergence is not None:
            raise Diverged
        number = self.next
        promise_id = f".{number}"
        if number < self.replay_until:
            recorded = self.recorded[number]
            recorded_name = recorded.function_name if isinstance(recorded, InvokeScheduled) else recorded.name
            if recorded.fingerprint != mark or recorded_name != name or recorded.kind != kind:
                self._diverge(Operation(promise_id, kind, name, mark), self._recorded_at(number), text)
            self.next = number + 1
            return promise_id, True
        if self.journal.status is BLOCKED or self.taken or self.owners:
            self._diverge(Operation(promise_id, kind, name, mark), self._skipped(), text)
        self.next = number + 1
        self.caught_up = True
        return promise_id, False

    def _diverge(self, asked: Operation | None, recorded: Operation | None, text: str = "") -> NoReturn:
        self.caught_up = False
        inputs = {at: known.input for at, known in enumerate(self.recorded) if type(known) is InvokeScheduled}
        told = describe(self.journal.execution_id, (asked, text), recorded, self.body, inputs)
        self.divergence = NonDeterminismError(told)
        raise Diverged

    def cannot_read(self, call: str, error: DecodeError) -> NoReturn:
        """The call went well, and other code can read what it gave."""
        self.cannot_go_on(DecodeError(f"the result of {call} cannot be read: {error}"))

    def cannot_go_on(self, error: DecodeError | ConfigurationError) -> NoReturn:
        """Here; other code, or this where it is installed whole, can. So it is nothing that the body could catch."""
        if self.answered is not None:
            self.write_up()
        self.caught_up = False
        self.divergence = error
        raise Diverged from error

    def _recorded_at(self, number: int) -> Operation:
        known = self.recorded[number]
        return operations_of(known)[0] if isinstance(known, InvokeScheduled) else known

    def _skipped(self) -> Operation | None:
        """What the journal holds next and the body passed over; None if it has caught up with its journal."""
        if self.next < self.replay_until:
            return self._recorded_at(self.next)
        if self.taken:
            return Operation(next(iter(self.taken)), "take a result of the join set", "", "")
        if self.owners:
            return Operation(next(iter(self.owners)), "submit to a join set", "", "")
        waiting = self.journal.waiting if self.journal.status is BLOCKED else None
        return None if waiting is None else awaiting(waiting)

    def invoke(self, callee: Callee, text: str, arguments: tuple[Any, ...] | None = None) -> str:
        """Schedule a call, or find it in the journal. `callee` is a task, workflow or machine definition.

        `arguments` are what `text` says, where they have been read from it.
        """
        if self.answered is not None:
            if self.asked is None and arguments is not None and callee.is_plain and not callee.is_remote:  # type: ignore[attr-defined]
                self.asked = callee, text, arguments, fingerprint(text)  # type: ignore[assignment]  # a task has arguments
                number = self.next
                self.next = number + 1
                return f".{number}"
            self.write_up()
        if callee.is_remote and self._depth() >= DEPTH_MOST:
            raise CallNotAllowedError(
                f"{callee.name} would be the child of {DEPTH_MOST} ancestors; a call tree this deep is a loop: "
                "use ctx.continue_as_new, or a list of work"
            )
        if self.next < self.replay_until:
            return self._invoke_again(callee, text)
        mark, journal = fingerprint(text), self.journal
        if self.caught_up and journal.status is RUNNING and self.next == journal.next_child and CURRENT.session is self:
            self.next += 1
            promise_id = quick.schedule(journal, self.stamp, callee.call_text, text, mark)
            call = self.open_calls[promise_id] = OpenCall(
                promise_id, callee.name, text, callee.is_remote, callee, arguments
            )
            if callee.is_remote:
                self._spawn(call)
            return promise_id
        promise_id, _ = self.allocate(callee.invoke_kind, callee.name, mark, text)
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
        self._open(promise_id, callee, text, arguments)
        return promise_id

    def _depth(self) -> int:
        """How many ancestors it has; one that went on as another run is one, though its id has three numbers more."""
        text = self.journal.execution_id
        return text.count(".") - 3 * text.count(SUCCESSOR_TEXT)

    def _invoke_again(self, callee: Callee, text: str) -> str:
        """A call that the journal has, or ought to have."""
        recorded, name, kind = self.recorded[self.next], callee.name, callee.invoke_kind
        if type(recorded) is not InvokeScheduled:
            promise_id, _ = self.allocate(kind, name, fingerprint(text), text)
        elif recorded.function_name != name or recorded.kind != kind or bytes(recorded.input) != text.encode():
            before = self._with_own_id(bytes(recorded.input).decode())
            # B17: a new default is no change.
            mark = forgive(callee, recorded, before, text, fingerprint(text))
            promise_id, _ = self.allocate(kind, name, mark, text)
        else:  # the same input has the same fingerprint, so it need not be made
            if CURRENT.session is not self or self.is_evicting or self.divergence is not None:
                self.allocate(kind, name, recorded.fingerprint)  # which raises
            self.next += 1
            promise_id = recorded.promise_id
        known = self.open_calls.get(promise_id)
        if known is not None:
            known.callee = callee if known.is_remote else getattr(callee, "inline", callee)
            if self.is_fork and known.is_remote:
                self._spawn(known)  # in the past that it was copied from it has another id
        return promise_id

    def _with_own_id(self, recorded: str) -> str:
        """An input as a fork asks for it whose body passes on its id: the runs that it has its past from had others."""
        if not self.copied_from:
            return recorded
        earlier = sorted(self.copied_from, key=len, reverse=True)  # a retry's id begins with that of the first run
        return re.sub("|".join(map(re.escape, earlier)), self.journal.execution_id, recorded)

    def _open(self, promise_id: str, callee: Callee, text: str, arguments: tuple[Any, ...] | None) -> None:
        call = self.open_calls[promise_id] = OpenCall(promise_id, callee.name, text, callee.is_remote)
        call.callee = callee
        call.arguments = arguments
        if callee.is_remote:
            self._spawn(call)

    def _spawn(self, call: OpenCall) -> None:
        self.spawned = self.spawned or []
        self.spawned.append(call)

    def random_value(self, what: str, derive: Any) -> Any:
        """A value derived from its own whole id, so that losing it in a crash gives the same one again (ruling B15)."""
        promise_id, is_recorded = self.allocate("Random", "", what)
        if is_recorded:
            return msgspec.json.decode(self.settled.pop(promise_id).value)
        value = derive(hashlib.sha256(f"{self.journal.execution_id}{promise_id}:{what}".encode()).digest())
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
        # From now, and not from before the calls that ran since the last commit.
        fire_at_us = max(self.now_us, self.stamp.us) + round(seconds * 1_000_000)
        quick.sleep(self.journal, self.stamp, promise_id, timedelta(seconds=seconds), stamp_at(fire_at_us), mark)
        self.timers, self.alarms = self.timers or {}, self.alarms or []
        self.timers[promise_id] = fire_at_us
        heappush(self.alarms, (fire_at_us, promise_id))
        self.decided = True
        return promise_id

    def begin_signals(
        self, promises: Sequence[SignalPromise[Any]], *, is_any: bool = False, beside: Sequence[str] = ()
    ) -> tuple[SignalWait, ...]:
        """Give each its number, once; the waits for those that are not received yet.

        With `is_any` one of them is enough, or of what stands `beside` them. Numbers are in the journal in their order.
        So what is buffered is received at once only if nothing has to be waited for, and all of it is taken; else the
        wait comes first and gives all of them their numbers.
        """
        fresh = [promise for promise in promises if promise.local_id is None]
        if fresh:
            self._cancel_before_signal()
        if self.cancel_raised:
            self._receive_in_clean_up(promises, is_any, beside)
        elif fresh:
            takes_all = not is_any or (len(promises) <= 1 and not any(one in self.settled for one in beside))
            at_once = takes_all and self._is_buffered(fresh)
            for promise in fresh:
                promise.local_id, is_recorded = self.allocate("Signal", promise.name, "")
                if at_once and not is_recorded:
                    self._receive(promise.name, promise.local_id)
        ids = ((promise.local_id, promise.name) for promise in promises)
        return tuple(SignalWait(local, name) for local, name in ids if local is not None and local not in self.settled)

    def begin_signal_timer(self, promise: SignalPromise[Any], seconds: float) -> str | None:
        """For a signal with a deadline: the timer beside it, or None if the signal was buffered."""
        self._cancel_before_signal()
        if self.next < self.replay_until:
            at_once = self._recorded_at(self.next).kind == "Signal"
        else:
            at_once = self._is_buffered([promise])
        timer = None if at_once else self.begin_timer(seconds)
        self.begin_signals((promise,), is_any=timer is not None, beside=() if timer is None else (timer,))
        return timer

    def _receive_in_clean_up(self, promises: Sequence[SignalPromise[Any]], is_any: bool, beside: Sequence[str]) -> None:
        """While Cancelling no wait is recorded that would give a signal its number (B2): it takes one when it comes.

        So what replay is to receive here is what its journal holds next; and of `any` nothing, if something beside it
        came before. Until it comes, it is waited for by an id that no journal has.
        """
        settled = self.settled
        for promise in promises:
            if promise.local_id is None:
                promise.local_id = f"{UNNUMBERED}{self.unnumbered}"
                self.unnumbered += 1
        left = [promise for promise in promises if promise.local_id not in settled]
        first = min((settled[one].sequence for one in beside if one in settled), default=None) if is_any else None
        while self.next < self.replay_until:
            unnumbered = [promise for promise in left if promise.local_id.startswith(UNNUMBERED)]  # type: ignore[union-attr]
            if not unnumbered or (first is not None and not self._is_recorded_before(first)):
                return
            name = self._recorded_at(self.next).name
            taken = next((promise for promise in unnumbered if promise.name == name), unnumbered[0])
            taken.local_id, _ = self.allocate("Signal", taken.name, "")
            if is_any:
                return
            left.remove(taken)
        if not left or (first is not None and first < self.loaded):
            return  # the journal has gone on from here
        if first is None:
            self._receive_now(left, is_any)
        self.fire_late_timers()

    def _receive_now(self, left: Sequence[SignalPromise[Any]], is_any: bool) -> None:
        there = [promise for promise in left if self.buffered.get(promise.name)]
        if is_any:
            there = sorted(there, key=lambda promise: self.buffered[promise.name][0][0])[:1]
        for promise in there:
            if self.buffered[promise.name]:
                if promise.local_id is None or promise.local_id.startswith(UNNUMBERED):
                    promise.local_id, _ = self.allocate("Signal", promise.name, "")
                self._receive(promise.name, promise.local_id)

    def _is_recorded_before(self, sequence: int) -> bool:
        """Whether what the journal holds next is a signal that was received before that."""
        if self.next >= self.replay_until:
            return False
        known = self._recorded_at(self.next)
        received = self.settled.get(known.promise_id) if known.kind == "Signal" else None
        return received is not None and received.sequence < sequence

    def _is_buffered(self, promises: Sequence[SignalPromise[Any]]) -> bool:
        wanted = Counter(promise.name for promise in promises)
        return all(len(self.buffered.get(name, ())) >= count for name, count in wanted.items())

    def _cancel_before_signal(self) -> None:
        """A pending cancel reaches the body before a signal takes a number, which only its wait would record."""
        if self.awaits_cancel() and self.next >= self.children_at_cancel and CURRENT.session is self:
            self._reach_cancel()

    def begin_join_set(self) -> Members:
        join_set_id, is_recorded = self.allocate("JoinSet", "", "")
        if not is_recorded:
            self.append(JoinSetCreated(join_set_id=join_set_id, **self._event()))
        self.join_sets = self.join_sets or {}
        members = self.join_sets[join_set_id] = Members(join_set_id)
        return members

    def submit(self, members: Members, promise_id: str, promise: CallPromise[Any]) -> None:
        join_set_id = members.id
        self.submitted = self.submitted or {}
        self.submitted[promise_id] = members
        recorded = self.owners.pop(promise_id, None) if self.owners else None
        if recorded != join_set_id:
            if recorded is not None or self.is_replaying:
                asked = Operation(join_set_id, f"submit #{number_of(promise_id)} to the join set", "", "")
                known = None if recorded is None else Operation(recorded, "submit it to the join set", "", "")
                self._diverge(asked, known)
            self.append(JoinSetSubmitted(join_set_id=join_set_id, promise_id=promise_id, **self._event()))
        call, settled = self.open_calls.get(promise_id), self.settled.get(promise_id)
        members.add(promise_id, promise, is_remote=call is not None and call.is_remote)
        if settled is not None:
            members.note_end(promise_id, settled.sequence)

    def has_member(self, members: Members) -> bool:
        """Whether `is_ready` would say so, and do nothing else; False: it has to be asked."""
        if self.cancel_sequence is not None:
            return False
        recorded = self.taken.get(members.id)
        if recorded:
            return recorded[0] in members.left
        return self.journal.status is not BLOCKED and members.first is not None

    def take_member(self, members: Members) -> Any:
        """The member whose result is taken now: as recorded, else the earliest that has ended."""
        join_set_id, recorded = members.id, self.taken.get(members.id)
        if recorded:
            taken = recorded.popleft()
            if not recorded:
                del self.taken[join_set_id]
            if taken not in members.left:
                numbers = ", ".join(map(number_of, islice(members.left, NAMED_MOST)))
                more = ", ..." if len(members.left) > NAMED_MOST else ""
                self._diverge(
                    Operation(join_set_id, f"take a result of {numbers}{more}", "", ""),
                    Operation(join_set_id, f"take the result of #{number_of(taken)}", "", ""),
                )
        else:
            assert members.first is not None
            taken = members.first[1]
            result = self.settled[taken].value
            self.append(JoinSetAwaited(join_set_id=join_set_id, promise_id=taken, result=result, **self._event()))
        promise = members.left.pop(taken)
        if not members.left:
            del self.join_sets[join_set_id]
        return promise

    def note_watched(self, ids: Iterable[str]) -> None:
        """A combination or a join set waits for these."""
        self.watched = self.watched or set()
        self.watched.update(ids)

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
        if not self.is_replaying or self.is_fork:  # a fork has its past in its journal alone
            self.published = self.published or {}
            self.published[name] = Raw(text.encode())
            self.has_new_published = True
            self.decided = True  # who waits for it does not wait for the end of the next call

    @property
    def is_replaying(self) -> bool:
        """Whether the body is still in its past."""
        return self.next < self.replay_until or (self.journal.status is BLOCKED and self.answered is None)


def awaiting(wait: ExecutionAwaiting | Waiting) -> Operation:
    names = {signal.promise_id: f"the signal {signal.signal_name!r}" for signal in wait.signals}
    named = [
        names.get(promise_id, "") if promise_id.startswith(UNNUMBERED) else f"#{number_of(promise_id)}"
        for promise_id in wait.waiting_on
    ]
    if wait.join_set_id is not None:
        named.insert(0, f"the results left of join set #{number_of(wait.join_set_id)}")
    return Operation("", f"await {wait.kind} of {', '.join(named)}", "", "")
