"""What `holdfast worker` can be told of logs, metrics and traces."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, TypeVar

import click

from holdfast.app import App
from holdfast.cli.exits import CommandError, Exit
from holdfast.telemetry.logs import LogContext, LogFormat, configure_logging

C = TypeVar("C", bound=Callable[..., Any])
LogLevel = Literal["debug", "info", "warning", "error"]

BODIES: Final = "holdfast.workflow"  # what `ctx.log` logs to


def log_options(command: C) -> C:
    """`--log-format`, `--log-level`; None where none is given."""
    options = [
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            envvar="HOLDFAST_LOG_FORMAT",
            help="Logs on standard error; JSON names the execution and attempt.  [default: text]",
        ),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            envvar="HOLDFAST_LOG_LEVEL",
            help="Log from this level on.  [default: warning, and what bodies say with ctx.log]",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def log_as_told(log_format: LogFormat | None, log_level: LogLevel | None) -> None:
    """Log to standard error; an app that set up logging where it is imported is left alone unless a flag is given."""
    root = logging.getLogger()
    if root.handlers and log_format is None and log_level is None:
        return
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    if log_level is None:
        configure_logging(log_format or "text")
        logging.getLogger(BODIES).setLevel(logging.INFO)
    else:
        configure_logging(log_format or "text", logging.getLevelNamesMapping()[log_level.upper()])


def telemetry_options(command: C) -> C:
    """`--metrics-port`, `--otel`."""
    options = [
        click.option(
            "--metrics-port",
            type=click.IntRange(1, 65_535),
            envvar="HOLDFAST_METRICS_PORT",
            help="Serve Prometheus metrics of this worker on this port of 127.0.0.1.",
        ),
        click.option(
            "--otel", is_flag=True, envvar="HOLDFAST_OTEL", help="Send traces and metrics to OpenTelemetry's providers."
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@contextlib.contextmanager
def telemetry_of(app: App, log_format: LogFormat | None, metrics_port: int | None, otel: bool) -> Iterator[None]:
    """Observe the app's workers while the block runs."""
    if log_format == "json":
        app.observe(LogContext())
    with contextlib.ExitStack() as stack:
        try:
            if otel:
                from holdfast.telemetry import instrument

                instrument(app)
            if metrics_port is not None:
                stack.enter_context(_metrics(app, metrics_port))
        except ImportError as error:
            raise CommandError(
                f"{error.name} is not installed: pip install 'holdfast[otel]' for --otel, 'holdfast[web]' for "
                "--metrics-port",
                Exit.WRONG_USE,
            ) from error
        yield


@contextlib.contextmanager
def _metrics(app: App, port: int) -> Iterator[None]:
    from prometheus_client import start_http_server

    from holdfast.telemetry.meters import meters, registry

    app.observe(meters())
    try:
        server, thread = start_http_server(port, "127.0.0.1", registry())
    except OSError as error:
        raise CommandError(f"could not serve metrics on port {port}: {error.strerror}", Exit.WRONG_USE) from error
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
