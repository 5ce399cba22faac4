"""Runs tasks that have an execution of their own: started alone, or called on another queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from contextvars import copy_context
from typing import Any

import msgspec
from msgspec import Raw

from holdfast.core.codec import encode_error
from holdfast.core.errors import DecodeError, HoldfastError, PayloadError, StoreError
from holdfast.core.identity import PromiseId, id_text
from holdfast.core.retry import GiveUp
from holdfast.core.status import Status
from holdfast.engine.lifespan import Resources
from holdfast.engine.observer import STEPS
from holdfast.engine.runner import Engine
from holdfast.models.own_context import InContext
from holdfast.models.workflow.attempts import NOT_OWN, failure_kind, run_attempt, traced
from holdfast.models.workflow.current import CURRENT_CALL, Current
from holdfast.models.workflow.definition import FunctionRegistry
from holdfast.models.workflow.fork_once import BEGUN
from holdfast.models.workflow.task import KIND, FailedAttempt, Task, TaskState
from holdfast.models.workflow.transaction import Transaction, WrongStoreError
from holdfast.store.effects import AdvanceExecution, strand
from holdfast.store.values import ExecutionClaim, Receipt

BEAT_COMMIT_SECONDS = 1.0

_decode = msgspec.json.Decoder(TaskState).decode
log = logging.getLogger("holdfast.workflow")


class TaskRunner:
    """Implements `engine.runner.Runner` for every task of one app."""

    kind = KIND

    def __init__(self, registry: FunctionRegistry) -> None:
        self._registry = registry
        self.background: set[asyncio.Task[Any]] = set()

    @property
    def handlers(self) -> Collection[int]:
        return self._registry.tasks.keys()

    def check(self, resources: Resources) -> None:
        for task in self._registry.tasks.values():
            resources.given(task.resources, by=task.name)

    def close(self) -> None:
        """Nothing is kept between two runs."""

    async def run(self, claim: ExecutionClaim, engine: Engine) -> None:
        await _TaskRun(self, self._registry.tasks[claim.handler], claim, engine).go()


class _TaskRun:
    """One attempt of a task, from its pick to its release."""

    def __init__(self, runner: TaskRunner, task: Task[..., Any], claim: ExecutionClaim, engine: Engine) -> None:
        self._runner = runner
        self._task = task
        self._claim = claim
        self._engine = engine
        self._state = _decode(claim.state)
        self._attempt_number = len(self._state.attempts) + claim.crashes + 1
        self._time_base = engine.now()
        self._beat: str | None = None
        self._is_beat_due = False
        self._committing: asyncio.Lock | None = None  # made when there is something to commit beside the attempt
        self._in_place: asyncio.Task[Any] | None = None
        self._is_interrupted = False

    async def go(self) -> None:
        claim, task = self._claim, self._task
        if claim.cancel_requested:
            await self._commit(AdvanceExecution(status=Status.CANCELLED))
            return
        refusal = self._refusal()
        if refusal is not None:
            await self._commit(AdvanceExecution(status=Status.FAILED, error=refusal, digest=task.digest))
            return
        try:
            arguments = task.signature.decode(bytes(self._state.input))
        except DecodeError as error:
            await self._strand(error)
            return
        if task.effects == "at_most_once":
            # Recorded before it begins: should the attempt be cut off, the next claim finds it and does not repeat it.
            begun = AdvanceExecution(status=Status.EXECUTING, step=BEGUN, attempt=claim.attempt, progress=False)
            receipt = await self._commit(begun)
            if receipt.status is not Status.EXECUTING:
                return
        if isinstance(task, Transaction):
            await self._transact(task)
            return
        self._engine.watch(claim, self._on_stir)
        try:
            result = await self._attempt(arguments)
        except NOT_OWN:
            raise
        except BaseException as error:
            await self._conclude(self._end_of(error))
        else:
            await self._conclude(AdvanceExecution(status=Status.DONE, result=result, digest=task.digest))
        finally:
            self._engine.watch(claim, None)

    def _end_of(self, error: BaseException) -> AdvanceExecution:
        """What follows from what the attempt raised; raised on if the worker leaves, or has lost it."""
        asyncio_task, engine = asyncio.current_task(), self._engine
        is_cancelled = isinstance(error, asyncio.CancelledError)
        if asyncio_task is not None and asyncio_task.cancelling():
            if is_cancelled or not engine.may_keep(self._claim, 0, engine.now()):
                raise asyncio.CancelledError from error
        elif is_cancelled and self._is_interrupted:
            return AdvanceExecution(status=Status.CANCELLED)
        return self._failed(error)

    async def _transact(self, task: Transaction[..., Any]) -> None:
        """What it writes and its end are one commit."""

        async def transact() -> Receipt:
            return await self._engine.transact(
                self._claim,
                task.work(bytes(self._state.input).decode(), self._current(), self._engine),
                lambda text: (AdvanceExecution(status=Status.DONE, result=text, digest=task.digest),),
            )

        try:
            await traced(task.name, self._attempt_number, transact())
        except (StoreError, asyncio.CancelledError):
            raise  # whether it was committed is not known here: whoever picks it next finds it done, or not begun
        except Exception as error:
            await self._commit(self._failed(error))

    def _refusal(self) -> str | None:
        """Why a task that was in flight when its worker left may not run again."""
        task, before = self._task, self._attempt_number - 1
        if task.effects == "at_most_once":
            if self._claim.step != BEGUN:
                return None
            error = HoldfastError(f"an attempt of {task.name} was interrupted; it may have taken effect")
            return encode_error(error, kind="uncertain")
        if self._claim.crashes and task.retry.max_attempts is not None and before >= task.retry.max_attempts:
            return encode_error(HoldfastError(f"attempt {before} of {task.name} lost its worker"), kind="internal")
        return None

    async def _strand(self, error: DecodeError) -> None:
        """Nothing has failed: other code can read what it was started with, and whoever called it waits for that."""
        claim, release = self._claim, self._engine.release
        log.error("%s is stranded: %s", PromiseId.from_bytes(claim.promise).label(claim.name), error)
        record = encode_error(error, kind="internal")
        await self._commit(strand(claim, record, release))

    async def _attempt(self, arguments: tuple[Any, ...]) -> str:
        self._in_place = asyncio.current_task()
        task, text = self._task, bytes(self._state.input).decode()
        try:
            if task.is_plain and STEPS.tracer is None:  # as `run_attempt` does, with three coroutines less
                context = copy_context()
                context.run(CURRENT_CALL.set, self._current())
                function = task.call
                value = await InContext(context, context.run(function, *arguments))
                raw, _ = task.signature.result.write(value, max_bytes=task.payload_limit)
                return raw.decode()
            returned = await run_attempt(task, text, self._current(), self._engine, arguments)
        finally:
            if self._is_interrupted and self._in_place is not None:
                self._in_place.uncancel()
            self._in_place = None
        return returned.raw.decode()

    def _current(self) -> Current:
        promise = id_text(self._claim.promise)
        key = self._state.key or None
        return Current(promise, promise, self._attempt_number, self._claim.beats, key, self._on_beat)

    def _failed(self, error: BaseException) -> AdvanceExecution:
        task, claim, engine = self._task, self._claim, self._engine
        record = encode_error(error, kind=failure_kind(error, task))
        now_us = claim.picked_at_us + round((engine.now() - self._time_base) * 1_000_000)
        began_us = self._state.began_us or claim.picked_at_us
        elapsed = max(0.0, (now_us - began_us) / 1_000_000)
        decision = task.retry.decide(self._attempt_number, elapsed, error, engine.random())
        if (
            isinstance(decision, GiveUp)
            or isinstance(error, PayloadError | WrongStoreError)
            or task.effects == "at_most_once"
        ):
            return AdvanceExecution(status=Status.FAILED, error=record, digest=task.digest, beats=self._beat)
        failed = FailedAttempt(Raw(record.encode()), now_us + round(decision.delay_seconds * 1_000_000))
        state = TaskState(self._state.input, [*self._state.attempts, failed], began_us, self._state.key)
        return AdvanceExecution(
            status=Status.RUNNABLE,
            state=msgspec.json.encode(state).decode(),
            attempt=claim.attempt + 1,
            delay=decision.delay_seconds,
            error=record,
            digest=task.digest,
            beats=self._beat,
        )

    async def _commit(self, advance: AdvanceExecution) -> Receipt:
        if self._committing is None:
            return await self._engine.commit(self._claim, advance)
        async with self._committing:  # heartbeats commit beside the attempt; a claim has one commit at a time
            return await self._engine.commit(self._claim, advance)

    async def _conclude(self, advance: AdvanceExecution) -> None:
        """The last commit of this claim, which nobody here needs to wait for."""
        if self._committing is None:
            self._engine.conclude(self._claim, advance)
        else:
            await self._commit(advance)

    # ------------------------------------------------------------------ while it runs

    def _on_beat(self, promise: str, text: str) -> None:
        self._beat = text
        if not self._is_beat_due:
            self._committing = self._committing or asyncio.Lock()
            self._is_beat_due = True
            asyncio.get_running_loop().call_later(BEAT_COMMIT_SECONDS, self._in_background, self._commit_beat)

    async def _commit_beat(self) -> None:
        """About once a second: the last progress is given to the next attempt, also after a crash."""
        self._is_beat_due = False
        if self._in_place is not None:
            claim = self._claim
            await self._commit(
                AdvanceExecution(status=Status.EXECUTING, attempt=claim.attempt, progress=False, beats=self._beat)
            )

    def _on_stir(self) -> None:
        self._in_background(self._interrupt_if_cancelled)

    async def _interrupt_if_cancelled(self) -> None:
        view = await self._engine.store.get(self._claim.promise)
        if view is not None and view.cancel_requested and self._in_place is not None and not self._is_interrupted:
            self._is_interrupted = True
            self._in_place.cancel()

    def _in_background(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work())
        self._runner.background.add(task)
        task.add_done_callback(self._runner.background.discard)
