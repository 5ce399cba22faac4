"""Telemetry, all of it outside the hot path: without it a worker pays one `is None` at each place.

    meters     Prometheus counters and histograms of what workers of this process do
    tracing    OpenTelemetry: a span an execution, a step and a task; metrics (extra `otel`)
    logs       the execution and attempt in every log record; a JSON formatter
    hooks      functions and webhooks that hear of failures, strandings and dead letters

`instrument(app)` switches traces and metrics on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.app import App

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


def instrument(
    app: App, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Send traces and metrics of this app by OpenTelemetry; without providers, to the global ones (extra `otel`)."""
    from holdfast.telemetry.tracing import OpenTelemetry

    app.observe(OpenTelemetry(tracer_provider, meter_provider))
