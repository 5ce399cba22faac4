"""Killed at every commit, every outcome ends as if nothing had happened (issue 2, proof; seed sections 1 and 4)."""

from __future__ import annotations

import json

import pytest

from holdfast.core.crashpoints import CRASH_POINTS
from holdfast.core.identity import PromiseId
from holdfast.testing.crash import Scenario, crash_everywhere
from holdfast.testing.stores import Stores
from tests.simulation.outcomes import app
from tests.simulation.scenarios import (
    MAY_DIFFER,
    SCENARIOS,
    await_a_pack,
    cancel_cascades,
    children_quorum,
    next_and_done,
    partition_key,
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_crash_at_any_commit_changes_nothing(stores: Stores, scenario: Scenario) -> None:
    name, key, status, result = SCENARIOS[scenario]
    report = await crash_everywhere(app, scenario, stores=stores, ignore=MAY_DIFFER.get(scenario, frozenset()))
    ended = report.ledger[str(PromiseId.of(name, key))]
    assert (ended["status"], json.loads(str(ended["result"] or "null"))) == (status, result)
    # A commit may be grouped with another in one run and not in the next, so the numbers may differ by a few.
    assert {point for point in report.reached if not report.died_at[point]} == set()
    assert report.runs >= len(report.reached)


@pytest.mark.parametrize(
    "scenario",
    [next_and_done, await_a_pack, children_quorum, cancel_cascades, partition_key],
    ids=lambda scenario: scenario.__name__,
)
async def test_a_crash_during_recovery_changes_nothing(stores: Stores, scenario: Scenario) -> None:
    """The second process dies too: while it takes back what the first held, or just after."""
    report = await crash_everywhere(
        app,
        scenario,
        stores=stores,
        points=["flush.before", "flush.after"],
        second=["reap.after", "pick.after", "flush.after"],
    )
    assert report.died_at["reap.after"] > 0


async def test_every_crash_point_is_visited_by_some_scenario(stores: Stores) -> None:
    reached: set[str] = set()
    for scenario in SCENARIOS:
        reached |= (await crash_everywhere(app, scenario, stores=stores, points=())).reached.keys()
    assert reached == set(CRASH_POINTS)
