"""Fixtures for every test: one PostgreSQL server a pytest process, started when the first test asks for it.

`HOLDFAST_TEST_DATABASE` points the tests at another server. A test that stops or kills a server starts a
`PostgresServer` of its own. Creating a cluster takes half a second, so parallel workers do not share one.

Ledgers and clusters of tests are files in memory where the machine has room for them: no test asks what survives a
loss of power, and thousands of ledgers wait for no disk.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from holdfast.testing.postgres import PostgresServer

# `backend`, `stores` and `store`: both kinds of store, on a virtual clock.
pytest_plugins = ["holdfast.testing.pytest_fixtures"]

# No test is timed: a busy machine is no failure.
settings.register_profile("holdfast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("holdfast")

# Inherited by parallel workers and by the programs that tests start. A container has 64 MB there by default.
MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 * 1024**3:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# A shell starts what runs in its background with SIGINT ignored, and `nohup` with SIGHUP; workers in tests, and
# programs that tests interrupt, would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Thousands of tests and their modules stay to the end: no collection has to look through them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The private server of this pytest process."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest) -> str:
    """The database to test against; tests keep apart by schema (or a database of their own)."""
    given = os.environ.get("HOLDFAST_TEST_DATABASE")
    if given:
        return given
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url()
