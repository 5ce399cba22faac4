"""For what is particular to SQLite: the fixtures of the conformance suite on SQLite alone, and a file of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.store.sqlite import SqliteStore

BUSY_SECONDS = 0.05  # how long a write waits here for one that never ends


@pytest.fixture
def backend() -> str:
    return "sqlite"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.db"


@pytest_asyncio.fixture
async def impatient(path: Path) -> AsyncIterator[SqliteStore]:
    """An open store on `path`, on the machine's own clock, that soon gives up waiting for others."""
    store = SqliteStore(path, busy_seconds=BUSY_SECONDS)
    await store.open()
    yield store
    await store.close()
