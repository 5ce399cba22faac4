"""`/metrics`: what the ledger holds, as Prometheus reads it, and what the engine of this process did.

The ledger is read when it is scraped, by bounded reads alone. What workers do is counted where they are
(`telemetry.meters`): a worker in this process appears here, one of its own process serves its own (`--metrics-port`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from holdfast.store.base import Store
from holdfast.store.watching import COUNT_BOUND
from holdfast.telemetry.meters import registry as engine_registry
from holdfast.views import ledger_shapes, reading


class Metrics:
    media_type: Final = CONTENT_TYPE_LATEST

    async def render(self, store: Store) -> bytes:
        registry = CollectorRegistry()
        registry.register(_Snapshot(await reading.overview(store)))
        return generate_latest(registry) + generate_latest(engine_registry())


class _Snapshot:
    """An overview as gauges."""

    def __init__(self, overview: ledger_shapes.Overview) -> None:
        self._overview = overview

    def collect(self) -> Iterable[Metric]:
        overview = self._overview
        executions = GaugeMetricFamily(
            "holdfast_executions",
            f"Executions by status, each up to {COUNT_BOUND}, done and cancelled among the newest {COUNT_BOUND} "
            "ends: a floor where holdfast_executions_capped is 1. Of workers in all: their holdfast_ended_total",
            labels=["status"],
        )
        capped = GaugeMetricFamily(
            "holdfast_executions_capped", "1 if there are more with this status than were counted", labels=["status"]
        )
        estimate = GaugeMetricFamily(
            "holdfast_executions_estimate",
            "About how many, from a sample; only where the count is capped",
            labels=["status"],
        )
        for found in overview.statuses:
            executions.add_metric([found.status.value], found.count)
            capped.add_metric([found.status.value], float(found.capped))
            if found.estimate is not None:
                estimate.add_metric([found.status.value], found.estimate)
        runnable = GaugeMetricFamily(
            "holdfast_queue_runnable",
            f"Executions that wait in a queue, counted up to {COUNT_BOUND}: a floor where holdfast_queue_capped is 1",
            labels=["queue"],
        )
        queue_capped = GaugeMetricFamily(
            "holdfast_queue_capped", "1 if more wait in the queue than were counted", labels=["queue"]
        )
        queue_estimate = GaugeMetricFamily(
            "holdfast_queue_estimate",
            "About how many wait, from a sample; only where the count is capped",
            labels=["queue"],
        )
        executing = GaugeMetricFamily("holdfast_queue_executing", "Executions at work", labels=["queue"])
        age = GaugeMetricFamily(
            "holdfast_queue_oldest_seconds", "How long the oldest due execution has waited", labels=["queue"]
        )
        paused = GaugeMetricFamily("holdfast_queue_paused", "1 if the queue is paused", labels=["queue"])
        for queue in overview.queues:
            runnable.add_metric([queue.name], queue.runnable)
            queue_capped.add_metric([queue.name], float(queue.capped))
            if queue.estimate is not None:
                queue_estimate.add_metric([queue.name], queue.estimate)
            executing.add_metric([queue.name], queue.executing)
            oldest = queue.oldest_eligible_at
            waited = 0.0 if oldest is None else (overview.at - oldest).total_seconds()
            age.add_metric([queue.name], max(0.0, waited))
            paused.add_metric([queue.name], float(queue.paused))
        workers = GaugeMetricFamily("holdfast_workers", "Workers by the state of their lease", labels=["lease"])
        workers.add_metric(["alive"], overview.workers)
        workers.add_metric(["expired"], overview.workers_expired)
        yield from (
            executions,
            capped,
            estimate,
            runnable,
            queue_capped,
            queue_estimate,
            executing,
            age,
            paused,
            workers,
        )
