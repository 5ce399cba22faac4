"""`python -m benchmarks`: all workloads in one table, or one workload as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import operation
from benchmarks.batch import BATCH_WORKLOADS
from benchmarks.definitions import app
from benchmarks.environment import Round, store_urls
from benchmarks.figures import HEADER, figures, line
from benchmarks.flow import FLOW_WORKLOADS
from benchmarks.loops import run
from benchmarks.pick_cost import PICK_WORKLOADS
from benchmarks.provenance import source
from benchmarks.workloads import WORKLOADS, Workload
from holdfast.cli.worker import collect_seldom

RESULTS = Path(__file__).parent / "results"
OPERATIONS = {"operation-heartbeat": 10, "operation-calls": 200, "operation-lock": 20}
READING = """\
How to read the table. Figures of two machines, or of two hours, do not compare; shares of one run do.
  measured  Holdfast's median: a rate, or a time where it says s or ms
  bare      the same store without an engine, before and after each round: for w1 to w8 a journal, which does the same
            records and waits in coroutines that share commits; for the others rows in commits of one size
  share     Holdfast's speed as a share of the bare one; of times the inverse
  aim       the share that w1 to w8 are to reach (w7: a time), and whether the median reaches it. A question mark says
            that a spread is above 30 %, or that a yes was too easy: the bare journal ran at less than half the speed
            that it had where the aim was set (a slow or busy disk holds up both, which brings the share nearer to one)
  spread    from the slowest to the fastest, as a share of the fastest
  cpu us    what this process used for one unit; it says more than the clock where the machine does other work too
"""


async def measure(name: str, store: str, n: int | None, rounds: int) -> dict[str, Any]:
    """One workload: a warm-up with a tenth of the size, then rounds with a bare sample before and after each."""
    workload = {**WORKLOADS, **PICK_WORKLOADS, **FLOW_WORKLOADS, **BATCH_WORKLOADS}[name]
    size = n or workload.size
    with store_urls(store) as urls:
        await _round(workload, next(urls), max(2, size // 10))
        found: list[Round] = []
        bares: list[Round] = []
        for _ in range(rounds):
            url = next(urls)
            bares.append(await workload.bare(url, size))
            found.append(await _round(workload, url, size))
        bares.append(await workload.bare(url, size))
    return figures(name, store, size, workload, found, bares)


async def _round(workload: Workload, url: str, size: int) -> Round:
    app.use_store(url)
    async with app:
        return await workload.measure(url, size)


def facts() -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "system": platform.system(),
        "cores": len(os.sched_getaffinity(0)),
        "holdfast": version("holdfast"),
        **source(),
    }


def main(arguments: list[str] | None = None) -> int:
    every = [*WORKLOADS, *PICK_WORKLOADS, *FLOW_WORKLOADS, *BATCH_WORKLOADS, *OPERATIONS]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=READING,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workload", nargs="?", choices=every, help="one of them; all if left out")
    parser.add_argument("--store", default=None, help="sqlite, postgres, or the URL of an empty database")
    parser.add_argument("--n", type=int, default=None, help="how many; each workload has its own default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    given = parser.parse_args(arguments)
    names = [given.workload] if given.workload else [*WORKLOADS, *PICK_WORKLOADS, *FLOW_WORKLOADS, *BATCH_WORKLOADS]
    stores = [given.store] if given.store else (["sqlite"] if given.workload else ["sqlite", "postgres"])
    rows: list[dict[str, Any]] = []
    known = facts()
    for name in names:
        for store in stores:
            if name in OPERATIONS:
                print(json.dumps({**known, **operation.run(name, given.n or OPERATIONS[name], given.rounds)}))
                return 0
            if not rows and not given.json:
                print(HEADER, flush=True)
            rows.append({**known, **run(measure(name, store, given.n, given.rounds))})
            if not given.json:
                print(line(rows[-1]), flush=True)
    if given.json:
        print(json.dumps(rows[0] if len(rows) == 1 else rows))
    if not given.workload:
        RESULTS.mkdir(exist_ok=True)
        target = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
        target.write_text(json.dumps(rows, indent=2) + "\n")
        print(f"written to {target}")
    return 0


if __name__ == "__main__":
    collect_seldom()  # as `holdfast worker` does
    sys.exit(main())
