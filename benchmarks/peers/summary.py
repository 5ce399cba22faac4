"""From single rounds to the table: median, spread, and how many times faster Holdfast is."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.peers.catalogue import HOLDFAST, WORKLOADS, Figure
from benchmarks.peers.plan import QUICK_SAYS

Row = dict[str, Any]
NOISY = 0.3


def value_of(record: Mapping[str, Any]) -> float:
    """The figure that a workload is compared by."""
    figure = WORKLOADS[record["workload"]].figure
    if figure is Figure.RATE:
        return float(record["units"] / record["seconds"])
    return float(record[figure.value])


def summarise(records: Iterable[Mapping[str, Any]]) -> list[Row]:
    """One row a workload, store and system, in the order they were first measured."""
    grouped: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for record in records:
        grouped.setdefault((record["workload"], record["store"], record["system"]), []).append(record)
    rows = [_row(*case, rounds) for case, rounds in grouped.items()]
    ours = {(row["workload"], row["store"]): row.get("median") for row in rows if row["system"] == HOLDFAST.label}
    for row in rows:
        row["ratio"] = _ratio(row, ours.get((row["workload"], row["store"])))
    systems = list(dict.fromkeys(row["system"] for row in rows))
    order = list(WORKLOADS)
    rows.sort(key=lambda row: (order.index(row["workload"]), row["store"], _place(row["system"], systems)))
    return rows


def _place(system: str, systems: list[str]) -> int:
    return -1 if system == HOLDFAST.label else systems.index(system)


def _row(workload: str, store: str, system: str, rounds: list[Mapping[str, Any]]) -> Row:
    row: Row = {"workload": workload, "store": store, "system": system, "n": rounds[0]["n"]}
    row["repeats"] = rounds[0].get("repeats", 1)
    failures = [record["failed"] for record in rounds if "failed" in record]
    good = [record for record in rounds if "failed" not in record]
    if failures:
        row["failed"] = failures[-1]
    if not good:
        return row
    values = [value_of(record) for record in good]
    row |= {
        "median": statistics.median(values),
        "spread": round((max(values) - min(values)) / max(values), 3),
        "rounds": len(values),
        "unit": WORKLOADS[workload].unit,
    }
    late = [record["p99_ms"] for record in good if record.get("p99_ms") is not None]
    if late:
        row["p99_ms"] = statistics.median(late)
    return row


def is_noisy(row: Row) -> bool:
    return bool(row.get("spread", 0.0) > NOISY)


def _size(row: Row) -> str:
    return (f"{row['repeats']} x " if row["repeats"] > 1 else "") + f"{row['n']:,}"


def _ratio(row: Row, ours: float | None) -> float | None:
    """How many times faster Holdfast is; below one where the peer is ahead."""
    if ours is None or row.get("median") is None or row["system"] == HOLDFAST.label:
        return None
    rate = WORKLOADS[row["workload"]].figure is Figure.RATE
    theirs = float(row["median"])
    return round(ours / theirs if rate else theirs / ours, 3)


def shown(value: float) -> str:
    """Three figures that matter, thousands apart."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:,.0f} x" if ratio >= 10 else f"{ratio:.2g} x"


def table(rows: Iterable[Row], absent: Mapping[str, str], *, quick: bool = False) -> str:
    """The one table, and under it who is not in it and why."""
    head = f"{'':9} {'store':9} {'system':22} {'n':>10} {'median':>10} {'':14} {'spread':>6} {'rounds':>6}"
    lines = [f"{head} {'Holdfast is':>12}"]
    last = ""
    for row in rows:
        if row["workload"] != last:
            last = row["workload"]
            lines.append(f"{last}: {WORKLOADS[last].title}")
        head = f"{'':9} {row['store']:9} {row['system']:22} {_size(row):>10}"
        if "median" not in row:
            lines.append(f"{head} failed: {row['failed']}")
            continue
        spread = f"{row['spread']:.2f}" + ("!" if is_noisy(row) else "")
        figures = (
            f"{shown(row['median']):>10} {row['unit']:14} {spread:>6} {row['rounds']:>6} {times(row['ratio']):>12}"
        )
        lines.append(f"{head} {figures}" + (f"  (a round failed: {row['failed']})" if "failed" in row else ""))
    lines.append(
        f"Holdfast is so many times faster; !: rounds differ by more than {NOISY:.0%}, measure again in quiet."
    )
    lines += [f"{name} is missing: it {why}" for name, why in absent.items()]
    return "\n".join([*lines, QUICK_SAYS] if quick else lines)
