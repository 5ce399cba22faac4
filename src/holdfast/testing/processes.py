"""Real processes for tests that kill them.

- `Process`: a Python program as a child; `kill` (SIGKILL), `freeze` and `thaw` (SIGSTOP, SIGCONT), `terminate`. It dies
  with the process that started it, frozen or not.
- `until`: wait for something to become true in a ledger, however long the machine takes, but not for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from holdfast.core.errors import HoldfastError, StoreUnavailableError

FIRST_LOOK_SECONDS: Final = 0.01
LAST_LOOK_SECONDS: Final = 0.1

# A frozen process does not read its signals; only SIGKILL ends it with its parent.
_WRAPPER: Final = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent died before the program started")
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


class TookTooLongError(HoldfastError, AssertionError):
    """What a test waited for did not come."""


class Process:
    """`python ARGUMENTS`, started at once; its output is appended to `log`."""

    def __init__(
        self, *arguments: str, log: Path, folder: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _WRAPPER, str(os.getpid()), *arguments],
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        """Frozen counts as running."""
        return self._popen.poll() is None

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone; nothing if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._popen.kill()
        self._popen.wait()

    def freeze(self) -> None:
        self._popen.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._popen.send_signal(signal.SIGCONT)

    async def terminate(self, timeout_seconds: float = 30.0) -> int:
        """Ask it to leave in good order; its exit code."""
        self._popen.terminate()
        try:
            return await asyncio.to_thread(self._popen.wait, timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TookTooLongError(
                f"process {self.pid} did not leave within {timeout_seconds:g} s of SIGTERM; it said:\n{self.output()}"
            ) from None

    def output(self, lines: int = 30) -> str:
        """The end of what it wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


async def until(condition: Callable[[], Awaitable[bool]], what: str, *, limit_seconds: float = 60.0) -> None:
    """Look until `condition` holds; a store that is away is asked again."""
    deadline = time.monotonic() + limit_seconds
    pause = FIRST_LOOK_SECONDS
    while True:
        with contextlib.suppress(StoreUnavailableError):
            if await condition():
                return
        if time.monotonic() > deadline:
            raise TookTooLongError(f"waited {limit_seconds:g} s for {what}, in vain")
        await asyncio.sleep(pause)
        pause = min(LAST_LOOK_SECONDS, pause * 1.5)
