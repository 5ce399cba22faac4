"""What `make bench-peers` and `make bench-growth` do with Holdfast runs, at tiny sizes. Nothing is timed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import workloads
from benchmarks.growth_load import NothingToCopyError, fill
from benchmarks.growth_plan import dimensions
from benchmarks.growth_work import one_finished
from benchmarks.loops import run
from benchmarks.peers.catalogue import HOLDFAST, POSTGRES, SQLITE
from benchmarks.peers.drivers import holdfast_driver, rounds
from benchmarks.peers.drivers.rounds import Arguments
from benchmarks.peers.plan import Plan
from benchmarks.peers.running import Runner

from holdfast import App, Status
from holdfast.store.values import ExecutionFilter
from tests.cli.databases import postgres_database

TINY = 4
FINISHED = 12
ON_POSTGRES = (
    "w1",
    "w3",
    "w5",
    "w6",
    "w7",
    "w8",
    "w9",
)  # the others differ from these in what the driver does, not there
MEASURES = [
    (name, key, store)
    for name, dimension in dimensions(quick=True).items()
    for key in dimension.measures
    for store in (SQLITE, POSTGRES)
    if store == SQLITE or not dimension.filled or key in ("w6", "w8")  # the others are the benchmarks' own workloads
]


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Of an empty ledger, on the store that the test names."""
    if request.param == SQLITE:
        yield str(tmp_path / "ledger.db")
        return
    with postgres_database(request.getfixturevalue("postgres_url")) as found:
        yield found


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a measurement sleeps for, and a test need not."""
    monkeypatch.setattr(rounds, "SETTLE_SECONDS", 0.0)
    for module in (holdfast_driver, workloads):
        monkeypatch.setattr(module, "NAP_SECONDS", 0.01)
        monkeypatch.setattr(module, "LEASE_OVER_SECONDS", 0.1)
    monkeypatch.setattr(workloads, "LEASE_SECONDS", 1.0)


@pytest.mark.parametrize(
    ("name", "url"),
    [(name, SQLITE) for name in HOLDFAST.sizes] + [(name, POSTGRES) for name in ON_POSTGRES],
    indirect=["url"],
)
def test_the_driver_does_every_workload(name: str, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    repeats = HOLDFAST.repeats.get(name, 1) > 1
    asked = Arguments(name, url, TINY, repeats=1 + repeats, in_flight=20, lease_seconds=1.0)
    getattr(holdfast_driver, name)(asked)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["units"] == TINY * asked.repeats * (10 if name == "w2" else 1)
    assert found["seconds"] > 0
    assert (found["p50_ms"] is not None) == (name in ("w5", "w1_each"))


def test_a_call_of_the_plan_runs_from_its_command_line(tmp_path: Path) -> None:
    (call,) = Plan(1, ["w1"], [SQLITE], [], quick=True).calls()
    server: object = None
    found = Runner(server, tmp_path, {}, timeout_seconds=60).run(call)  # type: ignore[arg-type]
    assert (found.get("failed"), found["units"]) == (None, call.n)


@pytest.mark.parametrize("url", [SQLITE, POSTGRES], indirect=True)
async def test_a_ledger_is_filled_with_copies_of_what_ran(url: str) -> None:
    await one_finished(url)
    for total in (3, FINISHED):
        await fill(url, total)
        async with App("filled", url) as app:
            store = await app.store()
            assert await store.count(ExecutionFilter()) == {Status.DONE: total}
            newest, *_ = await app.search(limit=1)
            assert await newest.events(), "its journal is a copy, too"


@pytest.mark.parametrize("url", [SQLITE, POSTGRES], indirect=True)
async def test_an_empty_ledger_has_nothing_to_copy(url: str) -> None:
    async with App("empty", url) as app:
        await app.store()
    with pytest.raises(NothingToCopyError):
        await fill(url, FINISHED)


@pytest.mark.parametrize(("name", "key", "url"), MEASURES, indirect=["url"])
def test_growth_measures_every_cost(name: str, key: str, url: str) -> None:
    dimension = dimensions(quick=True)[name]
    if dimension.filled:
        run(one_finished(url))
        run(fill(url, FINISHED))
    assert run(dimension.measures[key].cost(url, dimension.quick_sizes[-1])) > 0
