"""The examples and benchmarks of operations run as they are shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import operation as benchmark

ROOT = Path(__file__).resolve().parents[3]


def play(script: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / script)], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def test_the_build_example_builds_every_part() -> None:
    lines = play("operation_build.py").splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["compiler", "library", "documentation"]


def test_the_crash_example_notices_the_crash_and_cleans_up() -> None:
    shown = play("operation_crash.py")
    assert "noticed: crash of worker" in shown
    assert "scratch file gone: True" in shown
    assert shown.count("OPERATION_FAILED") == 1


def test_the_workflow_example_completes_one_operation_and_aborts_the_other() -> None:
    assert play("operation_workflow.py").splitlines() == [
        "north and south: completed",
        "west: failed, its owner left by TaskFailed",
    ]


@pytest.mark.parametrize(
    ("workload", "n", "figure"),
    [
        ("operation-heartbeat", 3, "beats_per_second"),
        ("operation-calls", 2, "calls_per_second"),
        ("operation-lock", 2, "longest_wait_ms"),
    ],
)
def test_benchmarks_run_one_round(workload: str, n: int, figure: str) -> None:
    figures = benchmark.run(workload, n, 2)
    assert figures["workload"] == workload
    measured = figures[figure]
    assert isinstance(measured, float)
    assert measured > 0
