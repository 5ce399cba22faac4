"""A worker process for workloads with several of them: `python -m benchmarks.worker [concurrency]`."""

from __future__ import annotations

import asyncio
import sys

from benchmarks.definitions import app
from benchmarks.loops import run
from holdfast.cli.worker import collect_seldom


async def main(concurrency: int) -> None:
    async with app, app.worker(concurrency=concurrency, lease_seconds=2.0):
        print("working", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    collect_seldom()  # as `holdfast worker` does
    run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
