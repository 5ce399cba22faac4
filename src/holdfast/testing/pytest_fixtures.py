"""Fixtures of a guarded store on a virtual clock, for SQLite and PostgreSQL alike: a pytest plugin.

- `backend`: "sqlite", then "postgres"; a test that uses any fixture here runs once on each.
- `stores`: the ledger, its clock and further store objects on it. When the test ends, `audit` looks it over.
- `store`: the open store itself.
- `make_stores`: the same, unopened, by backend.

`postgres_url` is expected from the test suite's own conftest. The fixtures run in the loop of a test as pytest-asyncio
has it by default; with `asyncio_default_fixture_loop_scope = "session"` and the same for tests, connections are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from holdfast.store.base import Store
from holdfast.testing.audit import audit
from holdfast.testing.stores import PostgresStores, SqliteStores, Stores

if TYPE_CHECKING:
    from holdfast.testing.kept import KeptConnections


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def postgres_schemas(postgres_url: str) -> Iterator[str]:
    """The URL to make schemas at; they are dropped at the end, for the server may outlive the run."""
    yield postgres_url
    asyncio.run(PostgresStores.drop_all())


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kept_connections() -> AsyncIterator[KeptConnections]:
    """What tests that share a loop give back and take again."""
    from holdfast.testing.kept import KeptConnections

    kept = KeptConnections()
    kept.open()
    yield kept
    await kept.close()


@pytest.fixture
def make_stores(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Stores]:
    """Unopened stores by the name of their backend; for tests that run a loop of their own."""

    def make(backend: str) -> Stores:
        if backend == "sqlite":
            return SqliteStores(tmp_path)
        return PostgresStores(request.getfixturevalue("postgres_schemas"))

    return make


@pytest_asyncio.fixture  # in the loop that the suite gives its tests
async def stores(
    backend: str, make_stores: Callable[[str], Stores], kept_connections: KeptConnections
) -> AsyncIterator[Stores]:
    before = asyncio.all_tasks()
    made = make_stores(backend)
    if isinstance(made, PostgresStores):
        made = PostgresStores(made.url, kept=kept_connections)
    try:
        await made.open()
        yield made
        faults = await audit(made.store)
    finally:
        await made.close()
        await _end_tasks(asyncio.all_tasks() - before)
    assert not faults, "the test left a ledger that breaks the rules: " + "; ".join(faults)


async def _end_tasks(left: set[asyncio.Task[Any]]) -> None:
    """As the end of a loop of its own would end what a test left behind."""
    tasks = left - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def store(stores: Stores) -> Store:
    return stores.store
