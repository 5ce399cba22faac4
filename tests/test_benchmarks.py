"""The benchmarks run: one round of tiny size each, on both stores, so that they never rot. Nothing is timed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest
from benchmarks import bare_shapes, workloads
from benchmarks.__main__ import main
from benchmarks.batch import BATCH_WORKLOADS
from benchmarks.flow import FLOW_WORKLOADS
from benchmarks.pick_cost import PICK_WORKLOADS
from benchmarks.workloads import WORKLOADS

from tests.cli.databases import postgres_database

ROOT = Path(__file__).parent.parent
KEYS = {"rate", "median", "spread", "p50_ms", "p99_ms", "bare_rate", "ratio", "per_1000"}
KEYS |= {"figure", "value", "bare_value", "bare_spread", "aim", "reached"}


class Run(Protocol):
    def __call__(self, *arguments: str) -> dict[str, object]: ...


@pytest.fixture
def run_benchmark(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """One round inside this process, beside a bare journal that is measured no longer than it takes."""
    monkeypatch.setattr(bare_shapes, "SAMPLE_SECONDS", 0)
    monkeypatch.setattr(bare_shapes, "SLEEP_SECONDS", 0.001)
    monkeypatch.setattr(bare_shapes, "WARM_RUNS", 4)
    monkeypatch.setattr(workloads, "NAP_SECONDS", 0.01)
    monkeypatch.setattr(workloads, "LEASE_SECONDS", 1.0)
    monkeypatch.setattr(workloads, "LEASE_OVER_SECONDS", 0.1)

    def run(*arguments: str) -> dict[str, object]:
        assert main([*arguments, "--rounds", "1", "--json"]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    return run


def run_program(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", [*WORKLOADS, *PICK_WORKLOADS, *FLOW_WORKLOADS, *BATCH_WORKLOADS])
def test_every_workload_runs_on_sqlite(name: str, run_benchmark: Run) -> None:
    found = run_benchmark(name, "--store", "sqlite", "--n", "4")
    assert found.keys() >= KEYS
    assert found["workload"] == name
    assert found["store"] == "sqlite"


@pytest.mark.parametrize(
    "name", ["machine-w1", "machine-w5", "w2", "w4", "w5", "w7", "machine-pick", "flow-diamond", "batch"]
)
def test_workloads_run_on_a_database_of_postgres(name: str, postgres_url: str, run_benchmark: Run) -> None:
    with postgres_database(postgres_url) as url:
        found = run_benchmark(name, "--store", url, "--n", "4")
    assert found.keys() >= KEYS
    assert found["store"] == "postgres"


def test_the_program_starts_a_postgres_of_its_own() -> None:
    done = run_program("machine-w1", "--store", "postgres", "--n", "4", "--rounds", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["store"] == "postgres"


@pytest.mark.parametrize("name", ["operation-heartbeat", "operation-calls", "operation-lock"])
def test_operations_are_measured_too(name: str, run_benchmark: Run) -> None:
    assert run_benchmark(name, "--n", "2")["workload"] == name


def test_an_unknown_workload_is_explained() -> None:
    done = run_program("w99")
    assert done.returncode == 2
    assert "machine-w1" in done.stderr
