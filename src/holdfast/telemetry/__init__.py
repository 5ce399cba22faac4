"""Telemetry, all of it outside the hot path: without it a worker pays one `is None` at each place.

    meters     Prometheus counters and histograms of what workers of this process do
    tracing    OpenTelemetry: a span an execution, a step and a task; metrics (extra `otel`)
    logs       the execution and attempt in every log record; a JSON formatter

`instrument(app)` switches traces and metrics on. Hooks are declared on the app (`app.on`, `app.webhook`, in
`holdfast.models.hooks`); `HookEvent` is what they are told, `verify_signature` is for who receives a webhook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.app import App
from holdfast.core.errors import ConfigurationError
from holdfast.models.hooks import HookEvent
from holdfast.models.webhook import sign, verify_signature

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["HookEvent", "instrument", "sign", "verify_signature"]


def instrument(
    app: App, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Send traces and metrics of this app by OpenTelemetry; without providers, to the global ones (extra `otel`)."""
    try:
        from holdfast.telemetry.tracing import OpenTelemetry
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "opentelemetry":
            raise
        raise ConfigurationError("traces need OpenTelemetry: pip install 'holdfast[otel]'") from error

    app.observe(OpenTelemetry(tracer_provider, meter_provider))
