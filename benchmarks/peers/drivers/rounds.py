"""What every driver shares: its arguments, the warm-up, the one measured round, and the line it prints.

Nothing but the standard library: this is imported in the environments of the peers too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

now = time.monotonic  # one clock for every process of the machine
ROOT = Path(__file__).resolve().parents[3]
WARM_UP_SHARE = 10
START_MANY = 2_000
SETTLE_SECONDS = 0.5
LEASE_OVER_SECONDS = 0.5  # so long after its time a lease has run out for sure


@dataclass
class Arguments:
    """What a driver is asked to do; a setting that a system does not have is ignored by its driver."""

    workload: str
    url: str
    n: int
    repeats: int = 1
    in_flight: int = 100
    workers: int = 2
    poll_seconds: float = 0.0
    batch: int = 100
    lease_seconds: float = 2.0

    @classmethod
    def read(cls) -> Arguments:
        parser = argparse.ArgumentParser()
        parser.add_argument("workload")
        parser.add_argument("--url", required=True)
        parser.add_argument("--n", type=int, required=True)
        parser.add_argument("--repeats", type=int, default=1, help="how often the size is done, one after the other")
        parser.add_argument("--in-flight", type=int, default=100, help="how many run beside each other")
        parser.add_argument("--workers", type=int, default=2, help="w9: worker processes")
        parser.add_argument("--poll-seconds", type=float, default=0.0, help="how often what polls polls")
        parser.add_argument("--batch", type=int, default=100, help="how many jobs a worker fetches at once")
        parser.add_argument(
            "--lease-seconds", type=float, default=2.0, help="w7: how long a dead worker holds its work"
        )
        return cls(**vars(parser.parse_args()))

    def for_role(self, role: str) -> list[str]:
        """The same settings as the arguments of a worker process."""
        given = ["--url", self.url, "--n", str(self.n), "--in-flight", str(self.in_flight)]
        given += ["--poll-seconds", str(self.poll_seconds), "--batch", str(self.batch)]
        return [role, *given, "--lease-seconds", str(self.lease_seconds)]


@dataclass
class Once:
    """One round: `units` in `seconds`, and how long single ones took where that is known."""

    units: int
    seconds: float
    latencies: list[float] = field(default_factory=list)


def measure(given: Arguments, once: Callable[[int], Once], *, warm_up: bool = True) -> None:
    """A tenth of the size first, then the round that counts, printed as JSON: the size, as often as is asked."""
    if warm_up:
        once(max(1, given.n // WARM_UP_SHARE))
    found = [once(given.n) for _ in range(given.repeats)]
    waits = sorted(wait for each in found for wait in each.latencies)
    line = {
        "units": sum(each.units for each in found),
        "seconds": sum(each.seconds for each in found),
        "p50_ms": _at(waits, 0.5),
        "p99_ms": _at(waits, 0.99),
    }
    print(json.dumps(line), flush=True)


async def two_at_a_time(n: int, start: Callable[[int, int], Awaitable[None]]) -> None:
    """`start(first, count)` in batches of at most 2,000: one is made ready while the store writes the other."""
    size = min(START_MANY, max(1, (n + 1) // 2))
    batches = iter(range(0, n, size))

    async def start_some() -> None:
        for first in batches:
            await start(first, min(size, n - first))

    await asyncio.gather(start_some(), start_some())


def _at(values: list[float], share: float) -> float | None:
    return round(values[min(len(values) - 1, int(len(values) * share))] * 1e3, 3) if values else None


def spawn(module: str, arguments: list[str], **variables: str) -> subprocess.Popen[str]:
    """A further process of a driver, in the same environment; its first line says that it works."""
    command = [sys.executable, "-m", module, *arguments]
    environment: Mapping[str, str] = {**os.environ, **variables}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise SystemExit(f"a process of the driver ended before it worked (exit code {process.wait()})")
    return line


def end(process: subprocess.Popen[str]) -> None:
    """As a crash would."""
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextlib.contextmanager
def workers(module: str, arguments: list[str], count: int, settle_seconds: float | None = None) -> Iterator[None]:
    """So many worker processes, up and waiting for work."""
    processes = [spawn(module, arguments) for _ in range(count)]
    try:
        for process in processes:
            first_line(process)
        # Their first look at an empty queue is not part of the round.
        time.sleep(SETTLE_SECONDS if settle_seconds is None else settle_seconds)
        yield
    finally:
        for process in processes:
            end(process)


def marks(path: Path) -> list[float]:
    """The times that processes wrote into a file, one a line."""
    return [float(line) for line in path.read_text().split()] if path.exists() else []


def await_marks(path: Path, count: int) -> float:
    while len(found := marks(path)) < count:
        time.sleep(0.002)
    return found[count - 1]


def mark(path: str) -> None:
    with open(path, "a") as file:
        file.write(f"{now()}\n")


def leave() -> None:
    """Out, whatever threads a library left running."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
