"""From single costs to rows and the table; what should stay flat and does not is marked."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.chart import short
from benchmarks.growth_plan import Dimension
from benchmarks.peers.plan import QUICK_SAYS

GREW = 1.3


def summarise(records: Sequence[Mapping[str, Any]], known: Mapping[str, Dimension]) -> list[dict[str, Any]]:
    """A row a dimension, store, measure and size: the median of the rounds' growth."""
    rows = []
    order = sorted(records, key=lambda r: (list(known).index(r["dimension"]), r["store"], r["measure"], r["size"]))
    for case, group in itertools.groupby(order, key=lambda r: (r["dimension"], r["store"], r["measure"], r["size"])):
        rounds = list(group)
        good = [record for record in rounds if "failed" not in record]
        flat = known[case[0]].measures[case[2]].flat
        row: dict[str, Any] = dict(zip(("dimension", "store", "measure", "size"), case, strict=True))
        if good:
            factors = [record["cost"] / record["base"] for record in good]
            row |= {
                "growth": round(statistics.median(factors), 3),
                "spread": round((max(factors) - min(factors)) / max(factors), 3),
                "base_ms": round(statistics.median(r["base"] for r in good) * 1e3, 4),
                "cost_ms": round(statistics.median(r["cost"] for r in good) * 1e3, 4),
                "rounds": len(good),
            }
            row["grew"] = flat and row["growth"] > GREW
        failures = [record["failed"] for record in rounds if "failed" in record]
        if failures:
            row["failed"] = failures[-1]
        rows.append(row)
    return rows


def table(
    rows: Sequence[Mapping[str, Any]],
    known: Mapping[str, Dimension],
    smallest: Mapping[str, int],
    *,
    quick: bool = False,
) -> str:
    lines = []
    for name, group in itertools.groupby(rows, key=lambda row: row["dimension"]):
        lines.append(f"{known[name].title} (smallest: {short(smallest[name])} {known[name].axis})")
        for row in group:
            head = f"  {row['store']:9} {known[name].measures[row['measure']].label:45} {short(row['size']):>6}"
            if "growth" not in row:
                lines.append(f"{head} failed: {row['failed']}")
                continue
            mark = "  GREW" if row["grew"] else ""
            costs = f"{row['base_ms']:>10.4g} -> {row['cost_ms']:<10.4g} ms"
            lines.append(f"{head} {costs} {row['growth']:>7.2f} x  spread {row['spread']:.2f}{mark}")
    return "\n".join([*lines, QUICK_SAYS] if quick else lines)
