"""What is written: the JSON of a run and the chart; with date, versions and the class of machine, never its name."""

from __future__ import annotations

import json
import os
import platform
import re
import sqlite3
import subprocess
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.chart import Dot, DotRow, dot_chart
from benchmarks.peers.catalogue import CONTESTANTS, HOLDFAST, POSTGRES, SQLITE, WORKLOADS
from benchmarks.peers.environments import Environment
from benchmarks.peers.plan import QUICK_SAYS
from benchmarks.peers.summary import NOISY, Row, shown, times
from benchmarks.provenance import shown as code_shown
from holdfast.testing.postgres_launch import postgres_binaries

PANELS = {POSTGRES: "On PostgreSQL", SQLITE: "On SQLite"}
DURABILITY = (
    "PostgreSQL with fsync on, and synchronous_commit on for every commit that decides something; those of Holdfast's "
    "leases and timers that can be done again do not wait for the disk (docs/explanation/performance.md). On SQLite "
    "each system's own default: of Holdfast a write-ahead log synced with every commit that decides something, of DBOS "
    "the rollback journal, synced in full."
)


def postgres_version() -> str:
    said = subprocess.run([str(postgres_binaries() / "postgres"), "--version"], capture_output=True, text=True)
    found = re.search(r"\d+(?:\.\d+)*", said.stdout)
    return found.group() if found else "unknown"


def versions(environments: Mapping[str, Environment]) -> dict[str, str]:
    """Of everything that is measured."""
    own = {
        "holdfast": version("holdfast"),
        "python": platform.python_version(),
        "postgresql": postgres_version(),
        "sqlite": sqlite3.sqlite_version,
    }
    return own | {name: found.version for name, found in environments.items() if not found.failure}


def machine() -> dict[str, Any]:
    """The class of machine: nobody learns which one it was."""
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(gigabytes),
        "architecture": platform.machine(),
        "system": platform.system(),
    }


def report(
    rows: Sequence[Row],
    environments: Mapping[str, Environment],
    measured: Mapping[str, Any],
    *,
    quick: bool,
    complete: bool,
) -> dict[str, Any]:
    """All that is known of a run; `measured` is the source as it was when the run began."""
    systems = {row["system"] for row in rows}
    return {
        "date": time.strftime("%Y-%m-%d"),
        **measured,
        "machine": machine(),
        "versions": versions(environments),
        "durability": DURABILITY,
        "quick": quick,
        "complete": complete,
        "workloads": {name: {"title": work.title, "unit": work.unit} for name, work in WORKLOADS.items()},
        "settings": {each.label: each.note for each in CONTESTANTS if each.label in systems and each.note},
        "missing": absent(environments),
        "rows": list(rows),
    }


def absent(environments: Mapping[str, Environment]) -> dict[str, str]:
    return {name: found.failure for name, found in environments.items() if found.failure}


def chart(found: Mapping[str, Any]) -> str:
    """Each system's speed as a share of Holdfast's, a row a workload, a panel a store."""
    facts, names = found["machine"], found["versions"]
    said = ", ".join(f"{name} {number}" for name, number in names.items())
    machine_said = f"{facts['cores']} cores, {facts['memory_gb']} GB, {facts['architecture']}, {facts['system']}"
    rounds = sorted({row["rounds"] for row in found["rows"] if "rounds" in row})
    count = " to ".join(dict.fromkeys(str(number) for number in (rounds[0], rounds[-1]))) if rounds else "no"
    code = code_shown(found)
    notes = [f"{found['date']}; {machine_said}. All systems in one run, alternating; medians of {count} rounds."]
    notes.append(f"{said} ({code}).")
    notes.append(f"Holdfast: {found['settings'][HOLDFAST.label]}. How the others were run is in the JSON beside this.")
    notes.append(found["durability"])
    if any(row.get("spread", 0) > NOISY for row in found["rows"]):
        notes.append(f"Hollow: the rounds differ by more than {NOISY:.0%}.")
    notes += [f"Not measured: {name}, it {why}." for name, why in found["missing"].items()]
    if found["quick"]:
        notes.append(QUICK_SAYS)
    panels = {PANELS[store]: _panel(found["rows"], store) for store in (POSTGRES, SQLITE)}
    title = "Speed beside Holdfast's"
    axis = "speed as a share of Holdfast's (1), logarithmic; further right is faster"
    return dot_chart(title, notes, {name: rows for name, rows in panels.items() if rows}, axis)


def _panel(rows: Sequence[Row], store: str) -> list[DotRow]:
    panel = []
    for name, work in WORKLOADS.items():
        tried = [row for row in rows if row["workload"] == name and row["store"] == store]
        if len(tried) < 2:  # a row of Holdfast alone compares nothing
            continue
        ours = next((row for row in tried if row["system"] == HOLDFAST.label and "median" in row), None)
        said = [f"Holdfast: {shown(ours['median'])} {work.unit}"] if ours else []
        said += [f"{row['system']} failed" for row in tried if "median" not in row]
        panel.append(DotRow(f"{name}  {work.title}", "; ".join(said), [dot for row in tried for dot in _dots(row)]))
    return panel


def _dots(row: Row) -> list[Dot]:
    """None of what failed, nor of what Holdfast failed at: there is nothing to compare it with."""
    is_ours = row["system"] == HOLDFAST.label
    if "median" not in row or not (is_ours or row["ratio"]):
        return []
    label = f"{row['system']}: {shown(row['median'])} {row['unit']}"
    label += "" if is_ours else f", Holdfast is {times(row['ratio'])}"
    label += f"; a round failed: {row['failed']}" if "failed" in row else ""
    return [Dot(row["system"], 1.0 if is_ours else 1 / row["ratio"], label, row["spread"] > NOISY)]


def write(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """`peers.json` and `peers.svg` in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    data, picture = folder / "peers.json", folder / "peers.svg"
    data.write_text(json.dumps(found, indent=2) + "\n")
    picture.write_text(chart(found))
    return [data, picture]
