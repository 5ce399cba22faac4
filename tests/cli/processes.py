"""Programs run as a user runs them: in a pipe, or in a terminal (a pty of 120 columns).

The program itself, and scripts, are forked from a process that has imported Holdfast, which is quick: `forked.py`.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.forked import HOLDFAST, Pipe, can_fork, fork, wait_for_end

__all__ = ["HOLDFAST", "TIMEOUT_SECONDS", "Ran", "Terminal", "environment", "in_pipe", "in_terminal"]

TIMEOUT_SECONDS = 60
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Ran:
    """What a program left behind. In a terminal both outputs are one."""

    code: int
    out: str
    err: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def plain(self) -> str:
        """What a person reads on the screen."""
        return ANSI.sub("", self.out).replace("\r\n", "\n")


def environment(database: str | None, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what would change the outcome."""
    dropped = {"HOLDFAST_DATABASE", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    given = {} if database is None else {"HOLDFAST_DATABASE": database}
    return kept | {"TERM": "xterm-256color"} | given | dict(extra or {})


def in_pipe(
    command: Sequence[str],
    *,
    folder: Path,
    database: str | None = None,
    extra: Mapping[str, str] | None = None,
    stdin: IO[Any] | None = None,
    fresh: bool = False,
) -> Ran:
    """How it ended. What can be forked is, unless it shall be a `fresh` Python."""
    whole = environment(database, extra)
    if fresh or not can_fork(command):
        return _in_new_pipe(command, folder, whole)
    out, err = Pipe(), Pipe()
    with open(os.devnull) as nothing:
        streams = ((stdin or nothing).fileno(), out.end, err.end)
        process = fork(command, folder=folder, environment=whole, streams=streams)
    out.read()
    err.read()
    return Ran(wait_for_end(process, TIMEOUT_SECONDS), out.text(), err.text())


def _in_new_pipe(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Ran:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        stdin=subprocess.DEVNULL,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def in_terminal(
    command: Sequence[str], *, folder: Path, database: str | None = None, extra: Mapping[str, str] | None = None
) -> Ran:
    with Terminal(command, folder=folder, database=database, extra=extra) as terminal:
        return terminal.wait()


class Terminal:
    """A program on a pty, whose screen is read while it runs."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        database: str | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        # A session with the pty as its controlling terminal, so that Ctrl-C arrives as in a real one.
        whole = environment(database, extra)
        self.process = fork(command, folder=folder, environment=whole, streams=(slave, slave, slave))
        os.close(slave)
        self._screen = bytearray()
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self._reader.join(TIMEOUT_SECONDS)
        os.close(self._master)

    @property
    def pid(self) -> int:
        pid = self.process.pid
        assert pid is not None
        return pid

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65_536)
            except OSError:  # Linux says so when the last writer has gone
                data = b""
            with self._changed:
                self._screen += data
                self._changed.notify_all()
            if not data:
                return

    def wait_for(self, text: str) -> None:
        """Until the program has written it."""
        with self._changed:
            seen = self._changed.wait_for(lambda: text in self._text(), TIMEOUT_SECONDS)
        assert seen, f"{text!r} never appeared in: {self._text()}"

    def wait(self) -> Ran:
        code = wait_for_end(self.process, TIMEOUT_SECONDS)
        self._reader.join(TIMEOUT_SECONDS)
        return Ran(code, self._text())

    def _text(self) -> str:
        return self._screen.decode("utf-8", "replace")
