"""`python -m benchmarks.peers`: Holdfast and its peers in one run, one table, a JSON file and a chart."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.peers import publishing
from benchmarks.peers.catalogue import PEERS
from benchmarks.peers.environments import prepare
from benchmarks.peers.plan import Plan, every_store, every_workload, named
from benchmarks.peers.running import ROOT, Log, run
from benchmarks.peers.summary import summarise, table
from benchmarks.provenance import code, source

PUBLISHED = ROOT / "docs" / "img"
BUDGET_SECONDS = 2_400.0


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--peers", help=f"some of {','.join(PEERS)}; all if left out")
    parser.add_argument("--workloads", help=f"some of {','.join(every_workload())}; all if left out")
    parser.add_argument("--stores", help="postgres, sqlite, or both if left out")
    parser.add_argument("--rounds", type=int, default=None, help="3, or 1 with --quick")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: to see that it works, not to compare")
    parser.add_argument("--resume", action="store_true", help="go on where the last run of this kind was cut short")
    parser.add_argument("--publish", action="store_true", help="write JSON and chart into docs/img too")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one call (60)")
    parser.add_argument("--budget", type=float, default=BUDGET_SECONDS, help="seconds for all calls (2,400)")
    cache = os.environ.get("HOLDFAST_BENCH_CACHE") or ROOT / ".bench"
    parser.add_argument("--cache", type=Path, default=Path(cache), help="environments and results (.bench)")
    asked = parser.parse_args(given)
    if asked.quick and asked.publish:
        parser.error("what a quick run finds is no measurement: --publish it without --quick")
    return asked


def main(given: list[str] | None = None) -> int:
    asked = arguments(given)
    plan = Plan(
        rounds=asked.rounds or (1 if asked.quick else 3),
        workloads=named(asked.workloads, every_workload(), "workload"),
        stores=named(asked.stores, every_store(), "store"),
        peers=named(asked.peers, list(PEERS), "peer"),
        quick=asked.quick,
    )
    cache = asked.cache.resolve()
    environments = {name: prepare(name, PEERS[name], cache) for name in plan.peers}
    missing = publishing.absent(environments)
    for name, why in missing.items():
        print(f"{name} {why}", flush=True)
    measured = source()
    log = Log(
        cache / "peers" / "run.jsonl", plan.digest(publishing.versions(environments), code()), resume=asked.resume
    )
    if log.records:
        print(f"going on after {len(log.records)} calls of the last run", flush=True)
    complete = False
    try:
        complete = run(plan, environments, log, timeout_seconds=asked.timeout, budget_seconds=asked.budget)
    except KeyboardInterrupt:
        print("\ninterrupted", flush=True)
    rows = summarise(log.records.values())
    print(table(rows, missing, quick=plan.quick))
    if not complete:
        print("Not all rounds were run; --resume goes on from here.")
    found = publishing.report(rows, environments, measured, quick=plan.quick, complete=complete)
    written = publishing.write(found, cache / "peers")
    if asked.publish:
        written += publishing.write(found, PUBLISHED)
    for path in written:
        print(f"written to {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")
    return 0 if complete else 3


if __name__ == "__main__":
    sys.exit(main())
