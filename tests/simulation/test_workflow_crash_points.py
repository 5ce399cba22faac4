"""Killed at every commit, a workflow that uses every operation ends as if nothing had happened (issue 3, proof)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from holdfast import App, PromiseId, Status, Workflow
from holdfast.core.journal import decode_segment, validate_segments
from holdfast.core.journal.events import InvokeCompleted, InvokeScheduled
from holdfast.engine.settings import WorkerSettings
from holdfast.testing.audit import all_views
from holdfast.testing.crash import Simulation, crash_everywhere
from holdfast.testing.stores import Stores
from tests.models.workflow.generated import QUEUES, Op, Program, declare
from tests.models.workflow_features.account import Account

ran: Counter[str] = Counter()
paying: list[str] = ["select 1"]  # what transactions do


def declared(backend: str) -> tuple[App, Workflow[[Program], list[Any]]]:
    app = App("crash", store="unused.db")
    return app, declare(app, ran, backend=backend, statement=lambda: paying[0])


APPS = {backend: declared(backend) for backend in ("sqlite", "postgres")}

# Nothing in it depends on how much time a crash takes: only `red` is ever sent, and no wait races with another.
EVERYTHING = Program(
    [
        Op("random"),
        Op("uuid"),
        Op("inline", 1),
        Op("now"),
        Op("thread", 2),
        Op("flaky", 1),
        Op("fail", 1),
        Op("fail", 2),
        Op("patched", 1),
        Op("publish", 3),
        Op("attribute", 4),
        Op("once", 1),
        Op("transact", 1),
        Op("transact", 2),
        Op("signal", 0),
        Op("deadline", 1),
        Op("sleep", 2),
        Op("machine", 3),
        Op("remote", 3),
        Op("remote_flaky", 1),
        Op("child", 0, [Op("inline", 2), Op("sleep", 1), Op("signal", 0), Op("child", 0, [Op("remote", 1)])]),
        Op("child", 0, [Op("inline", 3), Op("attribute", 5), Op("again", 0, [Op("inline", 3), Op("transact", 3)])]),
        Op("all", 0, [Op("inline", 1), Op("remote", 2), Op("sleep", 1), Op("signal", 0)]),
        Op("any", 0, [Op("inline", 3)]),
        Op("behind", 0, [Op("flaky", 1), Op("inline", 1), Op("remote", 1)]),
        Op("join", 0, [Op("inline", 1), Op("fail", 1), Op("inline", 2)]),
        Op("leave", 0, [Op("remote", 1), Op("inline", 1)]),
        Op("quorum", 0, [Op("fail", 1), Op("inline", 2)]),
        Op("drop", 0, [Op("remote", 2), Op("inline", 2)]),
    ]
)
CANCELLED = Program(
    [Op("inline", 1), Op("all", 0, [Op("child", 0, [Op("signal", 1)]), Op("flaky", 3), Op("signal", 1)])],
    [
        *(Op("inline", 2), Op("remote", 2), Op("sleep", 2), Op("flaky", 1), Op("now"), Op("patched", 2)),
        *(Op("signal", 0), Op("deadline", 1), Op("all", 0, [Op("signal", 0), Op("sleep", 1)]), Op("uuid")),
        *(Op("transact", 1), Op("once", 2)),
    ],
)
ROUNDS = 8
# A run with a crash commits more often, and the attempts of a task say when they were.
MAY_DIFFER = {"revision", "state"}


async def check(sim: Simulation) -> None:
    """Every journal keeps every rule; what completed was not begun again once its completion was committed."""
    store = sim.stores.store
    for view in await all_views(store):
        text = str(PromiseId.from_bytes(view.promise))
        segments = [decode_segment(segment) for segment in await store.journal(view.promise)]
        violations = validate_segments(text, segments)
        assert not violations, f"{view.name}: " + "; ".join(map(str, violations))
        for event in (event for segment in segments for event in segment.events):
            if isinstance(event, InvokeCompleted):
                assert ran[text + event.promise_id] <= event.attempt + len(sim.points.deaths)
            if isinstance(event, InvokeScheduled) and event.function_name == "once":
                assert ran[text + event.promise_id] <= 1


async def everything(sim: Simulation) -> None:
    ran.clear()
    generated = APPS[sim.stores.backend][1]
    account = await Account(sim.stores).make()
    paying[0] = f"insert into {account.table} (amount) values (1)"
    handle = await sim.call(lambda: generated.options(key="everything").start(EVERYTHING))
    await sim.work()
    for round_number in range(ROUNDS):
        for promise in await live(sim):
            await sim.call(partial(sim.app.handle(promise).signal, "red", 7, dedup_key=f"{round_number}"))
        await sim.advance(5)
        await sim.work()
        if (await handle.describe()).status.is_terminal:
            break
    for _ in range(3):
        await sim.advance(5)
        await sim.work()
    await check(sim)
    assert await account.amounts() == [1, 1, 1], "each transaction took effect once"


async def cancelled(sim: Simulation) -> None:
    ran.clear()
    generated = APPS[sim.stores.backend][1]
    paying[0] = "select 1"
    handle = await sim.call(lambda: generated.options(key="cancelled").start(CANCELLED))
    await sim.work()
    await sim.call(lambda: handle.cancel())
    for round_number in range(ROUNDS):
        await sim.work()
        for promise in await live(sim):
            await sim.call(partial(sim.app.handle(promise).signal, "red", 7, dedup_key=f"{round_number}"))
        await sim.advance(5)
    await check(sim)


async def live(sim: Simulation) -> list[PromiseId]:
    views = await all_views(sim.stores.store)
    return [PromiseId.from_bytes(v.promise) for v in views if v.kind == "workflow" and not v.status.is_terminal]


RESULT = [
    "DeclinedError: no 1",
    True,
    None,
    7,
    "timeout",
    None,
    6,
    3000,
    1001,
    [20, None, 7, [1000]],
    "at most once",
    13,
    26,
    [30, 39],
    [10, 2000, None, 7],
    30,
]


def points_for(backend: str) -> Sequence[str]:
    """On PostgreSQL a process costs more to start, so it dies only where a workflow has just committed."""
    narrow = ["flush.after"]
    wide = [*narrow, "flush.before", "pick.after", "timers.after", "deliver.after", "cancel.after"]
    return narrow if backend == "postgres" else wide


# A flush each, so that it does not depend on the time that commits take which of them share one.
SETTINGS = WorkerSettings(queues=QUEUES, concurrency=2, flush_most=1)


async def test_a_crash_at_any_commit_changes_nothing(stores: Stores) -> None:
    report = await crash_everywhere(
        APPS[stores.backend][0],
        everything,
        stores=stores,
        settings=SETTINGS,
        points=points_for(stores.backend),
        ignore=MAY_DIFFER,
    )
    ended = report.ledger[str(PromiseId.of("generated", "everything"))]
    assert ended["status"] is Status.DONE
    result = json.loads(str(ended["result"]))
    assert [entry for entry in RESULT if entry not in result] == []
    assert report.runs >= (40 if stores.backend == "sqlite" else 30)
    for point in points_for(stores.backend):  # nothing was passed over: it died wherever the calm run came by
        assert report.died_at[point] == report.reached[point], point


async def test_a_crash_at_any_commit_of_a_cancel_changes_nothing(stores: Stores) -> None:
    report = await crash_everywhere(
        APPS[stores.backend][0],
        cancelled,
        stores=stores,
        settings=SETTINGS,
        points=points_for(stores.backend),
        ignore=MAY_DIFFER,
    )
    ended = report.ledger[str(PromiseId.of("generated", "cancelled"))]
    assert ended["status"] is Status.CANCELLED
    assert report.runs >= 8


async def test_a_crash_of_the_successor_changes_nothing(stores: Stores) -> None:
    report = await crash_everywhere(
        APPS[stores.backend][0],
        cancelled,
        stores=stores,
        settings=SETTINGS,
        points=["flush.after"],
        second=["pick.after"],
        ignore=MAY_DIFFER,
    )
    assert report.died_at["flush.after"] >= 5
