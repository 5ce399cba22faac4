"""The bare journal that workflows are measured beside, and the aims: tiny sizes, and arithmetic. Nothing is timed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from benchmarks import bare_shapes as shapes
from benchmarks.aims import AIMS, AtMost, OfBare
from benchmarks.bare_journal import Journal, Record, Settled, opened
from benchmarks.environment import Round
from benchmarks.figures import HEADER, figures, line
from benchmarks.peers.catalogue import Figure
from benchmarks.workloads import WORKLOADS, Workload

SHAPES: dict[str, tuple[shapes.Shape, int]] = {
    "w1": (shapes.workflows(1), 3),
    "w2": (shapes.workflows(10), 30),
    "w3": (shapes.sequence, 3),
    "w4": (shapes.fan_out, 3),
    "w5": (shapes.signals, 3),
    "w6": (shapes.starts, 3),
    "w7": (shapes.recovery, 3),
    "w8": (shapes.sleepers, 3),
}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a store that a journal may be put beside."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.mark.parametrize("name", SHAPES)
async def test_every_shape_runs_on_both_stores(name: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "SLEEP_SECONDS", 0.001)
    shape, counted = SHAPES[name]
    async with opened(url) as journal:
        found = await shape(journal, name, 3)
    assert found.count == counted
    assert found.seconds > 0


async def test_what_is_appended_is_in_the_store_before_the_writer_goes_on(url: str) -> None:
    async with opened(url) as journal:
        await journal.append(Record("a", 0, "start", {"k": 1}), Record("a", 1, "step", 7))
        await journal.append(Record("b", 0, "start"))
        assert await journal.log.read("a") == [Record("a", 0, "start", {"k": 1}), Record("a", 1, "step", 7)]


async def test_a_run_leaves_its_start_its_steps_and_its_end(url: str) -> None:
    async with opened(url) as journal:
        await shapes.workflows(2)(journal, "run", 1)
        kinds = [record.kind for record in await journal.log.read("run-0")]
    assert kinds == ["start", "step", "step", "done"]


async def test_a_commit_that_fails_fails_whoever_waits_for_it_and_no_other(url: str) -> None:
    async with opened(url) as journal:
        await journal.append(Record("a", 0, "start"))
        with pytest.raises(Exception, match=r"(?i)unique"):
            await journal.append(Record("a", 0, "start"))


async def test_a_sample_is_taken_on_a_journal_of_its_own_that_is_gone_afterwards(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapes, "WARM_RUNS", 3)
    monkeypatch.setattr(shapes, "SAMPLE_SECONDS", 0)
    sample = shapes.beside(shapes.sequence)
    assert [(await sample(url, 2)).count for _ in range(2)] == [2, 2]
    assert os.listdir(tmp_path) == []


class HeldLog:
    """Says that records are durable when the test lets it."""

    def __init__(self) -> None:
        self.commits: list[list[str]] = []
        self.settle: list[Settled] = []

    def write(self, records: Sequence[Record], settled: Settled) -> None:
        self.commits.append([record.id for record in records])
        self.settle.append(settled)

    async def read(self, run_id: str) -> list[Record]:
        return []


async def test_records_that_wait_together_share_a_commit() -> None:
    log = HeldLog()
    journal = Journal(log)
    first = [journal.append(Record(name, 0, "start")) for name in "ab"]
    await asyncio.sleep(0)
    later = [journal.append(Record(name, 0, "start")) for name in "cd"]
    await asyncio.sleep(0)
    assert log.commits == [["a", "b"]], "one commit at a time, and nothing goes out beside it"
    assert not any(durable.done() for durable in first)
    log.settle[0](None)
    assert all(durable.done() for durable in first)
    await asyncio.sleep(0)
    assert log.commits == [["a", "b"], ["c", "d"]]
    assert not any(durable.done() for durable in later)
    log.settle[1](None)
    assert all(durable.done() for durable in later)


# ---------------------------------------------------------------------- aims


def row(name: str, ours: Round, bare: Round, figure: Figure, store: str = "sqlite") -> dict[str, object]:
    async def never(url: str, n: int) -> Round:
        raise AssertionError

    return figures(name, store, ours.count, Workload(never, never, ours.count, "a unit", figure), [ours], [bare])


def test_a_rate_is_a_share_of_the_bare_rate() -> None:
    found = row("w1", Round(100, 1.0), Round(400, 1.0), Figure.RATE)
    assert (found["value"], found["bare_value"], found["ratio"]) == (100, 400, 0.25)
    assert found["aim_share"] == pytest.approx(15 / 43, abs=0.001)
    assert found["reached"] is False


def test_a_time_is_turned_around_so_that_more_is_faster() -> None:
    found = row("w4", Round(1_000, 0.08), Round(1_000, 0.019), Figure.SECONDS)
    assert found["ratio"] == pytest.approx(0.019 / 0.08, abs=0.001)
    assert found["reached"] is True


def test_of_messages_the_medians_are_compared() -> None:
    ours = Round(3, 9.0, latencies_ms=[1.0, 2.0, 100.0])
    bare = Round(3, 9.0, latencies_ms=[0.1, 0.5, 50.0])
    found = row("w5", ours, bare, Figure.P50_MS)
    assert (found["value"], found["bare_value"], found["ratio"]) == (2.0, 0.5, 0.25)


def test_a_store_has_an_aim_of_its_own() -> None:
    ours, bare = Round(30, 1.0), Round(100, 1.0)
    assert row("w1", ours, bare, Figure.RATE, "sqlite")["reached"] is False
    assert row("w1", ours, bare, Figure.RATE, "postgresql://somewhere/else")["reached"] is True


def test_recovery_has_a_time_to_keep_whatever_the_bare_journal_takes() -> None:
    assert row("w7", Round(1_000, 0.019), Round(1_000, 0.0001), Figure.SECONDS)["reached"] is True
    assert row("w7", Round(1_000, 0.021), Round(1_000, 0.5), Figure.SECONDS)["reached"] is False


def test_the_table_says_in_a_word_whether_an_aim_is_reached() -> None:
    reached = line(row("w7", Round(1_000, 0.019), Round(1_000, 0.001), Figure.SECONDS))
    missed = line(row("w1", Round(100, 1.0), Round(400, 1.0), Figure.RATE))
    without = line(row("w9", Round(100, 1.0), Round(400, 1.0), Figure.RATE))
    assert {"0.0190", "20", "ms", "yes"} <= set(reached.split())
    assert {"100", "400", "25.0%", "34.9%", "no"} <= set(missed.split())
    assert not {"yes", "no"} & set(without.split())
    assert all(len(shown.rstrip()) <= len(HEADER) for shown in (reached, missed, without)), (
        "columns stand under their names"
    )


def test_a_verdict_on_a_noisy_machine_has_a_question_mark() -> None:
    found = row("w7", Round(1_000, 0.019), Round(1_000, 0.001), Figure.SECONDS)
    for spread in ("spread", "bare_spread"):
        assert "yes?" in line({**found, spread: 0.31}).split()
        assert "yes" in line({**found, spread: 0.3}).split()


def test_an_aim_that_a_slow_disk_made_easy_has_a_question_mark() -> None:
    fast, slow = Round(43_000, 1.0), Round(4_300, 1.0)
    assert "yes" in line(row("w1", Round(20_000, 1.0), fast, Figure.RATE)).split()
    assert "yes?" in line(row("w1", Round(2_000, 1.0), slow, Figure.RATE)).split()
    assert "no" in line(row("w1", Round(1_000, 1.0), slow, Figure.RATE)).split(), "it was easy, and missed all the same"
    assert row("w4", Round(1_000, 1.0), Round(1_000, 0.038), Figure.SECONDS)["bare_of_reference"] == 0.5


def test_every_workflow_workload_but_the_last_has_an_aim() -> None:
    assert set(AIMS) == {name for name in WORKLOADS if name.startswith("w")} - {"w9"}
    assert all(isinstance(aim, OfBare | AtMost) for aim in AIMS.values())
