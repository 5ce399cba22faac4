"""From an outcome to the effects that commit it: the seed's table of section 3, as code.

Raises `OutcomeError` or a payload error for what cannot be committed; the runner hands that to `handle` (ruling E6).
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.core.codec import ErrorRecord, annotation_of, codec_for, decode_error, encode_error
from holdfast.core.durations import seconds
from holdfast.core.errors import ConfigurationError, OutcomeError
from holdfast.core.identity import PromiseId
from holdfast.core.outcomes import Await, Child, Done, Next, Replay, ScheduleChildren, Stop
from holdfast.core.searchable import is_text
from holdfast.core.status import Status
from holdfast.models.handle import SIGNAL_NAME_MAX_CHARS
from holdfast.models.machine.context import MachineContext
from holdfast.models.machine.definition import MachineDefinition, definition_of
from holdfast.models.machine.registry import MachineRegistry
from holdfast.models.machine.start import machine_row
from holdfast.models.options import Options
from holdfast.store.effects import AdvanceExecution, ConsumeSignals, Effect, RecordTransition, SpawnExecutions
from holdfast.store.values import ExecutionClaim, NewExecution

STOPPED: Final = "Stop"


class Translator:
    """For one definition."""

    def __init__(self, definition: MachineDefinition, registry: MachineRegistry, payload_limit: int) -> None:
        self._definition = definition
        self._registry = registry
        self._limit = payload_limit
        self._round_trip = definition.codec.round_trip

    def effects(
        self, outcome: object, claim: ExecutionClaim, ctx: MachineContext[Any], *, keep: bool, error: str | None = None
    ) -> tuple[tuple[Effect, ...], object]:
        """The effects, and the next state as the codec gives it, where the lease may be kept.

        `error` is the failure that `handle` answered with this outcome, to be shown while it is not mended.
        """
        kind = type(outcome)
        if kind is Next:
            advance, state = self._next(outcome, keep)  # type: ignore[arg-type]
        elif kind is Done:
            advance, state = self._done(outcome), None  # type: ignore[arg-type]
        elif kind is Replay:
            advance, state = self._replay(outcome, claim, error), None  # type: ignore[arg-type]
        elif kind is Await:
            advance, state = self._await(outcome, claim, ctx), None  # type: ignore[arg-type]
        elif kind is ScheduleChildren:
            return self._schedule(outcome, claim, ctx), None  # type: ignore[arg-type]
        elif kind is Stop:
            advance, state = self._stop(outcome, error), None  # type: ignore[arg-type]
        else:
            raise OutcomeError(
                f"{self._definition.name}.{claim.step} returned {outcome!r:.200}, which is no outcome; return Next, "
                "Replay, Await, ScheduleChildren, Done or Stop"
            )
        consumed = ctx.awaited if kind is Next and claim.inbox else ()
        if not consumed and not ctx._sent and not self._definition.history:
            return (advance,), state
        return self._with_extras(advance, kind.__name__, claim, ctx, tuple(s.id for s in consumed)), state

    # ------------------------------------------------------------------ the six outcomes

    def _next(self, outcome: Next[Any], keep: bool) -> tuple[AdvanceExecution, object]:
        text, state = self._round_trip(outcome.state, max_bytes=self._limit)
        return AdvanceExecution(
            status=Status.EXECUTING if keep else Status.RUNNABLE,
            step=self._definition.step_name(outcome.step),
            state=text,
            digest=self._definition.digest,
        ), state

    def _replay(self, outcome: Replay[Any], claim: ExecutionClaim, error: str | None) -> AdvanceExecution:
        return AdvanceExecution(
            status=Status.RUNNABLE,
            state=self._state(outcome.state),
            attempt=claim.attempt + 1,
            delay=seconds(outcome.delay, name="the delay of Replay"),
            progress=False,
            error=error,
            digest=self._definition.digest,
        )

    def _await(self, outcome: Await[Any], claim: ExecutionClaim, ctx: MachineContext[Any]) -> AdvanceExecution:
        names = (outcome.names,) if isinstance(outcome.names, str) else tuple(sorted(set(outcome.names)))
        for name in names:
            if not is_text(name) or not name or len(name) > SIGNAL_NAME_MAX_CHARS:
                raise OutcomeError(
                    f"{self._definition.name}.{claim.step} awaits {name!r}, which is no name of a signal"
                )
        if not names and outcome.timeout is None:
            raise OutcomeError(
                f"{self._definition.name}.{claim.step} awaits no signal and has no timeout: it would wait for ever"
            )
        step = self._definition.step_name(outcome.step)
        return AdvanceExecution(
            status=Status.AWAITING_SIGNAL,
            step=step,
            state=self._state(outcome.state),
            awaits=names,
            # E3: a step that goes on collecting into itself must not be woken by what it has already seen.
            ignore=tuple(signal.id for signal in ctx.awaited) if step == claim.step else (),
            wake_after=None if outcome.timeout is None else seconds(outcome.timeout, name="the timeout of Await"),
            digest=self._definition.digest,
        )

    def _schedule(
        self, outcome: ScheduleChildren[Any], claim: ExecutionClaim, ctx: MachineContext[Any]
    ) -> tuple[Effect, ...]:
        parent = PromiseId.from_bytes(claim.promise)
        rows = tuple(
            self._child_row(child, claim, parent.child(claim.next_child + number))
            for number, child in enumerate(outcome.children)
        )
        quorum = outcome.quorum
        if quorum is not None and (isinstance(quorum, bool) or not isinstance(quorum, int) or quorum < 1):
            raise OutcomeError(f"the quorum of ScheduleChildren must be a whole number from 1, not {quorum!r}")
        timeout = outcome.timeout
        advance = AdvanceExecution(
            status=Status.AWAITING_CHILDREN,
            step=self._definition.step_name(outcome.step),
            state=self._state(outcome.state),
            wake_after=None if timeout is None else seconds(timeout, name="the timeout of ScheduleChildren"),
            digest=self._definition.digest,
        )
        consumed = tuple(signal.id for signal in ctx.awaited)
        return *self._with_extras(advance, "ScheduleChildren", claim, ctx, consumed), SpawnExecutions(rows, quorum)

    def _done(self, outcome: Done) -> AdvanceExecution:
        result = codec_for(annotation_of(outcome.result)).encode(outcome.result, max_bytes=self._limit)
        return AdvanceExecution(status=Status.DONE, result=result, digest=self._definition.digest)

    def _stop(self, outcome: Stop, error: str | None) -> AdvanceExecution:
        if not isinstance(outcome.reason, str):
            raise OutcomeError(f"the reason of Stop is a text, not {outcome.reason!r:.200}")
        if error is not None and self._definition.error_handler is None:
            record = error  # the retry policy gave up: the error itself says more than that
        else:
            cause = None if error is None else decode_error(error)
            record = codec_for(ErrorRecord).encode(
                ErrorRecord(
                    type=STOPPED,
                    message=outcome.reason,
                    causes=() if cause is None else (str(cause), *cause.causes),
                    traceback=() if cause is None else cause.traceback,
                )
            )
        return AdvanceExecution(status=Status.FAILED, error=record, digest=self._definition.digest)

    def failed(self, error: Exception, claim: ExecutionClaim, ctx: MachineContext[Any]) -> tuple[Effect, ...]:
        """What commits the failure of `handle` itself (seed section 4)."""
        advance = AdvanceExecution(status=Status.FAILED, error=encode_error(error), digest=self._definition.digest)
        return self._with_extras(advance, STOPPED, claim, ctx, ())

    # ------------------------------------------------------------------ parts

    def _state(self, state: object) -> str:
        return self._round_trip(state, max_bytes=self._limit)[0]

    def _with_extras(
        self,
        advance: AdvanceExecution,
        outcome: str,
        claim: ExecutionClaim,
        ctx: MachineContext[Any],
        consumed: tuple[int, ...],
    ) -> tuple[Effect, ...]:
        effects: list[Effect] = [advance]
        if consumed:
            effects.append(ConsumeSignals(consumed))
        effects.extend(ctx._sent)
        if self._definition.history:
            effects.append(RecordTransition(claim.step, outcome, advance.step, claim.attempt, advance.error))
        return tuple(effects)

    def _child_row(self, child: object, claim: ExecutionClaim, promise: PromiseId) -> NewExecution:
        if not isinstance(child, Child):
            raise OutcomeError(f"ScheduleChildren takes Child(...) values, not {child!r:.200}")
        definition = self._child_definition(child)
        options = Options(
            queue=child.queue or None,
            priority=child.priority,
            partition_key=child.partition_key,
            delay=child.delay,
            unique=child.unique,
        )
        step = None if child.step is None else definition.step_name(child.step)
        return machine_row(definition, promise, child.state, options, self._limit, step=step)

    def _child_definition(self, child: Child[Any]) -> MachineDefinition:
        if isinstance(child.machine, str):
            return self._registry.find(child.machine, child.version)
        definition = definition_of(child.machine)
        if child.version is not None and child.version != definition.version:
            raise ConfigurationError(
                f"Child({child.machine.__name__}, version={child.version}) names a class of version "
                f"{definition.version}; name the machine by its text to choose a version"
            )
        return definition
