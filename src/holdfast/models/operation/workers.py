"""Worker processes as spawned calls: the body of `exec_file_result_worker` and `exec_stdio_worker`.

Output goes to unnamed temporary files, not pipes: a grandchild that keeps a pipe open cannot hang the call,
and a talkative worker cannot fill memory. The worker finds the operation in its environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from .call import SpawnedCall
from .callbacks import Maybe, resolve
from .errors import WorkerFailedError
from .participation import Participation
from .timing import TIMING_VARIABLE

T = TypeVar("T")
LEDGER_VARIABLE = "HOLDFAST_LEDGER"
OPERATION_VARIABLE = "HOLDFAST_OPERATION"
STDERR_TAIL_BYTES = 4_000


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, and who hears of its exit code."""

    executable: str
    arguments: Sequence[str] = ()
    env: Mapping[str, str] | None = None
    cwd: str | os.PathLike[str] | None = None
    on_exit: Callable[[int], Maybe[None]] | None = None


class Child:
    """Signals a child without waiting for it: asyncio's own `send_signal` may reap a child that has just died, and
    its exit code is then lost to the event loop, which reports 255."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def send_signal(self, signal: int) -> None:
        if self._process.returncode is not None:
            raise ProcessLookupError(f"process {self._process.pid} has ended")
        os.kill(self._process.pid, signal)

    def signal_if_alive(self, signal: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.send_signal(signal)


def worker_environment(part: Participation, env: Mapping[str, str] | None) -> dict[str, str]:
    """The given environment (or this process's own), where the operation is, and its pace."""
    return {
        **(os.environ if env is None else env),
        LEDGER_VARIABLE: str(part.world.base_path),
        OPERATION_VARIABLE: part.operation_id,
        TIMING_VARIABLE: part.world.timing.render(),
    }


async def run_file_result_worker(
    part: Participation,
    call: SpawnedCall[T],
    command: Command,
    result_path: Path,
    deserializer: Callable[[str], T],
    result_renamed: bool,
) -> T:
    """Run until the process exits; with `result_renamed`, until the result file appears (ruling C4)."""
    stale = _identity(result_path)  # a file left by an earlier run is no result
    with tempfile.TemporaryFile() as output:
        process = await _start(part, command, stdout=output, stderr=output)
        call.attach_process(Child(process))
        try:
            exited = asyncio.ensure_future(process.wait())
            while not exited.done():
                poll = asyncio.ensure_future(part.world.time.sleep(part.world.timing.result_poll_ms / 1000))
                await asyncio.wait({exited, poll}, return_when=asyncio.FIRST_COMPLETED)
                poll.cancel()
                if result_renamed and _identity(result_path) not in (None, stale):
                    break  # renamed into place, so it is whole
        finally:
            exit_code = await _end(part, process, command)
            call.detach_process()
        if _identity(result_path) in (None, stale):
            raise _failure(command, exit_code, output, f"without writing its result file {result_path}")
        if exit_code != 0 and not result_renamed:
            raise _failure(command, exit_code, output, "")
        return deserializer(_read_text(result_path))


async def run_stdio_worker(
    part: Participation, call: SpawnedCall[T], command: Command, deserializer: Callable[[str], T]
) -> T:
    """Run to the end; what it printed on stdout is the result."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = await _start(part, command, stdout=stdout, stderr=stderr)
        call.attach_process(Child(process))
        try:
            await process.wait()
        finally:
            exit_code = await _end(part, process, command)
            call.detach_process()
        if exit_code != 0:
            raise _failure(command, exit_code, stderr, "")
        stdout.seek(0)
        return deserializer(stdout.read().decode("utf-8"))


async def stop_process(part: Participation, process: asyncio.subprocess.Process) -> int:
    """SIGTERM, a grace period, SIGKILL; the exit code either way."""
    exited = asyncio.ensure_future(process.wait())
    grace = asyncio.ensure_future(part.world.time.sleep(part.world.timing.stop_grace_ms / 1000))
    if process.returncode is None:
        Child(process).signal_if_alive(signal.SIGTERM)
    await asyncio.wait({exited, grace}, return_when=asyncio.FIRST_COMPLETED)
    grace.cancel()
    if not exited.done():
        Child(process).signal_if_alive(signal.SIGKILL)
    return await exited


async def _start(
    part: Participation, command: Command, stdout: IO[bytes], stderr: IO[bytes]
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            command.executable,
            *command.arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=command.cwd,
            env=worker_environment(part, command.env),
        )
    except OSError as error:
        raise WorkerFailedError(f"worker {command.executable} could not be started: {error}") from error


async def _end(part: Participation, process: asyncio.subprocess.Process, command: Command) -> int:
    exit_code = process.returncode
    if exit_code is None:  # cancelled, or the result came first
        exit_code = await stop_process(part, process)
    if command.on_exit is not None:
        await resolve(command.on_exit(exit_code))
    return exit_code


def _failure(command: Command, exit_code: int, output: IO[bytes], what: str) -> WorkerFailedError:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - STDERR_TAIL_BYTES))
    tail = output.read().decode("utf-8", "replace").strip()
    how = f"was killed by {_signal_name(-exit_code)}" if exit_code < 0 else f"exited with code {exit_code}"
    message = f"worker {command.executable} {how} {what}".rstrip()
    return WorkerFailedError(f"{message}; its last output: {tail or '(none)'}", exit_code, tail)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _read_text(path: Path) -> str:
    return path.read_text("utf-8")


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
