"""The inline calls of a run: in place, beside each other, in a transaction; attempts, retries, interruptions."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Raw

from holdfast.core.errors import ConfigurationError, PayloadError, StoreError
from holdfast.core.journal.book import NONE
from holdfast.core.journal.events import Err, Failure, Ok
from holdfast.core.retry import GiveUp
from holdfast.core.status import Status
from holdfast.models.workflow.agenda import Agenda
from holdfast.models.workflow.attempts import NOT_OWN, Returned, failure_kind, run_attempt, traced
from holdfast.models.workflow.current import Current
from holdfast.models.workflow.failures import failure_of
from holdfast.models.workflow.open_call import OpenCall
from holdfast.models.workflow.run_ledger import RunLedger, is_unrepeatable
from holdfast.models.workflow.task import Task
from holdfast.models.workflow.transaction import Transaction, WrongStoreError
from holdfast.store.effects import Effect
from holdfast.store.values import Receipt


class InlineCalls(RunLedger):
    """Starts what the body waits for, and takes in what comes of it and from outside."""

    __slots__ = ()

    def _startable(self) -> list[OpenCall]:
        """Inline calls that the body has made and that are to begin now."""
        session = self._session
        agenda = session.agenda
        if agenda is None:
            agenda = session.agenda = Agenda()
        return agenda.startable(session.open_calls, session.next, self._now_us())

    def _lacking(self) -> ConfigurationError | None:
        """What no lifespan yields for those: of tasks that a worker does not know when it starts, because they are
        another app's, or declared later."""
        session = self._session
        unchecked = session.agenda.unchecked if session.agenda is not None else None
        while unchecked:
            call = unchecked[0]
            if isinstance(call.callee, Task) and session.open_calls.get(call.promise_id) is call:
                try:
                    self._engine.resources.given(call.callee.resources, by=call.function_name)
                except ConfigurationError as error:
                    return error
            unchecked.popleft()
        return None

    # ------------------------------------------------------------------ calls

    async def _call_in_place(self, call: OpenCall) -> bool:
        """The common case: the body waits for this one call. It runs in the claim's own asyncio task."""
        session = self._session
        if not await self._begin([call]) or call.promise_id not in session.open_calls:
            return not self._is_over
        if session.awaits_cancel():
            return True
        self._in_place = asyncio.current_task()
        try:
            outcome = await self._attempt(call)
        finally:
            self._in_place = None
        self._touch()
        await self._after_attempt(call, outcome)
        return True

    async def _after_attempt(self, call: OpenCall, outcome: Returned | BaseException) -> None:
        """Take in how a call in place ended, and what came meanwhile."""
        session = self._session
        if self._is_interrupted and not isinstance(outcome, Returned):
            # The cancel comes first: the body is to hear of it, not of a call that failed because of it.
            await self._look_outside()
        if isinstance(outcome, Returned) or not session.awaits_cancel():
            self._settle(call, outcome)
        if self._is_interrupted or self._is_stirred:
            # What came while the call ran is taken in after its end: a signal finds the body running (B7).
            self._is_interrupted = self._is_stirred = False
            session.resume()
            await self._look_outside()

    async def _transact(self, call: OpenCall, task: Any) -> bool:
        """A transaction: what it writes and its InvokeCompleted are one commit, so it takes effect exactly once."""
        session = self._session
        before = call.attempt
        if not await self._begin([call]) or call.promise_id not in session.open_calls:
            return not self._is_over
        if session.awaits_cancel():
            return True
        has_started = call.attempt > before
        current = self._current(call, call.attempt if has_started else call.attempt + 1)

        def start() -> None:
            nonlocal has_started
            if not has_started:
                has_started = True
                session.started(call)

        def effects_of(text: str) -> list[Effect]:
            session.completed(call, Ok(Raw(text.encode())))
            return self._effects(Status.EXECUTING)

        async def transact() -> Receipt:
            work = task.work(call.input, current, self._engine)

            def begin(connection: Any) -> Any:
                start()  # not before the fence: a run that is paused there has not begun it
                return work(connection)

            return await self._engine.transact(
                self._claim,
                begin,
                effects_of,
                heeds_cancel=session.cancel_sequence is None,
                # An attempt that is recorded is not left, nor is a call beside it that may not be repeated.
                heeds_pause=not has_started and not self._once_in_flight,
            )

        await self._come()
        self._is_committing = True
        try:
            if self._is_over:
                return False
            try:
                receipt = await traced(task.name, current.attempt, transact())
            except (StoreError, asyncio.CancelledError):
                raise  # whether it was committed is not known here: whoever picks it next reads that in the journal
            except Exception as error:
                if call.promise_id not in session.open_calls:
                    raise  # the code had returned: this is the ledger's own trouble
                start()
                self._touch()
                self._settle(call, error)
                return True
            if not receipt.is_refused:
                self._claim.attempt = 0  # as `_commit` does
                return await self._after(receipt)
        finally:
            self._is_committing = False
            self._pass_on()
        if not receipt.cancel_requested:
            return await self._commit()  # which pauses it
        await self._look_outside()
        return True

    async def _call_beside(self, todo: list[OpenCall]) -> bool:
        """Several calls at once; each result is committed as it comes."""
        session = self._session
        if not await self._begin(todo):
            return False
        if session.awaits_cancel():
            return True
        loop = asyncio.get_running_loop()
        if self._in_flight is NONE:
            self._in_flight, self._finished = {}, []
        for call in todo:
            if call.promise_id in session.open_calls:
                task = loop.create_task(self._attempt(call))
                task.add_done_callback(self._on_end)
                self._in_flight[task] = call
                self._once_in_flight += is_unrepeatable(call)
                session.agenda.began(call)  # type: ignore[union-attr]  # which had it begin
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
                self._once_in_flight -= is_unrepeatable(task_call)
                self._settle(task_call, asyncio.CancelledError() if task.cancelled() else task.result())
        if self._is_stirred:
            self._is_stirred = False
            await self._look_outside()
        session.fire_timers(self._now_us())
        return await self._commit() if self._in_flight and session.decided else True

    async def _something_happens(self) -> None:
        """A call in flight ends, something comes into the inbox, or the next retry or timer is due."""
        if self._is_stirred:
            return
        loop = asyncio.get_running_loop()
        self._stirring = loop.create_future()
        seconds = self._next_due_seconds()
        alarm = None if seconds is None else loop.call_later(seconds, self._stir)
        try:
            await self._stirring
        finally:
            if alarm is not None:
                alarm.cancel()
            self._stirring = None

    def _stir(self) -> None:
        if self._stirring is not None and not self._stirring.done():
            self._stirring.set_result(None)

    def _on_end(self, task: asyncio.Task[Any]) -> None:
        self._finished.append(task)
        if self._stirring is not None:
            self._stir()

    def _next_due_seconds(self) -> float | None:
        session = self._session
        retry_us = None if session.agenda is None else session.agenda.next_retry_us(session.open_calls)
        due = [at_us for at_us in (retry_us, self._next_alarm_us()) if at_us is not None]
        return None if not due else max(0.001, (min(due) - self._now_us()) / 1_000_000)

    def _next_alarm_us(self) -> int | None:
        """When the first of the timers fires that the body waits for."""
        wait, timers = self._session.wait, self._session.timers
        if wait is not self._alarms_of:
            waited = () if wait is None or not timers else wait.waiting_on
            self._alarms_of = wait
            self._alarms = sorted(((timers[one], one) for one in waited if one in timers), reverse=True)
        while self._alarms and self._alarms[-1][1] not in timers:
            self._alarms.pop()
        return self._alarms[-1][0] if self._alarms else None

    async def _begin(self, calls: list[OpenCall]) -> bool:
        """Record Started; commit first if a crash could decide otherwise, or if the attempt itself must count."""
        session = self._session
        was_taken_over = self._claim.attempt > 0  # before that commit, which is progress: a signal may have come too
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
            # B15: an attempt that may kill its worker, or may not be repeated, is recorded before it begins.
            is_suspect = was_taken_over or call.promise_id in self._suspects
            if isinstance(task, Transaction) and not is_suspect:
                continue  # it starts behind its fence
            session.started(call)
            must_count = must_count or is_suspect or task.effects == "at_most_once"
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

    async def _attempt(self, call: OpenCall) -> Returned | BaseException:
        task = call.callee
        assert isinstance(task, Task)
        arguments, call.arguments = call.arguments, None  # another attempt reads them anew
        try:
            return await run_attempt(task, call.input, self._current(call), self._engine, arguments)
        except BaseException as error:
            return self._caught(error)
        finally:
            if self._is_interrupted:
                self._undo_interruption()

    def _caught(self, error: BaseException) -> BaseException:
        """What an attempt raised, as its outcome; raised on if it is not the attempt's own."""
        if isinstance(error, NOT_OWN):
            raise error
        asyncio_task = asyncio.current_task()
        assert asyncio_task is not None
        is_in_place = asyncio_task not in self._in_flight
        if asyncio_task.cancelling() > (self._is_interrupted and is_in_place):
            if isinstance(error, asyncio.CancelledError):
                raise error
            if is_in_place and not self._engine.may_keep(self._claim, 0, self._engine.now()):
                # The worker leaves, and the task made an error of its own of that: not recorded either.
                raise asyncio.CancelledError from error
        return error

    def _undo_interruption(self) -> None:
        if self._in_place is not None and self._in_place is asyncio.current_task():
            self._in_place.uncancel()

    def _current(self, call: OpenCall, attempt: int | None = None) -> Current:
        beat = self._beats.get(call.promise_id) if self._beats else None
        last_beat = None if beat is None else bytes(beat).decode()
        return Current(
            self._id, self._id + call.promise_id, attempt or call.attempt, last_beat, call.key, self._on_beat
        )

    def _settle(self, call: OpenCall, outcome: Returned | BaseException) -> None:
        session = self._session
        if isinstance(outcome, Returned):
            call.value = outcome.value
            session.completed(call, Ok(Raw(outcome.raw)))
            return
        task = call.callee
        assert isinstance(task, Task)
        if isinstance(outcome, asyncio.CancelledError) or call.promise_id in self._told_to_end:
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
            self._engine.note_retry("task", task.name)
            session.retrying(call, failure, self._now_us() + round(decision.delay_seconds * 1_000_000))

    # ------------------------------------------------------------------ the outside

    def _on_stir(self) -> None:
        self._is_stirred = True
        self._stir()
        if self._in_place is not None and self._session.cancel_sequence is None:
            looking = asyncio.get_running_loop().create_task(self._interrupt_if_cancelled())
            self._runner.background.add(looking)
            looking.add_done_callback(self._runner.background.discard)

    async def _interrupt_if_cancelled(self) -> None:
        view = await self._engine.store.get(self._claim.promise)
        if view is None or not view.cancel_requested or self._session.cancel_sequence is not None:
            return  # once the body has heard of it, what runs is its clean-up
        if self._in_place is not None and not self._is_interrupted:
            self._is_interrupted = True
            self._in_place.cancel()

    def _on_beat(self, promise_id: str, text: str) -> None:
        """`promise_id` is whole, as a task knows it."""
        self._beats = self._beats or {}
        self._beats[promise_id.removeprefix(self._id)] = Raw(text.encode())
        self._has_new_beats = True
        self._runner.note_beat(self)

    async def commit_beats(self) -> None:
        """Called now and then while calls are in flight: the last heartbeats become durable."""
        if self._has_new_beats and not self._is_over:
            await self._commit(progress=False)

    async def _cancel_left(self) -> None:
        """Calls of join sets that were left with their rest to be cancelled, and those that a cancel found open."""
        left, self._session.to_cancel = self._session.to_cancel, ()
        if left:
            found = (self._session.open_calls.get(promise_id) for promise_id in dict.fromkeys(left))
            await self._cancel_calls([call for call in found if call is not None])

    async def _cancel_calls(self, calls: list[OpenCall]) -> None:
        session = self._session
        unborn = {call.promise_id for call in session.spawned} & {call.promise_id for call in calls}
        if unborn:  # never inserted: they end here
            session.spawned = [call for call in session.spawned if call.promise_id not in unborn]
        running = {call.promise_id: task for task, call in self._in_flight.items()}
        remote = []
        for call in calls:
            if call.promise_id in unborn:
                self._end_unstarted(call)
            elif call.is_remote:
                remote.append(self._child_id(call).to_bytes())
            elif call.promise_id in running:
                self._told_to_end = self._told_to_end or set()
                self._told_to_end.add(call.promise_id)  # whatever it makes of that, it is not tried again
                running[call.promise_id].cancel()
            else:
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
