"""`holdfast dev MODULE:APP`: a worker and the dashboard in one process, started again when a source file changes.

The process that is called watches; what works and serves is its child. Nothing is lost by a restart: that is what a
ledger is for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import click

from holdfast.app import App
from holdfast.cli import config
from holdfast.cli.exits import CommandError, Exit
from holdfast.cli.invocation import Invocation, shared
from holdfast.cli.telemetry import LogLevel, log_as_told, log_options
from holdfast.cli.worker import (
    app_argument,
    leave_at_once,
    leave_stuck_threads,
    load_app,
    run_on_fast_loop,
    threads_ended,
    worker_options,
    worker_settings,
)
from holdfast.engine.settings import WorkerSettings
from holdfast.telemetry.logs import LogContext, LogFormat

POLL_SECONDS: Final = 0.3
LATE_SECONDS: Final = 15.0  # beyond the time to drain, for what does not let itself be cancelled
CHILD_VARIABLE: Final = "HOLDFAST_DEV_CHILD"
_PASSED_OVER: Final = frozenset({"__pycache__", "node_modules", "site-packages"})


@click.command("dev")
@app_argument
@click.option("--host", help="Where the dashboard is.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65_535), help="0 takes a free one.  [default: 8420]")
@click.option("--reload/--no-reload", default=True, help="Start again when a source file below this folder changes.")
@worker_options
@log_options
@shared
def dev_command(
    call: Invocation,
    target: str | None,
    host: str | None,
    port: int | None,
    reload: bool,
    log_format: LogFormat | None,
    log_level: LogLevel | None,
    **options: Any,
) -> int:
    """Work on an app and show its dashboard, in one process: for the time in which the code changes.

    All queues of the app are worked on unless some are named. Ctrl-C stops both.
    """
    settings = worker_settings(**options)
    where = (config.find("host", host).value, port if port == 0 else config.find("port", port).value)
    if reload and CHILD_VARIABLE not in os.environ:
        _check_servable(*where)
        patience = settings.drain_seconds + LATE_SECONDS
        return Reloader(sys.argv[1:], Path.cwd(), lambda text: _say(call, text), patience).run()
    database = call.database()
    app = load_app(target, database)
    log_as_told(log_format, log_level)
    if log_format == "json":
        app.observe(LogContext())
    if not options["queues"] and config.find("queues").value is None:
        settings = WorkerSettings(
            queues=sorted({"default", *app.queues()}),
            concurrency=settings.concurrency,
            lease_seconds=settings.lease_seconds,
            drain_seconds=settings.drain_seconds,
        )
    code = run_on_fast_loop(lambda: _work_and_serve(call, app, settings, *where))
    leave_stuck_threads()
    return code


def _check_servable(host: str, port: int) -> None:
    """What no change of a source file would mend is not waited for: a missing extra, a port in use."""
    _, listening = _web()
    listening(host, port).close()


def _web() -> tuple[Callable[..., Coroutine[Any, Any, None]], Callable[[str, int], socket.socket]]:
    try:
        from holdfast.web.server import listening, serve
    except ImportError as error:
        raise CommandError(
            f"the dashboard needs the extra `web`: pip install 'holdfast[web]' (missing: {error.name})", Exit.WRONG_USE
        ) from error
    return serve, listening


def _say(call: Invocation, text: str) -> None:
    call.out.line(text, "dim")
    sys.stdout.flush()


async def _work_and_serve(call: Invocation, app: App, settings: WorkerSettings, host: str, port: int) -> int:
    serve, _ = _web()
    from holdfast.telemetry.meters import meters

    def up(url: str) -> None:
        if call.as_json:
            call.out.json({"event": "serving", "pid": os.getpid(), "url": url, "queues": list(settings.queue_limits())})
        else:
            _say(call, f"working on {', '.join(settings.queue_limits())}; the dashboard is at {url}; Ctrl-C stops")
        sys.stdout.flush()

    watched = asyncio.ensure_future(_outlived(os.getppid())) if CHILD_VARIABLE in os.environ else None
    try:
        app.observe(meters())
        worker = await app.make_worker(settings)
        working = asyncio.ensure_future(worker.run())
        serving = asyncio.ensure_future(serve(app, host=host, port=port, handle_signals=False, on_up=up))
        await asyncio.wait([working, serving], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():  # there is no dashboard: say why, and leave in good order
            os.kill(os.getpid(), signal.SIGTERM)
            await working
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        await working
    finally:
        if watched is not None:
            watched.cancel()
        await app.close()
    if worker.left_behind or not await threads_ended():
        leave_at_once()
    return Exit.OK


async def _outlived(parent: int) -> None:
    """Stop when the process that watches us was killed: nobody else would."""
    while os.getppid() == parent:  # noqa: ASYNC110 - the system tells us no other way
        await asyncio.sleep(POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


# ---------------------------------------------------------------------- starting again


def sources(folder: Path) -> dict[str, int]:
    """When each source file below a folder was changed; hidden folders and those of packages are passed over."""
    found: dict[str, int] = {}
    for parent, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _PASSED_OVER
            and not os.path.exists(os.path.join(parent, name, "pyvenv.cfg"))
        ]
        for name in files:
            if name.endswith(".py") or name == "pyproject.toml":
                path = os.path.join(parent, name)
                with contextlib.suppress(OSError):
                    found[path] = os.stat(path).st_mtime_ns
    return found


def changed(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """The files that came, went or changed."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


class Reloader:
    """Runs the same command as a child, and runs it again when a source file changes."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, say: Callable[[str], None], patience_seconds: float
    ) -> None:
        self._command = [sys.executable, "-m", "holdfast.cli", *arguments]
        self._folder = folder
        self._say = say
        self._patience_seconds = patience_seconds
        self._stops = 0  # how often it was told to stop

    def run(self) -> int:
        earlier = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            while True:
                seen = sources(self._folder)
                # A process group of its own: Ctrl-C reaches it through us, once.
                child = subprocess.Popen(
                    self._command, cwd=self._folder, env=os.environ | {CHILD_VARIABLE: "1"}, process_group=0
                )
                if files := self._watch(child, seen):
                    shown = ", ".join(os.path.relpath(path, self._folder) for path in files[:3])
                    self._say(f"{shown} changed: starting again")
                self.end(child)
                if self._stops or not files:
                    return Exit.OK if self._stops else (child.returncode or Exit.OK)
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: object) -> None:
        self._stops += 1

    def _watch(self, child: subprocess.Popen[bytes], seen: dict[str, int]) -> list[str]:
        """Until a file changes, or somebody stops us: the files that changed."""
        has_said = False
        while not self._stops:
            time.sleep(POLL_SECONDS)
            if files := changed(seen, sources(self._folder)):
                return files
            if child.poll() is not None and not has_said:
                if child.returncode == 0:
                    return []
                has_said = True
                self._say("it ended; waiting for a file to change")
        return []

    def end(self, child: subprocess.Popen[bytes]) -> None:
        """Let it drain. Who tells us again tells it; one that hears nothing, in code that never awaits, is killed."""
        passed_on, give_up_at = self._stops, time.monotonic() + self._patience_seconds
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        while child.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(POLL_SECONDS)
            if self._stops > passed_on:
                passed_on = self._stops
                child.send_signal(signal.SIGTERM)
            if time.monotonic() > give_up_at:
                child.kill()
