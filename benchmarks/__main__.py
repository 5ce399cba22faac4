"""`python -m benchmarks`: all workloads in one table, or one workload as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import operation
from benchmarks.batch import BATCH_WORKLOADS
from benchmarks.definitions import app
from benchmarks.environment import Round, store_urls
from benchmarks.flow import FLOW_WORKLOADS
from benchmarks.loops import run
from benchmarks.pick_cost import PICK_WORKLOADS
from benchmarks.workloads import WORKLOADS, Workload

RESULTS = Path(__file__).parent / "results"
BARE_SIZE = 2_000
OPERATIONS = {"operation-heartbeat": 10, "operation-calls": 200, "operation-lock": 20}


async def measure(name: str, store: str, n: int | None, rounds: int) -> dict[str, Any]:
    """One workload: a warm-up with a tenth of the size, `rounds` rounds, and the bare store before each of them."""
    workload = {**WORKLOADS, **PICK_WORKLOADS, **FLOW_WORKLOADS, **BATCH_WORKLOADS}[name]
    size = n or workload.size
    with store_urls(store) as urls:
        await _round(workload, next(urls), max(2, size // 10))
        found: list[Round] = []
        bares: list[float] = []
        for _ in range(rounds):
            url = next(urls)
            bares.append(await workload.bare(url, min(size, BARE_SIZE)))
            found.append(await _round(workload, url, size))
    return _figures(name, store, size, workload, found, bares)


async def _round(workload: Workload, url: str, size: int) -> Round:
    app.use_store(url)
    async with app:
        return await workload.measure(url, size)


def _figures(
    name: str, store: str, size: int, workload: Workload, found: list[Round], bares: list[float]
) -> dict[str, Any]:
    rates = sorted(r.count / r.seconds for r in found)
    median = statistics.median(rates)
    bare = statistics.median(bares)
    latencies = sorted(ms for r in found for ms in r.latencies_ms)
    last = found[-1]
    per_thousand = {key: round(value * 1000 / last.count, 2) for key, value in last.counters.items()}
    return {
        "workload": name,
        "store": "postgres" if store.startswith("postgres") else "sqlite",
        "n": size,
        "rounds": len(found),
        "unit": workload.unit,
        "rate": round(rates[-1], 1),
        "median": round(median, 1),
        "spread": round((rates[-1] - rates[0]) / rates[-1], 3),
        "seconds": round(statistics.median(r.seconds for r in found), 4),
        "cpu_us": round(statistics.median(r.cpu_seconds / r.count for r in found) * 1e6, 1),
        "p50_ms": _at(latencies, 0.5),
        "p99_ms": _at(latencies, 0.99),
        "bare_rate": round(bare, 1),
        "ratio": round(median / bare, 3),
        "per_1000": per_thousand,
        **{key: round(value, 4) for key, value in last.extra.items()},
    }


def _at(values: list[float], share: float) -> float | None:
    return round(values[min(len(values) - 1, int(len(values) * share))], 3) if values else None


def facts() -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "system": platform.system(),
        "cores": len(os.sched_getaffinity(0)),
        "holdfast": version("holdfast"),
    }


def _print_table(rows: list[dict[str, Any]]) -> None:
    print(
        f"{'workload':20} {'store':9} {'n':>7} {'median':>12} {'spread':>7} {'bare':>12} {'ratio':>6} {'cpu us':>7}"
        "  p50/p99 ms"
    )
    for row in rows:
        waits = "" if row.get("p50_ms") is None else f"{row['p50_ms']}/{row['p99_ms']}"
        print(
            f"{row['workload']:20} {row['store']:9} {row['n']:>7} {row['median']:>12,.0f} {row['spread']:>7} "
            f"{row['bare_rate']:>12,.0f} {row['ratio']:>6} {row['cpu_us']:>7}  {waits}",
            flush=True,
        )


def main(arguments: list[str] | None = None) -> int:
    every = [*WORKLOADS, *PICK_WORKLOADS, *FLOW_WORKLOADS, *BATCH_WORKLOADS, *OPERATIONS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("workload", nargs="?", choices=every, help="one of them; all if left out")
    parser.add_argument("--store", default=None, help="sqlite, postgres, or the URL of an empty database")
    parser.add_argument("--n", type=int, default=None, help="how many; each workload has its own default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    given = parser.parse_args(arguments)
    names = [given.workload] if given.workload else [*WORKLOADS, *PICK_WORKLOADS, *FLOW_WORKLOADS, *BATCH_WORKLOADS]
    stores = [given.store] if given.store else (["sqlite"] if given.workload else ["sqlite", "postgres"])
    rows: list[dict[str, Any]] = []
    for name in names:
        for store in stores:
            if name in OPERATIONS:
                figures = operation.run(name, given.n or OPERATIONS[name], given.rounds)
                print(json.dumps({**facts(), **figures}))
                return 0
            rows.append({**facts(), **run(measure(name, store, given.n, given.rounds))})
            if not given.json:
                _print_table(rows[-1:])
    if given.json:
        print(json.dumps(rows[0] if len(rows) == 1 else rows))
    if not given.workload:
        RESULTS.mkdir(exist_ok=True)
        target = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
        target.write_text(json.dumps(rows, indent=2) + "\n")
        print(f"written to {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
