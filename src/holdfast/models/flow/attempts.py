"""User code under a lease: one attempt, what it waits for, and when it is tried again."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

from holdfast.core.codec import decode_error, encode_error
from holdfast.core.errors import CallNotAllowedError, ExecutionCancelledError, ExecutionFailedError
from holdfast.core.identity import PromiseId, id_text
from holdfast.core.status import Status
from holdfast.models.flow.activity import NodeKind
from holdfast.models.flow.delivery import Delivery
from holdfast.models.flow.flow import Flow
from holdfast.models.flow.message import depth_of
from holdfast.models.flow.outcome import Outcome, failed, succeeded
from holdfast.models.flow.work import arguments, current_of, retry_delay, run_once
from holdfast.models.workflow.current import Current
from holdfast.store.effects import AdvanceExecution, SpawnExecutions
from holdfast.store.flows import WORK

DEPTH_MOST: Final = 64


class Attempts(Delivery):
    _job_text: str | None = None  # the job's id

    async def _wait(self, add: int = 0) -> None:
        """Of a hook or a sub-flow: park the message until what it waits for is there, in the commit of Leg1."""
        node = self._node
        if node.kind is NodeKind.HOOK:
            assert node.signal is not None, "a hook waits for a signal"
            park = AdvanceExecution(
                status=Status.AWAITING_SIGNAL, step=WORK, awaits=(node.signal,), wake_after=node.timeout_seconds
            )
            await self._commit(park, add=add, awaits=node.signal)
        else:
            assert node.subflow is not None, "a sub-flow has a flow"
            claim = self._claim
            text = arguments_of(node.subflow, self._message.inputs)
            child = PromiseId.from_bytes(claim.promise).child(claim.next_child)
            row = node.subflow.child_row(child, text, claim.queue, self._flow.payload_limit)
            park = AdvanceExecution(status=Status.AWAITING_CHILDREN, step=WORK)
            spawn = SpawnExecutions((msgspec.structs.replace(row, reports=False),))
            await self._commit(park, spawn, add=add)

    async def _attempt(self, inputs: list[Raw]) -> Outcome | None:
        """What the function answered; None: it is tried again later, and the message is released."""
        task = self._node.task
        assert task is not None, "only a sub-flow has no function"
        text = arguments(task, inputs, is_whole=self._message.is_entry)
        try:
            value = await run_once(task, text, self._current(), self._engine)
            return succeeded(self._flow.graph, self._node, value)
        except Exception as error:
            return await self._failed(error)

    def _current(self) -> Current:
        if self._job_text is None:
            self._job_text = id_text(self._job)
        return current_of(self._claim, self._job_text)

    async def _failed(self, error: Exception) -> Outcome | None:
        task, claim = self._node.task, self._claim
        assert task is not None, "only a sub-flow has no function"
        delay = None if self._is_cancelled else retry_delay(task, claim, error, self._engine)
        if delay is None:
            return failed(self._flow.graph, self._node, error)
        again = AdvanceExecution(
            status=Status.RUNNABLE,
            attempt=claim.attempt + 1,
            delay=delay,
            error=encode_error(error),
            progress=False,  # a hook's signal, and what a sub-flow answered, are there for the next attempt
        )
        await self._engine.commit(claim, again)
        return None

    async def _cancel_child(self) -> None:
        """The job of a sub-flow goes with its parent's, before the obligation is closed: a crash asks it again."""
        store, claim = self._engine.store, self._claim
        if found := await store.children(claim.promise, claim.barrier_round):
            await store.cancel([child.promise for child in found])

    @property
    def _is_too_deep(self) -> bool:
        return self._node.kind is NodeKind.SUBFLOW and depth_of(self._job) >= DEPTH_MOST

    def _refused(self) -> Outcome:
        """Of a sub-flow that would be one too many: flows that start each other are a loop."""
        node = self._node
        error = CallNotAllowedError(
            f"{node.label} would start a job below {DEPTH_MOST} others; sub-flows this deep are a loop: give `when`, "
            "which is False at some time"
        )
        return failed(self._flow.graph, node, error)

    async def _child_outcome(self) -> Outcome:
        """How the job of a sub-flow ended."""
        claim, node = self._claim, self._node
        (child,) = await self._engine.store.children(claim.promise, claim.barrier_round)
        label = PromiseId.from_bytes(child.promise).label(child.name)
        if child.status is Status.DONE:
            try:
                return succeeded(self._flow.graph, node, child.result or "null")
            except Exception as error:  # of a condition
                return failed(self._flow.graph, node, error)
        if child.status is Status.CANCELLED:
            return failed(self._flow.graph, node, ExecutionCancelledError.of(label, child.cancel_reason))
        record = None if child.error is None else decode_error(child.error)
        return failed(self._flow.graph, node, ExecutionFailedError(f"{label} failed: {record}", record))


def arguments_of(flow: Flow, inputs: list[Raw]) -> str:
    (name,) = flow.signature.names
    return msgspec.json.encode({name: inputs[0]}).decode()
