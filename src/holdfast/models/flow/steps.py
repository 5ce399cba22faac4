"""The three steps of Leg2 (sections 8 to 13): the work, the children, the completion. Each is one commit."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeAlias

import msgspec

from holdfast.core.codec import encode_error
from holdfast.core.collation import CHILDREN_SPAWNED, COMPLETION_DONE, WORK_DONE, Step
from holdfast.core.errors import HoldfastError, StoreError
from holdfast.core.status import Status
from holdfast.models.flow.activity import NodeKind
from holdfast.models.flow.attempts import Attempts
from holdfast.models.flow.delivery import stay
from holdfast.models.flow.ending import end_of, job_ending, wanted_answers
from holdfast.models.flow.job import FlowJob
from holdfast.models.flow.message import Letter, Letterhead
from holdfast.models.flow.outcome import Outcome, succeeded
from holdfast.models.flow.settling import settle
from holdfast.models.flow.work import arguments, inputs_of, retry_delay, run_once
from holdfast.store.effects import AdvanceExecution, Effect
from holdfast.store.flows import CLOSE, FLOW, LEG1, LEG2, ClosingKey, Settle

# What goes on after a part of the protocol, if anything does. It is returned and not awaited there, so that a message
# that waits for a commit is a few coroutines deep and not ten.
Next: TypeAlias = "Coroutine[Any, Any, Next] | None"


class Steps(Attempts):
    _head: Letterhead | None = None
    _next: Letter | None = None  # a child that goes on in this row
    _hops = 0
    _began = 0.0

    async def _steps(self, step: Step, dropped: str | None = None) -> Next:
        """From `step` to the acknowledgement; each step is one commit.

        `dropped` is the error of a dead letter: the first of the steps records it.
        """
        if step is Step.WORK:
            if self._outcome is not None:
                failure = dropped if dropped is not None else _failure(self._outcome)
                await self._mark(WORK_DONE.weight, failure=failure)
            elif not await self._transact():
                return None
            step, dropped = Step.CHILDREN, None
        if step is Step.CHILDREN:
            if not await self._step_children(dropped):
                return None
            dropped = None
        return self._step_completion(dropped)

    async def _transact(self) -> bool:
        """Step 1 of a transaction, which does its work here; False: the message was released, to be tried again.

        What the code writes commits with the proof that it has.
        """
        node, claim, engine = self._node, self._claim, self._engine
        assert node.is_transaction, "only the work of a transaction is done in Step 1"
        task: Any = node.task
        inputs = await inputs_of(node, self._message, claim, engine)
        made: list[Outcome] = []

        def effects_of(value: str) -> tuple[Effect, ...]:
            made.append(succeeded(self._flow.graph, node, value))
            weight = WORK_DONE.weight
            collate = self._collate(mark=weight, guid_add=weight, response=made[-1].encode())
            return stay(LEG2), collate

        try:
            work = task.work(arguments(task, inputs, is_whole=self._message.is_entry), self._current(), engine)
            receipt = await engine.transact(claim, work, effects_of)
        except HoldfastError as error:
            if not _is_users(error):
                raise
            outcome = await self._failed(error)
        except Exception as error:
            outcome = await self._failed(error)
        else:
            self._take(receipt)
            self._outcome = made[-1]
            return True
        if outcome is None:
            return False
        self._outcome = outcome
        await self._mark(WORK_DONE.weight, failure=_failure(outcome), response=outcome.encode())
        return True

    async def _step_children(self, dropped: str | None) -> bool:
        """Step 2, which acknowledges the message unless it closed the job; whether it did."""
        assert self._outcome is not None, "Step 2 comes after Step 1"
        assert self._is_recorded, "Step 2 belongs to a GUID that was entered"
        if self._head is None:
            flow, claim = self._flow, self._claim
            queue = self._message.queue
            self._head = Letterhead(self._job, flow.name, flow.version, claim.handler, queue, claim.priority)
        index = max(0, self._ordinal - 1)
        letters, arrivals = settle(self._flow.graph, self._node, self._dimension, index, self._outcome, self._head)
        collated = await self._mark(
            CHILDREN_SPAWNED.weight,
            self._step_after_closing(),
            failure=dropped,
            settle=Settle(tuple([letter.row for letter in letters]), tuple(arrivals), onward=self._may_go_on(letters)),
            acknowledge=True,
        )
        if collated.onward:
            self._next = letters[0]
        return collated.closed

    def _step_after_closing(self) -> str | None:
        """A letter that was closed and closed its job owes Step 3 like any other message, also after a crash."""
        if self._claim.step != CLOSE:
            return None
        return LEG2 if self._ordinal else LEG1

    def _may_go_on(self, letters: Sequence[Letter]) -> bool:
        """Whether the first child may run here and now, in this message's row: no insert, no pick, no delete."""
        claim = self._claim
        if not letters or letters[0].row.queue != claim.queue:
            return False
        if self._node.kind is NodeKind.SUBFLOW:  # the job that it waited for is a child of this row, and of no other
            return False
        return self._engine.may_keep(claim, self._hops, self._began)

    async def _step_completion(self, dropped: str | None) -> Next:
        """Step 3: the completion task, and the end of the job with all that rides on it (ruling A11).

        A letter that was dropped here died of the completion task, which is not run again.
        """
        key = ClosingKey(self._job_row, wanted_answers(self._flow))
        closing = await self._looking.closing(self._engine.store, key)
        ending = job_ending(self._flow, self._job, closing, dropped=dropped)
        failure: str | None = None
        if self._flow.completion is not None and dropped is None:
            is_done, failure = await self._complete(ending, closing.error)
            if is_done:
                return None
        error = dropped if dropped is not None else closing.error
        end = end_of(self._flow, ending, failure, error)
        await self._mark(COMPLETION_DONE.weight, end=end, acknowledge=True)
        self._engine.note_end(self._job, FLOW, self._flow.name, end.status)
        return None

    async def _complete(self, ending: FlowJob, error: str | None) -> tuple[bool, str | None]:
        """Run the completion task: whether that was all there is to do now, and how it failed for good."""
        node, claim, engine = self._flow.completion, self._claim, self._engine
        assert node is not None, "there is a completion task"
        assert node.task is not None, "a completion task is a function"
        task: Any = node.task
        (name,) = task.signature.names
        text = msgspec.json.encode({name: ending}).decode()
        weight = COMPLETION_DONE.weight
        try:
            if not node.is_transaction:
                await run_once(task, text, self._current(), engine)
                return False, None
            end = end_of(self._flow, ending, None, error)
            collate = self._collate(mark=weight, guid_add=weight, end=end, acknowledge=True)
            receipt = await engine.transact(
                claim, task.work(text, self._current(), engine), lambda _: (stay(None), collate)
            )
            self._take(receipt)
            engine.note_end(self._job, FLOW, self._flow.name, end.status)
            return True, None
        except HoldfastError as failure:
            if not _is_users(failure):
                raise
            return await self._completion_failed(task, failure)
        except Exception as failure:
            return await self._completion_failed(task, failure)

    async def _completion_failed(self, task: Any, error: Exception) -> tuple[bool, str | None]:
        delay = retry_delay(task, self._claim, error, self._engine)
        record = encode_error(error)
        if delay is None:
            return False, record
        attempt = self._claim.attempt + 1
        again = AdvanceExecution(status=Status.RUNNABLE, attempt=attempt, delay=delay, error=record, progress=False)
        await self._engine.commit(self._claim, again)
        return True, None


def _failure(outcome: Outcome) -> str | None:
    """The error that fails the job: one that no edge takes (ruling A8)."""
    return outcome.error if outcome.is_unhandled else None


def _is_users(error: HoldfastError) -> bool:
    return not isinstance(error, StoreError)
