"""The worker of a workflow that owns an operation is a real process, and is really killed or stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast import Handle
from holdfast.models.operation.data import OperationState
from holdfast.models.workflow.operation import GIVEN_UP, LOST
from holdfast.operation import CallCallback, Ledger
from holdfast.store import open_store
from holdfast.testing.faults import on_store
from holdfast.testing.processes import Process, until
from tests.models.workflow.operation_program import TIMING, app, nightly

ROOT = Path(__file__).parents[3]
LEASE_SECONDS = "1.0"


class Stage:
    """A run of the program's workflow, and the processes that work on it."""

    def __init__(self, folder: Path, handle: Handle[str]) -> None:
        self.folder = folder
        self.handle = handle
        self.notes = folder / "notes"
        self.ledger = Ledger(folder / "operations", participant_id="other", timing=TIMING)
        self.workers: list[Process] = []

    def start_worker(self) -> Process:
        worker = Process(
            *("-m", "tests.models.workflow.operation_program", LEASE_SECONDS),
            folder=ROOT,
            log=self.folder / f"worker-{len(self.workers)}.log",
            environment={"HOLDFAST_DATABASE": str(self.folder / "ledger.db")},
        )
        self.workers.append(worker)
        return worker

    async def operation_id(self) -> str:
        async def is_noted() -> bool:
            return self.notes.exists() and self.notes.read_text().endswith("\n")

        await until(is_noted, "the block to be entered")
        return self.notes.read_text().splitlines()[0]

    async def result(self) -> str:
        self.notes.with_name("notes.gate").touch()

        async def is_over() -> bool:
            return (await self.handle.describe()).status.is_terminal

        await until(is_over, "the run to end")
        assert set(self.notes.read_text().splitlines()) == {await self.operation_id()}  # every replay gives the same id
        return await self.handle.result()


@pytest_asyncio.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    store = await open_store(str(tmp_path / "ledger.db"))
    async with on_store(app, store):
        made = Stage(tmp_path, await nightly.start(str(tmp_path / "operations"), str(tmp_path / "notes")))
        try:
            yield made
        finally:
            for worker in made.workers:
                worker.kill()
    await store.close()


@pytest.fixture(autouse=True)
def show_output(stage: Stage) -> Iterator[None]:
    yield
    print("\n".join(worker.output() for worker in stage.workers))


async def test_an_undisturbed_worker_completes_the_operation(stage: Stage) -> None:
    stage.start_worker()
    operation_id = await stage.operation_id()
    assert await stage.result() == "completed"
    assert stage.ledger.read(operation_id).state is OperationState.COMPLETED


async def test_a_killed_worker_is_a_crash_to_the_others_and_the_resumed_run_hears_of_it(stage: Stage) -> None:
    """SIGKILL. Every participant learns of it, cleanup runs once, history is kept; then the run goes on elsewhere."""
    cleaned: list[str] = []
    first = stage.start_worker()
    async with stage.ledger as ledger:
        operation = await ledger.join_operation(await stage.operation_id())
        call = await operation.start_call(CallCallback[object](on_cleanup=lambda: cleaned.append("other")))
        first.kill()
        info = await operation.wait_failed()
        assert info.reason == f"crash of nightly (pid {first.pid})"
        await operation.wait_cleaned_up()
        assert call.call_id not in info.crashed_call_ids
    assert cleaned == ["other"]
    stage.start_worker()
    assert await stage.result() == f"failed: {info.reason}"
    assert stage.ledger.read(info.operation_id).state is OperationState.FAILED


async def test_a_killed_worker_with_nobody_else_is_cleaned_up_by_the_resumed_run(stage: Stage) -> None:
    first = stage.start_worker()
    operation_id = await stage.operation_id()
    first.kill()
    stage.start_worker()
    assert await stage.result() == f"failed: {LOST}"
    assert stage.ledger.operations() == {}
    data = stage.ledger.read(operation_id)
    assert (data.state, data.failure_reason) == (OperationState.FAILED, LOST)


async def test_a_worker_that_is_told_to_stop_gives_the_operation_up_at_once(stage: Stage) -> None:
    """SIGTERM: the others need not wait for a silent heart."""
    first = stage.start_worker()
    operation_id = await stage.operation_id()
    assert await first.terminate() == 0
    assert stage.ledger.read(operation_id).failure_reason == GIVEN_UP
    stage.start_worker()
    assert await stage.result() == f"failed: {GIVEN_UP}"
    assert stage.ledger.operations() == {}
