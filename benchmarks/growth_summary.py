"""From single costs to the table and the plots; what should stay flat and does not is marked."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.chart import Line, line_chart, short
from benchmarks.growth_plan import Dimension

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


def table(rows: Sequence[Mapping[str, Any]], known: Mapping[str, Dimension]) -> str:
    lines = []
    for name, group in itertools.groupby(rows, key=lambda row: row["dimension"]):
        lines.append(f"{known[name].title} (smallest: {short(known[name].sizes[0])} {known[name].axis})")
        for row in group:
            head = f"  {row['store']:9} {known[name].measures[row['measure']].label:45} {short(row['size']):>6}"
            if "growth" not in row:
                lines.append(f"{head} failed: {row['failed']}")
                continue
            mark = "  GREW" if row["grew"] else ""
            costs = f"{row['base_ms']:>10.4g} -> {row['cost_ms']:<10.4g} ms"
            lines.append(f"{head} {costs} {row['growth']:>7.2f} x  spread {row['spread']:.2f}{mark}")
    return "\n".join(lines)


def charts(found: Mapping[str, Any], known: Mapping[str, Dimension]) -> dict[str, str]:
    """One SVG a dimension: cost relative to the smallest size."""
    facts = found["machine"]
    kind = f"{facts['cores']} cores, {facts['memory_gb']} GB, {facts['architecture']}, {facts['system']}"
    pictures = {}
    for name, dimension in known.items():
        lines: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for row in found["rows"]:
            if row["dimension"] == name and "growth" in row:
                start = [(float(found["smallest"][name]), 1.0)]
                lines.setdefault((row["measure"], row["store"]), start).append((row["size"], row["growth"]))
        if lines:
            notes = [f"{found['date']}; {kind}. Cost beside that of the smallest, in one run; 1 is no growth."]
            notes.append("Solid: PostgreSQL. Dashed: SQLite.")
            if found["quick"]:
                notes.append("A quick run: these figures are no measurement.")
            drawn = [
                Line(dimension.measures[measure].label, points, dashed=store == "sqlite")
                for (measure, store), points in lines.items()
            ]
            pictures[name] = line_chart(dimension.title, notes, drawn, dimension.axis, "times")
    return pictures


def write(found: Mapping[str, Any], known: Mapping[str, Dimension], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "growth.json"]
    written[0].write_text(json.dumps(found, indent=2) + "\n")
    for name, picture in charts(found, known).items():
        written.append(folder / f"growth-{name}.svg")
        written[-1].write_text(picture)
    return written
