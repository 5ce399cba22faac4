"""A build shared by worker processes: the initiator starts them, waits with an eye on the operation, completes it.

    python examples/operation_build.py

Each worker is any program; here each is this file again. Kill one while it runs and the build reports it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from holdfast.operation import CallCallback, Ledger, LogLevel, OperationFailedInfo

PARTS = ("compiler", "library", "documentation")


def build_part(part: str, result_path: Path) -> None:
    """What a worker process does: some work, and its result in a file."""
    result_path.write_text(json.dumps({"part": part, "size": len(part) * 1000}))


async def coordinate_build(folder: Path) -> dict[str, int]:
    async with Ledger(folder / "ledger", participant_id="build") as ledger:
        async with ledger.create_operation(description="Build everything") as operation:
            scratch = folder / "scratch"
            scratch.mkdir()
            async with operation.start_call(
                CallCallback[object](on_cleanup=lambda: print("cleaning up the build")), description="Main task"
            ) as call:
                await call.add_temp_resource(scratch)  # deleted when the call ends, however it ends
                workers = [
                    operation.exec_file_result_worker(
                        sys.executable,
                        [__file__, part, str(scratch / part)],
                        result_file_path=scratch / part,
                        deserializer=json.loads,
                        description=f"build {part}",
                    )
                    for part in PARTS
                ]

                async def tell(info: OperationFailedInfo) -> None:
                    print(f"the build failed: {info.reason}")

                result = await operation.sync(workers, on_operation_failed=tell)
                if not result.all_succeeded:
                    await operation.log(f"{len(result.failed_calls)} workers failed", level=LogLevel.ERROR)
                    raise RuntimeError(str(result.failed_calls[0].error))
                await operation.log(f"{len(workers)} parts built")
        print(f"history: {ledger.base_path}/backup/{operation.operation_id}")
        return {worker.result["part"]: worker.result["size"] for worker in workers}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-build-") as folder:
        built = asyncio.run(coordinate_build(Path(folder)))
    for part, size in built.items():
        print(f"{part:>15} {size:>6} bytes")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        build_part(sys.argv[1], Path(sys.argv[2]))
    else:
        main()
