"""What really ran: every run of a step appends one line to a file before it does anything else.

The ledger says what was committed, this says what was begun; the proof holds one against the other. A line is one
`write` to a file opened for appending, so that it is there in whole even if the process is killed right after.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one step of one execution."""

    execution: str
    step: str
    attempt: int
    pid: int


class AuditLog:
    """The writing end, one a worker process."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._pid = os.getpid()

    def note(self, execution: str, step: str, attempt: int) -> None:
        os.write(self._descriptor, f"{execution} {step} {attempt} {self._pid}\n".encode())

    def close(self) -> None:
        os.close(self._descriptor)


class AuditReader:
    """The reading end: `read` adds what was appended since the last time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.runs: list[Run] = []

    def read(self) -> list[Run]:
        """The runs that are new."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        fresh = [_run_of(line) for line in whole.decode().splitlines()]
        self.runs += fresh
        return fresh


def _run_of(line: str) -> Run:
    execution, step, attempt, pid = line.split(" ")
    return Run(execution, step, int(attempt), int(pid))
