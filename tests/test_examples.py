"""Every example runs as a script, on both stores, twice on the same ledger, and prints what its docstring says."""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.databases import postgres_database
from tests.cli.processes import in_pipe

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
# Operations need no database and are run by their own tests.
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py") if not path.name.startswith("operation_"))


@pytest.fixture(scope="module")
def examples_postgres(postgres_url: str) -> Iterator[str]:
    with postgres_database(postgres_url) as url:
        yield url


def promised_output(script: Path) -> str:
    docstring = ast.get_docstring(ast.parse(script.read_text())) or ""
    _, marker, block = docstring.partition("It prints:\n")
    assert marker, f"{script.name} does not say what it prints"
    return textwrap.dedent(block).strip() + "\n"


@pytest.mark.parametrize("script", SCRIPTS)
def test_example_prints_what_it_says(script: str, backend: str, examples_postgres: str, tmp_path: Path) -> None:
    database = str(tmp_path / "ledger.db") if backend == "sqlite" else examples_postgres
    for _ in range(2):
        ran = in_pipe([sys.executable, str(EXAMPLES / script)], folder=tmp_path, database=database)
        assert ran.code == 0, ran.err
        assert ran.out == promised_output(EXAMPLES / script)


def test_every_topic_has_an_example() -> None:
    assert {
        "shipment.py",
        "fan_out_quorum.py",
        "unique_starts.py",
        "partition_keys.py",
        "custom_errors.py",
        "lifespan_resources.py",
        "blocking_program.py",
        "graceful_drain.py",
        "queue_limits.py",
        "workflow_checkout.py",
        "workflow_children.py",
        "workflow_saga.py",
        "workflow_endless.py",
    } <= set(SCRIPTS)
