"""The fast lane of a run: async tasks that the body awaits where it calls them, one after the other.

This is what most steps of most workflows are. All that is done here is done by the rest of the run too (`run`,
`inline_calls`, `attempts`), in the same order, with the same events and commits; the lane is that path written in one
piece for the case in which nothing else is going on. Whatever is not plain (a task with a deadline or resources, a
failure, a cancel, something in the inbox, a claim that is a second attempt) leaves the lane before it is dealt with, at
a point at which the general loop takes over. A test runs programs with and without it and compares their journals.

The end of one call and the begin of the next are told in one piece (`Session.turn`), so a body in the lane hears of a
result before the journal does. Everything that it may do then but call the next plain task and await it comes by
`Operations.write_up`, which tells the journal first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError
from holdfast.core.journal import quick
from holdfast.core.journal.stamp import Stamp, stamp_at
from holdfast.core.status import Status
from holdfast.engine.observer import STEPS
from holdfast.models.own_context import InContext
from holdfast.models.workflow.attempts import Returned
from holdfast.models.workflow.current import CURRENT_CALL, Current
from holdfast.models.workflow.inline_calls import InlineCalls
from holdfast.models.workflow.open_call import OpenCall
from holdfast.models.workflow.run_ledger import is_uneventful
from holdfast.store.effects import GO_ON, AdvanceExecution, AppendJournal
from holdfast.store.values import Receipt

if TYPE_CHECKING:
    from holdfast.models.workflow.task import Task

_set_current = CURRENT_CALL.set


class Lane(InlineCalls):
    __slots__ = ()

    def _next_in_lane(self) -> OpenCall | None:
        """The one open call, if it is plain and the body waits for nothing else."""
        session = self._session
        wait, calls = session.wait, session.open_calls
        if wait is None or len(calls) != 1 or wait.kind != "Single" or STEPS.tracer is not None:
            return None
        call = calls.get(wait.waiting_on[0])
        if call is None or call.is_remote or call.arguments is None or not call.callee.is_plain:  # type: ignore[union-attr]
            return None
        is_first = not (call.attempt or self._claim.attempt or self._in_flight or call.promise_id in self._suspects)
        return call if is_first and session.cancel_sequence is None else None

    async def _go_on_in_lane(self, call: OpenCall, steps: int, since: float) -> int | None:
        """Run this call and those after it. How many steps it has been; None if the run is over."""
        session, claim, engine = self._session, self._claim, self._engine
        step: AppendJournal | None = None
        while True:
            written = 0
            if step is not None:
                is_shown = call.function_name == self._step_shown
                answer = engine.step(claim, GO_ON if is_shown else self._arrival(call), step)
                if type(answer) is int:  # and nobody else has run meanwhile
                    self._set_time(written := answer)
                elif not await self._hear(answer):  # type: ignore[arg-type]
                    return None
            elif (session.decided or session.spawned) and not await self._commit():
                return None
            if not written and (
                session.decided
                or session.cancel_sequence is not None
                or session.open_calls.get(call.promise_id) is not call
            ):
                return steps  # something came with that commit
            steps += 1
            begun = session.stamp
            outcome = self._attempt_at_once(call)
            if type(outcome) is InContext:
                self._record_start(call, begun)
                outcome = await self._attempt_on(call, outcome)
            if engine.now() != self._time_base:  # else, as far as the loop knows, no time has passed since the commit
                session.stamp = stamp_at(self._now_us())
            if (
                type(outcome) is not tuple
                or self._is_interrupted
                or self._is_stirred
                or session.cancel_sequence is not None  # it came with the commit of a heartbeat
                or STEPS.tracer is not None  # somebody has begun to trace
            ):
                self._record_start(call, begun)
                await self._after_attempt(call, Returned(*outcome) if type(outcome) is tuple else outcome)  # type: ignore[arg-type]
                return steps
            raw, value = outcome
            try:
                step = session.turn(call, begun, raw, value, self._has_only_events)
            except HoldfastError as error:
                await self._strand(error)
                return None
            if step is not None:
                if engine.may_keep(claim, steps, since):
                    continue
                self._extra_effects = [step]
                await self._commit(Status.RUNNABLE)  # the worker drains, or more urgent work waits
                return None
            if session.is_finished or session.to_cancel or not engine.may_keep(claim, steps, since):
                return steps
            found = self._next_in_lane()
            if found is None:
                return steps
            call = found

    async def _hear(self, answer: Awaitable[Receipt]) -> bool:
        """As `_commit` does."""
        self._is_committing = True
        try:
            receipt = await answer
            if is_uneventful(receipt):
                self._set_time(receipt.at_us)
                return True
            return await self._after(receipt)
        finally:
            self._is_committing = False
            if self._turns:
                self._pass_on()

    async def _strand(self, error: HoldfastError) -> None:
        """The run's own."""
        raise error

    # ------------------------------------------------------------------ the commit of a step

    def _has_only_events(self) -> bool:
        """Whether what comes of the body's turn is all that is to be committed, and the row's step may change."""
        return not (
            self._beats
            or self._ingested
            or self._is_committing
            or self._is_over
            or self._step_shown is None  # the first commit of a claim
        )

    def _arrival(self, call: OpenCall) -> AdvanceExecution:
        """What becomes of the row in a commit with which the run comes to a call of another task."""
        self._step_shown = call.function_name
        return call.callee.arrival  # type: ignore[no-any-return,union-attr]  # a task's

    # ------------------------------------------------------------------ the step

    def _attempt_at_once(self, call: OpenCall) -> tuple[bytes, Any] | InContext | BaseException:
        """`_attempt` of a plain task up to where it first waits: what it returned, if it does not."""
        task: Task[..., Any] = call.callee  # type: ignore[assignment]
        arguments, call.arguments = call.arguments, None
        context = copy_context()
        current = Current(self._id, self._id + call.promise_id, 1, None, call.key, self._on_beat, self._engine.loop)
        context.run(_set_current, current)
        try:
            running: Coroutine[Any, Any, Any] = task.call(*arguments)
            try:
                awaited = context.run(running.send, None)
            except StopIteration as end:
                return task.signature.result.write(end.value, max_bytes=task.payload_limit)
            return InContext(context, running, awaited)
        except BaseException as error:
            return self._caught(error)

    async def _attempt_on(self, call: OpenCall, running: InContext) -> tuple[bytes, Any] | BaseException:
        """The rest of an attempt that waits for something."""
        task: Task[..., Any] = call.callee  # type: ignore[assignment]
        self._in_place = asyncio.current_task()
        try:
            return task.signature.result.write(await running, max_bytes=task.payload_limit)
        except BaseException as error:
            return self._caught(error)
        finally:
            if self._is_interrupted:
                self._undo_interruption()
            self._in_place = None

    def _record_start(self, call: OpenCall, begun: Stamp) -> None:
        """InvokeStarted, where it is not told together with the end."""
        if not call.started:
            call.attempt, call.started, call.first_started_us = 1, True, begun.us
            quick.start(self._session.journal, begun, call.promise_id, 1)
