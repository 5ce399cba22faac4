"""`holdfast worker MODULE:APP`: work on an app's executions until told to stop."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

import click

from holdfast.app import DATABASE_VARIABLE, App
from holdfast.cli import config
from holdfast.cli.database import Database
from holdfast.cli.exits import CommandError, Exit, one_line, redacted_url
from holdfast.cli.invocation import Invocation, shared
from holdfast.cli.telemetry import LogLevel, log_as_told, log_options, telemetry_of, telemetry_options
from holdfast.core.errors import ConfigurationError, HoldfastError
from holdfast.engine.settings import WorkerSettings
from holdfast.engine.threads import calls_at_work
from holdfast.store import store_from_url
from holdfast.telemetry.logs import LogFormat

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])

GC_THRESHOLDS: Final = (10_000, 20, 50)
THREADS_SECONDS = 2.0  # for threads of user code's own, once a worker has left


app_argument = click.argument("target", metavar="[MODULE:APP]", required=False)


def worker_options(command: C) -> C:
    """What a worker can be told; without a flag, what `config` finds."""
    options = [
        click.option("--queue", "queues", multiple=True, help="Work on this queue; may be repeated."),
        click.option("--concurrency", type=click.IntRange(min=1), help="At work at a time.  [default: 100]"),
        click.option("--lease", metavar="TIME", help="Silence after which others take over.  [default: 30s]"),
        click.option("--drain", metavar="TIME", help="How long a stopping worker waits.  [default: 30s]"),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def worker_settings(
    queues: tuple[str, ...], concurrency: int | None, lease: str | None, drain: str | None
) -> WorkerSettings:
    return WorkerSettings(
        queues=config.find("queues", queues).value or ["default"],
        concurrency=config.find("concurrency", concurrency).value,
        lease_seconds=config.find("lease", lease).value,
        drain_seconds=config.find("drain", drain).value,
    )


@click.command("worker")
@app_argument
@worker_options
@log_options
@telemetry_options
@shared
def worker_command(
    call: Invocation,
    target: str | None,
    log_format: LogFormat | None,
    log_level: LogLevel | None,
    metrics_port: int | None,
    otel: bool,
    **options: Any,
) -> None:
    """Work on the executions of an app, such as `orders:app`, found from the current folder.

    SIGTERM or Ctrl-C lets every execution at work finish its step, a second one stops at once; nothing is lost
    either way. Settings of the app's own, such as its store, are left as they are.
    """
    settings = worker_settings(**options)
    database = call.database()
    thresholds = gc.get_threshold()
    app = load_app(target, database)
    log_as_told(log_format, log_level)
    if gc.get_threshold() == thresholds:  # else the app knows better
        collect_seldom()
    with telemetry_of(app, log_format, metrics_port, otel):
        run_on_fast_loop(lambda: _work(call, app, settings, database if call.database_flag else None))
    leave_stuck_threads()


async def _work(call: Invocation, app: App, settings: WorkerSettings, wanted: Database | None) -> None:
    try:
        store = await app.store()
        if wanted is not None and store.url != store_from_url(wanted.url).url:
            raise CommandError(
                f"the app {app.name!r} names its own store, {store.url}, but --database is {redacted_url(wanted.url)}: "
                "leave out one of the two",
                Exit.WRONG_USE,
            )
        worker = await app.make_worker(settings)
        queues = list(settings.queue_limits())
        facts = {"app": app.name, "database": store.url, "queues": queues, "concurrency": settings.concurrency}
        _say(call, "starting", f"working on {', '.join(queues)} of {store.url}; Ctrl-C drains", facts)
        if not call.as_json and (others := sorted(set(app.queues()) - set(queues))):
            call.out.line(f"what the app has on {', '.join(others)} is left to other workers: see --queue", "yellow")
            sys.stdout.flush()
        await worker.run()
        _say(call, "stopped", "stopped; what was at work is recorded or given back", {})
    finally:
        await app.close()
    if worker.left_behind or not await threads_ended():
        leave_at_once()  # the end of the event loop would wait for them for ever


async def threads_ended() -> bool:
    """Those of `asyncio.to_thread`: of what was cancelled, the thread goes on."""
    ending = asyncio.ensure_future(asyncio.get_running_loop().shutdown_default_executor())
    await asyncio.wait([ending], timeout=THREADS_SECONDS)
    return ending.done()


def _say(call: Invocation, event: str, text: str, facts: dict[str, Any]) -> None:
    if call.as_json:
        print(json.dumps({"event": event, "pid": os.getpid(), **facts}), flush=True)
    else:
        call.out.line(text, "dim")
        sys.stdout.flush()


def leave_stuck_threads() -> None:
    """A thread cannot be cancelled, and Python would wait for it for ever; what ran in it was given back."""
    if calls_at_work():
        leave_at_once()


def leave_at_once() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(Exit.OK)


def collect_seldom() -> None:
    """What is loaded by now is not looked through again, and what a worker makes is mostly freed without the collector.

    A twentieth of a busy worker's time; a cycle of the user's own is found a little later.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def run_on_fast_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """On uvloop, where the extra `fast` is installed: it doubles what a worker can do."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())


# ---------------------------------------------------------------------- finding the app


def load_app(given: str | None, database: Database) -> App:
    """The app that `MODULE:APP` names, or that is configured. One without a store of its own is given `database`."""
    target: str | None = config.find("app", given).value
    if target is None:
        raise CommandError(
            "no app is named: write MODULE:APP, as in orders:app, or set HOLDFAST_APP or `app` under [tool.holdfast]",
            Exit.WRONG_USE,
        )
    module_name, colon, attribute = target.partition(":")
    if not colon or not module_name or not attribute:
        raise CommandError(f"{target!r} names no app: write MODULE:APP, as in orders:app", Exit.WRONG_USE)
    os.environ[DATABASE_VARIABLE] = database.url
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    module = _import(module_name)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, App):
        apps = [name for name, value in vars(module).items() if isinstance(value, App)]
        known = f"its apps are: {', '.join(apps)}" if apps else "it has no App at its top level"
        said = f"{module_name} has no {attribute!r}" if found is None else f"{target} is a {type(found).__name__}"
        raise CommandError(f"{said}, not an App; {known}", Exit.WRONG_USE)
    return found


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _import_failed(name, error) from error
        raise CommandError(
            f"there is no module {name!r} here or on the path: run this in its folder, or install it", Exit.WRONG_USE
        ) from error
    except HoldfastError as error:
        kind = Exit.WRONG_USE if isinstance(error, ConfigurationError) else Exit.FAILED
        raise CommandError(f"{name} does not import: {one_line(error)}", kind) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(name, error) from error


def _import_failed(name: str, error: BaseException) -> CommandError:
    """Where in the user's code it broke: the last frame that is no machinery of imports."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames[1:] else ""
    if isinstance(error, SyntaxError) and error.filename:
        where = f" ({error.filename}:{error.lineno})"
    return CommandError(f"{name} does not import: {type(error).__name__}: {one_line(error)}{where}", Exit.WRONG_USE)
