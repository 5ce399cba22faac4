"""The figures of one workload: what its rounds and the bare samples between them come to, as numbers and as a line."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.aims import AIMS, POSTGRES, SQLITE
from benchmarks.environment import Round
from benchmarks.peers.catalogue import Figure
from benchmarks.workloads import Workload

NOISY = 0.3  # a spread above which a median says little
SLOW = 0.5  # below this share of the bare speed at which an aim was set, its being reached says little
HEADER = (
    f"{'workload':20} {'store':9} {'n':>7} {'measured':>12} {'spread':>6} {'bare':>12} {'spread':>6} {'share':>7} "
    f"{'aim':>7} {'reached':>7} {'cpu us':>7}  p50/p99 ms"
)


def figures(
    name: str, store: str, size: int, workload: Workload, found: Sequence[Round], bares: Sequence[Round]
) -> dict[str, Any]:
    """`value` and `bare_value` are medians in the unit that `figure` names; `ratio` is the share of the bare speed."""
    kind = POSTGRES if store.startswith(POSTGRES) else SQLITE
    rates, bare_rates = _rates(found), _rates(bares)
    latencies = sorted(ms for r in found for ms in r.latencies_ms)
    value, bare = _median(workload.figure, found), _median(workload.figure, bares)
    bare_speed = _speed(workload.figure, bare)
    share = _speed(workload.figure, value) / bare_speed
    aim = AIMS.get(name)
    last = found[-1]
    return {
        "workload": name,
        "store": kind,
        "n": size,
        "rounds": len(found),
        "unit": workload.unit,
        "rate": round(rates[-1], 1),
        "median": round(statistics.median(rates), 1),
        "spread": _spread(rates),
        "seconds": round(_median(Figure.SECONDS, found), 4),
        "cpu_us": round(statistics.median(r.cpu_seconds / r.count for r in found) * 1e6, 1),
        "p50_ms": _at(latencies, 0.5),
        "p99_ms": _at(latencies, 0.99),
        "figure": workload.figure.value,
        "value": round(value, 4),
        "bare_value": round(bare, 4),
        "bare_rate": round(statistics.median(bare_rates), 1),
        "bare_spread": _spread(bare_rates),
        "ratio": round(share, 3),
        "aim": aim.shown(kind) if aim else None,
        **(aim.numbers(kind, bare_speed) if aim else {}),
        "reached": aim.reached(kind, value, share) if aim else None,
        "per_1000": {key: round(number * 1000 / last.count, 2) for key, number in last.counters.items()},
        **{key: round(number, 4) for key, number in last.extra.items()},
    }


def line(row: dict[str, Any]) -> str:
    """A row of the table, under `HEADER`."""
    waits = "" if row["p50_ms"] is None else f"{row['p50_ms']}/{row['p99_ms']}"
    reached = {True: "yes", False: "no", None: ""}[row["reached"]]
    if _is_doubtful(row):
        reached += "?"
    measured, bare = (_shown(row["figure"], row[key]) for key in ("value", "bare_value"))
    return (
        f"{row['workload']:20} {row['store']:9} {row['n']:>7} "
        f"{measured:>12} {row['spread']:>6.0%} {bare:>12} {row['bare_spread']:>6.0%} {row['ratio']:>7.1%} "
        f"{row['aim'] or '':>7} {reached:>7} {row['cpu_us']:>7}  {waits}"
    )


def _is_doubtful(row: dict[str, Any]) -> bool:
    """A slow disk makes an aim easier to reach, never harder: there, a no stands."""
    if row["reached"] is None:
        return False
    too_easy = row["reached"] and row.get("bare_of_reference", 1.0) < SLOW
    return bool(too_easy or max(row["spread"], row["bare_spread"]) > NOISY)


def _rates(rounds: Sequence[Round]) -> list[float]:
    return sorted(r.count / r.seconds for r in rounds)


def _spread(rates: Sequence[float]) -> float:
    """Between the fastest and the slowest, of the fastest."""
    return round((rates[-1] - rates[0]) / rates[-1], 3)


def _median(figure: Figure, rounds: Sequence[Round]) -> float:
    match figure:
        case Figure.RATE:
            return statistics.median(_rates(rounds))
        case Figure.SECONDS:
            return statistics.median(r.seconds for r in rounds)
        case Figure.P50_MS:
            return statistics.median(ms for r in rounds for ms in r.latencies_ms)


def _speed(figure: Figure, value: float) -> float:
    return value if figure is Figure.RATE else 1 / value


def _shown(figure: str, value: float) -> str:
    match Figure(figure):
        case Figure.RATE:
            return f"{value:,.0f}"
        case Figure.SECONDS:
            return f"{value:.4f} s"
        case Figure.P50_MS:
            return f"{value:.2f} ms"


def _at(values: list[float], share: float) -> float | None:
    return round(values[min(len(values) - 1, int(len(values) * share))], 3) if values else None
