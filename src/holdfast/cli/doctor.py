"""`holdfast doctor`: is everything as it should be? Versions, the way to the ledger, clocks, settings, indexes, lag."""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import click

from holdfast import __version__
from holdfast.cli import config
from holdfast.cli.answers import CheckLine, Diagnosis
from holdfast.cli.exits import CommandError, Exit, one_line, redacted_url
from holdfast.cli.invocation import Invocation, shared
from holdfast.cli.output import ago
from holdfast.core.clock import to_datetime
from holdfast.core.errors import HoldfastError
from holdfast.core.status import Status
from holdfast.store import store_from_url
from holdfast.store.base import Store
from holdfast.store.values import ExecutionFilter, QueueStats, WorkerInfo

SKEW_SECONDS: Final = 5.0
LAG_SECONDS: Final = 60.0
_STYLES: Final = {"ok": "green", "warn": "yellow", "bad": "bold red"}


@click.command("doctor")
@shared
def doctor_command(call: Invocation) -> int:
    """Look at versions, the connection, clocks, settings, indexes and lag; each line is ok, warn or bad.

    The exit code is 1 if any is bad. Nothing is created or changed.
    """
    lines = asyncio.run(_all(call))
    healthy = all(line.level != "bad" for line in lines)
    if call.as_json:
        found = Diagnosis(
            healthy=healthy,
            version=__version__,
            database=redacted_url(call.database().url),
            at=datetime.now(UTC),
            checks=lines,
        )
        call.out.json(found)
        return Exit.OK if healthy else Exit.FAILED
    width = max(len(line.name) for line in lines)
    for line in lines:
        call.out.line(f"{line.level:<4}  {line.name:<{width}}  {line.found}", _STYLES[line.level])
        if line.advice is not None:
            call.out.line(f"{'':<4}  {'':<{width}}  {line.advice}", "dim")
    return Exit.OK if healthy else Exit.FAILED


async def _all(call: Invocation) -> list[CheckLine]:
    lines = [CheckLine(name="holdfast", level="ok", found=f"{__version__}, Python {platform.python_version()}")]
    try:
        lines += _configured(call)
        database = call.database()
        database.check_exists()
        store = store_from_url(database.url)
    except HoldfastError as error:
        return [*lines, _bad("database", error)]
    lines.append(CheckLine(name="database", level="ok", found=f"{store.url} ({database.origin})"))
    try:
        async for line in _on(store):
            lines.append(line)
    except HoldfastError as error:
        lines.append(_bad("connection", error))
    finally:
        await store.close()
    return lines


def _bad(name: str, error: Exception) -> CheckLine:
    return CheckLine(name=name, level="bad", found=one_line(error))


def _configured(call: Invocation) -> list[CheckLine]:
    """Where settings other than the database come from, where they are not the defaults."""
    found = [(key, config.find(key)) for key in config.SETTINGS if key != "database"]
    return [
        CheckLine(name=key, level="ok", found=f"{value.value} ({value.origin})")
        for key, value in found
        if value.origin != "the default"
    ]


async def _on(store: Store) -> AsyncIterator[CheckLine]:
    begun = time.perf_counter()
    state = await store.schema_state()
    yield CheckLine(name="connection", level="ok", found=f"answers in {(time.perf_counter() - begun) * 1e3:.0f} ms")
    if state.found is None:
        raise CommandError("there is no ledger yet: create it with `holdfast migrate`, or start a worker")
    if state.found != state.known:
        newer = state.found > state.known
        yield CheckLine(
            name="schema",
            level="bad" if newer else "warn",
            found=f"version {state.found}, this Holdfast knows {state.known}",
            advice="upgrade Holdfast here" if newer else "run `holdfast migrate`; every worker that starts does it too",
        )
        return
    yield CheckLine(name="schema", level="ok", found=f"version {state.found}")
    await store.open()
    yield await _clock(store)
    for check in await store.examine():
        yield CheckLine(name=check.name, level=check.level.value, found=check.found, advice=check.advice)
    async for line in _lag(store):
        yield line


async def _clock(store: Store) -> CheckLine:
    before = time.time()
    theirs = to_datetime(await store.now_us())
    ours = datetime.fromtimestamp((before + time.time()) / 2, UTC)
    skew = (theirs - ours).total_seconds()
    found = f"the ledger's is {abs(skew):.3f} s {'ahead' if skew > 0 else 'behind'}"
    if abs(skew) <= SKEW_SECONDS:
        return CheckLine(name="clock", level="ok", found=found)
    advice = "leases and timers go by the ledger's clock; times in logs of this machine do not fit: synchronise it"
    return CheckLine(name="clock", level="warn", found=found, advice=advice)


async def _lag(store: Store) -> AsyncIterator[CheckLine]:
    now = to_datetime(await store.now_us())
    workers = await store.workers()
    alive = [worker for worker in workers if not worker.is_expired]
    dead = [worker for worker in workers if worker.is_expired and worker.executing]
    queues = await store.queues()
    is_due = any(stats.oldest_eligible_at is not None and stats.oldest_eligible_at <= now for stats in queues)
    if alive or not is_due:
        yield CheckLine(name="workers", level="ok", found=f"{len(alive)} alive")
    else:
        advice = "work is due and nobody does it: start one"
        yield CheckLine(name="workers", level="warn", found="none is alive", advice=advice)
    if dead:
        held = sum(worker.executing for worker in dead)
        advice = "any live worker takes it back within seconds: is one running?"
        yield CheckLine(name="dead workers", level="warn", found=f"{len(dead)} still hold {held}", advice=advice)
    is_late = False
    for stats in queues:
        oldest = stats.oldest_eligible_at
        if oldest is not None and now - oldest > timedelta(seconds=LAG_SECONDS):
            is_late = True
            found = f"{stats.settings.name}: the oldest is due since {ago(oldest, now).removesuffix(' ago')}"
            yield CheckLine(name="lag", level="warn", found=found, advice=_why_late(stats, alive))
    if not is_late:
        yield CheckLine(name="lag", level="ok", found=f"nothing waits longer than {LAG_SECONDS:.0f} s")
    stranded = (await store.count(ExecutionFilter(statuses=(Status.STRANDED,)))).get(Status.STRANDED, 0)
    if stranded:
        advice = "see `holdfast list --status stranded`; mend the cause, then `holdfast resume`"
        yield CheckLine(name="stranded", level="warn", found=str(stranded), advice=advice)
    else:
        yield CheckLine(name="stranded", level="ok", found="none")


def _why_late(stats: QueueStats, alive: Sequence[WorkerInfo]) -> str:
    """What is paused itself, or waits for its partition key, is not counted as due: that leaves these."""
    queue, name = stats.settings, stats.settings.name
    serving = [worker for worker in alive if name in worker.queues]
    if queue.paused:
        return f"it is paused: `holdfast queues resume {name}`"
    if not serving:
        return "no live worker serves it: start one"
    if queue.concurrency is not None and stats.executing >= queue.concurrency:
        return f"its limit of {queue.concurrency} at work is reached: see what they do, or `holdfast queues set {name}`"
    if queue.rate is not None:
        return f"its rate may hold it back (`holdfast queues`), else add workers; to change it: `queues set {name}`"
    see = f"see `holdfast list --status runnable --queue {name}`"
    if not any(worker.executing for worker in serving):
        gone = "a definition was renamed, or a version taken out"
        return f"its workers are idle, so none of them has the code: {gone}; {see}"
    return f"add workers; if it is always the same definition or version that waits, they lack its code: {see}"
