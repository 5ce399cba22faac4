"""Runs tasks that have an execution of their own: started alone, or called on another queue."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import Raw

from holdfast.core.codec import encode_error
from holdfast.core.errors import HoldfastError, PayloadError
from holdfast.core.identity import PromiseId
from holdfast.core.retry import GiveUp
from holdfast.core.status import Status
from holdfast.engine.lifespan import Resources
from holdfast.engine.runner import Engine
from holdfast.models.workflow.attempts import run_attempt
from holdfast.models.workflow.current import Current
from holdfast.models.workflow.definition import FunctionRegistry
from holdfast.models.workflow.task import KIND, FailedAttempt, Task, TaskState
from holdfast.store.effects import AdvanceExecution
from holdfast.store.values import ExecutionClaim

_decode = msgspec.json.Decoder(TaskState).decode


class TaskRunner:
    """Implements `engine.runner.Runner` for every task of one app."""

    kind = KIND

    def __init__(self, registry: FunctionRegistry) -> None:
        self._registry = registry

    @property
    def handlers(self) -> Collection[int]:
        return self._registry.tasks.keys()

    def check(self, resources: Resources) -> None:
        for task in self._registry.tasks.values():
            for _, wanted in task.resources:
                resources.need(wanted, by=task.name)

    def close(self) -> None:
        """Nothing is kept between two runs."""

    async def run(self, claim: ExecutionClaim, engine: Engine) -> None:
        task = self._registry.tasks[claim.handler]
        if claim.cancel_requested:
            await engine.commit(claim, AdvanceExecution(status=Status.CANCELLED))
            return
        state = _decode(claim.state)
        attempt = len(state.attempts) + claim.crashes + 1
        if claim.crashes and (refusal := _refuse_after_crash(task, attempt - 1)) is not None:
            await engine.commit(claim, AdvanceExecution(status=Status.FAILED, error=refusal, digest=task.digest))
            return
        try:
            result = await self._attempt(task, bytes(state.input).decode(), claim, attempt, engine)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await engine.commit(claim, self._failed(task, state, claim, attempt, error, engine))
            return
        await engine.commit(claim, AdvanceExecution(status=Status.DONE, result=result, digest=task.digest))

    async def _attempt(
        self, task: Task[..., Any], text: str, claim: ExecutionClaim, attempt: int, engine: Engine
    ) -> str:
        promise = str(PromiseId.from_bytes(claim.promise))
        beats: list[str] = []
        current = Current(
            execution=promise, promise=promise, attempt=attempt, last_beat=claim.beats, on_beat=beats.append
        )
        if task.effects == "at_most_once":
            # Recorded before it begins: should the worker die, the next claim finds it and does not repeat it.
            await engine.commit(claim, AdvanceExecution(status=Status.EXECUTING, attempt=claim.attempt, progress=False))
        return bytes((await run_attempt(task, text, current, engine)).value).decode()

    def _failed(
        self,
        task: Task[..., Any],
        state: TaskState,
        claim: ExecutionClaim,
        attempt: int,
        error: Exception,
        engine: Engine,
    ) -> AdvanceExecution:
        kind = "timeout" if isinstance(error, TimeoutError) else "user"
        record = encode_error(error, kind=kind)
        elapsed = 0.0
        decision = task.retry.decide(attempt, elapsed, error, engine.random())
        if isinstance(decision, GiveUp) or isinstance(error, PayloadError) or task.effects == "at_most_once":
            return AdvanceExecution(status=Status.FAILED, error=record, digest=task.digest)
        retry_at_us = claim.picked_at_us + round(decision.delay_seconds * 1_000_000)
        failed = FailedAttempt(Raw(record.encode()), retry_at_us)
        text = msgspec.json.encode(TaskState(state.input, [*state.attempts, failed])).decode()
        return AdvanceExecution(
            status=Status.RUNNABLE,
            state=text,
            attempt=claim.attempt + 1,
            delay=decision.delay_seconds,
            error=record,
            digest=task.digest,
        )


def _refuse_after_crash(task: Task[..., Any], attempts: int) -> str | None:
    """A worker died with the task in flight: whether it may run again."""
    if task.effects == "at_most_once":
        error = HoldfastError(f"attempt {attempts} of {task.name} was interrupted; it may have taken effect")
        return encode_error(error, kind="uncertain")
    if task.retry.max_attempts is not None and attempts >= task.retry.max_attempts:
        return encode_error(HoldfastError(f"attempt {attempts} of {task.name} lost its worker"), kind="internal")
    return None
