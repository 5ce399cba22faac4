"""The plugin in a suite of somebody else's, which has the settings that pytest-asyncio has by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_CONFTEST = """
import os
import pytest

pytest_plugins = ["holdfast.testing.pytest_fixtures"]


@pytest.fixture(scope="session")
def postgres_url():
    return os.environ["THE_DATABASE"]
"""
_TESTS = """
import pytest

from holdfast import App
from holdfast.testing.faults import on_store

app = App("theirs")


@app.task
async def double(number: int) -> int:
    return 2 * number


@pytest.mark.asyncio
@pytest.mark.parametrize("number", [1, 2])
async def test_double(stores, number):
    async with on_store(app, stores.store), app.worker():
        assert await (await double.start(number)).result() == 2 * number
"""


@pytest.mark.parametrize("scope", [None, "module"])
def test_the_fixtures_run_in_the_loop_that_a_suite_gives_its_tests(
    postgres_url: str, tmp_path: Path, scope: str | None
) -> None:
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "test_theirs.py").write_text(_TESTS)
    settings = [] if scope is None else [f"asyncio_default_{what}_loop_scope={scope}" for what in ("fixture", "test")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "-p", "no:cacheprovider"]
    for setting in settings:
        command += ["-o", setting]
    environment = {**os.environ, "THE_DATABASE": postgres_url, "PYTEST_ADDOPTS": ""}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 passed" in ran.stdout
