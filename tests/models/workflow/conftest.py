"""`rig`: an app with workflows on a guarded ledger with a virtual clock, on each kind of store."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.testing.stores import Stores
from tests.models.workflow.kit import Rig

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where the system has a place for that: nothing here loses the machine's memory."""
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


@pytest_asyncio.fixture
async def rig(stores: Stores) -> AsyncIterator[Rig]:
    made = Rig(stores)
    try:
        yield made
        await made.check_journals()
    finally:
        await made.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bodies here do on purpose what a replay would do otherwise."""
    for item in items:
        if "tests/models/workflow/" in item.nodeid:
            item.add_marker(pytest.mark.filterwarnings("ignore::holdfast.models.workflow.lint.DeterminismWarning"))
