"""The program `holdfast`, and scripts, in processes forked from one that has imported Holdfast already.

Starting Python and importing everything takes a quarter of a second of a processor, and tests call programs hundreds of
times. What is imported beforehand is what every call imports first, and other people's packages: the module of a
command is imported by the call itself, as in a new process. Whether a process starts at all is asked in `test_main`.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import asyncpg  # noqa: F401 - imported for those who are forked
import rich.progress
import rich.table  # noqa: F401

from holdfast.cli.main import main

HOLDFAST = (sys.executable, "-m", "holdfast.cli")
ROOT = Path(__file__).parent.parent
CONTEXT = multiprocessing.get_context("forkserver")
# The server is one for all who fork; the first to ask starts it.
# Each child imports what is `__main__` here, which is pytest if it does not run in several processes.
CONTEXT.set_forkserver_preload([__name__, "tests.models.operation.participant", "pytest"])


class _Descriptor:
    """A file descriptor that arrives in another process under another number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (DupFd(self._number),)


def _received(sent: Any) -> int:
    number: int = sent.detach()
    return number


def can_fork(command: Sequence[str]) -> bool:
    """Whether it is the program, or a script."""
    return tuple(command[: len(HOLDFAST)]) == HOLDFAST or (command[0] == sys.executable and command[1].endswith(".py"))


def fork(
    command: Sequence[str], *, folder: Path, environment: Mapping[str, str], streams: tuple[int, int, int]
) -> BaseProcess:
    """A process that runs a command that it can, and whose descriptors 0 to 2 are these; it leads a session."""
    given = (list(command), str(folder), dict(environment), [_Descriptor(number) for number in streams])
    process = CONTEXT.Process(target=_run, args=given, daemon=True)
    process.start()
    return process


def wait_for_end(process: BaseProcess, seconds: float) -> int:
    """Its exit code; one that goes on for too long is killed."""
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TimeoutError(f"the program did not end within {seconds} s")
    return process.exitcode


class Pipe:
    """What is written into `end`, read while it is written."""

    def __init__(self) -> None:
        self._begin, self.end = os.pipe()
        self._text = b""
        self._reader = threading.Thread(target=self._read, daemon=True)

    def read(self) -> None:
        """Begin to read, once the writer has its own copy of the end."""
        os.close(self.end)
        self._reader.start()

    def _read(self) -> None:
        with open(self._begin, "rb") as file:
            self._text = file.read()

    def text(self) -> str:
        self._reader.join()
        return self._text.decode().replace("\r\n", "\n")


def _run(command: list[str], folder: str, environment: dict[str, str], streams: list[int]) -> None:
    os.setsid()
    for number, given in enumerate(streams):
        os.dup2(given, number)
        os.close(given)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as the process lives
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    is_script = command[1].endswith(".py")
    sys.argv = command[1:] if is_script else ["holdfast", *command[len(HOLDFAST) :]]
    first = str(Path(command[1]).parent) if is_script else folder
    sys.path[:] = [first, *(path for path in sys.path if path != str(ROOT))]
    if is_script:
        runpy.run_path(command[1], run_name="__main__")
    else:
        main()
