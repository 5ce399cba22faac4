"""A worker process for workloads with several of them: `python -m benchmarks.worker [concurrency [lease_seconds]]`.

Its first line is the moment before it connects, the second says that it works.
"""

from __future__ import annotations

import asyncio
import sys

from benchmarks.definitions import app
from benchmarks.loops import run
from benchmarks.peers.drivers.rounds import now
from holdfast.cli.worker import collect_seldom


async def main(concurrency: int, lease_seconds: float) -> None:
    print(now(), flush=True)
    async with app, app.worker(concurrency=concurrency, lease_seconds=lease_seconds):
        print("working", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    collect_seldom()  # as `holdfast worker` does
    run(main(int((sys.argv[1:] or ["200"])[0]), float((sys.argv[2:] or ["2"])[0])))
