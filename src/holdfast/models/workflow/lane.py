"""The fast lane of a run: async tasks that the body awaits where it calls them, one after the other.

This is what most steps of most workflows are. All that is done here is done by the rest of the run too (`run`,
`inline_calls`, `attempts`), in the same order, with the same events and commits; the lane is that path written in one
piece for the case in which nothing else is going on. Whatever is not plain (a task with a deadline or resources, a
failure, a cancel, something in the inbox, a claim that is a second attempt) leaves the lane before it is dealt with, at
a point at which the general loop takes over. A test runs programs with and without it and compares their journals.
"""

from __future__ import annotations

from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from holdfast.core.errors import HoldfastError
from holdfast.core.journal import quick
from holdfast.core.journal.events import Ok
from holdfast.core.journal.stamp import stamp_at
from holdfast.engine.observer import STEPS
from holdfast.models.own_context import InContext
from holdfast.models.workflow.attempts import Returned
from holdfast.models.workflow.current import CURRENT_CALL, Current
from holdfast.models.workflow.inline_calls import InlineCalls
from holdfast.models.workflow.open_call import OpenCall, Settled

if TYPE_CHECKING:
    from holdfast.models.workflow.task import Task

_set_current = CURRENT_CALL.set


class Lane(InlineCalls):
    def _next_in_lane(self) -> OpenCall | None:
        """The one open call, if it is plain and the body waits for nothing else."""
        session = self._session
        wait, calls = session.wait, session.open_calls
        if wait is None or len(calls) != 1 or wait.kind != "Single" or STEPS.tracer is not None:
            return None
        call = calls.get(wait.waiting_on[0])
        if call is None or call.is_remote or call.arguments is None or not call.callee.is_plain:  # type: ignore[union-attr]
            return None
        is_first = not (call.attempt or self._claim.attempt or self._in_flight)
        return call if is_first and session.cancel_sequence is None else None

    async def _go_on_in_lane(self, call: OpenCall, steps: int, since: float) -> int | None:
        """Run this call and those after it. How many steps it has been; None if the run is over."""
        session, claim, may_keep = self._session, self._claim, self._engine.may_keep
        journal, open_calls = session.journal, session.open_calls
        found: OpenCall | None = call
        while found is not None:
            call = found
            if (session.decided or session.spawned) and not await self._commit():
                return None
            if session.decided or session.cancel_sequence is not None or open_calls.get(call.promise_id) is not call:
                return steps  # something came with that commit
            steps += 1
            call.attempt, call.started, call.first_started_us = 1, True, session.stamp.us
            quick.start(journal, session.stamp, call.promise_id, 1)
            outcome = await self._attempt_plainly(call)
            session.stamp = stamp_at(self._now_us())
            if type(outcome) is not Returned or self._is_interrupted or self._is_stirred:
                await self._after_attempt(call, outcome)
                return steps
            self._complete(call, outcome.raw, outcome.value)
            try:
                session.drive()
            except HoldfastError as error:
                await self._strand(error)
                return None
            if session.is_finished or session.to_cancel or not may_keep(claim, steps, since):
                return steps
            found = self._next_in_lane()
        return steps

    async def _strand(self, error: HoldfastError) -> None:
        """The run's own."""
        raise error

    async def _attempt_plainly(self, call: OpenCall) -> Returned | BaseException:
        """`_attempt` of a plain task."""
        task: Task[..., Any] = call.callee  # type: ignore[assignment]
        arguments, call.arguments = call.arguments, None
        context = copy_context()
        context.run(_set_current, Current(self._id, call.promise_id, 1, None, self._on_beat))
        self._in_place = self._task
        try:
            value = await InContext(context, context.run(task.fn, *arguments))  # type: ignore[arg-type]
            return Returned(*task.signature.result.write(value, max_bytes=task.payload_limit))
        except BaseException as error:
            return self._caught(error)
        finally:
            if self._is_interrupted:
                self._undo_interruption()
            self._in_place = None

    def _complete(self, call: OpenCall, raw: bytes, value: Any) -> None:
        """`_settle` of a call that returned."""
        session, promise_id = self._session, call.promise_id
        del session.open_calls[promise_id]
        session.settled[promise_id] = Settled(session.journal.length, Ok(Raw(raw)))
        session.fresh[promise_id] = value
        quick.complete(session.journal, session.stamp, promise_id, 1, raw)
        session.decided = True
        if self._beats:
            self._beats.pop(promise_id, None)
