"""A participant in a process of its own, for `test_processes`. It notes what happens to it, a line each."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.operation import CallCallback, Ledger, Operation, OperationError, OperationFailedInfo, Timing


@dataclass(frozen=True)
class Plan:
    """What one participant does: its calls are open until the file `{notes}/{name}.go` appears."""

    base: Path
    notes: Path
    name: str
    timing: Timing
    operation_id: str = "op"
    create: bool = False
    calls: int = 1
    fail_on_crash: bool = True
    fallback: str | None = None
    resource: Path | None = None
    slow_cleanup: bool = False
    abort: bool = False


class Notes:
    """Lines that survive the death of the process that wrote them."""

    def __init__(self, plan: Plan) -> None:
        self.path = plan.notes / plan.name

    def add(self, line: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{line}\n")


def participate(plan: Plan) -> None:
    logging.disable(logging.CRITICAL)
    asyncio.run(_participate(plan))


async def _participate(plan: Plan) -> None:
    notes = Notes(plan)
    ledger = Ledger(plan.base, participant_id=plan.name, timing=plan.timing, temp_roots=[plan.base.parent])
    opening = (
        ledger.create_operation(operation_id=plan.operation_id)
        if plan.create
        else ledger.join_operation(plan.operation_id)
    )
    operation = await opening
    done = asyncio.Event()

    async def work() -> str:
        await done.wait()
        return "worked"

    spawned = [
        operation.spawn_call(work, _callback(plan, notes), fail_on_crash=plan.fail_on_crash) for _ in range(plan.calls)
    ]
    await _until(lambda: all(ledger.read(plan.operation_id).frame(call.call_id) for call in spawned), operation)
    if plan.resource is not None:
        await spawned[0].add_temp_resource(str(plan.resource))
    notes.add(f"ready {os.getpid()}")
    await _until(lambda: _exists(plan.notes / f"{plan.name}.go"), operation)
    if plan.abort:
        await operation.abort("as planned")
    done.set()
    result = await operation.sync(spawned)
    for call in spawned:
        notes.add(f"result {call.result if call.is_success else type(call.error).__name__}")
    if operation.failure is None:
        try:
            await (operation.complete() if plan.create else operation.leave())
        except OperationError as error:
            notes.add(f"refused {type(error).__name__}")
    else:
        await operation.wait_over()
    notes.add(f"over {result.operation_failed}")


def _callback(plan: Plan, notes: Notes) -> CallCallback[str]:
    async def on_cleanup() -> None:
        notes.add("cleanup")

    def on_operation_failed(info: OperationFailedInfo) -> None:
        notes.add(f"failed {' '.join(sorted(info.crashed_call_ids))}".strip())

    def on_call_crashed() -> str | None:
        notes.add("crashed")
        return plan.fallback

    return CallCallback(
        on_cleanup=on_cleanup,
        on_completion=lambda result: notes.add(f"completed {result}"),
        on_call_crashed=on_call_crashed,
        on_operation_failed=on_operation_failed,
    )


async def _until(condition: Callable[[], bool], operation: Operation) -> None:
    while not condition() and operation.failure is None:  # noqa: ASYNC110  (the conditions are files)
        await asyncio.sleep(0.1)


def _exists(path: Path) -> bool:
    return path.exists()
