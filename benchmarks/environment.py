"""A fresh ledger for each round, an app on it, and worker processes where a workload wants them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.testing.postgres import PostgresServer


@dataclass
class Round:
    """What one round gave: `count` things in `seconds`; latencies and counters where there are any.

    `cpu_seconds` is what this process used meanwhile: it says more than the clock where the machine is shared.
    """

    count: int
    seconds: float
    cpu_seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    extra: dict[str, float] = field(default_factory=dict)


@contextlib.contextmanager
def store_urls(store: str) -> Iterator[Iterator[str]]:
    """An endless supply of URLs of empty ledgers."""
    if store == "sqlite":
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            yield (str(Path(folder) / f"round-{number}.db") for number in range(10_000))
    elif store == "postgres":
        with PostgresServer(fsync=True) as server:
            yield _databases(server)
    else:
        yield iter(lambda: store, None)


def _databases(server: PostgresServer) -> Iterator[str]:
    for number in range(10_000):
        server.create_database(f"round_{number}")
        yield server.url(f"round_{number}")


@contextlib.asynccontextmanager
async def worker_processes(url: str, count: int, *arguments: str, **variables: str) -> AsyncIterator[list[float]]:
    """So many `python -m benchmarks.worker` on one ledger, and when each began; killed at the end."""
    environment = {**os.environ, "HOLDFAST_DATABASE": url, **variables}
    command = [sys.executable, "-m", "benchmarks.worker", *arguments]
    processes = [
        await asyncio.to_thread(subprocess.Popen, command, env=environment, stdout=subprocess.PIPE)
        for _ in range(count)
    ]
    try:
        began = []
        for process in processes:
            assert process.stdout is not None
            began.append(float(await asyncio.to_thread(process.stdout.readline)))
            await asyncio.to_thread(process.stdout.readline)  # it says when it works
        yield began
    finally:
        for process in processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
