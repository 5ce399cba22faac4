"""What is said of growth, its pure parts: sizes, figures, table, plots, and what stays published. Nothing is timed."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from benchmarks import growth
from benchmarks.growth import digest
from benchmarks.growth_plan import dimensions
from benchmarks.growth_publishing import charts, merged, read, report, write
from benchmarks.growth_summary import summarise, table
from benchmarks.growth_work import result_of_set

MEASURED = {"commit": "7654321", "dirty": False}


def record(measure: str, base: float, cost: float, number: int = 0) -> dict[str, Any]:
    named_as = {"dimension": "history", "store": "sqlite", "measure": measure, "size": 1_000, "round": number}
    return {"key": f"{measure}{number}", **named_as, "base": base, "cost": cost}


def test_growth_is_the_median_of_rounds_and_marked_only_where_it_should_be_flat() -> None:
    known = dimensions(quick=False)
    records = [record("step", 1, factor, number) for number, factor in enumerate((1.0, 1.5, 9.0))]
    records.append(record("replay", 1, 50))
    by_measure = {row["measure"]: row for row in summarise(records, known)}
    assert (by_measure["step"]["growth"], by_measure["step"]["grew"]) == (1.5, True)
    assert (by_measure["replay"]["growth"], by_measure["replay"]["grew"]) == (50, False)
    shown = table(list(by_measure.values()), known, {"history": 10})
    assert "no measurement" not in shown
    assert "no measurement" in table(list(by_measure.values()), known, {"history": 10}, quick=True)
    assert shown.count("GREW") == 1
    assert "(smallest: 10 events in the history of one workflow)" in shown


def test_growth_that_failed_is_named() -> None:
    known = dimensions(quick=False)
    failed = {**record("step", 1, 1), "failed": "TimeoutError: "}
    assert "failed: TimeoutError" in table(summarise([failed], known), known, {"history": 10})


def test_growth_covers_the_sizes_that_were_promised() -> None:
    known = dimensions(quick=False)
    assert list(known["finished"].sizes) == [10_000, 1_000_000, 5_000_000]
    assert list(known["processes"].sizes) == [1, 2, 4]
    assert list(known["history"].sizes) == [10, 1_000, 10_000]
    assert list(known["width"].sizes) == [10, 100, 1_000, 10_000]
    assert list(known["payload"].sizes) == [100, 10_000, 500_000]
    assert list(dimensions(quick=False, most_finished=1_000_000)["finished"].sizes) == [10_000, 1_000_000]


async def test_the_cost_of_a_result_is_found_on_a_ledger_of_its_own(tmp_path: Path) -> None:
    for width in dimensions(quick=True)["width"].quick_sizes:
        assert await result_of_set(f"sqlite:///{tmp_path}/{width}.db", width) > 0


def test_growth_goes_on_only_with_results_of_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(quick=False)
    assert digest(quick=True) != before
    monkeypatch.setattr(growth, "code", lambda: "other code")
    changed = digest(quick=False)
    monkeypatch.setattr(growth, "versions", lambda _: {"postgresql": "99"})
    assert len({before, changed, digest(quick=False)}) == 3


def test_growth_can_be_narrowed_to_some_measures() -> None:
    known = dimensions(quick=True)
    assert list(known["finished"].narrowed({"w2", "w5"}).measures) == ["w2", "w5"]
    assert known["payload"].narrowed({"w2"}).measures == {}


def test_there_is_a_plot_for_each_dimension_that_was_measured() -> None:
    known = dimensions(quick=False)
    rows = summarise([record("step", 1, 1.1)], known)
    for name in ("width", "payload"):
        one = {"measure": next(iter(known[name].measures)), "dimension": name}
        rows += summarise([{**record("", 1, 1.1), **one}], known)
    found = report(rows, {name: dimension.sizes[0] for name, dimension in known.items()}, {}, MEASURED, quick=False)
    pictures = charts(found, known)
    assert set(pictures) == {"history", "width", "payload"}
    assert f"sqlite {sqlite3.sqlite_version}" in pictures["width"]
    assert "Medians of 1 rounds" in pictures["width"]


def test_publishing_leaves_what_was_not_measured_again(tmp_path: Path) -> None:
    known = dimensions(quick=False)
    smallest = {name: dimension.sizes[0] for name, dimension in known.items()}

    def run_of(measure: str, growth: float, **more: Any) -> dict[str, Any]:
        rows = summarise([{**record(measure, 1, growth), **more}], known)
        return report(rows, smallest, {}, MEASURED, quick=False)

    first = run_of("step", 1.1)
    for row in first["dimensions"]["history"]["rows"]:
        row |= {"date": "2026-01-02", "commit": "1234567", "dirty": False}
    write(first, known, tmp_path, beside_others=True)
    for more in (
        run_of("signal", 1.2),
        run_of("step", 1.3, store="postgres"),
        run_of("result", 1.4, dimension="width"),
    ):
        write(more, known, tmp_path, beside_others=True)
    found = read(tmp_path / "growth.json")
    assert list(found["dimensions"]) == ["history", "width"]
    rows = {(row["store"], row["measure"]): row for row in found["dimensions"]["history"]["rows"]}
    assert {place: row["growth"] for place, row in rows.items()} == {
        ("sqlite", "step"): 1.1,
        ("sqlite", "signal"): 1.2,
        ("postgres", "step"): 1.3,
    }
    assert rows["sqlite", "step"]["commit"] == "1234567"
    assert rows["sqlite", "signal"]["commit"] == MEASURED["commit"]
    assert "2026-01-02 (commit 1234567), " in (tmp_path / "growth-history.svg").read_text()
    again = merged(found, run_of("step", 2.0), known)
    assert [row["growth"] for row in again["dimensions"]["history"]["rows"]] == [1.3, 1.2, 2.0]
