"""A run's traffic with the ledger: everything pending as one commit, and what others put into its inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from holdfast.core.codec_hooks import ENCODER
from holdfast.core.identity import PromiseId, id_text
from holdfast.core.journal.book import NONE
from holdfast.core.journal.events import Err, Ok
from holdfast.core.journal.stamp import stamp_at
from holdfast.core.status import TERMINAL, Status
from holdfast.engine.runner import Engine
from holdfast.models.workflow.definition import Workflow
from holdfast.models.workflow.failures import cancelled, failure_of_text
from holdfast.models.workflow.open_call import OpenCall
from holdfast.models.workflow.promise import Wait
from holdfast.models.workflow.session import Session
from holdfast.models.workflow.task import KIND as TASK_KIND
from holdfast.models.workflow.task import Task, TaskState, known_by
from holdfast.store.effects import GO_ON, AdvanceExecution, AppendJournal, ConsumeSignals, Effect, SpawnExecutions
from holdfast.store.values import CHILD, ChildEnd, ExecutionClaim, NewExecution, Receipt, Signal

if TYPE_CHECKING:
    from holdfast.models.workflow.runner import WorkflowRunner

_EXECUTING: Final = Status.EXECUTING
_child_end = msgspec.json.Decoder(ChildEnd).decode
_task_state = msgspec.json.Decoder(TaskState).decode


def is_uneventful(receipt: Receipt) -> bool:
    """Whether the run just goes on."""
    return receipt.status is _EXECUTING and receipt.at_us > 0 and not (receipt.has_inbox or receipt.cancel_requested)


def is_unrepeatable(call: OpenCall) -> bool:
    return isinstance(call.callee, Task) and call.callee.effects == "at_most_once"


class RunLedger:
    """The state of one claim, and its way into the ledger. `in_flight` are inline calls that run beside each other.

    As in a session, what few runs have is the class's, and `NONE`, until there is some of it.
    """

    __slots__ = (
        *("__dict__", "_beats", "_claim", "_definition", "_engine", "_id", "_in_flight", "_in_place", "_is_committing"),
        *("_is_interrupted", "_is_over", "_is_stirred", "_losses", "_runner", "_session", "_step_shown"),
        *("_time_base", "_time_us", "_turns"),
    )

    _losses: int  # set by `go`, as are these two
    _time_us: int
    _time_base: float

    _ingested: list[int] = NONE  # inbox rows that the next commit consumes
    _seen: set[int] = NONE  # every inbox row that this claim has taken in
    _finished: list[asyncio.Task[Any]] = NONE  # inline calls that have ended, in that order
    _told_to_end: set[str] = NONE  # those that were cancelled
    _once_in_flight = 0  # how many of those in flight may not be repeated
    _alarms_of: Wait | None = None  # the wait of which these are the timers, and
    _alarms: list[tuple[int, str]] = NONE  # when they fire, the first last
    _step_of: Wait | None = None  # the wait of which so many of the first
    _step_at = 0  # have ended
    _suspects: set[str] = NONE  # calls that were open when the run was taken over: any may have killed its worker
    _has_new_beats = False
    _stirring: asyncio.Future[None] | None = None  # what waits for something to come into the inbox
    _extra_effects: list[Effect] = NONE

    def __init__(self, runner: WorkflowRunner, definition: Workflow[..., Any], claim: ExecutionClaim, engine: Engine):
        self._runner = runner
        self._definition = definition
        self._claim = claim
        self._engine = engine
        self._id = id_text(claim.promise)
        self._session: Session = None  # type: ignore[assignment]  # set by `go` before anything else
        self._in_flight: dict[asyncio.Task[Any], OpenCall] = NONE
        self._beats: dict[str, Raw] = NONE
        self._is_stirred = False  # something came into the inbox, or a cancel
        self._in_place: asyncio.Task[Any] | None = None  # its own, while a call in place waits for something
        self._is_interrupted = False
        self._is_over = False
        self._is_committing = False  # a claim has one commit at a time: heartbeats commit beside the body
        self._turns: list[asyncio.Future[None]] = NONE  # what waits for that commit
        self._step_shown: str | None = None

    @property
    def _promise(self) -> PromiseId:
        return PromiseId.from_bytes(self._claim.promise)

    # ------------------------------------------------------------------ commits

    async def _commit(self, status: Status = Status.EXECUTING, *, progress: bool = True, **columns: Any) -> bool:
        """Write everything pending. False: the lease is gone or was given up, and this run ends here."""
        if self._is_committing:
            await self._come()
        self._is_committing = True
        is_leaving = status is not _EXECUTING
        if is_leaving:
            self._runner.leaving[self._claim.promise] = self
        try:
            if self._is_over:
                return False
            if self._once_in_flight and status is _EXECUTING:
                progress = False  # a pause waits for its end: given up here, it would be uncertain
            receipt = await self._engine.commit(self._claim, *self._effects(status, progress, columns))
            if progress:
                self._claim.attempt = 0  # as the row's: from here on it is like a claim that was never taken over
            if is_uneventful(receipt):
                self._set_time(receipt.at_us)
                return True
            return await self._after(receipt)
        finally:
            self._is_committing = False
            if is_leaving and self._runner.leaving.get(self._claim.promise) is self:
                del self._runner.leaving[self._claim.promise]
            if self._turns:
                self._pass_on()

    async def _come(self) -> None:
        """Wait until no commit of this claim is under way."""
        while self._is_committing:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._turns = self._turns or []
            self._turns.append(waiting)
            await waiting

    def _pass_on(self) -> None:
        turns, self._turns = self._turns, NONE
        for waiting in turns:
            if not waiting.done():
                waiting.set_result(None)

    def _effects(
        self,
        status: Status,
        progress: bool = True,
        columns: Mapping[str, Any] = NONE,
        *,
        result: str | None = None,
        error: str | None = None,
    ) -> list[Effect]:
        """Everything pending, as the effects of one commit; nothing is pending afterwards."""
        session, claim, digest = self._session, self._claim, self._definition.digest
        journal = session.journal
        if self._beats or session.has_new_published or session.has_new_attributes:
            columns = {
                **columns,
                "beats": self._taken_beats(status),
                "published": self._taken_published(),
                "attributes": self._taken_attributes(),
            }
        step, changed = self._changed_step(), None if claim.digest == digest else digest
        if status is _EXECUTING and progress and step is None and changed is None and not columns:
            effects: list[Effect] = [GO_ON]
        else:
            attempt = 0 if progress else claim.attempt
            advance = AdvanceExecution(
                status=status,
                step=step,
                result=result,
                error=error,
                attempt=attempt,
                progress=progress,
                digest=changed,
            )
            effects = [replace(advance, **columns) if columns else advance]
        if journal.pending or journal.pending_patches:
            first, count = journal.pending_first, journal.length - journal.pending_first
            body = journal.take_segment()
            session.journal_bytes += len(body)
            effects.append(AppendJournal(first, count, body))
        if self._ingested:
            # An end empties the inbox, unless a successor gets it, or may get it.
            if status is Status.FAILED or status not in TERMINAL or self._extra_effects:
                effects.append(ConsumeSignals(tuple(self._ingested)))
            self._ingested = NONE
        if session.spawned:
            effects.append(SpawnExecutions(self._child_rows(session.spawned), barrier=False))
            session.spawned = NONE
        if self._extra_effects:
            effects += self._extra_effects
            self._extra_effects = NONE
        session.decided = False
        return effects

    async def _after(self, receipt: Receipt) -> bool:
        if not receipt.applied:
            self._is_over = True
            self._session.evict()
            return False
        if receipt.at_us:  # not known of a commit whose reply was lost
            self._set_time(receipt.at_us)
        if receipt.status is not _EXECUTING:
            self._is_over = True
            if receipt.status is not None and not receipt.status.is_terminal and not self._in_flight:
                self._runner.warm.put(self._claim.promise, (self._claim.revision, self._losses), self._session)
            else:
                self._session.evict()
            return False
        if receipt.has_inbox or (receipt.cancel_requested and self._session.cancel_sequence is None):
            await self._look_outside()
        return True

    def _is_remote(self, promise_id: str) -> bool:
        call = self._session.open_calls.get(promise_id)
        return call is not None and call.is_remote

    def _child_id(self, call: OpenCall) -> PromiseId:
        return self._promise.child(int(call.promise_id[1:]))

    def _child_rows(self, calls: Sequence[OpenCall]) -> tuple[NewExecution, ...]:
        own, queue, limit = self._promise, self._claim.queue, self._definition.payload_limit
        rows = []
        for call in calls:
            assert call.callee is not None
            row = call.callee.child_row(own.child(int(call.promise_id[1:])), call.input, queue, limit)
            rows.append(row if call.key is None or row.kind != TASK_KIND else known_by(row, call.key))
        return tuple(rows)

    # ------------------------------------------------------------------ what others wrote

    async def _look_outside(self) -> None:
        """Take in what came while calls are in flight."""
        store, session = self._engine.store, self._session
        inbox = await store.inbox(self._claim.promise)
        view = await store.get(self._claim.promise)  # later than the inbox: a cancel that ended children is seen here
        reason = None
        if view is not None and view.cancel_requested and not session.is_finished:
            reason = view.cancel_reason or "cancelled"
        self._ingest(inbox, reason)
        session.receive_wanted()
        session.fire_timers(self._now_us())
        if reason is not None:
            session.request_cancel(reason)

    def _ingest(self, inbox: Sequence[Signal], cancel_reason: str | None) -> None:
        """B9: what others wrote into the inbox is appended first, in its order.

        But for a cancel that is requested of this run: it comes before children that are cancelled. One that cascades
        has ended them, and as a failure of their calls they would make a failed run of a cancelled one.
        """
        if not inbox:
            return
        self._seen, self._ingested = self._seen or set(), self._ingested or []
        own = self._claim.promise.hex()
        for row in inbox:
            if row.id in self._seen:  # two looks at the inbox may overlap
                continue
            self._seen.add(row.id)
            if row.kind == CHILD:
                end = _child_end(row.payload)
                if cancel_reason is not None and end.status is Status.CANCELLED:
                    self._session.request_cancel(cancel_reason)
                self._child_ended(f".{int(row.name.removeprefix(own), 16)}", end)  # an id is its parent's and a number
            else:
                self._session.deliver(row.name, row.payload)
            self._ingested.append(row.id)
            self._session.decided = True  # nothing begins before it is committed

    def _child_ended(self, promise_id: str, end: ChildEnd) -> None:
        session = self._session
        call = session.open_calls.get(promise_id)
        if call is None:
            return
        if bytes(end.state) != b"null":
            for attempt in _task_state(end.state).attempts:
                session.started(call)
                session.retrying(call, failure_of_text(bytes(attempt.error)), attempt.retry_at_us)
        session.started(call)
        if end.status is Status.DONE:
            session.completed(call, Ok(end.result))
        elif end.status is Status.FAILED:
            session.completed(call, Err(failure_of_text(bytes(end.error))))
        else:
            session.completed(call, Err(cancelled(call.function_name, end.reason)))

    # ------------------------------------------------------------------ small things

    async def _stop_calls(self) -> None:
        """Nothing that runs inline outlives its run."""
        tasks, self._in_flight, self._once_in_flight = list(self._in_flight), NONE, 0
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _changed_step(self) -> str | None:
        """What a person sees the run at: the call it waits for. None if that is as it was."""
        session, step = self._session, None
        wait, calls = session.wait, session.open_calls
        if wait is not None and wait.join_set_id is not None:
            members = session.join_sets.get(wait.join_set_id)
            first = None if members is None else members.first_open(calls)
            step = None if first is None else calls[first].function_name
        elif wait is not None:
            waited = wait.waiting_on[0]
            if (call := calls.get(waited)) is not None:
                step = call.function_name
            elif wait.signals:
                step = wait.signals[0].signal_name
            elif waited in session.timers:
                step = "sleep"
            else:  # it has ended: there may be others, or the body does not know yet
                ids, at = wait.waiting_on, self._step_at if self._step_of is wait else 0
                while at < len(ids) and ids[at] not in calls:
                    at += 1
                self._step_of, self._step_at = wait, at
                step = calls[ids[at]].function_name if at < len(ids) else None
        if session.is_fork:  # until its first commit, with which what is open in its past is spawned
            session.is_fork, step = False, step or ""
        if step is None or step == self._step_shown:
            return None
        self._step_shown = step
        return step

    def _taken_beats(self, status: Status) -> str | None:
        calls = self._session.open_calls
        # What has ended says nothing more; but a run that failed may be retried, from the call that it failed by.
        if status is not Status.FAILED and any(call not in calls for call in self._beats):
            self._beats = {call: beat for call, beat in self._beats.items() if call in calls}
            self._has_new_beats = True
        if not self._has_new_beats:
            return None
        self._has_new_beats = False
        return msgspec.json.encode(self._beats).decode()

    def _taken_published(self) -> str | None:
        if not self._session.has_new_published:
            return None
        self._session.has_new_published = False
        return msgspec.json.encode(self._session.published).decode()

    def _taken_attributes(self) -> str | None:
        if not self._session.has_new_attributes:
            return None
        self._session.has_new_attributes = False
        return ENCODER.encode(self._session.attributes).decode()

    def _set_time(self, time_us: int) -> None:
        self._time_us = time_us
        self._time_base = self._engine.now()
        self._session.now_us = time_us
        self._session.stamp = stamp_at(time_us)

    def _now_us(self) -> int:
        """The store's time, as far as this worker can tell without asking."""
        return self._time_us + int((self._engine.now() - self._time_base) * 1_000_000)

    def _touch(self) -> None:
        self._session.stamp = stamp_at(self._now_us())
