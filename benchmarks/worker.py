"""A worker process for workloads with several of them: `python -m benchmarks.worker [concurrency]`."""

from __future__ import annotations

import asyncio
import sys

from benchmarks.definitions import app
from benchmarks.loops import run


async def main(concurrency: int) -> None:
    async with app, app.worker(concurrency=concurrency, lease_seconds=2.0):
        print("working", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
