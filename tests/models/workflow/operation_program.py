"""A program whose workflow owns an operation, for tests that kill its worker: `python -m ... LEASE_SECONDS`.

HOLDFAST_DATABASE says where its ledger is. Inside the block it notes the operation's id and waits for a gate.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from holdfast import App, Context
from holdfast.engine.settings import WorkerSettings
from holdfast.operation import OperationFailedError, Timing

TIMING = replace(Timing.fast(), self_cleanup_window_ms=100, deletion_delay_ms=100)
app = App("operation-program")


@app.task
async def wait_at_gate(notes: str, operation_id: str) -> None:
    _append(Path(notes), f"{operation_id}\n")
    gate = Path(f"{notes}.gate")
    while not _exists(gate):  # noqa: ASYNC110 - a file of another process has no event
        await asyncio.sleep(0.02)


@app.workflow
async def nightly(ctx: Context, folder: str, notes: str) -> str:
    try:
        async with ctx.operation(folder, description="Nightly", timing=TIMING) as operation:
            await wait_at_gate(notes, operation.id)
    except OperationFailedError as error:
        return f"failed: {error.info.reason}"
    return "completed"


def _append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line)


def _exists(path: Path) -> bool:
    return path.exists()


async def main(lease_seconds: float) -> None:
    async with app:
        worker = await app.make_worker(
            WorkerSettings(lease_seconds=lease_seconds, poll_seconds=0.1, drain_seconds=0.1, concurrency=10)
        )
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
