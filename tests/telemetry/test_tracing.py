"""Traces: one span an execution, a step and a task, in one trace across processes; sent once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry

from holdfast import App, Child, Context, Done, Machine, Next, RetryPolicy, ScheduleChildren, Status, step
from holdfast.engine.observer import STEPS
from holdfast.engine.settings import WorkerSettings
from holdfast.models.machine.context import MachineContext
from holdfast.telemetry import instrument, tracing
from holdfast.telemetry.meters import Meters
from holdfast.telemetry.tracing import span_id_of, trace_id_of
from holdfast.testing.stores import Stores


@dataclass
class Box:
    number: int


class Traced:
    """An app whose spans and metrics stay in memory."""

    def __init__(self, stores: Stores, **provider: Any) -> None:
        self.stores = stores
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False, **provider)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.app = self.make_app()

    def make_app(self) -> App:
        """As another process would: the same code on the same ledger."""
        app = App("traced", store=self.stores.unopened())
        instrument(app, tracer_provider=self.provider, meter_provider=self.meters)

        @app.task(name="charge", retry=RetryPolicy(max_attempts=2, initial_delay=0.0))
        async def charge(amount: int) -> int:
            seen.append(trace.get_current_span().get_span_context().span_id)
            if amount < 0 and len(seen) == 1:
                raise ValueError("not yet")
            return amount

        @app.task(name="ship", queue="default")
        def ship(amount: int) -> int:
            return amount

        @app.workflow(name="order")
        async def order(ctx: Context, amount: int) -> int:
            paid = await charge(amount)
            if amount < 0:
                return paid
            await ctx.signal("go", str)
            return await ship(paid)

        @app.machine(name="Parcel")
        class Parcel(Machine[Box]):
            @step(initial=True)
            async def pack(self, ctx: MachineContext[Box]) -> Any:
                if ctx.state.number:
                    return ScheduleChildren(self.send, [Child(Parcel, Box(0))], ctx.state)
                return Next(self.send, ctx.state)

            @step
            async def send(self, ctx: MachineContext[Box]) -> Any:
                if ctx.state.number == 0:
                    raise RuntimeError("lost")
                return Done(1)

            async def handle(self, error: Exception, ctx: MachineContext[Box]) -> Any:
                raise error

        seen: list[int] = []
        self.seen, self.order, self.parcel = seen, order, Parcel
        return app

    async def work(self) -> None:
        worker = await self.app.make_worker(WorkerSettings())
        await worker.open()
        await worker.run_until_idle()
        await worker.stop(0)

    def spans(self) -> dict[str, list[ReadableSpan]]:
        found: dict[str, list[ReadableSpan]] = {}
        for span in self.exporter.get_finished_spans():
            found.setdefault(span.name, []).append(span)
        return found


@pytest.fixture(autouse=True)
def untraced() -> Iterator[None]:
    """Tracing is of the process: other tests have none."""
    yield
    STEPS.tracer = None


@pytest_asyncio.fixture
async def traced(stores: Stores) -> AsyncIterator[Traced]:
    made = Traced(stores)
    yield made
    await made.app.close()


async def test_a_workflow_is_one_trace_across_processes(traced: Traced) -> None:
    """Who starts it, the worker of its first half, and another process for the second."""
    with traced.provider.get_tracer("test").start_as_current_span("request") as request:
        handle = await traced.order.start(5)
    await traced.work()
    assert "workflow order" not in traced.spans()  # it has not ended
    await traced.app.close()
    traced.app = traced.make_app()
    await traced.app.handle(handle.id).signal("go", "now")
    await traced.work()
    spans = traced.spans()
    (execution,), (charge,), (ship,), (attempt,) = (
        spans[name] for name in ("workflow order", "attempt charge", "task ship", "attempt ship")
    )
    trace_ids = {span.context.trace_id for found in spans.values() for span in found if span.context is not None}
    assert trace_ids == {request.get_span_context().trace_id}
    assert parent_of(execution) == request.get_span_context().span_id
    assert own_id(execution) == span_id_of(handle.id.to_bytes())
    assert parent_of(charge) == own_id(execution)
    assert parent_of(ship) == own_id(execution)
    assert parent_of(attempt) == own_id(ship)
    assert traced.seen == []  # of this process: charge ran in the first one
    assert dict(execution.attributes or {})["holdfast.execution"] == str(handle.id)


async def test_without_a_caller_the_trace_is_the_executions_own(traced: Traced) -> None:
    handle = await traced.order.start(-1)
    await traced.work()
    spans = traced.spans()
    (execution,), attempts = spans["workflow order"], spans["attempt charge"]
    assert execution.context is not None
    assert execution.context.trace_id == trace_id_of(handle.id.to_bytes())
    assert execution.parent is None
    assert [parent_of(attempt) for attempt in attempts] == [own_id(execution)] * 2
    assert [attempt.status.status_code for attempt in attempts] == [StatusCode.ERROR, StatusCode.UNSET]
    assert [dict(attempt.attributes or {})["holdfast.attempt"] for attempt in attempts] == [1, 2]
    assert traced.seen == [own_id(attempt) for attempt in attempts]  # user code runs inside


async def test_a_machine_has_a_span_a_step_and_its_children_hang_on_it(traced: Traced) -> None:
    handle = await traced.parcel.start(Box(1))
    await traced.work()
    spans = traced.spans()
    executions = {own_id(span): span for span in spans["machine Parcel"]}
    parent = executions[span_id_of(handle.id.to_bytes())]
    child = executions[span_id_of(handle.id.child(0).to_bytes())]
    assert parent_of(child) == own_id(parent)
    assert child.status.status_code is StatusCode.ERROR
    assert parent.status.status_code is StatusCode.UNSET
    steps = sorted(
        (parent_of(span), span.name) for name in ("step Parcel.pack", "step Parcel.send") for span in spans[name]
    )
    wanted = [(own_id(span), name) for span in (parent, child) for name in ("step Parcel.pack", "step Parcel.send")]
    assert steps == sorted(wanted)


@pytest.mark.parametrize("is_called", [True, False])
async def test_a_job_of_a_flow_is_one_trace(traced: Traced, is_called: bool) -> None:
    flow = traced.app.flow("parcels")
    counted = CollectorRegistry()
    traced.app.observe(Meters(counted))

    @flow.activity(name="pick")
    async def pick(number: int) -> int:
        return number

    @flow.activity(name="left", after=pick)
    async def left(number: int) -> int:
        return number

    @flow.activity(name="right", after=pick)
    async def right(number: int) -> int:
        return number

    @flow.join(name="send", after=[left, right], retry=RetryPolicy(max_attempts=1))
    async def send(one: int, two: int) -> int:
        raise ValueError("lost")

    tracer = traced.provider.get_tracer("caller")
    with tracer.start_as_current_span("caller") if is_called else nullcontext() as caller:
        job: Any = await flow.start(4)
    await traced.work()
    assert await job.status() is Status.FAILED
    labels = {"kind": "flow", "name": "parcels", "status": "failed"}
    assert counted.get_sample_value("holdfast_ended_total", labels) == 1
    (own,) = traced.spans()["flow parcels"]
    assert own.status.status_code is StatusCode.ERROR
    assert own.context.span_id == span_id_of(job.id.to_bytes())
    assert (None if own.parent is None else own.parent.span_id) == (
        caller.get_span_context().span_id if caller is not None else None
    )
    for name in ("pick", "left", "right", "send"):
        (attempt,) = traced.spans()[f"attempt parcels.{name}"]
        assert attempt.parent is not None
        assert (attempt.parent.span_id, attempt.context.trace_id) == (own.context.span_id, own.context.trace_id)


async def test_a_transaction_has_a_span_an_attempt_too(traced: Traced) -> None:
    """Inside a workflow and alone; the code in it sees its span on either store."""
    app, seen = traced.app, traced.seen

    def note() -> int:
        seen.append(trace.get_current_span().get_span_context().span_id)
        return len(seen)

    def plain(connection: Any) -> int:
        return note()

    async def coroutine(connection: Any) -> int:
        return note()

    store = await app.store()
    pay = app.transaction(name="pay")(plain if store.commits_in_thread else coroutine)

    @app.workflow(name="till")
    async def till(ctx: Context) -> int:
        await pay()
        return 1

    till_handle = await till.start()
    await pay.options(queue="default").start()
    await traced.work()
    spans = traced.spans()
    (alone,), attempts = spans["task pay"], spans["attempt pay"]
    assert sorted(traced.seen) == sorted(own_id(attempt) for attempt in attempts)
    assert {parent_of(attempt) for attempt in attempts} == {own_id(alone), span_id_of(till_handle.id.to_bytes())}


async def test_an_execution_is_sent_once_with_the_times_of_the_ledger(traced: Traced) -> None:
    handle = await traced.parcel.start(Box(0))
    await traced.stores.advance(5)
    await traced.work()
    await traced.work()
    (span,) = traced.spans()["machine Parcel"]
    view = await handle.describe()
    assert view.ended_at is not None
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time - span.start_time == round((view.ended_at - view.inserted_at).total_seconds() * 1e9)
    assert [event.name for event in span.events] == ["started"]


async def test_what_is_being_sent_when_a_worker_leaves_is_sent(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one who sends has taken ends out of the queue already and reads their times."""
    monkeypatch.setattr(tracing, "SEND_EVERY_SECONDS", 0.0)
    handle = await traced.order.start(-1)
    worker = await traced.app.make_worker(WorkerSettings())
    await worker.open()
    store: Any = worker.store
    get_many, reading = store.get_many, asyncio.Event()

    async def slow(promises: Any) -> Any:
        if not reading.is_set():
            reading.set()
            await asyncio.Event().wait()
        return await get_many(promises)

    monkeypatch.setattr(store, "get_many", slow)
    await worker.run_until_idle()
    await reading.wait()
    await worker.stop(0)
    (own,) = traced.spans()["workflow order"]
    assert own.context.span_id == span_id_of(handle.id.to_bytes())


async def test_what_is_not_sampled_is_not_sent(stores: Stores) -> None:
    traced = Traced(stores, sampler=ALWAYS_OFF)
    await traced.parcel.start(Box(1))
    await traced.work()
    assert traced.spans() == {}
    await traced.app.close()


async def test_a_provider_may_be_set_after_the_app_was_instrumented(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Traced(stores)
    current: list[trace.TracerProvider] = [trace.ProxyTracerProvider()]
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: current[0])
    app = App("late", store=stores.unopened())
    instrument(app, meter_provider=made.meters)

    @app.task(name="late", queue="default")
    async def late() -> None: ...

    current[0] = made.provider
    async with app, app.worker():
        handle = await late.start()
        await handle.result()
    (own,), (attempt,) = made.spans()["task late"], made.spans()["attempt late"]
    assert own.context.span_id == span_id_of(handle.id.to_bytes())
    assert attempt.parent is not None
    assert (attempt.parent.span_id, attempt.context.trace_id) == (own.context.span_id, own.context.trace_id)
    await made.app.close()


async def test_metrics_count_what_a_worker_does(traced: Traced) -> None:
    await traced.parcel.start(Box(1))
    await traced.order.start(-1)
    await traced.work()
    data = traced.reader.get_metrics_data()
    assert data is not None
    found: dict[str, list[Any]] = {}
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                found.setdefault(metric.name, []).extend(metric.data.data_points)
    ended = {(p.attributes["name"], p.attributes["status"]): p.value for p in found["holdfast.executions.ended"]}
    assert ended == {("Parcel", "done"): 1, ("Parcel", "failed"): 1, ("order", "done"): 1}
    retries = {(p.attributes["kind"], p.attributes["name"]): p.value for p in found["holdfast.retries"]}
    assert retries == {("task", "charge"): 1}  # inside the workflow
    assert sum(point.value for point in found["holdfast.steps"]) >= 4
    assert sum(point.count for point in found["holdfast.flush.commits"]) > 0


async def test_who_is_not_instrumented_leaves_no_trace(stores: Stores) -> None:
    app = App("plain", store=stores.unopened())

    @app.task(queue="default")
    async def work() -> None:
        assert not trace.get_current_span().get_span_context().is_valid

    handle = await work.start()
    worker = await app.make_worker(WorkerSettings())
    await worker.open()
    await worker.run_until_idle()
    await worker.stop(0)
    assert (await handle.describe()).attributes is None
    assert await handle.status() is Status.DONE
    await app.close()


def own_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return int(span.parent.span_id)
