"""A participant is killed; the other one finds out, cleans up, and the history is kept.

    python examples/operation_crash.py

Uses the fast constants, so that the four cleanup phases pass in about three seconds instead of thirty.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from holdfast.operation import CallCallback, Ledger, OperationFailedError, Timing


def work_for_ever(folder: str, operation_id: str) -> None:
    """The other process: a plain script on the blocking facade, with a temporary file of its own."""
    ledger = Ledger(folder, participant_id="worker", timing=Timing.fast())
    with (
        ledger.sync as blocking,
        blocking.join_operation(operation_id) as operation,
        operation.start_call(description="long work") as call,
    ):
        scratch = Path(folder) / "scratch.tmp"
        scratch.write_text("half-finished")
        call.add_temp_resource(scratch)
        print("ready", flush=True)
        signal.pause()


async def coordinate(folder: Path) -> None:
    cleaned: list[str] = []
    async with Ledger(folder, participant_id="boss", timing=Timing.fast()) as ledger:
        operation = await ledger.create_operation(description="doomed")
        await operation.start_call(CallCallback[object](on_cleanup=lambda: cleaned.append("boss")))
        command = [sys.executable, __file__, str(folder), operation.operation_id]
        worker = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert worker.stdout is not None
        await worker.stdout.readline()
        print(f"killing the worker, process {worker.pid}")
        os.kill(worker.pid, signal.SIGKILL)
        await worker.wait()
        try:
            await operation.wait_for_completion(asyncio.Event().wait)
        except OperationFailedError as error:
            print(f"noticed: {error.info.reason}")
            print(f"crashed calls: {', '.join(error.info.crashed_call_ids)}")
        await operation.wait_over()
        backup = ledger.base_path / "backup" / operation.operation_id
    print(f"cleaned up by {', '.join(cleaned)}; scratch file gone: {not (folder / 'scratch.tmp').exists()}")
    print((backup / "operation.log").read_text(), end="")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-crash-") as folder:
        asyncio.run(coordinate(Path(folder)))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        work_for_ever(sys.argv[1], sys.argv[2])
    else:
        main()
