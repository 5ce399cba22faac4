"""A worker process, as the demo sees it: started, killed, stopped, and never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from holdfast.app import DATABASE_VARIABLE
from holdfast.cli.exits import CommandError, redacted

STOP_SECONDS = 10.0
LOG_LINES_SHOWN = 3


class WorkerProcess:
    """One process of `holdfast.cli.demo.worker`."""

    def __init__(self, database: str, settings: dict[str, object], log: Path) -> None:
        self._log = log
        self._is_killed = False
        self._started = time.monotonic()
        self._ended: float | None = None
        with log.open("ab") as file:
            # The database goes by environment: everyone may read a process's arguments, and a URL has a password.
            # A session of its own, so that Ctrl-C reaches the parent alone, which then ends it in good order.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "holdfast.cli.demo.worker", json.dumps(settings)],
                env={**os.environ, DATABASE_VARIABLE: database},
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_killed(self) -> bool:
        return self._is_killed

    @property
    def has_left(self) -> bool:
        return self._ended is not None and not self._is_killed

    @property
    def age_seconds(self) -> float:
        """How long it has lived, or did live."""
        return (self._ended or time.monotonic()) - self._started

    def check_alive(self) -> None:
        """A worker that ended by itself would leave the demo waiting for ever."""
        code = self._process.poll()
        if code is not None:
            raise CommandError(f"the worker process {self.pid} ended by itself (exit code {code}): {self._log_tail()}")

    async def kill(self) -> None:
        """SIGKILL: no clean-up, no goodbye, like a machine that loses its power."""
        self._is_killed = True
        self._process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)
        self._ended = time.monotonic()
        self._close_input()

    async def stop(self) -> None:
        """SIGTERM: it drains and leaves."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, STOP_SECONDS)
        self.end()
        if self._process.returncode:
            raise CommandError(
                f"the worker process {self.pid} did not leave in good order "
                f"(exit code {self._process.returncode}): {self._log_tail()}"
            )

    def end(self) -> None:
        """Whatever happened, it is gone after this."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._ended is None:
            self._ended = time.monotonic()
        self._close_input()

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _log_tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return redacted(" | ".join(lines)) or f"see {self._log}"
