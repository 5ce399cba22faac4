"""Engine and machines against a model: several workers that die, sleep and lose replies; signals late and repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from holdfast.core.identity import PromiseId
from holdfast.testing.faults import Fault, lose_reply, lose_request
from holdfast.testing.stores import PostgresStores, SqliteStores, Stores
from tests.simulation.world import COLLECTORS, HOUR, PARENT, SETTINGS, World, collector

SLOTS = st.integers(0, 2)
TARGETS = st.integers(0, COLLECTORS - 1)
FAULTS = st.sampled_from(
    [
        (None, None),
        ("flush", lose_reply),
        ("flush", lose_request),
        ("pick", lose_reply),
        ("reclaim", lose_reply),
        ("reap", lose_reply),
        ("fire_timers", lose_reply),
    ]
)
POINTS = st.sampled_from(["flush.before", "flush.after", "pick.after", "timers.after"])

EXAMPLES = {"sqlite": 60, "postgres": 30}  # some ten seconds each


class EngineMachine(RuleBasedStateMachine):
    """One example is one world; the loop and the connections are shared by all."""

    def __init__(self, runner: asyncio.Runner, stores: Stores) -> None:
        super().__init__()
        self._runner = runner
        self.world = World(stores)
        self._do(self.world.open())

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        self._runner.run(work)

    @rule(number=TARGETS, dedup=st.sampled_from([None, "a", "b", "c"]))
    def add(self, number: int, dedup: str | None) -> None:
        self._do(self.world.signal(number, "add", dedup))

    @rule()
    def repeat(self) -> None:
        """Every sender says again what it has said, in the middle or long after (ruling E12)."""
        self._do(self.world.repeat())

    @rule(number=TARGETS)
    def stop(self, number: int) -> None:
        self._do(self.world.signal(number, "stop", "stop"))

    @rule(slot=SLOTS, fault=FAULTS)
    def work(self, slot: int, fault: tuple[str | None, Fault | None]) -> None:
        self._do(self.world.work(slot, *fault))

    @rule(slot=SLOTS)
    def hold(self, slot: int) -> None:
        self._do(self.world.hold(slot))

    @rule(slot=SLOTS)
    def oversleep(self, slot: int) -> None:
        self._do(self.world.advance(SETTINGS.lease_seconds + 1, asleep=slot))

    @rule()
    def pass_the_deadline(self) -> None:
        self._do(self.world.advance(HOUR + 1, asleep=None))

    @rule(slot=SLOTS)
    def reap(self, slot: int) -> None:
        self._do(self.world.reap(slot))

    @rule(slot=SLOTS, point=POINTS, occurrence=st.integers(1, 3))
    def die(self, slot: int, point: str, occurrence: int) -> None:
        self._do(self.world.die(slot, point, occurrence))

    @rule(slot=SLOTS)
    def kill(self, slot: int) -> None:
        self._do(self.world.kill(slot))

    @rule(slot=SLOTS)
    def retire(self, slot: int) -> None:
        self._do(self.world.retire(slot))

    @rule(whom=st.sampled_from([PARENT, *map(collector, range(COLLECTORS))]), cascade=st.booleans())
    def cancel(self, whom: PromiseId, cascade: bool) -> None:
        self._do(self.world.cancel(whom, cascade))

    @rule(number=TARGETS, paused=st.booleans())
    def pause(self, number: int, paused: bool) -> None:
        self._do(self.world.pause(number, paused))

    @invariant()
    def the_ledger_agrees(self) -> None:
        self._do(self.world.check())

    def teardown(self) -> None:
        try:
            self._do(self.world.finish())
        finally:
            self._do(self.world.close())


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def test_engine_and_machines_agree_with_the_model(
    backend: str, runner: asyncio.Runner, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    stores: Stores
    if backend == "sqlite":
        stores = SqliteStores(tmp_path)
    else:
        stores = PostgresStores(request.getfixturevalue("postgres_schemas"))
    runner.run(stores.open())
    try:
        run_state_machine_as_test(
            lambda: EngineMachine(runner, stores),  # type: ignore[arg-type]  # it calls what it is given
            settings=settings(
                max_examples=EXAMPLES[backend],
                stateful_step_count=50,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        runner.run(stores.close())
