"""Runs machines: a step, its outcome, one commit; and again, while the lease may be kept.

The three sources of re-execution (seed section 4) are three places here: `Replay` is an outcome, an exception goes
to `handle`, and a crash leaves no trace here at all: the reaper gives the row back.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import msgspec

from holdfast.core.codec import encode_error
from holdfast.core.errors import HoldfastError
from holdfast.core.identity import PromiseId
from holdfast.core.outcomes import Outcome, Replay, Stop
from holdfast.core.retry import Retry
from holdfast.core.status import Status
from holdfast.engine.lifespan import Resources
from holdfast.engine.observer import STEPS
from holdfast.engine.runner import Engine
from holdfast.engine.threads import exit_of
from holdfast.models.machine.context import ChildResult, MachineContext
from holdfast.models.machine.definition import KIND, MachineDefinition, Step
from holdfast.models.machine.registry import MachineRegistry
from holdfast.models.machine.translate import Translator
from holdfast.models.own_context import InContext
from holdfast.store.effects import AdvanceExecution, Effect, strand
from holdfast.store.values import ExecutionClaim, ExecutionView

log = logging.getLogger("holdfast.machine")


class MachineRunner:
    """Implements `engine.runner.Runner` for every machine of one app."""

    kind = KIND

    def __init__(self, registry: MachineRegistry, payload_limit: int) -> None:
        self._registry = registry
        self._payload_limit = payload_limit
        self._translators = {
            handler: Translator(definition, registry, payload_limit)
            for handler, definition in registry.by_handler.items()
        }

    @property
    def handlers(self) -> Collection[int]:
        return self._translators.keys()

    def check(self, resources: Resources) -> None:
        for definition in self._registry.by_handler.values():
            every = [*definition.steps.values(), *filter(None, [definition.error_handler])]
            for found in every:
                resources.given(found.resources, by=f"{definition.name}.{found.name}")

    def close(self) -> None:
        """Nothing is kept between two runs."""

    async def run(self, claim: ExecutionClaim, engine: Engine) -> None:
        definition = self._registry.by_handler[claim.handler]
        if claim.cancel_requested:
            await engine.commit(claim, AdvanceExecution(status=Status.CANCELLED))
            return
        try:
            found, state = definition.read(claim.step, claim.state)
        except HoldfastError as error:
            await self._strand(claim, engine, error)
            return
        children = await self._children(claim, engine)
        since, steps = engine.now(), 0
        while True:
            ctx = MachineContext(claim, state, children, self._payload_limit)
            steps += 1
            effects, state = await self._outcome(definition, found, claim, ctx, engine, (steps, since))
            advance: AdvanceExecution = effects[0]  # type: ignore[assignment]  # always the first
            if advance.status is not Status.EXECUTING:
                engine.conclude(claim, *effects)
                return
            receipt = await engine.commit(claim, *effects)
            if receipt.status is not Status.EXECUTING or not receipt.applied:
                return
            if receipt.cancel_requested:
                engine.conclude(claim, AdvanceExecution(status=Status.CANCELLED))
                return
            claim.step, claim.state = advance.step or claim.step, advance.state or claim.state
            claim.attempt, claim.awaits, claim.crashes = 0, None, 0
            claim.timed_out = claim.children_ready = False
            found, children = definition.steps[claim.step], ()
            # What arrived meanwhile is in the inbox, as it would be after a fresh pick.
            claim.inbox = tuple(await engine.store.inbox(claim.promise)) if receipt.has_inbox else ()

    # ------------------------------------------------------------------ one step

    async def _outcome(
        self,
        definition: MachineDefinition,
        found: Step,
        claim: ExecutionClaim,
        ctx: MachineContext[Any],
        engine: Engine,
        kept: tuple[int, float],
    ) -> tuple[tuple[Effect, ...], object]:
        """The effects of one step; `kept` is for how many steps and since when the lease has been kept."""
        translator = self._translators[claim.handler]
        try:
            running = _call(found, engine, ctx)
            tracer = STEPS.tracer
            if tracer is not None:
                running = tracer.around("step", f"{definition.name}.{found.name}", claim.attempt + 1, running)
            outcome = await running
            # Asked after the step: what began to drain or to wait meanwhile is honoured now, not a step later.
            return translator.effects(outcome, claim, ctx, keep=engine.may_keep(claim, *kept))
        except asyncio.CancelledError as error:
            if _is_being_cancelled():  # the worker drains: never an outcome
                raise
            failure: Exception = _SelfCancelled(f"{definition.name}.{found.name} was cancelled from within")
            failure.__cause__ = error
        except SystemExit as error:
            failure = _Exited(f"{definition.name}.{found.name} called sys.exit({error.code!r})")
            failure.__cause__ = error
        except Exception as error:
            failure = error
            if (left := exit_of(error)) is not None:
                failure = _Exited(f"{definition.name}.{found.name} called sys.exit({left.code!r})")
                failure.__cause__ = left
        ctx._sent.clear()  # what a failed step wanted to send was not sent
        ctx.state = definition.codec.decode(claim.state)  # nor does what it did to its state before it failed count
        try:
            answer = await self._handle(definition, claim, ctx, engine, failure)
            record = encode_error(failure)
            return translator.effects(answer, claim, ctx, keep=engine.may_keep(claim, *kept), error=record)
        except asyncio.CancelledError as error:
            if _is_being_cancelled():
                raise
            broken: Exception = _SelfCancelled(f"{definition.name}.handle was cancelled from within")
            broken.__cause__ = error
        except SystemExit as error:
            broken = _Exited(f"{definition.name}.handle called sys.exit({error.code!r})")
            broken.__cause__ = error
        except Exception as error:
            broken = error
        # Section 4: if `handle` itself raises, the execution fails.
        broken.__context__ = broken.__context__ or failure
        ctx._sent.clear()
        return translator.failed(broken, claim, ctx), None

    async def _handle(
        self,
        definition: MachineDefinition,
        claim: ExecutionClaim,
        ctx: MachineContext[Any],
        engine: Engine,
        failure: Exception,
    ) -> Outcome:
        if definition.error_handler is not None:
            return await _call(definition.error_handler, engine, failure, ctx)  # type: ignore[no-any-return]
        decision = definition.retry.decide(claim.attempt + 1, 0.0, failure, engine.random())
        if isinstance(decision, Retry):
            return Replay(ctx.state, decision.delay_seconds)
        return Stop(decision.reason)

    # ------------------------------------------------------------------ around it

    async def _children(self, claim: ExecutionClaim, engine: Engine) -> tuple[ChildResult, ...]:
        timed_out_at_barrier = claim.timed_out and claim.awaits is None
        if not claim.children_ready and not timed_out_at_barrier:
            return ()
        views = await engine.store.children(claim.promise, claim.barrier_round)  # E7
        return tuple([ChildResult(await _as_retried(view, engine)) for view in views])

    async def _strand(self, claim: ExecutionClaim, engine: Engine, error: HoldfastError) -> None:
        label = PromiseId.from_bytes(claim.promise).label(claim.name)
        log.error("%s is stranded: %s", label, error)
        record = encode_error(error, kind="internal")
        await engine.commit(claim, strand(claim, record, engine.release))


async def _as_retried(child: ExecutionView, engine: Engine) -> ExecutionView:
    """A child that failed, was retried by itself and is done has that result."""
    newest: ExecutionView | None = child
    while newest is not None and newest.status is Status.FAILED and newest.successor is not None:
        newest = await engine.store.get(newest.successor)
    if newest is None or newest.status is not Status.DONE:
        return child
    return msgspec.structs.replace(newest, promise=child.promise)


class _SelfCancelled(Exception):  # noqa: N818
    """A step let a CancelledError of its own out."""


class _Exited(Exception):  # noqa: N818
    """A step called `sys.exit`: it ends the step, and not the worker with all else that is at work there."""


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _call(found: Step, engine: Engine, *arguments: object) -> Any:
    resources = engine.resources.given(found.resources, by=found.name)
    context = contextvars.copy_context()
    if not found.is_async:
        call = partial(context.run, found.call, *arguments, **resources)
        return await _call_in_thread(found.timeout_seconds, engine, call)
    running = InContext(context, context.run(found.call, *arguments, **resources))
    if found.timeout_seconds is None:
        return await running
    async with asyncio.timeout(found.timeout_seconds):
        return await running


async def _call_in_thread(timeout_seconds: float | None, engine: Engine, call: Callable[[], Any]) -> Any:
    loop = asyncio.get_running_loop()
    if timeout_seconds is None:
        return await loop.run_in_executor(engine.threads, call)

    def begun() -> None:  # the time that it waited for a free thread is not the step's
        if not running.done():
            limit.reschedule(loop.time() + timeout_seconds)

    def begin() -> Any:
        loop.call_soon_threadsafe(begun)
        return call()

    async with asyncio.timeout(None) as limit:
        running = loop.run_in_executor(engine.threads, begin)
        return await running
