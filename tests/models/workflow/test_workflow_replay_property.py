"""Warm resume, replay, eviction, moves, the fast lane and the short way of a sleep all write the same journal, and the
same rows (DESIGN 6, rulings B15, B16)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import cycle
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdfast import PromiseId, Status
from holdfast.models.workflow import members
from holdfast.models.workflow.lane import Lane
from holdfast.models.workflow.members import Members
from holdfast.models.workflow.promise import Wait
from holdfast.models.workflow.run import Run
from holdfast.store.base import Store
from holdfast.store.values import ExecutionView
from holdfast.testing.audit import all_views, audit
from holdfast.testing.faults import Borrowed
from holdfast.testing.stores import Stores
from tests.models.workflow.generated import NAMES, QUEUES, Op, Program, declare, draw_program
from tests.models.workflow.kit import Facts, HandWorker, Rig

EXAMPLES = {"sqlite": 60, "postgres": 6}
ROUNDS = 60
# Asleep with nothing else to come, and while a call that was left waits for its next attempt, before the sleep is over.
SLEEPS = Program([Op("sleep", 2), Op("any", 0, [Op("flaky", 3), Op("sleep", 1)]), Op("sleep", 3), Op("remote", 1)])
# Calls that were cancelled before they began, and are awaited; and one that a cancel finds between two attempts.
LATE = Program([Op("late", 0, [Op("inline", 1), Op("remote", 1)])])
# The cancel of the run is heard of with the end of a child that it ends, and a signal came behind that.
CHILD = Op("child", 0, [Op("all", 0, [Op("inline", 0)])])
CAME_TOO = Program([Op("drop", 1, [Op("inline", 0), Op("inline", 0), CHILD]), Op("signal", 0)])
REST = Program([Op("any", 0, [Op("flaky", 3), Op("sleep", 3)])], [Op("rest")])
# From how many members left on a wait names the join set: then programs as small as these have such waits.
WIDTHS = st.sampled_from([members.NAMED_MOST, 2, 0])
TIMES = ("fire_at", "time", "retry_at")


@dataclass
class Played:
    """What a run left: of each execution its status, its result and its journal; and how it waited on its way."""

    executions: dict[str, tuple[Status, Any, list[Facts]]]
    parked: list[list[Any]]
    ran: Counter[str]


async def play(stores: Stores, program: Program, mode: str, cancel_at: int | None) -> Played:
    await stores.reset()
    began = stores.clock.now
    rig = Rig(stores, store=cast(Store, Borrowed(stores.store)))
    ran: Counter[str] = Counter()
    parked: list[list[Any]] = []
    generated = declare(rig.app, ran, backend=stores.backend)
    try:
        workers = [await _worker(rig, mode) for _ in range(2 if mode == "moving" else 1)]
        handle = await generated.options(key="the one").start(program)
        for round_number in range(ROUNDS):
            await _work(rig, workers, mode)
            parked.append([_waiting(view, began) for view in await all_views(stores.store)])
            if not await _live(stores):
                break
            await _signal_all(rig, NAMES[round_number % 2], round_number)
            if round_number == cancel_at:
                await handle.cancel()
            await rig.advance(1)
        await rig.check_journals()
        assert not await audit(stores.store)
        assert not await _live(stores), "it never ended"
        return Played(await _executions(rig, began), parked, ran)
    finally:
        await rig.close()


async def _worker(rig: Rig, mode: str) -> HandWorker:
    # One claim at a time: which of two commits comes first must not depend on the machine.
    return await rig.make_worker(warm_most=0 if mode == "cold" else None, concurrency=1, queues=QUEUES)


async def _work(rig: Rig, workers: list[HandWorker], mode: str) -> None:
    idle = 0
    while idle < len(workers):
        workers.append(workers.pop(0))
        idle = 0 if await workers[0].run_once() else idle + 1
        if mode == "evicted":
            rig.forget()


def _waiting(view: ExecutionView, began: datetime) -> tuple[Any, ...]:
    """A row between two rounds: what may wake it, and all else that a worker goes by."""
    wakes_in = None if view.wake_at is None else (view.wake_at - began).total_seconds()
    return view.promise, view.status, view.awaits, wakes_in, view.children_pending, view.attempt, view.journal_length


async def _live(stores: Stores) -> list[PromiseId]:
    views = await all_views(stores.store)
    assert not [view.error for view in views if view.status is Status.STRANDED]
    return [PromiseId.from_bytes(view.promise) for view in views if not view.status.is_terminal]


async def _signal_all(rig: Rig, name: str, payload: int) -> None:
    for promise in await _live(rig.stores):
        await rig.app.handle(promise).signal(name, payload)


async def _executions(rig: Rig, began: datetime) -> dict[str, tuple[Status, Any, list[Facts]]]:
    found = {}
    for view in await all_views(rig.stores.store):
        promise = PromiseId.from_bytes(view.promise)
        facts = await rig.facts(promise)
        for fact in facts:
            for name in TIMES:
                if name in fact:
                    fact[name] = (datetime.fromisoformat(fact[name]) - began).total_seconds()
        found[str(promise)] = (view.status, (view.result, view.published), facts)
    return found


@st.composite
def programs(draw: st.DrawFn) -> Program:
    return draw_program(lambda below: draw(st.integers(0, below - 1)))


@pytest.mark.parametrize("mode", ["cold", "evicted", "moving", "no lane", "no short sleep"])
def test_every_way_of_going_on_writes_the_same_journal(
    backend: str, mode: str, make_stores: Callable[[str], Stores]
) -> None:
    with asyncio.Runner() as runner:
        stores = make_stores(backend)
        runner.run(stores.open())

        @settings(max_examples=EXAMPLES[backend], deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @example(program=SLEEPS, cancel_at=None, named_most=members.NAMED_MOST)
        @example(program=LATE, cancel_at=None, named_most=0)
        @example(program=REST, cancel_at=0, named_most=0)
        @example(program=CAME_TOO, cancel_at=0, named_most=members.NAMED_MOST)
        @given(program=programs(), cancel_at=st.none() | st.integers(0, 4), named_most=WIDTHS)
        def compare(program: Program, cancel_at: int | None, named_most: int) -> None:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(members, "NAMED_MOST", named_most)
                warm = runner.run(play(stores, program, "warm", cancel_at))
                if mode == "no lane":
                    patched.setattr(Lane, "_next_in_lane", lambda run: None)
                elif mode == "no short sleep":
                    patched.setattr(Run, "_asleep_until_us", lambda run: None)
                other = runner.run(play(stores, program, mode, cancel_at))
            assert other.executions == warm.executions
            assert other.parked == warm.parked
            assert other.ran == warm.ran

        try:
            compare()
        finally:
            runner.run(stores.close())


JOINS = Program(
    [
        Op("join", 0, [Op("remote", 1), Op("flaky", 2), Op("remote_flaky", 1)]),
        Op("limited", 1, [Op("remote", 2), Op("flaky", 3), Op("remote", 3)]),
        Op("quorum", 1, [Op("remote", 1), Op("fail", 1), Op("flaky", 2)]),
    ],
    [Op("join", 0, [Op("remote", 1), Op("flaky", 1)])],
)


def test_which_form_a_wait_for_a_join_set_has_changes_nothing_else(
    backend: str, make_stores: Callable[[str], Stores]
) -> None:
    """Nor does it if replays come to it that would have written the other one."""
    forms = cycle([False, True, True])

    def turning(self: Members, *beside: str) -> Wait:
        return Wait("Any", (*self.left, *beside)) if next(forms) else Wait("Any", beside, (), self.id)

    with asyncio.Runner() as runner:
        stores = make_stores(backend)
        runner.run(stores.open())

        @settings(max_examples=EXAMPLES[backend], deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @example(program=JOINS, cancel_at=None)
        @example(program=JOINS, cancel_at=1)
        @given(program=programs(), cancel_at=st.none() | st.integers(0, 4))
        def compare(program: Program, cancel_at: int | None) -> None:
            named = runner.run(play(stores, program, "warm", cancel_at))
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(members, "NAMED_MOST", 0)
                wide = runner.run(play(stores, program, "warm", cancel_at))
                patched.setattr(Members, "wait", turning)
                mixed = runner.run(play(stores, program, "cold", cancel_at))
            for other in (wide, mixed):
                assert _without_words(other) == _without_words(named)
                assert other.parked == named.parked
                assert other.ran == named.ran

        try:
            compare()
        finally:
            runner.run(stores.close())


def _without_words(played: Played) -> dict[str, tuple[Status, Any, list[Facts]]]:
    """What waits say that may have been for a join set is left out."""
    for _, _, facts in played.executions.values():
        for fact in facts:
            if fact["event"] == "ExecutionAwaiting" and fact["kind"] == "Any" and not fact.get("signals"):
                fact.pop("waiting_on", None)
                fact.pop("join_set_id", None)
    return played.executions
