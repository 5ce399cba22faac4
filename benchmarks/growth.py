"""`python -m benchmarks.growth`: what grows with the ledger, the processes, the history, the payload; a plot each.

Within a round every size is measured beside the smallest, so that a machine that gets slower meanwhile does not look
like growth. growth_plan says what is measured, growth_work how, growth_load fills ledgers, growth_run walks through
the sizes, growth_summary makes table and plots, growth_publishing puts them to those of other days.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import sys
from pathlib import Path

from benchmarks.growth_plan import dimensions
from benchmarks.growth_publishing import report, write
from benchmarks.growth_run import Growth
from benchmarks.growth_summary import summarise, table
from benchmarks.loops import run
from benchmarks.peers.plan import named
from benchmarks.peers.publishing import versions
from benchmarks.peers.running import ROOT, Log
from benchmarks.provenance import code, source

PUBLISHED = ROOT / "docs" / "img"
STORES = ("postgres", "sqlite")


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--dimensions", help="some of finished,processes,history,width,payload; all if left out")
    parser.add_argument("--measures", help="some of what is measured in them, as w2,w5; all if left out")
    parser.add_argument("--stores", help="postgres, sqlite, or both if left out")
    parser.add_argument("--rounds", type=int, default=None, help="3, or 1 with --quick")
    parser.add_argument("--most", type=int, default=None, help="leave out sizes of the ledger above this")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: to see that it works, not to compare")
    parser.add_argument("--resume", action="store_true", help="go on where the last run of this kind was cut short")
    parser.add_argument("--publish", action="store_true", help="write JSON and plots into docs/img too")
    cache = os.environ.get("HOLDFAST_BENCH_CACHE") or ROOT / ".bench"
    parser.add_argument("--cache", type=Path, default=Path(cache), help="results (.bench)")
    asked = parser.parse_args(given)
    if asked.quick and asked.publish:
        parser.error("what a quick run finds is no measurement: --publish it without --quick")
    return asked


def digest(quick: bool) -> str:
    """Of what one run may go on with of another: the same code on the same versions of what it needs."""
    return hashlib.sha256(json.dumps([quick, code(), versions({})]).encode()).hexdigest()[:16]


def main(given: list[str] | None = None) -> int:
    asked = arguments(given)
    logging.disable(logging.WARNING)  # workers that are killed on purpose are reported by the next one
    whole = dimensions(asked.quick, asked.most)
    known = whole
    if asked.measures:
        every = list(dict.fromkeys(name for dimension in known.values() for name in dimension.measures))
        wanted = set(named(asked.measures, every, "measure"))
        known = {name: dimension.narrowed(wanted) for name, dimension in known.items()}
    rounds = asked.rounds or (1 if asked.quick else 3)
    chosen, stores = named(asked.dimensions, list(known), "dimension"), named(asked.stores, STORES, "store")
    measured = source()
    log = Log(asked.cache / "growth" / "run.jsonl", digest(asked.quick), resume=asked.resume)
    growth = Growth(log, rounds, asked.quick)
    complete = False
    try:
        for name in chosen:
            for store in stores:
                run(growth.run(name, known[name], store))
        complete = not growth.failures
    except KeyboardInterrupt:
        print("\ninterrupted; --resume goes on from here", flush=True)
    rows = summarise(list(log.records.values()), whole)
    smallest = {name: growth.sizes(dimension)[0] for name, dimension in whole.items()}
    print(table(rows, whole, smallest, quick=asked.quick))
    for what, why in growth.failures.items():
        print(f"{what} could not be measured: {why}")
    found = report(rows, smallest, growth.failures, measured, quick=asked.quick)
    written = write(found, whole, asked.cache / "growth")
    if asked.publish:
        written += write(found, whole, PUBLISHED, beside_others=True)
    for path in written:
        print(f"written to {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")
    return 0 if complete else 3


if __name__ == "__main__":
    sys.exit(main())
