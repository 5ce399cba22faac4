"""What the tests of operations share: a virtual event loop, simulated processes, a disk with faults, and checks.

A `SimProcess` is a ledger with clocks and a disk of its own on one virtual loop, so that the seed's real
constants pass in milliseconds. Stopping it stops its clock; killing it also takes its disk away.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import selectors
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeVar

from holdfast.models.operation.data import LedgerData, OperationState, decode
from holdfast.models.operation.filesystem import LocalFileSystem
from holdfast.models.operation.transactor import InlineTransactor
from holdfast.operation import CallCallback, Ledger, OperationFailedInfo, Timing

R = TypeVar("R")
START_US = 1_769_000_000_000_000
SECOND_US = 1_000_000
SEED_TIMING = Timing()


# --- virtual time ---------------------------------------------------------------------------------------


class _VirtualSelector(selectors.DefaultSelector):
    """Instead of waiting, moves the loop's clock to when something is due."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("everything waits for ever: no timer is set and nothing can wake the loop")
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)
        self._clock_resolution = 1e-6
        self.unexpected: list[str] = []
        self.set_exception_handler(self._note)

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """An error that nobody took is a bug, except the death of a simulated process."""
        if not isinstance(context.get("exception"), Killed):
            self.unexpected.append(f"{context.get('message')}: {context.get('exception')!r}")

    def time(self) -> float:
        return self._virtual.now


def run_virtual(main: Callable[[], Coroutine[object, None, R]]) -> R:
    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(main())
    assert loop.unexpected == []
    return result


class ProcessTime:
    """The clocks of one simulated process; its wall clock may be off by `offset_seconds`."""

    def __init__(self, offset_seconds: float = 0) -> None:
        self.offset_us = int(offset_seconds * SECOND_US)
        self._running = asyncio.Event()
        self._running.set()

    def now_us(self) -> int:
        return START_US + self.monotonic_us() + self.offset_us

    def monotonic_us(self) -> int:
        return round(asyncio.get_running_loop().time() * SECOND_US)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._running.wait()

    def stop(self) -> None:
        self._running.clear()

    def resume(self) -> None:
        self._running.set()


# --- a disk with faults ---------------------------------------------------------------------------------


class Killed(BaseException):
    """The simulated process died at this point."""


class ScriptedFileSystem(LocalFileSystem):
    """The real disk, with every step counted and any step made to fail."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.fail: Callable[[int, str, Path], BaseException | None] = lambda number, step, path: None
        self.tear = False
        self.dead = False
        self.recorded: list[tuple[str, LedgerData]] = []
        self.on_record: Callable[[LedgerData], None] = lambda data: None

    def _step(self, step: str, path: Path) -> None:
        if self.dead:
            raise Killed
        self.steps.append(step)
        error = self.fail(len(self.steps), step, path)
        if isinstance(error, Killed):
            self.dead = True
        if error is not None:
            raise error

    def flush_to_disk(self, descriptor: int) -> None:
        """The tests kill processes, not machines, so the page cache is disk enough."""

    def read(self, path: Path) -> bytes | None:
        self._step("read", path)
        return super().read(path)

    def write_new(self, path: Path, content: bytes) -> None:
        try:
            self._step("write", path)
        except BaseException:
            if self.tear:  # half of it reached the disk
                super().write_new(path, content[: len(content) // 2])
            raise
        super().write_new(path, content)

    def append(self, path: Path, content: bytes) -> None:
        self._step("append", path)
        super().append(path, content)

    def replace(self, source: Path, target: Path) -> None:
        self._step("rename", target)
        super().replace(source, target)
        if target.name.endswith(".operation.json"):
            operation_id = target.name.removesuffix(".operation.json")
            data = decode(target.read_bytes(), operation_id)
            self.recorded.append((operation_id, data))
            self.on_record(data)

    def unlink(self, path: Path) -> None:
        self._step("unlink", path)
        super().unlink(path)

    def make_folder(self, path: Path) -> None:
        self._step("mkdir", path)
        super().make_folder(path)

    def sync_folder(self, path: Path) -> None:
        self._step("sync", path)
        super().sync_folder(path)

    def remove_tree(self, path: Path) -> None:
        self._step("remove", path)
        super().remove_tree(path)

    @contextlib.contextmanager
    def locked(self, path: Path) -> Iterator[None]:
        self._step("lock", path)
        with super().locked(path):
            yield


def disk_full(path: Path) -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", str(path))


# --- simulated processes --------------------------------------------------------------------------------


class SimProcess:
    """One participant with a life of its own."""

    def __init__(
        self, base: Path, name: str, seed: int = 0, offset_seconds: float = 0, timing: Timing = SEED_TIMING
    ) -> None:
        self.name = name
        self.time = ProcessTime(offset_seconds)
        self.fs = ScriptedFileSystem()
        self.ledger = Ledger(
            base,
            participant_id=name,
            participant_pid=1000 + seed,
            timing=timing,
            temp_roots=[base.parent],
            time=self.time,
            rng=Random(f"{name}{seed}"),
            file_system=self.fs,
            transactor=InlineTransactor,
        )

    def kill(self) -> None:
        self.fs.dead = True
        self.time.stop()

    def stop(self) -> None:
        """SIGSTOP."""
        self.time.stop()

    def resume(self) -> None:
        """SIGCONT."""
        self.time.resume()


async def until(condition: Callable[[], bool], limit_seconds: float = 300, step: float = 0.05) -> float:
    """Let virtual time pass until `condition` holds; the virtual time then. Fails past the limit."""
    loop = asyncio.get_running_loop()
    limit = loop.time() + limit_seconds
    while not condition():
        assert loop.time() < limit, f"not within {limit_seconds} virtual seconds"
        await asyncio.sleep(step)
    return loop.time()


# --- what happened --------------------------------------------------------------------------------------


@dataclass
class Told:
    """Counts the callbacks of one call."""

    cleanup: int = 0
    completions: list[object] = field(default_factory=list)
    crashed: int = 0
    failures: list[OperationFailedInfo] = field(default_factory=list)

    def callback(self, fallback: object = None) -> CallCallback[object]:
        def on_cleanup() -> None:
            self.cleanup += 1

        def on_call_crashed() -> object:
            self.crashed += 1
            return fallback

        return CallCallback(
            on_cleanup=on_cleanup,
            on_completion=self.completions.append,
            on_call_crashed=on_call_crashed,
            on_operation_failed=self.failures.append,
        )


def backup_of(base: Path, operation_id: str) -> LedgerData:
    return decode((base / "backup" / operation_id / "operation.json").read_bytes(), operation_id)


def log_of(base: Path, operation_id: str) -> str:
    return (base / "backup" / operation_id / "operation.log").read_text()


def events_of(base: Path, operation_id: str) -> list[str]:
    """The lifecycle events in the human-readable log, in order."""
    words = [line.split("] ", 1)[1].split(" ")[0] for line in log_of(base, operation_id).splitlines()]
    return [word for word in words if word.isupper() and "_" in word]


def in_backup(base: Path, operation_id: str) -> bool:
    return (base / "backup" / operation_id / "operation.json").exists()


def assert_failed_and_backed_up(
    base: Path, operation_id: str, timing: Timing, *, clocks_agree: bool = True
) -> LedgerData:
    """Phases 1, 3 and 4 are recorded in order and in time, all three files are in backup, nothing is left over."""
    data = backup_of(base, operation_id)
    assert data.state is OperationState.FAILED
    assert data.stack == ()
    assert data.temp_resources == ()
    assert data.detection_us is not None
    assert data.removal_us is not None
    if clocks_agree:  # after a takeover the two moments are of two clocks
        assert data.removal_us - data.detection_us >= timing.self_cleanup_window_ms * 1000
    names = {path.name for path in (base / "backup" / operation_id).iterdir()}
    assert names == {"operation.json", "operation.log", "operation.debug.log"}
    assert not [path.name for path in base.iterdir() if path.name.startswith(f"{operation_id}.")]
    events = events_of(base, operation_id)
    assert events.count("OPERATION_FAILED") == 1
    assert events.index("CLEANUP_STARTED") < events.index("OPERATION_FAILED")
    return data
