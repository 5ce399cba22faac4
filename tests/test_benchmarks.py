"""The benchmarks run: one round of tiny size each, on both stores, so that they never rot. Nothing is timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.batch import BATCH_WORKLOADS
from benchmarks.flow import FLOW_WORKLOADS
from benchmarks.pick_cost import PICK_WORKLOADS
from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).parent.parent
KEYS = {"rate", "median", "spread", "p50_ms", "p99_ms", "bare_rate", "ratio", "per_1000"}
KEYS |= {"figure", "value", "bare_value", "bare_spread", "aim", "reached"}


def run_benchmark(*arguments: str) -> dict[str, object]:
    command = [sys.executable, "-m", "benchmarks", *arguments, "--rounds", "1", "--json"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ.copy(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", [*WORKLOADS, *PICK_WORKLOADS, *FLOW_WORKLOADS, *BATCH_WORKLOADS])
def test_every_workload_runs_on_sqlite(name: str) -> None:
    found = run_benchmark(name, "--store", "sqlite", "--n", "4")
    assert found.keys() >= KEYS
    assert found["workload"] == name
    assert found["store"] == "sqlite"


@pytest.mark.parametrize(
    "name", ["machine-w1", "machine-w5", "w2", "w4", "w5", "w7", "machine-pick", "flow-diamond", "batch"]
)
def test_workloads_run_on_postgres(name: str) -> None:
    found = run_benchmark(name, "--store", "postgres", "--n", "4")
    assert found.keys() >= KEYS
    assert found["store"] == "postgres"


@pytest.mark.parametrize("name", ["operation-heartbeat", "operation-calls", "operation-lock"])
def test_operations_are_measured_too(name: str) -> None:
    assert run_benchmark(name, "--n", "2")["workload"] == name


def test_an_unknown_workload_is_explained() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "w99"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "machine-w1" in done.stderr
