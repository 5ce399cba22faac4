"""What is written of growth: a JSON file and a plot a dimension. What other days found of other things stays beside it.

Each row has its date and the commit that was measured; each dimension the versions and the machine of its last run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.chart import Line, line_chart
from benchmarks.growth_plan import Dimension
from benchmarks.peers.plan import QUICK_SAYS
from benchmarks.peers.publishing import machine, versions
from benchmarks.provenance import shown

Row = dict[str, Any]
PLACE = ("dimension", "store", "measure", "size")


def report(
    rows: Sequence[Row],
    smallest: Mapping[str, int],
    failures: Mapping[str, str],
    measured: Mapping[str, Any],
    *,
    quick: bool,
) -> dict[str, Any]:
    """All that is known of a run, by dimension; `measured` is the source as it was when the run began."""
    stamp = {"date": time.strftime("%Y-%m-%d"), **measured}
    facts = {"machine": machine(), "versions": versions({})}
    names = dict.fromkeys([row["dimension"] for row in rows] + [what.split(" on ")[0] for what in failures])
    return {
        "quick": quick,
        "dimensions": {
            name: {
                **facts,
                "smallest": smallest[name],
                "failures": {what: why for what, why in failures.items() if what.split(" on ")[0] == name},
                "rows": [{**row, **stamp} for row in rows if row["dimension"] == name],
            }
            for name in names
        },
    }


def merged(old: Mapping[str, Any], new: Mapping[str, Any], known: Mapping[str, Dimension]) -> dict[str, Any]:
    """What is new in the place of what it measured again; of the rest, what is still known."""
    dimensions = dict(new["dimensions"])
    for name, before in old["dimensions"].items():
        if name not in known:
            continue
        now = dimensions.get(name, {**before, "rows": []})
        again = {tuple(row[key] for key in PLACE) for row in now["rows"]}
        kept = [
            row
            for row in before["rows"]
            if row["measure"] in known[name].measures and tuple(row[key] for key in PLACE) not in again
        ]
        rows = sorted(now["rows"] + kept, key=lambda row: tuple(row[key] for key in PLACE))
        dimensions[name] = {**now, "rows": rows}
    return {**new, "dimensions": {name: dimensions[name] for name in known if name in dimensions}}


def read(path: Path) -> dict[str, Any]:
    """What was written before; nothing if there is nothing."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"dimensions": {}}
    return found


def charts(found: Mapping[str, Any], known: Mapping[str, Dimension]) -> dict[str, str]:
    """One SVG a dimension: cost relative to the smallest size."""
    pictures = {}
    for name, facts in found["dimensions"].items():
        lines: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for row in facts["rows"]:
            if "growth" in row:
                start = [(float(facts["smallest"]), 1.0)]
                lines.setdefault((row["measure"], row["store"]), start).append((row["size"], row["growth"]))
        if not lines:
            continue
        dimension = known[name]
        drawn = [
            Line(dimension.measures[measure].label, points, dashed=store == "sqlite")
            for (measure, store), points in lines.items()
        ]
        pictures[name] = line_chart(
            dimension.title, _notes(facts, quick=found["quick"]), drawn, dimension.axis, "times"
        )
    return pictures


def _notes(facts: Mapping[str, Any], *, quick: bool) -> list[str]:
    of = facts["machine"]
    kind = f"{of['cores']} cores, {of['memory_gb']} GB, {of['architecture']}, {of['system']}"
    days = sorted({f"{row['date']} ({shown(row)})" for row in facts["rows"]})
    rounds = sorted({row["rounds"] for row in facts["rows"] if "rounds" in row})
    count = " to ".join(dict.fromkeys(str(number) for number in (rounds[0], rounds[-1])))
    notes = [
        f"{', '.join(days)}; {kind}; {', '.join(f'{name} {number}' for name, number in facts['versions'].items())}.",
        f"Cost beside that of the smallest, in one run; 1 is no growth. Medians of {count} rounds.",
        "Solid: PostgreSQL. Dashed: SQLite.",
    ]
    return [*notes, QUICK_SAYS] if quick else notes


def write(
    found: Mapping[str, Any], known: Mapping[str, Dimension], folder: Path, *, beside_others: bool = False
) -> list[Path]:
    """`growth.json` and the plots of what is in it; with what is in that file already, if it is to stay."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "growth.json"]
    whole = merged(read(written[0]), found, known) if beside_others else found
    written[0].write_text(json.dumps(whole, indent=2) + "\n")
    for name, picture in charts(whole, known).items():
        written.append(folder / f"growth-{name}.svg")
        written[-1].write_text(picture)
    return written
