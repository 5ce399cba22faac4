"""Queues and their limits, which hold over all workers together: `queues list|set|pause|resume`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from holdfast.cli.exits import CommandError, Exit
from holdfast.cli.invocation import Invocation, Ledger, shared
from holdfast.cli.output import Cell, Grid, Value
from holdfast.core.durations import format_duration, parse_duration
from holdfast.core.errors import InvalidArgumentError
from holdfast.models.options import CONCURRENCY_MOST, RATE_LEAST, RATE_MOST, RATE_PERIOD_LEAST, check_queue
from holdfast.store.values import QueueChange, QueueSettings
from holdfast.views import ledger_shapes, reading


@click.group("queues", invoke_without_command=True)
@shared
@click.pass_context
def queues_group(context: click.Context, call: Invocation) -> None:
    """List queues, set their limits, pause and resume them."""
    if context.invoked_subcommand is None:
        _list(call)


@queues_group.command("list")
@shared
def list_queues(call: Invocation) -> None:
    """List every queue that has limits or live executions."""
    _list(call)


def _list(call: Invocation) -> None:
    async def read(ledger: Ledger) -> tuple[list[ledger_shapes.Queue], datetime]:
        return await reading.queues(ledger.store), ledger.now

    found, now = call.run(read)
    if call.as_json:
        call.out.json({"queues": found})
        return
    rows: list[list[Value]] = [
        [
            Cell(queue.name, "bold"),
            Cell("paused", "yellow") if queue.paused else "open",
            runnable_text(queue),
            queue.executing,
            "-" if queue.concurrency is None else queue.concurrency,
            _rate_text(queue.rate, queue.rate_seconds),
            queue.oldest_eligible_at,
        ]
        for queue in found
    ]
    columns = ("QUEUE", "STATE", "RUNNABLE", "EXECUTING", "CONCURRENCY", "RATE", "OLDEST DUE")
    grid = Grid(columns, rows, frozenset({"RUNNABLE", "EXECUTING", "CONCURRENCY"}))
    call.out.grid(grid, now=now, empty="no queue has limits or live executions")


@queues_group.command("set")
@click.argument("name", metavar="QUEUE")
@click.option(
    "--concurrency", type=click.IntRange(1, CONCURRENCY_MOST), help="Executions at work at most, over all workers."
)
@click.option("--no-concurrency", is_flag=True, help="Lift the limit.")
@click.option("--rate", metavar="N/TIME", help="Executions begun at most in a time: 100/s, 5000/1h.")
@click.option("--no-rate", is_flag=True, help="Lift the limit.")
@shared
def set_queue(
    call: Invocation, name: str, concurrency: int | None, no_concurrency: bool, rate: str | None, no_rate: bool
) -> None:
    """Set the limits of a queue; what is not named stays as it is."""
    if concurrency is not None and no_concurrency:
        raise click.UsageError("--concurrency and --no-concurrency contradict each other")
    if rate is not None and no_rate:
        raise click.UsageError("--rate and --no-rate contradict each other")
    if concurrency is None and rate is None and not no_concurrency and not no_rate:
        raise click.UsageError("nothing to set: give --concurrency, --rate, --no-concurrency or --no-rate")
    changes: dict[str, Any] = {}
    if concurrency is not None or no_concurrency:
        changes["concurrency"] = concurrency
    if rate is not None:
        changes["rate"], changes["rate_seconds"] = parse_rate(rate)
    elif no_rate:
        changes["rate"], changes["rate_seconds"] = None, 1.0
    _change(call, name, QueueChange(**changes))


@queues_group.command("pause")
@click.argument("name", metavar="QUEUE")
@shared
def pause_queue(call: Invocation, name: str) -> None:
    """Let no worker take anything from a queue, until `queues resume`."""
    _change(call, name, QueueChange(paused=True))


@queues_group.command("resume")
@click.argument("name", metavar="QUEUE")
@shared
def resume_queue(call: Invocation, name: str) -> None:
    """Open a paused queue again."""
    _change(call, name, QueueChange(paused=False))


def _change(call: Invocation, name: str, change: QueueChange) -> None:
    check_queue(name)

    async def write(ledger: Ledger) -> QueueSettings:
        return await ledger.store.change_queue(name, change)

    settings = call.run(write)
    if call.as_json:
        call.out.json(ledger_shapes.queue_limits(settings))
        return
    state = "paused" if settings.paused else "open"
    most = "no limit" if settings.concurrency is None else f"at most {settings.concurrency} at work"
    rate = "any rate" if settings.rate is None else f"at most {_rate_text(settings.rate, settings.rate_seconds)}"
    call.out.line(f"queue {settings.name} is {state}: {most}, {rate}")


def runnable_text(queue: ledger_shapes.Queue) -> Value:
    """How much waits, and how well that is known."""
    if queue.estimate is not None:
        return f"about {queue.estimate}"
    return f"{queue.runnable}+" if queue.capped else queue.runnable


def _rate_text(rate: float | None, seconds: float | None) -> str:
    return "-" if rate is None or seconds is None else f"{rate:g}/{format_duration(seconds)}"


def parse_rate(text: str) -> tuple[float, float]:
    """`100/m` as a number and its period in seconds."""
    number, slash, period = text.partition("/")
    try:
        rate = float(number)
        length = parse_duration(period if period[:1].isdigit() else f"1{period}") if slash else 1.0
    except (ValueError, InvalidArgumentError):
        rate = length = 0.0
    if not RATE_LEAST <= rate <= RATE_MOST or not length >= RATE_PERIOD_LEAST:
        raise CommandError(f"{text!r} is no rate: write 100/s, 20/m or 5000/1h", Exit.WRONG_USE)
    return rate, length
