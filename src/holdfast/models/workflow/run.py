"""One claim of a workflow, from its pick to its release: drive the body, run its calls, commit, park.

What is committed when (ruling B15): a decision is durable before anything that depends on it is started. So a commit
comes before a call begins if something is decided, before parking, and at the end; a body that goes on after an
inline call without starting anything shares the next commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from holdfast.core.clock import to_datetime
from holdfast.core.codec import encode_error
from holdfast.core.errors import DecodeError, EncodeError, ForeignAwaitError, HoldfastError, PayloadError, StoreError
from holdfast.core.identity import PromiseId
from holdfast.core.journal.events import Err, Failure, Ok
from holdfast.core.retry import GiveUp
from holdfast.core.status import Status
from holdfast.engine.runner import Engine
from holdfast.models.options import Options
from holdfast.models.workflow.attempts import failure_kind, run_attempt
from holdfast.models.workflow.context import Context, Info
from holdfast.models.workflow.current import Current
from holdfast.models.workflow.definition import Workflow
from holdfast.models.workflow.failures import encode_failure, failure_of, failure_of_text
from holdfast.models.workflow.fork import FORKED
from holdfast.models.workflow.session import Cancelled, ContinueAsNew, OpenCall, Session
from holdfast.models.workflow.task import Task, TaskState
from holdfast.models.workflow.transaction import Transaction, WrongStoreError
from holdfast.store.effects import (
    AdvanceExecution,
    AppendJournal,
    ConsumeSignals,
    ContinueExecution,
    DeliverSignal,
    Effect,
    SpawnExecutions,
)
from holdfast.store.values import CHILD, ChildEnd, ExecutionClaim, NewSignal, Receipt, Signal

if TYPE_CHECKING:
    from holdfast.models.workflow.runner import WorkflowRunner

log = logging.getLogger("holdfast.workflow")

_child_end = msgspec.json.Decoder(ChildEnd).decode
_task_state = msgspec.json.Decoder(TaskState).decode


class Run:
    """The life of one claim. `in_flight` are inline calls that run beside each other."""

    def __init__(self, runner: WorkflowRunner, definition: Workflow[..., Any], claim: ExecutionClaim, engine: Engine):
        self._runner = runner
        self._definition = definition
        self._claim = claim
        self._engine = engine
        self._promise = PromiseId.from_bytes(claim.promise)
        self._session: Session = None  # type: ignore[assignment]  # set by `go` before anything else
        self._ingested: list[int] = []  # inbox rows that the next commit consumes
        self._seen: set[int] = set()  # every inbox row that this claim has taken in
        self._in_flight: dict[asyncio.Task[Any], OpenCall] = {}
        self._finished: list[asyncio.Task[Any]] = []  # in the order in which they ended
        self._beats: dict[str, Raw] = {}
        self._has_new_beats = False
        self._time_us = claim.picked_at_us
        self._time_base = engine.now()
        self._stir: asyncio.Event = asyncio.Event()
        self._in_place: asyncio.Task[Any] | None = None
        self._is_interrupted = False
        self._is_over = False
        self._committing = asyncio.Lock()
        self._extra_effects: list[Effect] = []

    async def go(self) -> None:
        claim, engine = self._claim, self._engine
        engine.watch(claim, self._on_stir)
        try:
            if not await self._open():
                return
            await self._work()
        except BaseException:
            if self._session is not None:
                self._session.evict()
            raise
        finally:
            engine.watch(claim, None)
            await self._stop_calls()

    # ------------------------------------------------------------------ opening

    async def _open(self) -> bool:
        claim = self._claim
        warm = self._runner.warm.take(claim.promise, claim.revision)
        if warm is not None:
            self._session = warm
        else:
            try:
                self._session = self._new_session()
                if claim.journal_length:
                    self._session.load(await self._engine.store.journal(claim.promise))
            except HoldfastError as error:
                await self._strand(error)
                return False
        session = self._session
        self._set_time(claim.picked_at_us)
        if claim.beats:
            self._beats = msgspec.json.decode(claim.beats, type=dict[str, Raw])
        if not session.journal.length:
            parent = None if claim.parent is None else str(PromiseId.from_bytes(claim.parent))
            session.start(self._definition.digest, claim.state, parent, claim.idempotency_key, claim.version)
        self._ingest(claim.inbox)
        session.receive_wanted()  # before timers: a signal that came in time does not lose to a worker that came late
        session.fire_timers(claim.picked_at_us)
        if claim.cancel_requested:
            session.request_cancel(claim.cancel_reason or "cancelled")
        return True

    def _new_session(self) -> Session:
        claim, definition = self._claim, self._definition
        arguments = definition.signature.decode(claim.state)
        session = Session(str(self._promise))
        info = Info(str(self._promise), claim.name, claim.version, claim.idempotency_key, claim.attempt)
        session.body = definition.fn(Context(session, info, definition.payload_limit), *arguments)
        session.is_fork = claim.step == FORKED
        if claim.published:
            session.published = msgspec.json.decode(claim.published, type=dict[str, Raw])
        if claim.attributes:
            session.attributes = msgspec.json.decode(claim.attributes)
        return session

    def _ingest(self, inbox: Sequence[Signal]) -> None:
        """B9: what others wrote into the inbox is appended first, in its order."""
        for row in inbox:
            if row.id in self._seen:  # two looks at the inbox may overlap
                continue
            self._seen.add(row.id)
            if row.kind == CHILD:
                self._child_ended(str(PromiseId.from_bytes(bytes.fromhex(row.name))), _child_end(row.payload))
            else:
                self._session.deliver(row.name, row.payload)
            self._ingested.append(row.id)

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
            session.completed(call, Err(Failure("cancelled", "Cancelled", f"{call.function_name} was cancelled")))

    # ------------------------------------------------------------------ the loop

    async def _work(self) -> None:
        session, engine = self._session, self._engine
        steps, since = 0, engine.now()
        while True:
            if session.can_resume:
                try:
                    session.drive()
                except HoldfastError as error:
                    await self._strand(error)
                    return
                await self._cancel_left()
            if session.is_finished:
                await self._conclude()
                return
            todo = self._startable()
            if not todo and not self._in_flight:
                await self._park()
                return
            if steps and not self._in_flight and not engine.may_keep(self._claim, steps, since):
                await self._commit(Status.RUNNABLE)  # the worker drains, or more urgent work waits
                return
            steps += 1
            wait = session.wait
            transactions = [call for call in todo if isinstance(call.callee, Transaction)]
            if transactions:
                if not await self._transact(transactions[0], transactions[0].callee):
                    return
                continue
            alone = len(todo) == 1 and not self._in_flight and wait is not None
            if alone and wait is not None and wait.waiting_on == (todo[0].promise_id,):
                goes_on = await self._call_in_place(todo[0])
            else:
                goes_on = await self._call_beside(todo)
            if not goes_on:
                return

    def _startable(self) -> list[OpenCall]:
        running = {call.promise_id for call in self._in_flight.values()}
        now_us = self._now_us()
        return [
            call
            for call in self._session.open_calls.values()
            if call.callee is not None
            and not call.is_remote
            and call.promise_id not in running
            and (call.retry_at_us is None or call.retry_at_us <= now_us)
        ]

    # ------------------------------------------------------------------ calls

    async def _call_in_place(self, call: OpenCall) -> bool:
        """The common case: the body waits for this one call. It runs in the claim's own asyncio task."""
        if not await self._begin([call]) or call.promise_id not in self._session.open_calls:
            return not self._is_over
        if self._session.awaits_cancel():
            return True
        self._in_place = asyncio.current_task()
        try:
            outcome = await self._attempt(call)
        finally:
            self._in_place = None
        self._touch()
        if self._is_interrupted and not isinstance(outcome, Ok):
            # The cancel comes first: the body is to hear of it, not of a call that failed because of it.
            await self._look_outside()
        if not self._session.awaits_cancel():
            self._settle(call, outcome)
        elif isinstance(outcome, Ok):
            self._session.completed(call, outcome)
        if self._is_interrupted or self._stir.is_set():
            # What came while the call ran is taken in after its end: a signal finds the body running (B7).
            self._is_interrupted = False
            self._stir.clear()
            self._session.resume()
            await self._look_outside()
        return True

    async def _transact(self, call: OpenCall, task: Any) -> bool:
        """A transaction: what it writes and its InvokeCompleted are one commit, so it takes effect exactly once."""
        session = self._session
        if not await self._begin([call]) or call.promise_id not in session.open_calls:
            return not self._is_over
        if session.awaits_cancel():
            return True

        def effects_of(text: str) -> list[Effect]:
            session.completed(call, Ok(Raw(text.encode())))
            return self._effects(Status.EXECUTING, True, {})

        async with self._committing:
            if self._is_over:
                return False
            try:
                work = task.work(call.input, self._current(call), self._engine)
                receipt = await self._engine.transact(self._claim, work, effects_of)
            except (StoreError, asyncio.CancelledError):
                raise  # whether it was committed is not known here: whoever picks it next reads that in the journal
            except Exception as error:
                if call.promise_id not in session.open_calls:
                    raise  # the code had returned: this is the ledger's own trouble
                self._touch()
                self._settle(call, error)
                return True
            return await self._after(receipt, Status.EXECUTING)

    async def _call_beside(self, todo: list[OpenCall]) -> bool:
        """Several calls at once; each result is committed as it comes."""
        if not await self._begin(todo):
            return False
        if self._session.awaits_cancel():
            return True
        loop = asyncio.get_running_loop()
        for call in todo:
            if call.promise_id in self._session.open_calls:
                task = loop.create_task(self._attempt(call))
                task.add_done_callback(self._finished.append)
                self._in_flight[task] = call
        if not self._in_flight:
            return True
        if not self._finished:
            await self._something_happens()
        self._touch()
        finished = self._finished.copy()
        self._finished.clear()  # the same list: callbacks of calls in flight append to it
        for task in finished:
            task_call = self._in_flight.pop(task, None)
            if task_call is not None:
                self._settle(task_call, asyncio.CancelledError() if task.cancelled() else task.result())
        if self._stir.is_set():
            self._stir.clear()
            await self._look_outside()
        self._session.fire_timers(self._now_us())
        return await self._commit() if self._in_flight and self._session.decided else True

    async def _something_happens(self) -> None:
        stirred = asyncio.ensure_future(self._stir.wait())
        retry = self._next_retry_seconds()
        try:
            await asyncio.wait([*self._in_flight, stirred], timeout=retry, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stirred.cancel()

    def _next_retry_seconds(self) -> float | None:
        due = [call.retry_at_us for call in self._session.open_calls.values() if call.retry_at_us is not None]
        timers = [fire for pid, fire in self._session.timers.items() if self._is_awaited(pid)]
        return None if not due and not timers else max(0.001, (min(due + timers) - self._now_us()) / 1_000_000)

    def _is_awaited(self, promise_id: str) -> bool:
        wait = self._session.wait
        return wait is not None and promise_id in wait.waiting_on

    async def _begin(self, calls: list[OpenCall]) -> bool:
        """Record Started; commit first if a crash could decide otherwise, or if the attempt itself must count."""
        session = self._session
        # Started is not part of this commit: should it pause the execution, the call has not begun.
        if (session.decided or session.spawned) and not await self._commit():
            return False
        if session.awaits_cancel():  # heard of with that commit: the body hears of it before anything begins
            return True
        must_count = False
        for call in calls:
            task = call.callee
            assert isinstance(task, Task)
            if call.promise_id not in session.open_calls or (call.started and self._lost_attempt(call, task)):
                continue
            session.started(call)
            # B15: an attempt that may kill its worker, or may not be repeated, is recorded before it begins.
            must_count = must_count or self._claim.attempt > 0 or task.effects == "at_most_once"
        return await self._commit(progress=session.decided) if must_count or session.decided else True

    def _lost_attempt(self, call: OpenCall, task: Task[..., Any]) -> bool:
        """An attempt was in flight when its worker died. Whether that was the last one."""
        if task.effects == "at_most_once":
            failure = Failure("uncertain", "Uncertain", f"attempt {call.attempt} of {task.name} was interrupted")
        elif task.retry.max_attempts is not None and call.attempt >= task.retry.max_attempts:
            failure = Failure("internal", "WorkerLost", f"attempt {call.attempt} of {task.name} lost its worker")
        else:
            return False
        self._session.completed(call, Err(failure))
        return True

    async def _attempt(self, call: OpenCall) -> Ok | BaseException:
        task = call.callee
        assert isinstance(task, Task)
        try:
            return await run_attempt(task, call.input, self._current(call), self._engine)
        except asyncio.CancelledError as error:
            asyncio_task = asyncio.current_task()
            if self._is_interrupted and asyncio_task is not None and asyncio_task is self._in_place:
                return error
            if asyncio_task is not None and asyncio_task.cancelling():
                raise
            return error
        except Exception as error:
            return error
        finally:
            if self._is_interrupted and self._in_place is not None and self._in_place is asyncio.current_task():
                self._in_place.uncancel()

    def _current(self, call: OpenCall) -> Current:
        beat = self._beats.get(call.promise_id)
        return Current(
            execution=str(self._promise),
            promise=call.promise_id,
            attempt=call.attempt,
            last_beat=None if beat is None else bytes(beat).decode(),
            on_beat=lambda text: self._on_beat(call.promise_id, text),
        )

    def _settle(self, call: OpenCall, outcome: Ok | BaseException) -> None:
        session = self._session
        if isinstance(outcome, Ok):
            self._beats.pop(call.promise_id, None)
            session.completed(call, outcome)
            return
        task = call.callee
        assert isinstance(task, Task)
        if isinstance(outcome, asyncio.CancelledError):
            session.completed(call, Err(Failure("cancelled", "Cancelled", f"{task.name} was cancelled")))
            return
        failure = failure_of(outcome, failure_kind(outcome, task))
        if task.effects == "at_most_once":
            session.completed(call, Err(failure))
            return
        elapsed = max(0.0, (self._now_us() - call.first_started_us) / 1_000_000)
        decision = task.retry.decide(call.attempt, elapsed, outcome, self._engine.random())
        if isinstance(decision, GiveUp) or isinstance(outcome, PayloadError | WrongStoreError):
            session.completed(call, Err(failure))
        else:
            session.retrying(call, failure, self._now_us() + round(decision.delay_seconds * 1_000_000))

    # ------------------------------------------------------------------ the outside

    def _on_stir(self) -> None:
        self._stir.set()
        if self._in_place is not None:
            looking = asyncio.get_running_loop().create_task(self._interrupt_if_cancelled())
            self._runner.background.add(looking)
            looking.add_done_callback(self._runner.background.discard)

    async def _interrupt_if_cancelled(self) -> None:
        view = await self._engine.store.get(self._claim.promise)
        if view is not None and view.cancel_requested and self._in_place is not None and not self._is_interrupted:
            self._is_interrupted = True
            self._in_place.cancel()

    def _on_beat(self, promise_id: str, text: str) -> None:
        self._beats[promise_id] = Raw(text.encode())
        self._has_new_beats = True
        self._runner.note_beat(self)

    async def commit_beats(self) -> None:
        """Called now and then while calls are in flight: the last heartbeats become durable."""
        if self._has_new_beats and not self._is_over:
            await self._commit(progress=False)

    async def _look_outside(self) -> None:
        """Take in what came while calls are in flight."""
        store = self._engine.store
        self._ingest(await store.inbox(self._claim.promise))
        self._session.receive_wanted()
        self._session.fire_timers(self._now_us())
        view = await store.get(self._claim.promise)
        if view is not None and view.cancel_requested and not self._session.is_finished:
            self._session.request_cancel(view.cancel_reason or "cancelled")

    async def _cancel_left(self) -> None:
        """Calls of join sets that were left with their rest to be cancelled, and those that a cancel found open."""
        left, self._session.to_cancel = self._session.to_cancel, []
        if left:
            found = (self._session.open_calls.get(promise_id) for promise_id in dict.fromkeys(left))
            await self._cancel_calls([call for call in found if call is not None])

    async def _cancel_calls(self, calls: list[OpenCall]) -> None:
        session = self._session
        remote = []
        for call in calls:
            if call in session.spawned:  # never inserted: it ends here
                session.spawned.remove(call)
                self._end_unstarted(call)
            elif call.is_remote:
                remote.append(PromiseId.parse(call.promise_id).to_bytes())
            else:
                running = [task for task, other in self._in_flight.items() if other is call]
                for task in running:
                    task.cancel()
                if not running:
                    self._end_unstarted(call)
        if remote:
            await self._engine.store.cancel(remote, cascade=True, reason="its caller was cancelled")

    def _end_unstarted(self, call: OpenCall) -> None:
        """SE-2: a call that ends has started."""
        was_started = call.started or call.retry_at_us is not None
        if not was_started:
            self._session.started(call)
        when = "before it began" if call.attempt == 1 and not was_started else f"in attempt {call.attempt}"
        failure = Failure("cancelled", "Cancelled", f"{call.function_name} was cancelled {when}")
        self._session.completed(call, Err(failure))

    # ------------------------------------------------------------------ commits

    async def _commit(self, status: Status = Status.EXECUTING, *, progress: bool = True, **columns: Any) -> bool:
        """Write everything pending. False: the lease is gone or was given up, and this run ends here."""
        async with self._committing:  # heartbeats commit beside the body; a claim has one commit at a time
            return False if self._is_over else await self._commit_now(status, progress, columns)

    async def _commit_now(self, status: Status, progress: bool, columns: dict[str, Any]) -> bool:
        receipt = await self._engine.commit(self._claim, *self._effects(status, progress, columns))
        return await self._after(receipt, status)

    def _effects(self, status: Status, progress: bool, columns: dict[str, Any]) -> list[Effect]:
        """Everything pending, as the effects of one commit; nothing is pending afterwards."""
        session, claim = self._session, self._claim
        pending = len(session.journal.pending)
        advance = AdvanceExecution(
            status=status,
            step=self._step(),
            attempt=0 if progress else claim.attempt,
            progress=progress,
            digest=self._definition.digest,
            beats=self._taken_beats(),
            published=self._taken_published(),
            attributes=self._taken_attributes(),
            **columns,
        )
        effects: list[Effect] = [advance]
        if pending or session.journal.pending_patches:
            first = session.journal.length - pending
            body = session.journal.take_segment().decode()
            session.journal_bytes += len(body)
            effects.append(AppendJournal(first, pending, body))
        if self._ingested:
            effects.append(ConsumeSignals(tuple(self._ingested)))
            self._ingested = []
        if session.spawned:
            effects.append(SpawnExecutions(tuple(map(self._child_row, session.spawned)), barrier=False))
            session.spawned = []
        effects += self._extra_effects
        self._extra_effects = []
        session.decided = False
        return effects

    async def _after(self, receipt: Receipt, asked: Status) -> bool:
        if not receipt.applied:
            self._is_over = True
            self._session.evict()
            return False
        if receipt.at_us:  # not known of a commit whose reply was lost
            self._set_time(receipt.at_us)
        if receipt.status is not Status.EXECUTING:
            self._is_over = True
            if receipt.status is not None and not receipt.status.is_terminal and not self._in_flight:
                self._runner.warm.put(self._claim.promise, self._claim.revision, self._session)
            else:
                self._session.evict()
            return False
        if receipt.inbox_count or (receipt.cancel_requested and self._session.cancel_sequence is None):
            await self._look_outside()
        return True

    async def _park(self) -> None:
        session = self._session
        wait = session.wait
        assert wait is not None
        names = tuple(sorted({s.signal_name for s in wait.signals if s.promise_id not in session.settled}))
        unsettled = [promise_id for promise_id in wait.waiting_on if promise_id not in session.settled]
        remote = sum(1 for promise_id in unsettled if self._is_remote(promise_id))
        due = [session.timers[pid] for pid in unsettled if pid in session.timers]
        due += [call.retry_at_us for call in session.open_calls.values() if call.retry_at_us is not None]
        if not names and not remote and not due:
            await self._strand(HoldfastError("the body waits for something that nothing can bring; this is a bug"))
            return
        wake_after = max(0.0, (min(due) - self._now_us()) / 1_000_000) if due else None
        children = 0 if not remote else (1 if wait.kind == "Any" else remote)
        await self._commit(Status.AWAITING_PROMISE, awaits=names, wake_after=wake_after, wait_children=children)

    def _is_remote(self, promise_id: str) -> bool:
        call = self._session.open_calls.get(promise_id)
        return call is not None and call.is_remote

    def _child_row(self, call: OpenCall) -> Any:
        assert call.callee is not None
        promise = PromiseId.parse(call.promise_id)
        return call.callee.child_row(promise, call.input, self._claim.queue, self._definition.payload_limit)

    async def _conclude(self) -> None:
        session, definition = self._session, self._definition
        error = session.failure
        if isinstance(error, ForeignAwaitError):
            await self._strand(error)
            return
        if isinstance(error, ContinueAsNew):
            await self._continue(error)
            return
        text: str | None = None
        if error is None:
            try:
                text = definition.signature.result.encode(session.result, max_bytes=definition.payload_limit)
            except (EncodeError, PayloadError) as bad:
                error = session.failure = bad
        await self._stop_calls()
        if text is not None:
            session.conclude(Raw(text.encode()), None)
            await self._commit(Status.DONE, result=text)
        elif isinstance(error, Cancelled):
            session.conclude(None, None)
            await self._commit(Status.CANCELLED)
        else:
            assert error is not None
            failure = failure_of(error)
            session.conclude(None, failure)
            await self._commit(Status.FAILED, error=encode_failure(failure))

    async def _continue(self, again: ContinueAsNew) -> None:
        """End this journal and begin another, in one commit; whoever waits for the result follows."""
        definition, claim = self._definition, self._claim
        try:
            text = definition.signature.encode(again.arguments, again.keywords, definition.payload_limit)
        except HoldfastError as error:
            self._session.failure = error
            await self._conclude()
            return
        session = self._session
        promise = self._promise.successor("continued")
        options = Options(
            queue=claim.queue,
            priority=claim.priority,
            partition_key=claim.partition_key,
            attributes=session.attributes or None,
        )
        row = definition.row(promise, text, options, claim.idempotency_key)
        session.conclude(Raw(msgspec.json.encode({"continued_as": str(promise)})), None)
        # Signals that this run took in and did not read are read by the next one, before those still in the inbox.
        for name, payloads in session.buffered.items():
            for payload in payloads:
                signal = NewSignal(promise.to_bytes(), name, bytes(payload).decode())
                self._extra_effects.append(DeliverSignal(signal))
        self._extra_effects.append(ContinueExecution(row))
        await self._stop_calls()
        await self._commit(Status.DONE)

    async def _strand(self, error: HoldfastError) -> None:
        """Nothing of this run is recorded; the inbox stays. Loud, and resumable by the right code (ruling B5)."""
        label = self._promise.label(self._claim.name)
        log.error("%s is stranded: %s", label, error)
        if self._session is not None:
            self._session.evict()
        await self._stop_calls()
        kind = "internal" if isinstance(error, DecodeError) else "nondeterminism"
        record = encode_error(error, kind=kind)
        advance = AdvanceExecution(
            status=Status.STRANDED,
            attempt=self._claim.attempt,
            progress=False,
            error=record,
            digest=self._definition.digest,
        )
        await self._engine.commit(self._claim, advance)

    # ------------------------------------------------------------------ small things

    async def _stop_calls(self) -> None:
        """Nothing that runs inline outlives its run."""
        tasks, self._in_flight = list(self._in_flight), {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _step(self) -> str | None:
        """What a person sees the run at: the call it waits for."""
        wait = self._session.wait
        if wait is None:
            return None
        call = self._session.open_calls.get(wait.waiting_on[0])
        return call.function_name if call is not None else (wait.signals[0].signal_name if wait.signals else "sleep")

    def _taken_beats(self) -> str | None:
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
        return msgspec.json.encode(self._session.attributes, order="deterministic").decode()

    def _set_time(self, time_us: int) -> None:
        self._time_us = time_us
        self._time_base = self._engine.now()
        self._session.now_us = time_us
        self._session.stamp = to_datetime(time_us)

    def _now_us(self) -> int:
        """The store's time, as far as this worker can tell without asking."""
        return self._time_us + int((self._engine.now() - self._time_base) * 1_000_000)

    def _touch(self) -> None:
        self._session.stamp = to_datetime(self._now_us())
