"""OpenTelemetry: one span an execution, a step and an attempt of a task; and metrics.

Where a trace comes from is carried by the ledger: whoever starts an execution inside a span leaves its `traceparent`
(W3C) among the attributes, where it can be searched for too. An execution has no process of its own, so its span has an
id that is computed from the execution's: steps in any process, on any day, hang on it before it is sent. It is sent
once, by the worker that records the end, with the times that the ledger has. Without a `traceparent` the trace id is
computed as well.

What is here is called by a worker's observer only: nothing of it runs where telemetry is off.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace
from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from holdfast import __version__
from holdfast.core.clock import to_us
from holdfast.core.codec import decode_error
from holdfast.core.errors import HoldfastError
from holdfast.core.identity import PromiseId
from holdfast.core.status import TERMINAL
from holdfast.core.status import Status as ExecutionStatus
from holdfast.engine.observer import STEPS
from holdfast.store.base import Store
from holdfast.store.effects import AdvanceExecution, Effect, SpawnExecutions
from holdfast.store.flows import FLOW, MESSAGE, Collate, OpenJob
from holdfast.store.values import ExecutionClaim, ExecutionView, NewExecution, Reaped, Receipt

log = logging.getLogger("holdfast.telemetry")

T = TypeVar("T")

TRACEPARENT: Final = "traceparent"
ENDED_MOST: Final = 10_000  # ends that wait to be sent; more are dropped, and counted
SEND_BATCH: Final = 200
SEND_EVERY_SECONDS: Final = 0.2
_STARTING: Final = (SpawnExecutions, OpenJob, Collate)

_propagator: Final = TraceContextTextMapPropagator()
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class _ChosenIds:
    """Gives the ids that were chosen for the next span, and random ones otherwise."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.trace_id: int | None = None
        self.span_id: int | None = None

    def generate_span_id(self) -> int:
        chosen, self.span_id = self.span_id, None
        return self._inner.generate_span_id() if chosen is None else chosen

    def generate_trace_id(self) -> int:
        chosen, self.trace_id = self.trace_id, None
        return self._inner.generate_trace_id() if chosen is None else chosen

    def is_trace_id_random(self) -> bool:
        return False


class OpenTelemetry:
    """Implements `engine.observer.Observer` and `StepTracer`."""

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._given = tracer_provider
        self._make_tracers()
        meter = (meter_provider or metrics.get_meter_provider()).get_meter("holdfast", __version__)
        self._ended_count = meter.create_counter("holdfast.executions.ended", description="Executions that ended")
        self._step_count = meter.create_counter("holdfast.steps", description="Committed steps")
        self._retry_count = meter.create_counter("holdfast.retries", description="To be tried again")
        self._lost_count = meter.create_counter("holdfast.lease.losses", description="Leases that workers lost")
        self._reaped_count = meter.create_counter("holdfast.executions.reaped", description="Taken back from the dead")
        self._dropped = meter.create_counter("holdfast.spans.dropped", description="Spans of executions not sent")
        self._flush_commits = meter.create_histogram("holdfast.flush.commits", description="Commits in one flush")
        self._flush_seconds = meter.create_histogram("holdfast.flush.duration", "s", "How long a flush took")
        self._pick_seconds = meter.create_histogram("holdfast.pick.duration", "s", "How long a pick took")
        self._waiting: deque[bytes] = deque()
        self._store: Store | None = None
        self._sending: asyncio.Task[None] | None = None
        STEPS.tracer = self

    def _make_tracers(self) -> None:
        tracers = self._given or trace.get_tracer_provider()
        # A program may set its provider after this; what stands in until then passes no ids on.
        self._is_early = isinstance(tracers, trace.ProxyTracerProvider)
        self._tracer = tracers.get_tracer("holdfast", __version__)
        # A tracer of its own for executions: it alone has ids that are chosen.
        self._executions = tracers.get_tracer("holdfast.executions", __version__)
        self._ids = _ChosenIds(getattr(self._executions, "id_generator", None))
        self._executions.id_generator = self._ids  # type: ignore[attr-defined]

    def attach(self, store: Store) -> None:
        """Where the times of an execution are read when it has ended."""
        self._store = store

    # ------------------------------------------------------------------ context, carried by the ledger

    def stamped(self, rows: Sequence[NewExecution]) -> Sequence[NewExecution]:
        carrier: dict[str, str] = {}
        _propagator.inject(carrier)
        if TRACEPARENT not in carrier:
            return rows
        return [_stamp(row, carrier[TRACEPARENT]) for row in rows]

    def stamped_effects(self, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
        if not any(type(effect) in _STARTING for effect in effects):
            return effects
        return tuple([self._stamped_effect(effect) for effect in effects])

    def _stamped_effect(self, effect: Effect) -> Effect:
        if type(effect) is SpawnExecutions:
            return replace(effect, rows=tuple(self.stamped(effect.rows)))
        if type(effect) is OpenJob:
            return replace(effect, messages=tuple(self.stamped(effect.messages)))
        if type(effect) is Collate and effect.settle is not None:
            settle = effect.settle
            arrivals = [
                arrival if arrival.message is None else replace(arrival, message=self.stamped([arrival.message])[0])
                for arrival in settle.arrivals
            ]
            children = tuple(self.stamped(settle.children))
            return replace(effect, settle=replace(settle, children=children, arrivals=tuple(arrivals)))
        return effect

    def enter(self, claim: ExecutionClaim) -> None:
        if self._is_early:
            self._make_tracers()
        context = self._span_context(claim.promise, claim.kind, claim.name, claim.attributes)
        if claim.kind == MESSAGE and claim.parent is not None:  # it has no span: what it does hangs on its job's
            context = _parent(claim.attributes) or self._span_context(claim.parent, FLOW, claim.name, None)
        span = NonRecordingSpan(context)
        otel_context.attach(trace.set_span_in_context(span, otel_context.Context()))

    def _span_context(self, promise: bytes, kind: str, name: str, attributes: str | None) -> SpanContext:
        """The context of the execution's own span, wherever and whenever it is asked for."""
        parent = _parent(attributes)
        if parent is not None:
            return SpanContext(parent.trace_id, span_id_of(promise), True, parent.trace_flags, parent.trace_state)
        trace_id = trace_id_of(promise)
        sampler = getattr(self._executions, "sampler", None)
        is_sampled = (
            sampler is None
            or sampler.should_sample(
                otel_context.Context(), trace_id, _span_name(kind, name), SpanKind.CONSUMER
            ).decision.is_sampled()
        )
        flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
        return SpanContext(trace_id, span_id_of(promise), True, flags)

    # ------------------------------------------------------------------ steps and tasks

    async def around(self, kind: str, name: str, attempt: int, work: Coroutine[Any, Any, T]) -> T:
        attributes = {"holdfast.attempt": attempt}
        with self._tracer.start_as_current_span(f"{kind} {name}", attributes=attributes):
            return await work

    # ------------------------------------------------------------------ what a worker does

    def picked(self, claims: int, seconds: float) -> None:
        self._pick_seconds.record(seconds)

    def flushed(self, commits: int, seconds: float) -> None:
        self._flush_commits.record(commits)
        self._flush_seconds.record(seconds)

    def advanced(self, claim: ExecutionClaim, advance: AdvanceExecution, receipt: Receipt) -> None:
        labels = {"kind": claim.kind, "name": claim.name}
        self._step_count.add(1, labels)
        status = receipt.status
        if status is None or status not in TERMINAL:
            if advance.error is not None and status is not ExecutionStatus.STRANDED:
                self._retry_count.add(1, labels)
            return
        self.ended(claim.promise, claim.kind, claim.name, status)

    def ended(self, promise: bytes, kind: str, name: str, status: ExecutionStatus) -> None:
        self._ended_count.add(1, {"kind": kind, "name": name, "status": status.value})
        if len(self._waiting) >= ENDED_MOST:
            self._dropped.add(1)
            return
        self._waiting.append(promise)
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_soon())

    def retried(self, kind: str, name: str) -> None:
        self._retry_count.add(1, {"kind": kind, "name": name})

    def lease_lost(self) -> None:
        self._lost_count.add(1)

    def reaped(self, reaped: Reaped) -> None:
        if reaped.released:
            self._reaped_count.add(reaped.released)

    async def stop(self) -> None:
        if self._sending is not None:
            sending = self._sending
            sending.cancel()
            await asyncio.wait([sending])
        await self._send_all()

    # ------------------------------------------------------------------ spans of executions

    async def _send_soon(self) -> None:
        try:
            await asyncio.sleep(SEND_EVERY_SECONDS)
            await self._send_all()
        finally:
            self._sending = None

    async def _send_all(self) -> None:
        while self._waiting and self._store is not None:
            batch = [self._waiting.popleft() for _ in range(min(SEND_BATCH, len(self._waiting)))]
            try:
                views = await self._store.get_many(batch)
            except HoldfastError as error:
                log.warning("the spans of %d executions are lost, the store was unavailable: %s", len(batch), error)
                continue
            except asyncio.CancelledError:  # the worker leaves, and sends them itself
                self._waiting.extendleft(reversed(batch))
                raise
            for view in views:
                if view is not None and view.ended_at is not None:
                    self._send(view, view.ended_at)

    def _send(self, view: ExecutionView, ended_at: datetime) -> None:
        parent = _parent(view.attributes)
        context = otel_context.Context()
        if parent is not None:
            context = trace.set_span_in_context(NonRecordingSpan(parent), context)
        self._ids.trace_id, self._ids.span_id = trace_id_of(view.promise), span_id_of(view.promise)
        span = self._executions.start_span(
            _span_name(view.kind, view.name),
            context=context,
            kind=SpanKind.CONSUMER,
            start_time=_nanoseconds(view.inserted_at),
            attributes=_attributes(view),
        )
        if view.started_at is not None:
            span.add_event("started", timestamp=_nanoseconds(view.started_at))
        if view.status is ExecutionStatus.FAILED:
            record = None if view.error is None else decode_error(view.error)
            span.set_status(Status(StatusCode.ERROR, None if record is None else str(record)))
        span.end(_nanoseconds(ended_at))


def trace_id_of(promise: bytes) -> int:
    """Of a tree of executions: all that have one root, and carry nothing else, are one trace."""
    root = PromiseId.from_bytes(promise).root
    return int.from_bytes(hashlib.sha256(b"trace" + root).digest()[:16], "big") or 1


def span_id_of(promise: bytes) -> int:
    return int.from_bytes(hashlib.sha256(b"span" + promise).digest()[:8], "big") or 1


def _span_name(kind: str, name: str) -> str:
    return f"{kind} {name}"


def _attributes(view: ExecutionView) -> dict[str, str | int]:
    return {
        "holdfast.execution": str(PromiseId.from_bytes(view.promise)),
        "holdfast.kind": view.kind,
        "holdfast.name": view.name,
        "holdfast.version": view.version,
        "holdfast.queue": view.queue,
        "holdfast.status": view.status.value,
        "holdfast.attempt": view.attempt,
    }


def _nanoseconds(moment: datetime) -> int:
    return to_us(moment) * 1_000


def _parent(attributes: str | None) -> SpanContext | None:
    """What a `traceparent` among the attributes says; None where there is none, or one that is no good."""
    if attributes is None or TRACEPARENT not in attributes:
        return None
    given = _decode(attributes).get(TRACEPARENT)
    if not isinstance(given, str):
        return None
    found = trace.get_current_span(_propagator.extract({TRACEPARENT: given}, otel_context.Context()))
    context = found.get_span_context()
    return context if context.is_valid else None


def _stamp(row: NewExecution, traceparent: str) -> NewExecution:
    attributes = {} if row.attributes is None else _decode(row.attributes)
    attributes.setdefault(TRACEPARENT, traceparent)
    text = msgspec.json.encode(attributes, order="deterministic").decode()
    return replace(row, attributes=text)
