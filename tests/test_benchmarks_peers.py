"""The comparison with peers, its pure parts: plan, command lines, figures, table, charts. No peer is installed."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks import provenance
from benchmarks.chart import Dot, DotRow, Line, dot_chart, line_chart, place, powers, short, ticks_between
from benchmarks.growth import main as growth_main
from benchmarks.peers import plan, running
from benchmarks.peers.__main__ import main as peers_main
from benchmarks.peers.catalogue import (
    CONTESTANTS,
    FEWER,
    HOLDFAST,
    PEERS,
    POSTGRES,
    SIZES,
    SQLITE,
    WORKLOADS,
    Figure,
)
from benchmarks.peers.drivers.rounds import Arguments, Once, measure, two_at_a_time
from benchmarks.peers.environments import Environment, prepare, reason
from benchmarks.peers.plan import Plan, named
from benchmarks.peers.publishing import chart, machine
from benchmarks.peers.running import Log, Runner
from benchmarks.peers.summary import summarise, table

ROOT = Path(__file__).resolve().parents[1]
EVERYTHING = Plan(rounds=2, workloads=list(WORKLOADS), stores=[POSTGRES, SQLITE], peers=list(PEERS))


def record(system: str, seconds: float, workload: str = "w1", **more: Any) -> dict[str, Any]:
    key = f"{more.get('round', 0)}/{workload}/{system}"
    base = {"key": key, "workload": workload, "store": POSTGRES, "system": system, "n": 10}
    return {**base, "units": 10, "seconds": seconds, "p50_ms": seconds * 1e3, "p99_ms": None, **more}


# ---------------------------------------------------------------------- plan and command lines


def test_every_round_measures_holdfast_beside_each_peer_in_turn() -> None:
    calls = list(EVERYTHING.calls())
    assert len({call.key for call in calls}) == len(calls)
    first = [c.contestant.label for c in calls if (c.round, c.workload, c.store) == (0, "w1", POSTGRES)]
    second = [c.contestant.label for c in calls if (c.round, c.workload, c.store) == (1, "w1", POSTGRES)]
    assert first == ["Holdfast", "DBOS", "DBOS, 4 in flight", "Absurd"]
    assert second == first[::-1]
    jobs = [c.contestant.label for c in calls if (c.round, c.workload, c.store) == (0, "w1_jobs", POSTGRES)]
    assert jobs == ["Holdfast", "Procrastinate", "PgQueuer", "PgQueuer, 500 a fetch"], (
        "job queues are put beside Holdfast's plain jobs"
    )
    rounds = [call.round for call in calls]
    assert rounds == sorted(rounds), "a run that is cut short has whole rounds behind it"


def test_every_workload_is_put_to_holdfast_on_both_stores_and_to_a_peer() -> None:
    for workload in WORKLOADS:
        for store in (POSTGRES, SQLITE):
            calls = [call for call in EVERYTHING.calls() if (call.workload, call.store) == (workload, store)]
            systems = {call.contestant.label for call in calls}
            assert HOLDFAST.label in systems
            is_alone = workload.endswith("_jobs") and store == SQLITE  # no job queue among the peers has SQLite
            assert len(systems) > 1 or is_alone


def test_times_are_compared_at_one_size_alone() -> None:
    for name, workload in WORKLOADS.items():
        if workload.figure is not Figure.RATE:
            assert len({each.sizes[name] for each in CONTESTANTS if name in each.sizes}) == 1


def test_all_get_the_same_sizes_but_dbos() -> None:
    for each in CONTESTANTS:
        differing = {name for name, size in each.sizes.items() if size != SIZES[name]}
        assert differing <= (set(FEWER) if each.peer == "dbos" else set())


def test_times_are_not_repeated_within_a_round() -> None:
    repeated = {name for each in CONTESTANTS for name in each.repeats}
    assert {WORKLOADS[name].figure for name in repeated} == {Figure.RATE}


def test_a_quick_plan_is_small_and_measures_the_same_things() -> None:
    quick = Plan(1, list(WORKLOADS), [POSTGRES, SQLITE], list(PEERS), quick=True)
    whole = Plan(1, list(WORKLOADS), [POSTGRES, SQLITE], list(PEERS))
    assert [(c.workload, c.store, c.contestant) for c in quick.calls()] == [
        (c.workload, c.store, c.contestant) for c in whole.calls()
    ]
    assert max(call.n for call in quick.calls()) <= 1_000
    assert quick.digest({}) != whole.digest({})


def test_other_versions_make_another_run() -> None:
    assert EVERYTHING.digest({"dbos": "1"}) != EVERYTHING.digest({"dbos": "2"})
    assert EVERYTHING.digest({"dbos": "1"}) == EVERYTHING.digest({"dbos": "1"})
    assert EVERYTHING.digest({}, "this code") != EVERYTHING.digest({}, "that code")


@pytest.mark.parametrize("changed", [{"settings_on": {"w5": ("--poll-seconds", "9")}}, {"repeats": {"w1": 99}}])
def test_other_settings_make_another_run(changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    before = EVERYTHING.digest({})
    monkeypatch.setattr(plan, "CONTESTANTS", (replace(CONTESTANTS[1], **changed), *CONTESTANTS[2:]))
    other = EVERYTHING.digest({})
    monkeypatch.setattr(plan, "CONTESTANTS", CONTESTANTS[1:])
    assert len({before, other, EVERYTHING.digest({})}) == 3


@pytest.mark.parametrize("contestant", CONTESTANTS, ids=lambda each: each.label)
def test_command_lines_name_driver_workload_store_and_size(contestant: Any) -> None:
    for store in contestant.stores:
        for workload, size in contestant.sizes.items():
            url = "postgresql://postgres@127.0.0.1:1/bench" if store == POSTGRES else "/tmp/x/bench.db"
            command = contestant.command(Path("python"), workload, store, url, size)
            assert command[1] == "-m"
            source = ROOT / (command[2].replace(".", "/") + ".py")
            assert f"def {workload}(" in source.read_text()
            assert command[3] == workload
            assert command[command.index("--n") + 1] == str(size)
            assert url.removeprefix("postgresql") in command[command.index("--url") + 1]


def test_dbos_gets_its_own_form_of_urls() -> None:
    dbos = next(each for each in CONTESTANTS if each.peer == "dbos")
    assert dbos.address(POSTGRES, "postgresql://u@h/d") == "postgresql+psycopg://u@h/d"
    assert dbos.address(SQLITE, "/tmp/a.db") == "sqlite:////tmp/a.db"


def test_holdfast_is_measured_whatever_peers_are_asked_for() -> None:
    asked = Plan(1, ["w3"], [SQLITE], ["dbos"])
    assert [call.contestant.label for call in asked.calls()] == ["Holdfast", "DBOS"]


def test_lists_are_read_in_the_order_of_the_catalogue_and_unknown_names_refused() -> None:
    assert named("w2, w1", ["w1", "w2", "w3"], "workload") == ["w1", "w2"]
    assert named(None, ["a", "b"], "store") == ["a", "b"]
    with pytest.raises(SystemExit, match="unknown workload: w99; there are w1, w2"):
        named("w99", ["w1", "w2"], "workload")


async def test_bulk_goes_in_two_batches_at_once() -> None:
    for n, most, batches in ((1, 1, 1), (7, 4, 2), (5_000, 2_000, 3)):
        begun: list[tuple[int, int]] = []
        both = asyncio.Event()

        async def start(first: int, count: int, begun: Any = begun, both: Any = both, batches: int = batches) -> None:
            begun.append((first, count))
            if len(begun) == min(2, batches):
                both.set()
            await both.wait()

        await two_at_a_time(n, start)
        assert len(begun) == batches
        assert max(count for _, count in begun) == most
        assert [number for first, count in sorted(begun) for number in range(first, first + count)] == list(range(n))


def test_a_round_does_its_size_as_often_as_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    sizes: list[int] = []

    def once(n: int) -> Once:
        sizes.append(n)
        return Once(n, 0.5, [0.001])

    measure(Arguments("w1", "url", 20, repeats=3), once)
    assert sizes == [2, 20, 20, 20], "a tenth first, which does not count"
    assert json.loads(capsys.readouterr().out) == {"units": 60, "seconds": 1.5, "p50_ms": 1.0, "p99_ms": 1.0}


def test_requirements_are_pinned() -> None:
    for peer in PEERS.values():
        assert all(re.fullmatch(r"[\w\[\]-]+==[\d.]+", requirement) for requirement in peer.requirements)
        assert any(requirement.startswith(peer.package) for requirement in peer.requirements)


# ---------------------------------------------------------------------- failures are named


def test_a_peer_that_does_not_install_is_named_with_its_reason(tmp_path: Path) -> None:
    from benchmarks.peers.catalogue import Peer

    in_the_way = tmp_path / "a-file"
    in_the_way.write_text("")
    found = prepare("nobody", Peer("nobody", ("nobody==1.0",), "dbos_driver"), in_the_way)
    assert found.failure.startswith("did not install: ")
    shown = table(summarise([record("Holdfast", 1.0)]), {"nobody": found.failure})
    assert "no measurement" not in shown
    assert "no measurement" in table(summarise([record("Holdfast", 1.0)]), {}, quick=True)
    assert "nobody is missing: it did not install: " in shown


def test_reasons_keep_addresses_and_paths_to_themselves() -> None:
    output = (
        "Looking in https://packages.example.com/a\nERROR: No matching distribution at https://example.com/x for y\n"
    )
    assert reason(output) == "ERROR: No matching distribution at ... for y"
    assert reason("") == "it said nothing"


@pytest.mark.parametrize(
    ("program", "timeout_seconds", "failure"),
    [
        ("raise SystemExit('no schema here')", 60.0, "ended with exit code 1: no schema here"),
        ("print('not a result')", 60.0, "ended with exit code 0: not a result"),
        ("import time; time.sleep(60)", 1.0, "took longer than 1 s"),
    ],
)
def test_a_call_that_fails_says_why_and_ends_in_time(
    tmp_path: Path, program: str, timeout_seconds: float, failure: str
) -> None:
    class Driver:
        label, peer = "Holdfast", None

        def command(self, *_: object) -> list[str]:
            return [sys.executable, "-c", program]

    call: Any = type("Call", (), {})()
    call.contestant, call.store, call.workload, call.n, call.round, call.key = Driver(), SQLITE, "w1", 1, 0, "k"
    call.repeats, call.command = 1, Driver().command
    server: Any = None
    found = Runner(server, tmp_path, {}, timeout_seconds=timeout_seconds).run(call)
    assert found["failed"] == failure
    assert found["system"] == "Holdfast"


# ---------------------------------------------------------------------- what was measured stays


def test_a_run_that_was_cut_short_goes_on_after_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    log = Log(path, "plan-1", resume=False)
    log.add({"key": "a", "units": 1})
    with path.open("a") as file:
        file.write('{"key": "b", "uni')
    assert set(Log(path, "plan-1", resume=True).records) == {"a"}
    assert Log(path, "plan-2", resume=True).records == {}, "another plan's results are not mixed in"


def test_what_failed_is_tried_again_when_a_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    log = Log(path, "plan", resume=False)
    log.add({"key": "a", "failed": "no room"})
    log.add({"key": "b"})
    assert set(Log(path, "plan", resume=True).records) == {"b"}


def test_a_new_run_forgets_the_last(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    Log(path, "plan", resume=False).add({"key": "a"})
    assert Log(path, "plan", resume=False).records == {}


# ---------------------------------------------------------------------- figures and table


def test_rates_give_medians_spread_and_how_many_times_faster_holdfast_is() -> None:
    records = [record("Holdfast", s, round=i) for i, s in enumerate((0.01, 0.02, 0.05))]
    records += [record("DBOS", s, round=i) for i, s in enumerate((0.1, 0.2, 0.5))]
    ours, theirs = summarise(records)
    assert (ours["system"], ours["median"], ours["ratio"]) == ("Holdfast", 500.0, None)
    assert (theirs["median"], theirs["ratio"], theirs["rounds"]) == (50.0, 10.0, 3)
    assert theirs["spread"] == 0.8


@pytest.mark.parametrize("workload", ["w4", "w5"])
def test_times_are_better_when_smaller(workload: str) -> None:
    ours, theirs = summarise([record("Holdfast", 0.5, workload), record("Absurd", 0.25, workload)])
    assert ours["median"] == pytest.approx(500.0 if workload == "w5" else 0.5)
    assert theirs["ratio"] == 0.5, "a peer that is ahead is shown ahead"


def test_holdfast_stands_first_whoever_was_measured_first() -> None:
    rows = summarise([record("PgQueuer", 1.0), record("DBOS", 1.0), record("Holdfast", 1.0)])
    assert [row["system"] for row in rows] == ["Holdfast", "PgQueuer", "DBOS"]


def test_the_table_shows_failures_and_noise() -> None:
    failed = {key: value for key, value in record("Absurd", 1).items() if key not in ("units", "seconds")}
    records = [record("Holdfast", 0.01), record("DBOS", 0.1), record("DBOS", 0.5, round=1), {**failed, "failed": "no"}]
    shown = table(summarise(records), {})
    assert re.search(r"Absurd +10 failed: no", shown)
    assert re.search(r"DBOS +10 +60 a second +0\.80! +2 +17 x", shown)


def test_the_table_shows_how_often_a_round_did_its_size() -> None:
    assert re.search(r"Holdfast +5 x 10 ", table(summarise([record("Holdfast", 0.01, repeats=5)]), {}))


# ---------------------------------------------------------------------- charts


def test_axes_are_logarithmic_and_hold_all_values() -> None:
    assert powers(0.02, 3) == [0.01, 0.1, 1.0, 10.0]
    assert powers(1, 1) == [1.0, 10.0]
    assert ticks_between(0.5, 2) == [0.5, 1.0, 2.0]
    assert ticks_between(1, 1) == [1.0, 2.0]
    assert ticks_between(0.3, 7) == [0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
    assert place(10, 1, 100, 0, 200) == 100
    assert [short(value) for value in (0.001, 0.5, 1, 10_000, 5_000_000)] == ["1/1,000", "1/2", "1", "10,000", "5M"]


def test_a_dot_chart_is_well_formed_and_has_every_dot() -> None:
    rows = [DotRow("w1 <many>", "note & all", [Dot("Holdfast", 1, "a"), Dot("DBOS", 0.01, "b < c")])]
    root = ElementTree.fromstring(dot_chart("Title", ["one", "two"], {"On X": rows}, "axis"))
    circles = [each for each in root.iter() if each.tag.endswith("circle")]
    assert len(circles) == 4, "two in the legend, two in the row"
    assert any("b < c" in (each.text or "") for each in root.iter())


def test_a_line_chart_tells_stores_apart_and_shares_colours() -> None:
    lines = [Line("w1", [(10, 1), (1000, 1.2)]), Line("w1", [(10, 1), (1000, 3)], dashed=True)]
    root = ElementTree.fromstring(line_chart("Title", [], lines, "x", "y"))
    drawn = [each for each in root.iter() if each.tag.endswith("polyline")]
    assert [("stroke-dasharray" in each.attrib) for each in drawn] == [False, True]
    assert drawn[0].attrib["stroke"] == drawn[1].attrib["stroke"]


def test_the_published_chart_has_date_versions_machine_and_who_is_missing() -> None:
    found = {
        "date": "2026-01-02",
        "machine": {"cores": 2, "memory_gb": 24, "architecture": "x86_64", "system": "Linux"},
        "commit": "1234567",
        "dirty": True,
        "versions": {"holdfast": "0.1.0", "dbos": "3.3.0"},
        "durability": "fsync on",
        "settings": {"Holdfast": "200 in flight"},
        "missing": {"absurd": "did not install: no network"},
        "quick": False,
        "rows": summarise([record("Holdfast", 0.01), record("DBOS", 0.1)]),
    }
    picture = chart(found)
    for part in ("2026-01-02", "2 cores, 24 GB, x86_64, Linux", "dbos 3.3.0", "absurd, it did not install: no network"):
        assert part in picture
    for part in ("commit 1234567, changed", "Holdfast: 200 in flight.", "fsync on"):
        assert part in picture
    assert "medians of 1 rounds" in picture
    assert "no measurement" not in picture
    assert "no measurement" in chart({**found, "quick": True})


def published(*records: dict[str, Any]) -> str:
    """The chart of these."""
    none: dict[str, str] = {}
    machine_facts = {"cores": 2, "memory_gb": 24, "architecture": "x86_64", "system": "Linux"}
    facts = {"date": "", "commit": None, "dirty": None, "machine": machine_facts, "versions": none, "missing": none}
    return chart({**facts, "settings": {"Holdfast": ""}, "durability": "", "quick": False, "rows": summarise(records)})


def test_the_chart_shows_what_failed() -> None:
    failed = {"failed": "took longer than 60 s"}
    assert "; DBOS failed" in published(record("Holdfast", 0.01), record("DBOS", 0.1, **failed))
    picture = published(record("Holdfast", 0.01, **failed), record("DBOS", 0.1))
    assert ">Holdfast failed<" in picture
    assert "<title>DBOS" not in picture, "there is nothing to compare it with"


def test_the_chart_marks_rounds_that_differ() -> None:
    quiet = [record("Holdfast", 0.01), record("DBOS", 0.1), record("DBOS", 0.11, round=1)]
    assert "Hollow" not in published(*quiet)
    noisy = published(*quiet, record("DBOS", 0.5, round=2))
    assert "Hollow: the rounds differ by more than 30%." in noisy
    assert noisy.count('fill="none"') == 1


def test_what_differs_much_gets_two_more_rounds_beside_holdfast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"Holdfast": iter([1.0, 1.0, 1.1, 1.1]), "Absurd": iter([3.0, 3.0]), "DBOS": iter([2.0, 9.0, 3.0, 3.0])}
    seconds["DBOS, 4 in flight"] = iter([2.0, 2.0])

    class Server:
        def __init__(self, **_: object) -> None: ...

        def __enter__(self) -> Server:
            return self

        def __exit__(self, *_: object) -> None: ...

    def run_call(_: Runner, call: Any) -> dict[str, Any]:
        found = record(call.contestant.label, next(seconds[call.contestant.label]), round=call.round)
        return {**found, "key": call.key}

    monkeypatch.setattr(running, "PostgresServer", Server)
    monkeypatch.setattr(Runner, "run", run_call)
    asked = Plan(2, ["w1"], [POSTGRES], ["dbos", "absurd"])
    there = {name: Environment(Path("python")) for name in asked.peers}
    log = Log(tmp_path / "run.jsonl", "plan", resume=False)
    assert running.run(asked, there, log, timeout_seconds=1, budget_seconds=60)
    rounds = {row["system"]: row["rounds"] for row in summarise(log.records.values())}
    assert rounds == {"Holdfast": 4, "DBOS": 4, "DBOS, 4 in flight": 2, "Absurd": 2}


def test_facts_say_which_commit_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    assert provenance.source() == {"commit": None, "dirty": None}
    for folder in provenance.MEASURED:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text("1")
    for command in (("init",), ("add", "."), ("commit", "-m", "first")):
        git(*command)
    clean, before = provenance.source(), provenance.code()
    assert re.fullmatch("[0-9a-f]{7,}", str(clean["commit"]))
    assert clean["dirty"] is False
    (tmp_path / "README.md").write_text("what is written about it may differ")
    assert (provenance.source(), provenance.code()) == (clean, before)
    (tmp_path / "src" / "a.py").write_text("2")
    assert provenance.source() == {**clean, "dirty": True}
    assert provenance.code() != before, "a run does not go on with results of other code"


def test_the_machine_is_described_by_its_class_alone() -> None:
    assert set(machine()) == {"cores", "memory_gb", "architecture", "system"}
    assert json.dumps(machine())


# ---------------------------------------------------------------------- both commands


@pytest.mark.parametrize("module", ["benchmarks.peers", "benchmarks.growth"])
def test_both_commands_explain_themselves(module: str) -> None:
    command = [sys.executable, "-m", module, "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "--quick" in done.stdout
    assert "--publish" in done.stdout


@pytest.mark.parametrize("main", [peers_main, growth_main])
def test_what_a_quick_run_finds_is_not_published(main: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--quick", "--publish"])
    assert "no measurement" in capsys.readouterr().err


def test_an_environment_that_failed_has_no_version() -> None:
    assert Environment(Path("python"), failure="did not install: x").version == ""
