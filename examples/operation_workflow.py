"""A workflow owns an operation: other processes take part in it, and the history says how it ended.

    python examples/operation_workflow.py

The worker that runs the workflow beats for the operation while the block lasts. Each task joins by the id and runs a
program as a call of its own. In the second run a program is killed: the block is left by an error, which aborts the
operation, so that whoever else takes part cleans up.

It prints:

    north and south: completed
    west: failed, its owner left by TaskFailed
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from holdfast import App, Context, Ledger, RetryPolicy, TaskFailed, current
from holdfast.operation import Timing

TIMING = Timing.fast()  # a cleanup in less than a second instead of twenty; leave it out in earnest
KILLED = "import os; os.kill(os.getpid(), 9)"


place = tempfile.TemporaryDirectory(prefix="holdfast-import-")
app = App("import", store=str(Path(place.name) / "ledger.db"))


@app.task(retry=RetryPolicy(max_attempts=1))
async def load(folder: str, operation_id: str, part: str) -> None:
    join = current().operation(folder, join=operation_id, participant_id=f"load-{part}", timing=TIMING)
    async with join as operation:
        program = KILLED if part == "west" else f"print({part!r})"
        await operation.exec_stdio_worker(sys.executable, ["-c", program], deserializer=str.strip).wait()


@app.workflow
async def import_parts(ctx: Context, folder: str, parts: list[str]) -> str:
    operation = ctx.operation(folder, description="Import", timing=TIMING)
    try:
        async with operation:
            for part in parts:
                await load(folder, operation.id, part)
    except TaskFailed as error:
        ctx.log("the import is given up: %s", error)
    return operation.id


async def main() -> None:
    ledger = Ledger(Path(place.name) / "operations")
    async with app:
        for parts in (["north", "south"], ["west"]):
            data = ledger.read(await app.run(import_parts, str(ledger.base_path), parts))
            end = data.state.value if data.failure_reason is None else f"{data.state.value}, {data.failure_reason}"
            print(f"{' and '.join(parts)}: {end}")


if __name__ == "__main__":
    with place:
        asyncio.run(main())
